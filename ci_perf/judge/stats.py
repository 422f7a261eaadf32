"""Statistics of times: summaries of one case, and the interval of a ratio between two sets of processes.

The values compared are medians of processes, never samples: samples of one process share its clock, its memory
placement and its luck (on unchanged code their intervals exclude each other in 23-26 % of pairs).
Nothing here assumes a distribution; few values give a wide interval by themselves, too few an infinite one.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from ci_perf.values.measurement import Replicate

POWER_LIMIT = "sw-power-cap"
"""NVML's reason for a clock that the power limit holds down."""
FULL_CLOCK = 0.99
"""From this part of its highest on, a clock is not held down."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and what the data allow around it; infinite ends where the values are too few."""

    low: float
    point: float
    high: float
    confidence: float
    """The coverage that was reached: at least what was asked for, where the ends are finite."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The samples of one case over all its processes, in the unit of its measurement."""

    n: int
    processes: int
    mean: float
    sd: float
    cv: float
    """sd / mean."""
    p50: float
    p95: float
    p99: float
    median: Interval
    """The interval of the median of the processes' medians; its point is the number that is judged."""
    sm_clock_hz: float | None = None
    """The median of the processes, in turns those of the head, or None where one of them has none."""
    at_power_limit: bool | None = None
    """Whether the power limit held the clock down in more than half of the processes; None where it is not known."""


def quantile(values: Sequence[float], fraction: float) -> float:
    """Interpolate linearly between order statistics (type 7 of Hyndman and Fan 1996, numpy's default).

    >>> quantile([1.0, 2.0, 3.0, 4.0], 0.5)
    2.5
    """
    ordered = sorted(values)
    position = fraction * (len(ordered) - 1)
    lower = math.floor(position)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (ordered[upper] - ordered[lower]) * (position - lower)


def process_medians(replicates: Sequence[Replicate]) -> tuple[float, ...]:
    """Return the median sample of each process, in the order of measuring."""
    return tuple(statistics.median(r.seconds) for r in replicates)


def clock_of(replicates: Sequence[Replicate]) -> float | None:
    """Return the median SM clock of the processes in hertz, or None where one of them has none."""
    clocks = [r.sm_clock_hz for r in replicates if r.sm_clock_hz]
    return statistics.median(clocks) if clocks and len(clocks) == len(replicates) else None


def summarize(replicates: Sequence[Replicate], confidence: float = 0.95, clock_max_hz: float | None = None) -> Summary:
    """Summarise all samples; `confidence` is that of the interval of the median, `clock_max_hz` the device's."""
    samples = [s for r in replicates for s in r.seconds]
    mean = statistics.fmean(samples)
    sd = statistics.stdev(samples) if len(samples) > 1 else 0.0
    return Summary(
        n=len(samples),
        processes=len(replicates),
        mean=mean,
        sd=sd,
        cv=sd / mean if mean > 0 else 0.0,
        p50=quantile(samples, 0.50),
        p95=quantile(samples, 0.95),
        p99=quantile(samples, 0.99),
        median=median_interval(process_medians(replicates), confidence),
        sm_clock_hz=clock_of(replicates),
        at_power_limit=_at_power_limit(replicates, clock_max_hz),
    )


