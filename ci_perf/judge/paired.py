"""The decision on pairs: base and head took turns on the same device, several times in fresh processes.

One value for each pair: the Hodges-Lehmann estimate over its rounds of log(head / base). Turns cancel drift of clock,
power and temperature; each round has its data elsewhere in memory; the process stays the unit of replication. The
interval is that of Student's t over the pairs, from eight pairs on without the lowest and the highest; its level is
shared by the looks at the data (Bonferroni), so that looking again after more pairs costs what it must, and for a
change by the cases of the run, too. Measuring stops when the interval lies clear of both thresholds, or at the last
look.
"""

import math
import statistics
from collections.abc import Sequence
from functools import cache
from statistics import NormalDist

from ci_perf.judge.decision import Outcome, size, thresholds
from ci_perf.judge.stats import Interval, hodges_lehmann
from ci_perf.values.measurement import Pair
from ci_perf.values.quantity import percent
from ci_perf.values.run import Policy
from ci_perf.values.verdict import Verdict

LOOKS = (5, 8, 12)
"""After how many pairs of a case the data are looked at; the last is the budget."""
LEAST_SD = 5e-4
"""A few pairs may agree by luck: their scatter is taken to be at least this, half of the best that was measured."""
TRIMMED_FROM = 8
"""From so many pairs on the lowest and the highest do not count; fewer could not spare them."""
POWER = 0.8
"""How often a change that is called detectable is seen."""
LEAST_CLOCKS = 3
"""The interval of two pairs excludes next to nothing."""
UNEVEN = "uneven-clock"
NEEDS_MORE_PAIRS = "needs-more-pairs"
"""The reason code of a case that the next look may decide."""
LARGEST_LOG = 700.0
"""Beyond it a ratio is infinite: it is no longer a double."""


def log_ratio(pair: Pair) -> float:
    """Return the pair's value: the estimate over the rounds of log(head / base), of rates the other way round.

    It is not a number where a round has no time, or none that can be: zero, or less.
    """
    if not all(0 < value < math.inf for value in (*pair.base, *pair.head)):
        return math.nan
    sign = 1 if pair.better == "lower" else -1
    return sign * hodges_lehmann([math.log(h / b) for b, h in zip(pair.base, pair.head, strict=True)])


def usable_ratios(pairs: Sequence[Pair]) -> list[float]:
    """Return the log ratios of the pairs that nothing disturbed and that hold usable times."""
    return [value for pair in pairs if not pair.disturbed and math.isfinite(value := log_ratio(pair))]


def mean_change(values: Sequence[float]) -> str:
    """Write the mean of log ratios as a change.

    >>> mean_change([0.01, 0.03]), mean_change([])
    ('+2.0 %', 'no usable time')
    """
    return percent(math.exp(statistics.fmean(values)) - 1, sign=True) if values else "no usable time"


def pair_interval(values: Sequence[float], confidence: float) -> Interval:
    """Return head / base with its interval, from the log ratios of the pairs.

    Now and then a process is an odd one from its first launch to its last: on an H100 one pair in 100 of kernels of 6
    and 8 us was off by 9 to 35 % where most others agreed within 1 %. From eight pairs on the mean is therefore trimmed
    by one value at each end, its error taken from the winsorised values (Tukey and McLaughlin, Sankhya A 25, 1963;
    Wilcox, Introduction to Robust Estimation and Hypothesis Testing, 4.3).

    >>> i = pair_interval([0.049, 0.050, 0.051, 0.0505, 0.0495], 0.99)
    >>> f"{i.low:.4f} {i.point:.4f} {i.high:.4f}"
    '1.0496 1.0513 1.0530'
    >>> i = pair_interval([0.049, 0.050, 0.051, 0.0505, 0.0495, 0.05, 0.0502, -0.3], 0.99)
    >>> f"{i.low:.4f} {i.point:.4f} {i.high:.4f}"
    '1.0499 1.0511 1.0523'
    """
    if len(values) < 2:
        return Interval(0.0, math.exp(values[0]), math.inf, 0.0)
    mean, error, degrees = _estimate(values)
    half = t_quantile(1 - (1 - confidence) / 2, degrees) * error
    return Interval(math.exp(mean - half), math.exp(mean), _exp(mean + half), confidence)


