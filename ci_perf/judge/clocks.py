"""Whether a change in time is one of the SM clock: base and head may run at different clocks."""

import math
import statistics
from collections.abc import Sequence

from ci_perf.judge.ratios import pair_interval
from ci_perf.values.reasons import Reason

LEAST_CLOCKS = 3
"""The interval of two pairs excludes next to nothing."""


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


def doubt_of_clock(
    values: Sequence[float], clocks: Sequence[float | None], confidence: float, threshold: float, *, last: bool
) -> Reason | None:
    """Return the reason why a change beyond a threshold of head / base may be the clock's; None: it is the code's.

    Time x clock is cycles. A change of the code is there in them, too: their interval excludes no change, and reaches
    the threshold. The clock of a pair is read a few times only, so its scatter is a part of that interval.
    """
    if not knows_clocks(clocks, len(values)):
        return None
    cycles = pair_interval([v + math.log(c) for v, c in zip(values, clocks, strict=True) if c], confidence)
    slower = threshold > 1
    there = cycles.low > 1 if slower else cycles.high < 1
    reaches = cycles.high >= threshold if slower else cycles.low <= threshold
    if there and reaches:
        return None
    if not reaches:
        return Reason.SLOWER_CLOCK if slower else Reason.FASTER_CLOCK
    if not last:
        return Reason.NEEDS_MORE_PAIRS
    return Reason.SLOWER_UNEVEN_CLOCK if slower else Reason.FASTER_UNEVEN_CLOCK
