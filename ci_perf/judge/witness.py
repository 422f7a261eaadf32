"""Checks a change on a CPU by the number of instructions of a launch, which a busy machine does not change.

The time of a pair does not include the time in which its processes waited for a core. What other programs do to caches
and clocks stays in it. The count of instructions in user mode does not depend on them.

The rule: where a change of time is established, both sides execute the same instructions, and the machine was busy, the
verdict is INCONCLUSIVE. The same instructions on an idle machine can take another time (other data in memory, other
alignment), so there the row only says so. Where the instructions cannot be counted, the time alone decides.
"""

import statistics
from collections.abc import Sequence
from dataclasses import replace

from ci_perf.judge.outcome import Outcome
from ci_perf.values.measurement import Pair
from ci_perf.values.quantity import percent
from ci_perf.values.reasons import Reason, Verdict

SAME = 0.002
"""Up to this difference the instructions of both sides are the same: twice the 0.1 % by which the counts of one program
differ from run to run at most (Weaver and McKee, "Can hardware performance counters be trusted?", IISWC 2008)."""
BUSY = 0.05
"""The machine was busy if the processes of the pairs waited for a core for this share of the time."""
_CODES = {Verdict.REGRESSION: Reason.SLOWER_SAME_INSTRUCTIONS, Verdict.SPEEDUP: Reason.FASTER_SAME_INSTRUCTIONS}


def with_witness(outcome: Outcome, pairs: Sequence[Pair]) -> Outcome:
    """Return the outcome on these pairs, checked against the instructions of both sides, where they were counted."""
    counted = [pair.instructions[1] / pair.instructions[0] for pair in pairs if pair.instructions]
    if not outcome.verdict.is_change or 2 * len(counted) < len(pairs):
        return outcome
    ratio, waited = statistics.median(counted), statistics.fmean(pair.waited for pair in pairs)
    sentence = f"{outcome.sentence}; instructions {percent(ratio - 1, digits=2, sign=True)}"
    if abs(ratio - 1) > SAME or waited < BUSY:
        return replace(outcome, sentence=sentence)
    sentence = f"{sentence}, and the machine was busy: the processes waited for a core {percent(waited)} of the time"
    return replace(outcome, verdict=Verdict.INCONCLUSIVE, code=_CODES[outcome.verdict], sentence=sentence)
