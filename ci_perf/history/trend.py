"""What changed in a series: change points, and creep."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ci_perf.values.errors import ConfigError
from ci_perf.values.series import Point, Series

CREEP = 0.03
"""The sum of small changes that is creep, and the size below which a change is small: the usual threshold."""
LEAST_SD = 0.001
"""Of the logarithm of a time: sessions of one machine scatter by no less."""
FEWEST = 4
"""Points from which on change points are sought: two on each side."""
NORMAL_MAD = 0.6745
"""The median absolute deviation of a normal distribution, in standard deviations."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change between two points."""

    before: Point
    """The last point before it; of creep, the point where it begins."""
    after: Point
    ratio: float
    """After / before of the times; of rates the other way round. Above 1 is slower."""


def change_points(series: Series) -> tuple[Change, ...]:
    """Return where the level of a series changed: PELT (Killick et al. 2012) with squared error, by `ruptures`.

    A running median of three points removes single outliers, the newest point among them. The logarithms are divided by
    their scatter from point to point. The penalty of a change is 3 ln n, that of BIC for its place and its level with a
    margin. ConfigError where ruptures is not installed.
    """
    logs = [math.log(value) for value in series.slowness]
    if len(logs) < FEWEST:
        return ()
    try:
        import numpy as np
        import ruptures
        from scipy.ndimage import median_filter
    except ImportError:
        hint = "install the extra: `ci-perf[history] @ git+https://github.com/org/ci-perf`"
        raise ConfigError("change points need the package `ruptures`, which is not installed", hint=hint) from None
    signal = median_filter(np.array(logs), size=3, mode="mirror").reshape(-1, 1) / scatter(logs)
    found = ruptures.KernelCPD(kernel="linear", min_size=2).fit(signal).predict(pen=3 * math.log(len(logs)))
    edges = [0, *found]
    levels = [statistics.median(logs[a:b]) for a, b in pairwise(edges)]
    return tuple(
        Change(series.points[edge - 1], series.points[edge], math.exp(after - before))
        for edge, before, after in zip(found, levels, levels[1:], strict=False)
    )


def creep(series: Series) -> Change | None:
    """Return the newest creep of a series: changes, each below CREEP, that add up to CREEP or more, or None.

    The sum must also be four times the scatter from point to point. It begins at the best time since the last change
    that was not small, and has at least two changes.
    """
    values = series.slowness
    logs = [math.log(value) for value in values]
    limit = max(math.log1p(CREEP), 4 * scatter(logs)) if len(logs) > 2 else math.inf
    start, found = 0, None
    for place in range(1, len(logs)):
        if abs(logs[place] - logs[place - 1]) >= math.log1p(CREEP) or logs[place] < logs[start]:
            start = place
        elif logs[place] - logs[start] >= limit and place - start >= 2:
            found = Change(series.points[start], series.points[place], values[place] / values[start])
    return found


def scatter(logs: Sequence[float]) -> float:
    """Return the standard deviation of one point, from the differences of neighbours: steps and a slope do not count.

    >>> scatter([0.0, 0.02, 0.04, 0.06])
    0.001
    """
    steps = [b - a for a, b in pairwise(logs)]
    if not steps:
        return LEAST_SD
    middle = statistics.median(steps)
    return max(statistics.median(abs(step - middle) for step in steps) / NORMAL_MAD / math.sqrt(2), LEAST_SD)