def detectable_change(values: Sequence[float], confidence: float) -> float:
    """Return the smallest change, as a fraction, that four of five sets of as many pairs tell from none.

    That is for the scatter of these; by half of the interval alone it would in one of two. What is asked of the
    noncentral t distribution is had from the normal one: Abramowitz and Stegun, Handbook of Mathematical Functions,
    26.7.10.

    >>> f"{detectable_change([0.049, 0.050, 0.051, 0.0505, 0.0495], 0.99):.4f}"
    '0.0021'
    """
    if len(values) < 2:
        return math.inf
    _, error, degrees = _estimate(values)
    t = t_quantile(1 - (1 - confidence) / 2, degrees)
    wider = math.sqrt(1 + t * t / (2 * degrees))
    return _exp((t * (1 - 1 / (4 * degrees)) + NormalDist().inv_cdf(POWER) * wider) * error) - 1


def _estimate(values: Sequence[float]) -> tuple[float, float, int]:
    """Return the trimmed mean, its error, and the degrees of freedom."""
    n = len(values)
    cut = 1 if n >= TRIMMED_FROM else 0
    kept = sorted(values)[cut : n - cut]
    winsorised = [*kept, *[kept[0]] * cut, *[kept[-1]] * cut]
    sd = max(statistics.stdev(winsorised), LEAST_SD)
    return statistics.fmean(kept), sd / ((1 - 2 * cut / n) * math.sqrt(n)), len(kept) - 1


def _exp(log: float) -> float:
    return math.exp(log) if log < LARGEST_LOG else math.inf


def clock_ratio(clocks: Sequence[float | None], pairs: int) -> float | None:
    """Return the SM clock of head over that of base, the median of the pairs that know it; None: fewer than half do.

    >>> clock_ratio([0.95, None, 0.97], 3), clock_ratio([0.95, None, None], 3)
    (0.96, None)
    """
    known = [clock for clock in clocks if clock]
    return statistics.median(known) if known and 2 * len(known) >= pairs else None


def knows_clocks(clocks: Sequence[float | None], pairs: int) -> bool:
    """Say whether enough pairs know their clocks: half of them, and so many that an interval can establish anything."""
    return clock_ratio(clocks, pairs) is not None and sum(1 for clock in clocks if clock) >= LEAST_CLOCKS


