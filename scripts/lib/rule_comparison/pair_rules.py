"""The rules of other systems, if they got what ci-perf gets: turns and fresh processes.

Each is a function of log(head / base) of some pairs. A rule of two samples takes its form for pairs: the median of the
ratios in place of two medians, and the signed-rank test of Wilcoxon in place of that of Mann and Whitney. That form
favours the rules: none of these systems takes turns.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from lib.rule_comparison.rules import (
    ASV_FACTOR,
    ASV_P,
    BENCHSTAT_P,
    SMALL_EFFECT,
    THRESHOLD,
    Call,
    bootstrap_median,
)

Ratios = Sequence[float]


def median_of_ratios(ratios: Ratios) -> Call:
    """Compare the median of the ratios against 3 %."""
    return _beyond(statistics.median(ratios), 1 + THRESHOLD)


def mean_of_ratios(ratios: Ratios) -> Call:
    """Compare the geometric mean of the ratios against 3 %."""
    return _beyond(statistics.fmean(ratios), 1 + THRESHOLD)


def surely_not_one(ratios: Ratios) -> Call:
    """Require a bootstrap interval of the median (95 %) without 1, and a share of slower pairs that is not negligible.

    The share of slower pairs less that of faster ones is Cliff's delta of pairs.
    """
    low, high = bootstrap_median(tuple(ratios))
    delta = sum((ratio > 0) - (ratio < 0) for ratio in ratios) / len(ratios)
    if abs(delta) < SMALL_EFFECT:
        return Call.SAME
    if low > 0:
        return Call.SLOWER
    return Call.FASTER if high < 0 else Call.SAME


def surely_not_one_threshold(ratios: Ratios) -> Call:
    """Require the same, and a median of 3 %."""
    found = surely_not_one(ratios)
    return found if found is median_of_ratios(ratios) else Call.SAME


def asv(ratios: Ratios) -> Call:
    """Require a median of a factor of 1.1, and p < 0.002."""
    found = _beyond(statistics.median(ratios), ASV_FACTOR)
    return found if signed_rank_p(ratios) < ASV_P else Call.SAME


def benchstat(ratios: Ratios) -> Call:
    """Require p <= 0.05, whatever the size of the change."""
    return _beyond(statistics.median(ratios), 1.0) if signed_rank_p(ratios) <= BENCHSTAT_P else Call.SAME


@dataclass(frozen=True, slots=True)
class PairRule:
    """A rule and its name."""

    name: str
    call: Callable[[Ratios], Call]


PAIR_RULES = (
    PairRule("median, 3 %", median_of_ratios),
    PairRule("mean, 3 % (nsys-ai)", mean_of_ratios),
    PairRule("bootstrap + Cliff's delta", surely_not_one),
    PairRule("bootstrap + Cliff's delta, 3 %", surely_not_one_threshold),
    PairRule("asv continuous", asv),
    PairRule("benchstat", benchstat),
)
"""By the names of `rules.RULES`. With turns, `do_bench` is the median."""


def _beyond(change: float, factor: float) -> Call:
    """Compare a log ratio with a factor."""
    if change > 0 and change >= math.log(factor):
        return Call.SLOWER
    return Call.FASTER if change < 0 and -change >= math.log(factor) else Call.SAME


def signed_rank_p(ratios: Ratios) -> float:
    """Return the exact two-sided p of Wilcoxon's signed-rank test, without pairs of no change; ties are ranked in turn.

    >>> f"{signed_rank_p([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]):.5f} {signed_rank_p([0.1, -0.2, 0.3]):.2f}"
    '0.00781 1.00'
    """
    ordered = sorted((ratio for ratio in ratios if ratio), key=abs)
    positive = sum(rank for rank, ratio in enumerate(ordered, 1) if ratio > 0)
    lower = min(positive, len(ordered) * (len(ordered) + 1) // 2 - positive)
    return min(1.0, 2 * sum(_rank_sums(len(ordered))[: lower + 1]) / 2 ** len(ordered))


@cache
def _rank_sums(n: int) -> tuple[int, ...]:
    """Return in how many ways some of the ranks 1 to n add up to each sum (Hollander, Wolfe, Chicken, 3rd ed., 3.1)."""
    ways = [1]
    for rank in range(1, n + 1):
        more = [0] * rank + ways
        ways = [a + b for a, b in zip(ways + [0] * rank, more, strict=True)]
    return tuple(ways)