def _at_power_limit(replicates: Sequence[Replicate], clock_max_hz: float | None) -> bool | None:
    """Return whether most processes ran at the power limit: it is the only throttle reason, and the clock was reduced.

    The driver also reports the limit for a moment, or with other reasons: a locked clock, heat. A process that
    something disturbed does not count.
    """
    clocks = [(r.sm_clock_hz, r.throttle_reasons) for r in replicates if r.sm_clock_hz and not r.disturbed]
    if not clocks or not clock_max_hz:
        return None
    reduced = clock_max_hz * FULL_CLOCK
    return 2 * sum(clock < reduced and reasons == (POWER_LIMIT,) for clock, reasons in clocks) > len(clocks)


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Bound the median by order statistics (Conover, Practical Nonparametric Statistics, 3rd ed., 3.2).

    The interval from the k-th smallest to the k-th largest of n values misses the median with probability
    2 P[Binomial(n, 1/2) < k]. Where even the extremes reach less than `confidence` (n < 6 for 95 %), the extremes are
    returned with the coverage that they do reach; a single value has none.

    >>> median_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    Interval(low=1.0, point=3.5, high=6.0, confidence=0.96875)
    """
    ordered = sorted(values)
    n = len(ordered)
    if n == 0:
        raise ValueError("the median of no values is not defined")
    k, miss = 1, 2 * 0.5**n
    while 2 * (k + 1) <= n:
        further = miss + 2 * math.comb(n, k) * 0.5**n
        if further > 1 - confidence:
            break
        k, miss = k + 1, further
    return Interval(ordered[k - 1], statistics.median(ordered), ordered[n - k], max(0.0, 1 - miss))


def hodges_lehmann(values: Sequence[float]) -> float:
    """Return the median of the means of all pairs of values, each with itself too (Hollander et al., 3.2).

    Its efficiency for normal scatter is 95 % of the mean's (the median has 64 %), and a few outliers move it little.

    >>> hodges_lehmann([1.0, 2.0, 3.0, 4.0, 100.0])
    3.0
    """
    return statistics.median((a + b) / 2 for i, a in enumerate(values) for b in values[i:])


def ratio_interval(base: Sequence[float], head: Sequence[float], confidence: float) -> Interval:
    """Estimate head / base with its exact confidence interval.

    The point is the Hodges-Lehmann estimate, the median of all differences log(head_i) - log(base_j); the ends are the
    differences whose rank inverts the Mann-Whitney test (Hollander, Wolfe and Chicken, Nonparametric Statistical
    Methods, 3rd ed., 4.3). Exact for any continuous distribution. Where the values are too few for `confidence`, the
    ends are infinite; 5 against 5 reach 99.2 %, 6 against 6 99.8 %.

    >>> i = ratio_interval([1.0, 1.01, 1.02, 1.03, 1.04], [2.0, 2.02, 2.04, 2.06, 2.08], 0.99)
    >>> f"{i.low:.3f} {i.point:.3f} {i.high:.3f} {i.confidence:.4f}"
    '1.923 2.000 2.080 0.9921'
    """
    if not all(math.isfinite(v) and v > 0 for v in (*base, *head)):
        raise ValueError("a ratio needs finite, positive values")
    if not base or not head:
        raise ValueError("a ratio needs values on both sides")
    differences = sorted(math.log(h) - math.log(b) for h in head for b in base)
    point = math.exp(statistics.median(differences))
    rank, coverage = _mann_whitney_rank(len(base), len(head), confidence)
    if rank == 0:
        return Interval(0.0, point, math.inf, coverage)
    low, high = differences[rank - 1], differences[len(differences) - rank]
    return Interval(math.exp(low), point, math.exp(high), coverage)


@cache
def _mann_whitney_rank(m: int, n: int, confidence: float) -> tuple[int, float]:
    """Return the largest rank whose interval covers with `confidence`, and the coverage; rank 0 where none does."""
    counts = mann_whitney_counts(m, n)
    total = math.comb(m + n, m)
    below, rank, miss = 0, 0, 0.0
    for u, count in enumerate(counts):
        below += count
        if 2 * below / total > 1 - confidence or 2 * (u + 1) > m * n:
            break
        rank, miss = u + 1, 2 * below / total
    return rank, 1 - miss


@cache
def mann_whitney_counts(m: int, n: int) -> tuple[int, ...]:
    """Count the orderings of m and n values with each U: the coefficients of the Gaussian binomial (m + n choose m).

    They are those of prod_{i=1..m} (1 - q^(n+i)) / (1 - q^i), cut after q^(m n).
    """
    size = m * n + 1
    counts = [1] + [0] * (size - 1)
    for i in range(1, m + 1):
        for u in range(size - 1, n + i - 1, -1):
            counts[u] -= counts[u - n - i]
        for u in range(i, size):
            counts[u] += counts[u - i]
    return tuple(counts)


def upper_bound(events: int, trials: int, confidence: float = 0.95) -> float:
    """Bound a probability from above, one-sided and exactly (Clopper and Pearson, Biometrika 26, 1934).

    At this probability, `events` or fewer would be seen with probability 1 - confidence.

    >>> f"{upper_bound(0, 500):.5f} {upper_bound(1, 10):.4f}"
    '0.00597 0.3942'
    """
    if events >= trials:
        return 1.0
    low, high = events / trials, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if _at_most(events, trials, middle) < 1 - confidence else (middle, high)
    return high


def _at_most(events: int, trials: int, probability: float) -> float:
    """Return P[Binomial(trials, probability) <= events]; by logarithms, as a binomial coefficient may be too large."""
    yes, no, whole = math.log(probability), math.log1p(-probability), math.lgamma(trials + 1)
    return math.fsum(
        math.exp(whole - math.lgamma(k + 1) - math.lgamma(trials - k + 1) + k * yes + (trials - k) * no)
        for k in range(events + 1)
    )


def spread(values: Sequence[float]) -> float:
    """Return the largest distance from the median, as a fraction of it: the noise between processes.

    >>> spread([1.0, 1.0, 1.1])
    0.10000000000000009
    """
    centre = statistics.median(values)
    return max(abs(v - centre) for v in values) / centre if centre > 0 else 0.0


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
    odd = degrees % 2
    term, total = math.cos(theta) ** odd, 0.0
    for k in range(1 + odd, degrees, 2):
        total += term
        term *= math.cos(theta) ** 2 * k / (k + 1)
    series = math.sin(theta) * total
    return 0.5 + (2 / math.pi * (theta + series) if odd else series) / 2