def decide_pairs(
    values: Sequence[float],
    policy: Policy,
    *,
    comparisons: int = 1,
    looks: int = len(LOOKS),
    last: bool = False,
    clocks: Sequence[float | None] = (),
) -> Outcome:
    """Judge the log ratios of the pairs measured so far.

    `clocks` is for each pair the SM clock of head over that of base; where fewer than half know it, it explains
    nothing. Before the `last` look whatever is not clear of the thresholds is INCONCLUSIVE and asks for more pairs.

    >>> decide_pairs([0.049, 0.050, 0.051, 0.0505, 0.0495], Policy()).code
    'slower'
    >>> decide_pairs([0.001, -0.001, 0.002, 0.0, -0.002], Policy()).code
    'within-noise'
    """
    if not all(math.isfinite(value) for value in values) or not values:
        return Outcome(Verdict.INCONCLUSIVE, "bad-values" if values else "no-values", "a pair holds no usable time")
    seen = pair_interval(values, 1 - (1 - policy.confidence) / looks)
    sure = pair_interval(values, 1 - (1 - policy.confidence) / looks / max(1, comparisons))
    slow, fast = thresholds(policy)
    detectable = detectable_change(values, seen.confidence or policy.confidence)
    if seen.high < slow and 1 / max(seen.low, 1e-300) < fast:
        moved = percent(seen.point - 1, sign=True)
        sentence = f"{moved}; a change of {percent(detectable)} would likely be seen"
        return Outcome(Verdict.UNCHANGED, "within-noise", sentence, seen, detectable)
    slower, faster = seen.point >= slow, 1 / seen.point >= fast
    clear = sure.low >= slow or 1 / max(sure.high, 1e-300) >= fast
    established = (slower and sure.low > 1) or (faster and sure.high < 1)
    if (slower or faster) and established and (clear or last):
        doubt = _doubt_of_clock(values, clocks, seen.confidence, slow if slower else 1 / fast, last=last)
        word = "slower" if slower else "faster"
        if doubt:
            code = doubt if doubt == NEEDS_MORE_PAIRS else f"{word}-{doubt}"
            differed = percent((clock_ratio(clocks, len(values)) or 1.0) - 1, sign=True)
            why = "not in SM cycles" if doubt == "clock" else "SM clocks too uneven to tell whether in cycles, too"
            sentence = f"{size(seen.point)}, but {why}: the clocks differed by {differed}"
            return Outcome(Verdict.INCONCLUSIVE, code, sentence, seen, detectable)
        verdict = Verdict.REGRESSION if slower else Verdict.SPEEDUP
        sentence = f"{size(seen.point)} in {len(values)} pairs of processes that took turns"
        return Outcome(verdict, word, sentence, seen, detectable)
    code = "interval-too-wide" if last else NEEDS_MORE_PAIRS
    allows = f"{percent(seen.low - 1, sign=True)} to {percent(seen.high - 1, sign=True)}"
    return Outcome(Verdict.INCONCLUSIVE, code, f"the interval allows {allows}", seen, detectable)


def _doubt_of_clock(
    values: Sequence[float], clocks: Sequence[float | None], confidence: float, threshold: float, *, last: bool
) -> str:
    """Say in a code whether a change beyond a threshold of head / base may be the clock's; empty: it is the code's.

    Time x clock is cycles. A change of the code is there in them, too: their interval excludes no change, and reaches
    the threshold. The clock of a pair is read a few times only, so its scatter is a part of that interval.
    """
    if not knows_clocks(clocks, len(values)):
        return ""
    cycles = pair_interval([v + math.log(c) for v, c in zip(values, clocks, strict=True) if c], confidence)
    slower = threshold > 1
    there = cycles.low > 1 if slower else cycles.high < 1
    reaches = cycles.high >= threshold if slower else cycles.low <= threshold
    if there and reaches:
        return ""
    return "clock" if not reaches else UNEVEN if last else NEEDS_MORE_PAIRS


@cache
def t_quantile(probability: float, degrees: int) -> float:
    """Invert Student's distribution by bisection on its finite series for whole degrees of freedom.

    Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.

    >>> f"{t_quantile(0.975, 4):.3f} {t_quantile(0.995, 9):.3f}"
    '2.776 3.250'
    """
    low, high = 0.0, 1.0
    while t_cdf(high, degrees) < probability:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, degrees) < probability else (low, middle)
    return (low + high) / 2


def t_cdf(t: float, degrees: int) -> float:
    """Return P[T <= t] for t >= 0.

    >>> f"{t_cdf(2.776445, 4):.5f} {t_cdf(12.7062, 1):.5f}"
    '0.97500 0.97500'
    """
    theta = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(theta), math.cos(theta)
    if degrees % 2:
        term, total = cosine, 0.0
        for k in range(1, (degrees - 1) // 2 + 1):
            total += term
            term *= cosine**2 * 2 * k / (2 * k + 1)
        inside = 2 / math.pi * (theta + sine * total)
    else:
        term, total = 1.0, 0.0
        for k in range(1, degrees // 2 + 1):
            total += term
            term *= cosine**2 * (2 * k - 1) / (2 * k)
        inside = sine * total
    return 0.5 + inside / 2
