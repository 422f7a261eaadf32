"""The rules of other systems, and ci-perf's for stored times.

Each is a function of the samples of one process of the base and one of the head.

A rule takes seconds and returns SLOWER, FASTER or SAME. Each is judged in two settings. Against a stored run: base and
head were measured in two sessions, on the same card by the same method, as when a time is compared with a number from
last week. In the same job: both were measured in one session, in turns. Most of these systems do not take turns, so
that setting flatters them.
"""

import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache

from ci_perf.judge.sessions import sessions_of
from ci_perf.judge.stats import mann_whitney_counts
from ci_perf.values.baseline import BaselineTime
from ci_perf.values.run import Policy

Samples = tuple[float, ...]
THRESHOLD = 0.03
"""head / base - 1 from which the head is slower, for systems without a default of their own."""
SMALL_EFFECT = 0.147
"""Cliff's delta below which an effect is called negligible: Romano et al., Florida Association of Institutional
Research, 2006."""
ASV_FACTOR, ASV_P = 1.1, 0.002
BENCHSTAT_P = 0.05
OWN_STORED = "ci-perf, 1 session"
ONE_SESSION = math.exp(sessions_of(BaselineTime("cuda-graph", 1.0, 0.0, ((1.0,),)), Policy().confidence).margin)
"""head / base from which ci-perf's baseline of one session shows a change."""


class Call(StrEnum):
    """The answer of a rule."""

    SLOWER = "slower"
    SAME = "same"
    FASTER = "faster"


class Setting(StrEnum):
    """Where the base of a comparison comes from."""

    STORED = "stored run"
    SAME_JOB = "same job"


def median_threshold(base: Samples, head: Samples) -> Call:
    """Compare the medians of one process each against 3 %.

    A stored number and a threshold: github-action-benchmark with a tighter alert, and most home-made gates.
    """
    return _beyond(statistics.median(base), statistics.median(head), 1 + THRESHOLD)


def own_stored(base: Samples, head: Samples) -> Call:
    """Compare the medians of one process each against what a baseline of one session allows, 6.7 %.

    That is the first condition of ci-perf's rule for stored times. The others, such as a second batch of processes,
    need more processes than a session of an audit records: they flag less still.
    """
    return _beyond(statistics.median(base), statistics.median(head), ONE_SESSION)


def mean_threshold(base: Samples, head: Samples) -> Call:
    """Compare the mean of one capture per side against 3 %, as `diff --gate` of nsys-ai does."""
    return _beyond(statistics.fmean(base), statistics.fmean(head), 1 + THRESHOLD)


