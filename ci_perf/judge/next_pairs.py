"""Which cases get the next pairs where the budget does not suffice for all: those whose decision costs least.

What a pair takes is known from the last one of its case, which misleads on a busy machine: on two cores with a load
average of 15, a pair took 1.8 s, and 600 s decided 3 of 1,000 cases (`scripts/bench-cases --budget 600`).
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from ci_perf.judge.looks import LOOKS, goal
from ci_perf.judge.outcome import policy_of
from ci_perf.judge.pairs import decide_pairs
from ci_perf.judge.ratios import USUAL, Scatter, usable_ratios
from ci_perf.judge.scatter import expected_scatter
from ci_perf.values.measurement import Measurement
from ci_perf.values.reasons import Reason
from ci_perf.values.run import Policy, Run

Case = TypeVar("Case", bound=Hashable)
PRIOR = 16
"""Cases whose decision is assumed to take as few pairs as possible before anything is known of a session."""


def affordable(seconds: Mapping[Case, float], left_s: float) -> tuple[Case, ...]:
    """Return the cases that `left_s` seconds are expected to decide, the cheapest decision first.

    `seconds` is what each decision will take. The cheapest first decides the most cases in a given time: W. E. Smith,
    "Various optimizers for single-stage production", 1956.

    >>> affordable({"a": 9.0, "b": 2.0, "c": 4.0}, 7.0), affordable({"a": 9.0, "b": 2.0}, 1.0)
    (('b', 'c'), ())
    """
    order = sorted(seconds, key=lambda case: seconds[case])
    chosen, total = [], 0.0
    for case in order:
        total += seconds[case]
        if total > left_s:
            break
        chosen.append(case)
    return tuple(chosen)


def pairs_of_a_decision(pairs: int, decided: int) -> float:
    """Return how many pairs a case without any will probably take, where so many pairs decided so many cases.

    As many cases as PRIOR that take the fewest pairs are added: the first ones say little.

    >>> pairs_of_a_decision(0, 0), pairs_of_a_decision(48, 0), pairs_of_a_decision(600, 184)
    (3.0, 6.0, 3.24)
    """
    return (pairs + PRIOR * LOOKS[0]) / (decided + PRIOR)


def expected_pairs(run: Run, measurement: Measurement, comparisons: int) -> int:
    """Return how many more pairs will probably decide a case, one of so many, of a run against a base."""
    return pairs_to_decision(
        usable_ratios(measurement.sound_pairs),
        policy_of(run.policy, run.spec_of(measurement)),
        comparisons=max(run.among, comparisons),
        scatter=expected_scatter(run.against, measurement) if run.against else USUAL,
        looked=measurement.looked,
        starts=[pair.start for pair in measurement.sound_pairs],
    )


def pairs_to_decision(
    values: Sequence[float],
    policy: Policy,
    *,
    comparisons: int = 1,
    scatter: Scatter = USUAL,
    looked: Sequence[int] = (),
    starts: Sequence[int | None] = (),
) -> int:
    """Return after how many more pairs a look decides, if they are like the log ratios so far; else all that are left.

    `starts`: from which start of the workers each pair so far is; each further one is of a start of its own.

    >>> pairs_to_decision([0.0], Policy()), pairs_to_decision([0.05], Policy()), pairs_to_decision([0.03], Policy())
    (2, 4, 23)
    >>> [pairs_to_decision([0.05] * 3, Policy(), comparisons=18, starts=starts) for starts in ([], [0, 0, 0])]
    [5, 9]
    """
    done, last = len(values), goal(looked)
    for look in (look for look in LOOKS if done < look < last):
        likely = [values[i % done] for i in range(look)] if values else [0.0] * look
        own = [*starts, *[None] * (look - done)] if starts else ()
        found = decide_pairs(likely, policy, comparisons=comparisons, scatter=scatter, looked=looked, starts=own)
        if found.code is not Reason.NEEDS_MORE_PAIRS:
            return look - done
    return max(1, last - done)
