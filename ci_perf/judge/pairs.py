"""The decision on pairs: base and head took turns on the same device, several times in fresh processes.

One value for each pair: the Hodges-Lehmann estimate over its rounds of log(head / base). Turns cancel drift of clock,
power and temperature; each round has its data elsewhere in memory; the process stays the unit of replication. The
interval is that of Student's t over the pairs, from eight pairs on without the lowest and the highest.

Two intervals decide. That code is unchanged, the one that also uses what is known of the scatter: it lies between the
thresholds. That it changed, the one of the pairs alone, whose error is shared by the cases of the run: it lies beyond
the threshold, the pairs agree, and they are so many that processes of two kinds cannot look like it (`looks`).
Measuring stops when one of them decides, or at the last look.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ci_perf.judge.clocks import clock_ratio, doubt_of_clock, knows_clocks
from ci_perf.judge.control import Doubt, believe, disturbances, is_identical
from ci_perf.judge.finding import Finding
from ci_perf.judge.looks import (
    FAR,
    LOOKS,
    excused,
    goal,
    is_faked,
    lacking_starts,
    least_far_pairs,
    level,
    starts_of,
)
from ci_perf.judge.outcome import Outcome, allows, policy_of, size, thresholds, unchanged
from ci_perf.judge.ratios import (
    USUAL,
    Scatter,
    detectable_change,
    expected_interval,
    log_ratio,
    mean_change,
    pair_interval,
    usable_ratios,
)
from ci_perf.judge.scatter import expected_scatter
from ci_perf.judge.stats import Interval
from ci_perf.judge.witness import with_witness
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.measurement import Measurement, Pair
from ci_perf.values.quantity import percent
from ci_perf.values.reasons import NO_BASE_CODES, Reason, Verdict
from ci_perf.values.run import Against, Policy, Run

SHOWN = 1 / 3
"""A pair shows the change if it has this part of it: two kinds show all or nothing."""
_CLOCK = (Reason.SLOWER_CLOCK, Reason.FASTER_CLOCK)


def judge_pairs(
    run: Run,
    against: Against,
    doubt: Doubt | None,
    measurement: Measurement,
    spec: KernelSpec,
    blank: Finding,
    comparisons: int,
) -> Finding:
    """Judge a case, one of so many comparisons, by the base commit that took turns with it.

    `doubt` is that of the session (`control.control_doubt`); `blank` is the case's finding so far, to which this adds.
    """
    say = blank.say
    if measurement.same_code:
        return say(
            Verdict.UNCHANGED, Reason.SAME_MACHINE_CODE, f"{Reason.SAME_MACHINE_CODE.meaning}: proven, not timed"
        )
    if measurement.unpaired:
        if measurement.unpaired == Reason.NOT_IN_BASE:
            return say(Verdict.NEW, Reason.NOT_IN_BASE, f"{against.ref} has no such case")
        return say(Verdict.NOT_COMPARABLE, *_why_no_base(against, measurement.unpaired))
    pairs = measurement.sound_pairs
    if not pairs:
        sentence = f"every pair was disturbed: {disturbances(measurement.pairs)}"
        return say(Verdict.INCONCLUSIVE, Reason.DISTURBED, sentence)
    if makes_other_inputs(pairs):
        sentence = f"the inputs differ in shape or type; measured {mean_change(usable_ratios(pairs))}, of other work"
        return say(Verdict.NOT_COMPARABLE, Reason.OTHER_INPUTS, sentence)
    outcome = believe(_decide(run, against, measurement, spec, comparisons), doubt)
    if is_identical(measurement) and not doubt:
        outcome = _same_code(outcome, usable_ratios(pairs), run.policy)
    return replace(
        say(outcome.verdict, outcome.code, outcome.sentence + _capture(pairs[-1]) + _left_out(measurement)),
        base=statistics.median(statistics.median(pair.base) for pair in pairs),
        change=outcome.change,
        detectable=outcome.detectable,
    )


def _why_no_base(against: Against, unpaired: str) -> tuple[Reason, str]:
    """Return the reason why there is no base to compare with, and its sentence; some texts begin with their code."""
    code, _, message = unpaired.partition(": ")
    if code in NO_BASE_CODES:
        return Reason(code), f"{against.ref}: {message}"
    return Reason.BASE_FAILED, f"{against.ref}: {unpaired}"


def _decide(run: Run, against: Against, measurement: Measurement, spec: KernelSpec, comparisons: int) -> Outcome:
    pairs = measurement.sound_pairs
    clocks = [pair.clocks for pair in pairs]
    outcome = decide_pairs(
        [log_ratio(pair) for pair in pairs],
        policy_of(run.policy, spec),
        comparisons=comparisons,
        last=run.finished or len(pairs) >= goal(measurement.looked),
        clocks=clocks,
        scatter=expected_scatter(against, measurement),
        looked=measurement.looked,
        starts=[pair.start for pair in pairs],
    )
    outcome = with_witness(outcome, pairs)
    has_clocks = measurement.device == "cuda" and spec.program is None
    if outcome.verdict.is_change and has_clocks and not knows_clocks(clocks, len(pairs)):
        return replace(outcome, sentence=f"{outcome.sentence}; the SM clocks are not known")
    undecided = outcome.code in (Reason.INTERVAL_TOO_WIDE, Reason.PAIRS_DISAGREE)
    if undecided and len(measurement.pairs) < goal(measurement.looked):
        number = f"{len(pairs)} pairs" if len(pairs) > 1 else "one pair"
        sentence = f"{outcome.sentence} after {number}, and the budget is spent"
        return replace(outcome, code=Reason.BUDGET_SPENT, sentence=sentence)
    return outcome


def is_paired(measurement: Measurement) -> bool:
    """Return whether a case has pairs that are compared."""
    return bool(measurement.sound_pairs) and not makes_other_inputs(measurement.sound_pairs)


def makes_other_inputs(pairs: Sequence[Pair]) -> bool:
    """Return whether the inputs of base and head differ in shape or type, each side's being the same in every pair.

    Those that differ from pair to pair are random, which one pair cannot tell. Other values are a warning: how a kernel
    is called, and how its data are laid out, is a part of what a commit may change.
    """
    made = {pair.shapes for pair in pairs}
    return len(pairs) > 1 and len(made) == 1 and len(set(*made)) > 1


def _same_code(outcome: Outcome, values: Sequence[float], policy: Policy) -> Outcome:
    sentence = f"{Reason.SAME_MACHINE_CODE.meaning}; measured {mean_change(values)}"
    change = outcome.change or pair_interval(values, policy.confidence)
    return replace(outcome, verdict=Verdict.UNCHANGED, code=Reason.SAME_MACHINE_CODE, sentence=sentence, change=change)


def _capture(pair: Pair) -> str:
    """Say which side cannot be captured in a CUDA graph although the other one can, and what prevents it."""
    if not pair.not_captured:
        return ""
    base, head = pair.not_captured
    what = f"the head can no longer be captured in a CUDA graph: {head}" if head else ""
    what = what or f"the head can be captured in a CUDA graph, the base could not: {base}"
    return f"; {what}; so the wall clock timed both sides"


def _left_out(measurement: Measurement) -> str:
    """Say which pairs did not count, and why."""
    left = [pair for pair in measurement.pairs if pair not in measurement.sound_pairs]
    if not left:
        return ""
    other = {f"timed by {pair.method}" for pair in left if not pair.disturbed}
    why = ", ".join(filter(None, (disturbances(left), *sorted(other))))
    return f"; {len(left)} more {'pair does' if len(left) == 1 else 'pairs do'} not count: {why}"


@dataclass(frozen=True, slots=True)
class _Look:
    """What a look at the pairs of one case goes by."""

    policy: Policy
    pairs: int
    comparisons: int
    looked: Sequence[int]
    starts: Sequence[int]
    last: bool

    def confidence(self, *, shared: bool = False) -> float:
        """Return the confidence of an interval at this look; `shared`: the cases of the run share its error."""
        return level(self.policy.confidence, self.pairs, self.comparisons if shared else 1, self.looked)

    def undecided(
        self, sentence: str, change: Interval, detectable: float, code: Reason = Reason.INTERVAL_TOO_WIDE
    ) -> Outcome:
        """Return the outcome of a case that asks for more pairs, or, with this code, for which there are no more."""
        code = code if self.last else Reason.NEEDS_MORE_PAIRS
        return Outcome(Verdict.INCONCLUSIVE, code, sentence, change, detectable)


def decide_pairs(
    values: Sequence[float],
    policy: Policy,
    *,
    comparisons: int = 1,
    last: bool = False,
    clocks: Sequence[float | None] = (),
    scatter: Scatter = USUAL,
    looked: Sequence[int] = (),
    starts: Sequence[int | None] = (),
) -> Outcome:
    """Judge the log ratios of the pairs measured so far.

    `clocks` is for each pair the SM clock of head over that of base; where fewer than half know it, it explains
    nothing. `scatter` is what is known of that of the case. `looked`: with how many pairs earlier runs, which this one
    continues, ended undecided. `starts` says for each pair from which start of the workers it is. Before the `last`
    look whatever is not clear of the thresholds is INCONCLUSIVE and asks for more pairs.

    >>> print(decide_pairs([0.049, 0.050, 0.051, 0.0505, 0.0495, 0.05, 0.05, 0.05], Policy()).code)
    slower
    >>> print(decide_pairs([0.001, -0.001, 0.002], Policy()).code)
    within-noise
    """
    if not all(math.isfinite(value) for value in values) or not values:
        return Outcome(
            Verdict.INCONCLUSIVE, Reason.BAD_VALUES if values else Reason.NO_VALUES, "a pair holds no usable time"
        )
    look = _Look(policy, len(values), comparisons, looked, starts_of(starts, len(values)), last)
    confidence = look.confidence()
    few = len(values) < LOOKS[0]
    seen = pair_interval(values, confidence) if few else expected_interval(values, confidence, scatter)
    slow, fast = thresholds(policy)
    detectable = detectable_change(values, confidence, None if few else scatter)
    if seen.high < slow and 1 / max(seen.low, 1e-300) < fast and not few:
        return unchanged(seen, detectable, policy)
    sure = pair_interval(values, look.confidence(shared=True))
    if not (sure.point >= slow or 1 / sure.point >= fast):
        return look.undecided(allows(seen), seen, detectable)
    return _decide_change(values, sure, look, clocks, scatter, detectable)


def _decide_change(
    values: Sequence[float],
    sure: Interval,
    look: _Look,
    clocks: Sequence[float | None],
    scatter: Scatter,
    detectable: float,
) -> Outcome:
    """Judge an estimate beyond a threshold; `sure` is its interval, the error shared by the cases."""
    slow, fast = thresholds(look.policy)
    if weakness := _weakness(values, sure, look, scatter):
        alone = pair_interval(values, look.confidence())
        if look.last and look.comparisons > 1 and not _weakness(values, alone, replace(look, comparisons=1), scatter):
            sentence = f"{size(sure.point)}, sure for one case, but not among {look.comparisons}: {weakness}"
            return Outcome(Verdict.INCONCLUSIVE, Reason.NOT_SURE, sentence, sure, detectable)
        wide = weakness == allows(sure)
        code = Reason.INTERVAL_TOO_WIDE if wide else Reason.PAIRS_DISAGREE
        return look.undecided(weakness, sure, detectable, code)
    threshold = slow if sure.point > 1 else 1 / fast
    if doubt := doubt_of_clock(values, clocks, look.confidence(), threshold, last=look.last):
        differed = percent((clock_ratio(clocks, len(values)) or 1.0) - 1, sign=True)
        why = "not in SM cycles" if doubt in _CLOCK else "SM clocks too uneven to tell whether in cycles, too"
        sentence = f"{size(sure.point)}, but {why}: the clocks differed by {differed}"
        return Outcome(Verdict.INCONCLUSIVE, doubt, sentence, sure, detectable)
    verdict, code = (Verdict.REGRESSION, Reason.SLOWER) if sure.point > 1 else (Verdict.SPEEDUP, Reason.FASTER)
    sentence = f"{size(sure.point)} in {len(values)} pairs of processes that took turns"
    return Outcome(verdict, code, sentence, sure, detectable)


def _weakness(values: Sequence[float], sure: Interval, look: _Look, scatter: Scatter) -> str:
    """Return why an estimate beyond a threshold is not established, as a sentence; empty: it is."""
    slow, fast = thresholds(look.policy)
    slower = sure.point > 1
    nearest, limit = (sure.low, slow) if slower else (1 / max(sure.high, 1e-300), fast)
    if nearest <= 1 or (nearest < limit and not look.last):
        return allows(sure)
    change = math.log(sure.point)
    hidden = _hidden(values, sure)
    far = nearest > 1 + FAR or (scatter.far is not None and abs(change) >= scatter.far)
    is_far = far and len(values) >= least_far_pairs(look.comparisons) and hidden <= excused(len(values))
    if is_far or not is_faked(look.starts, hidden, look.comparisons, look.looked):
        return ""
    if hidden > excused(len(values)):
        return f"{size(sure.point)} on average, but not in {hidden} of {len(values)} pairs"
    number = f"{len(values)} pairs{_of_starts(look.starts)}"
    return f"{number} do not exclude that processes of two kinds look {size(sure.point)}"


def _of_starts(starts: Sequence[int]) -> str:
    """Say of how many starts the pairs are, where they share one."""
    if len(starts) == sum(starts):
        return ""
    return f" of {len(starts)} starts of the workers" if len(starts) > 1 else " of one start of the workers"


def further_starts(
    values: Sequence[float], change: Interval, policy: Policy, starts: Sequence[int | None], cases: int
) -> int:
    """Return how many further starts of the workers, with a pair each, an undecided case of so many needs.

    None, unless its estimate reaches a threshold, and further pairs of the same start could not establish it.
    """
    slow, fast = thresholds(policy)
    if not (change.point >= slow or 1 / change.point >= fast):
        return 0
    return lacking_starts(starts_of(starts, len(values)), _hidden(values, change), max(1, cases))


def _hidden(values: Sequence[float], change: Interval) -> int:
    """Return how many pairs do not show the change."""
    return sum(value / math.log(change.point) < SHOWN for value in values)