def do_bench(base: Samples, head: Samples) -> Call:
    """Compare two medians of Triton's `triton.testing.do_bench` against 3 %: one after the other in one process.

    The samples of an audit were taken in turns, so the earlier half of the base stands for the first call and the later
    half of the head for the second. Unlike these samples, `do_bench` clears the L2 cache and times single launches, so
    its times of small kernels include the gap before the launch.
    """
    return median_threshold(base[: (len(base) + 1) // 2], head[len(head) // 2 :])


def separate_intervals(base: Samples, head: Samples) -> Call:
    """Require bootstrap intervals of the medians (95 %) that do not overlap, and Cliff's delta of 0.147 or more.

    Confidence intervals within one process, as GPU benchmark suites with a statistical gate use them.
    """
    (low, high), (other_low, other_high) = bootstrap_median(base), bootstrap_median(head)
    if abs(cliffs_delta(base, head)) < SMALL_EFFECT:
        return Call.SAME
    if high < other_low:
        return Call.SLOWER
    return Call.FASTER if other_high < low else Call.SAME


def separate_intervals_threshold(base: Samples, head: Samples) -> Call:
    """Require the same, and medians 3 % apart."""
    found = separate_intervals(base, head)
    return found if found is median_threshold(base, head) else Call.SAME


def asv(base: Samples, head: Samples) -> Call:
    """Require medians a factor of 1.1 apart and p < 0.002, as `asv continuous` does by default (airspeed velocity).

    Its Mann-Whitney test breaks ties in the way that gives the largest p, counts orderings up to 20 samples and uses
    the normal approximation beyond. Samples too few for so small a p show no difference.
    """
    m, n = len(base), len(head)
    if 1 / math.comb(m + n, m) >= ASV_P:
        return Call.SAME
    below, ties = _orderings(base, head)
    u = min(max(m * n // 2, below), below + ties)
    if max(m, n) <= 20:
        p = mann_whitney_p(u, m, n)
    else:
        p = _two_sided((u - m * n / 2) / math.sqrt(m * n * (m + n + 1) / 12))
    return _beyond(statistics.median(base), statistics.median(head), ASV_FACTOR) if p < ASV_P else Call.SAME


def benchstat(base: Samples, head: Samples) -> Call:
    """Require p <= 0.05, whatever the size of the change, as benchstat does for what it does not print as `~`.

    Its Mann-Whitney test counts orderings up to 50 samples without ties. With ties it takes the normal approximation,
    corrected for ties and continuity; where samples are few (9) it counts ties too, which is approximated here.
    """
    m, n = len(base), len(head)
    below, ties = _orderings(base, head)
    if max(m, n) <= 50 and len({*base, *head}) == m + n:
        p = mann_whitney_p(below, m, n)
    else:
        p = _tied_p(below + ties / 2, base, head)
    return _beyond(statistics.median(base), statistics.median(head), 1.0) if p <= BENCHSTAT_P else Call.SAME


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, its name, and the settings in which it is used."""

    name: str
    call: Callable[[Samples, Samples], Call]
    settings: tuple[Setting, ...] = (Setting.STORED, Setting.SAME_JOB)


RULES = (
    Rule("median, 3 %", median_threshold),
    Rule("mean, 3 % (nsys-ai)", mean_threshold),
    Rule("do_bench medians, 3 %", do_bench, (Setting.SAME_JOB,)),
    Rule("bootstrap + Cliff's delta", separate_intervals),
    Rule("bootstrap + Cliff's delta, 3 %", separate_intervals_threshold),
    Rule("asv continuous", asv),
    Rule("benchstat", benchstat),
    Rule(OWN_STORED, own_stored, (Setting.STORED,)),
)


def _beyond(base: float, head: float, factor: float) -> Call:
    """Compare by products, so that a time of zero is no error."""
    if head > base and head >= base * factor:
        return Call.SLOWER
    return Call.FASTER if base > head and base >= head * factor else Call.SAME


def cliffs_delta(base: Samples, head: Samples) -> float:
    """Return P[head > base] - P[head < base] over all pairs of samples (Cliff, Psychological Bulletin 114, 1993).

    >>> cliffs_delta((1.0, 2.0), (2.0, 3.0))
    0.75
    """
    below, ties = _orderings(base, head)
    return (2 * below + ties) / (len(base) * len(head)) - 1


def _orderings(base: Samples, head: Samples) -> tuple[int, int]:
    """Count the pairs with base < head, and those with base = head: the U of Mann and Whitney, and its ties."""
    ordered = _sorted(base)
    below = sum(bisect_left(ordered, value) for value in head)
    return below, sum(bisect_right(ordered, value) for value in head) - below


@lru_cache(maxsize=4096)
def _sorted(samples: Samples) -> Samples:
    return tuple(sorted(samples))


@cache
def mann_whitney_p(u: int, m: int, n: int) -> float:
    """Return the exact two-sided p of a U of m and n values without ties.

    >>> f"{mann_whitney_p(0, 4, 4):.5f} {mann_whitney_p(8, 4, 4):.1f}"
    '0.02857 1.0'
    """
    lower = min(u, m * n - u)
    return min(1.0, 2 * sum(mann_whitney_counts(m, n)[: lower + 1]) / math.comb(m + n, m))


def _tied_p(u: float, base: Samples, head: Samples) -> float:
    """Return the two-sided p of U by the normal approximation (Hollander, Wolfe and Chicken, 3rd ed., 4.1)."""
    m, n = len(base), len(head)
    pooled = sorted(base + head)
    runs = (bisect_right(pooled, value) - bisect_left(pooled, value) for value in set(pooled))
    ties = sum(t**3 - t for t in runs)
    variance = m * n / 12 * (m + n + 1 - ties / ((m + n) * (m + n - 1)))
    distance = max(0.0, abs(u - m * n / 2) - 0.5)
    return _two_sided(distance / math.sqrt(variance)) if variance > 0 else 1.0


def _two_sided(z: float) -> float:
    return math.erfc(abs(z) / math.sqrt(2))


@lru_cache(maxsize=4096)
def bootstrap_median(samples: Samples) -> tuple[float, float]:
    """Return the percentile interval (95 %) of the bootstrapped median: the exact limit for infinitely many resamples.

    A resample's median is the mean of two of the ordered samples (of one, where their number is odd); how probable
    each pair is has a closed form (Efron, Annals of Statistics 7, 1979, section 3, for the odd case).

    >>> bootstrap_median((1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0))
    (2.0, 6.0)
    """
    ordered = _sorted(samples)
    weighted = sorted(((ordered[i] + ordered[j]) / 2, p) for i, j, p in _median_weights(len(samples)))
    low, seen = math.nan, 0.0
    for value, probability in weighted:
        seen += probability
        if math.isnan(low) and seen >= 0.025:
            low = value
        if seen >= 0.975:
            return low, value
    return low, weighted[-1][0]


@cache
def _median_weights(n: int) -> tuple[tuple[int, int, float], ...]:
    """Return which ordered samples i <= j are the middle of a resample of n, and how probably, from whole numbers.

    For i < j of an even n: n / 2 of the draws are at most the i-th, one of them the i-th, and n / 2 at least the j-th,
    one of them the j-th. For i = j: what is left of all resamples whose lower middle is the i-th.
    """
    half, total = n // 2, n**n
    if n % 2:
        return tuple((i, i, (_at_least(half + 1, i + 1, n) - _at_least(half + 1, i, n)) / total) for i in range(n))
    ways = math.comb(n, half)
    lower = [(i + 1) ** half - i**half for i in range(n)]
    apart = [(i, j, ways * lower[i] * lower[n - 1 - j] / total) for i in range(n) for j in range(i + 1, n)]
    same = [
        (i, i, (_at_least(half, i + 1, n) - _at_least(half, i, n) - ways * lower[i] * (n - 1 - i) ** half) / total)
        for i in range(n)
    ]
    return (*apart, *same)


@cache
def _at_least(k: int, i: int, n: int) -> int:
    """Count the resamples of n draws in which k or more are among the first i of the ordered samples."""
    return sum(math.comb(n, c) * i**c * (n - i) ** (n - c) for c in range(k, n + 1))
