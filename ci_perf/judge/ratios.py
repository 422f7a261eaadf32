"""The values of pairs: log(head / base) of each pair, their interval, and the smallest change that they show."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from ci_perf.judge.stats import Interval, hodges_lehmann, t_quantile
from ci_perf.values.measurement import Pair
from ci_perf.values.quantity import percent

LEAST_SD = 5e-4
"""A few pairs may agree by luck: their scatter is taken to be at least this, half of the best that was measured."""
TRIMMED_FROM = 8
"""With at least this many pairs, the lowest and the highest ratio are trimmed."""
TRIMMED = 8
"""At each end one of so many pairs is trimmed, so that of 24 pairs three odd ones do no harm. If two are, the interval
misses the truth twice as often for two kinds of processes. A Huber mean (1.5 times the median absolute deviation) flags
99.9 % of +1.5 % at a threshold of 1 %, but its interval misses the truth of two kinds up to forty times as often as it
says: the deviation of most pairs does not know of the other kind."""
POWER = 0.8
"""How often a change that is called detectable is seen."""
LARGEST_LOG = 700.0
"""Beyond it a ratio is infinite: it is no longer a double."""
MOST_DEGREES = 12
"""The scatter of a case differs from session to session: what is known of it counts as at most so many pairs."""
ENOUGH_DEGREES = 20
"""So many pairs show processes of two kinds, if there are: each pair of 50:50 kinds shows them with probability 1/2."""
MANY = 10
"""A change of so many times a well-known scatter is not faked by what that scatter contains."""


@dataclass(frozen=True, slots=True)
class Scatter:
    """What is known of the scatter of a case before it is measured."""

    sd: float
    """Of the log ratios of pairs within a session."""
    degrees: int
    """The degrees of freedom of `sd`: how many pairs it is known from, less one for each session."""

    @property
    def far(self) -> float | None:
        """The change, as a logarithm, that is many times the scatter; None where the scatter is not known well."""
        return MANY * self.sd if self.degrees >= ENOUGH_DEGREES else None


USUAL = Scatter(0.003, 4)
"""Of a case of which nothing is known: the recorded sessions scatter by 0.05 to 1 %, the middle by 0.2 %; four degrees
stand for that range (Smyth, Statistical Applications in Genetics and Molecular Biology 3, 2004, article 3)."""


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
    by one value at each end, of 24 by three, its error taken from the winsorised values (Tukey and McLaughlin, Sankhya
    A 25, 1963; Wilcox, Introduction to Robust Estimation and Hypothesis Testing, 4.3).

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


def expected_interval(values: Sequence[float], confidence: float, scatter: Scatter = USUAL) -> Interval:
    """Return head / base with the interval that also uses what is known of the scatter.

    The variance is the mean of the known and the measured one, weighted by their degrees of freedom, which add up: the
    moderated t of Smyth (see USUAL). It is never less than the measured one. Few pairs so decide that code is
    unchanged; that it changed is decided by `pair_interval` alone, which assumes nothing about the scatter.

    >>> i = expected_interval([0.001, -0.001, 0.002], 0.9965)
    >>> f"{i.low:.4f} {i.point:.4f} {i.high:.4f}"
    '0.9937 1.0007 1.0077'
    """
    if len(values) < 2:
        return pair_interval(values, confidence)
    mean, error, degrees = _expected(values, scatter)
    half = t_quantile(1 - (1 - confidence) / 2, degrees) * error
    return Interval(math.exp(mean - half), math.exp(mean), _exp(mean + half), confidence)


def _expected(values: Sequence[float], scatter: Scatter) -> tuple[float, float, int]:
    """Return the trimmed mean, its error and the degrees of freedom, with those of the known scatter."""
    mean, error, degrees = _estimate(values)
    known, wider = min(scatter.degrees, MOST_DEGREES), error / _sd(values)
    variance = (known * scatter.sd**2 + degrees * _sd(values) ** 2) / (known + degrees)
    return mean, max(math.sqrt(variance) * wider, error), known + degrees


def detectable_change(values: Sequence[float], confidence: float, scatter: Scatter | None = None) -> float:
    """Return the smallest change, as a fraction, that four of five sets of as many pairs tell from none.

    That is for the scatter of these, with what is known of it; by half of the interval alone it would in one of two.
    What is asked of the noncentral t distribution is had from the normal one: Abramowitz and Stegun, Handbook of
    Mathematical Functions, 26.7.10.

    >>> f"{detectable_change([0.049, 0.050, 0.051, 0.0505, 0.0495], 0.99):.4f}"
    '0.0021'
    """
    if len(values) < 2:
        return math.inf
    _, error, degrees = _expected(values, scatter) if scatter else _estimate(values)
    t = t_quantile(1 - (1 - confidence) / 2, degrees)
    wider = math.sqrt(1 + t * t / (2 * degrees))
    return _exp((t * (1 - 1 / (4 * degrees)) + NormalDist().inv_cdf(POWER) * wider) * error) - 1


def trimmed_mean(values: Sequence[float]) -> float:
    """Return the mean of log ratios, from eight on without the lowest and the highest.

    >>> f"{trimmed_mean([0.01, 0.03]):.2f} {trimmed_mean([0.01] * 7 + [0.9]):.2f}"
    '0.02 0.01'
    """
    return statistics.fmean(_kept(values))


def _estimate(values: Sequence[float]) -> tuple[float, float, int]:
    """Return the trimmed mean, its error, and the degrees of freedom."""
    kept, cut = _kept(values), _cut(values)
    return trimmed_mean(values), _sd(values) / ((1 - 2 * cut / len(values)) * math.sqrt(len(values))), len(kept) - 1


def _sd(values: Sequence[float]) -> float:
    """Return the standard deviation of the winsorised values, at least LEAST_SD."""
    kept, cut = _kept(values), _cut(values)
    return max(statistics.stdev([*kept, *[kept[0]] * cut, *[kept[-1]] * cut]), LEAST_SD)


def _kept(values: Sequence[float]) -> list[float]:
    return sorted(values)[_cut(values) : len(values) - _cut(values)]


def _cut(values: Sequence[float]) -> int:
    return max(1, len(values) // TRIMMED) if len(values) >= TRIMMED_FROM else 0


def _exp(log: float) -> float:
    return math.exp(log) if log < LARGEST_LOG else math.inf
