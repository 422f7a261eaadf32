"""The checks that every reader applies to the content of a file; what they leave out is counted and reported.

Times are integer nanoseconds from the text of the file on: a binary64 has no nanoseconds left beside those since 1970.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LONGEST_NS = 1 << 62
"""No time of a trace is as large: the sum of two still fits 64 bits."""
NO_END = "have no end in the trace and were left out"
NO_TIME = "have no time in the trace and were left out"
WITHIN = "lie inside another kernel of their stream and were left out"
ACROSS = "begin before the kernel in front of them in their stream ends, so their time is in the total twice"
OTHER_THREAD = "were launched by another thread while an NVTX range was open, and are in no range"


def nanoseconds(number: object, per: int = 1) -> int | None:
    """Return a time as whole nanoseconds, of which `number` has `per` each; None for what is no time.

    >>> nanoseconds(Decimal("1790857026123456.789"), 1000), nanoseconds(5), nanoseconds(float("inf")), nanoseconds("7")
    (1790857026123456789, 5, None, None)
    """
    if isinstance(number, bool) or not isinstance(number, (int, float, Decimal)):
        return None
    exact = Decimal(number)
    return round(exact * per) if exact.is_finite() and abs(exact) < LONGEST_NS // per else None


def fault(start: int | None, end: int | None) -> str | None:
    """Say why a span of GPU work is no measurement; None: it is one.

    The GPU needs a time for everything, so a span without length was not measured, and one at 0 was never written.

    >>> fault(10, 50), fault(10, 10), fault(0, 0) == NO_TIME, fault(10, 5) == NO_END
    (None, 'have no time in the trace and were left out', True, True)
    """
    if start is None or end is None or end == start:
        return NO_TIME
    return NO_END if end < start else None


def impossible(value: float, unit: str) -> str | None:
    """Say why a counter in a base unit is no measurement; None: it is one.

    >>> impossible(float("nan"), "inst"), impossible(-1.0, "ns"), impossible(0.0, "ns")
    ('nan', 'a time below zero', None)
    """
    if not math.isfinite(value):
        return str(value)
    return "a time below zero" if unit in {"ns", "s"} and value < 0 else None


@dataclass(slots=True)
class LeftOut:
    """Counts what a reader leaves out, by what it is and why."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, what: str, why: str | None, count: int = 1) -> bool:
        """Count something that is left out for a reason; return whether there is a reason."""
        if why and count:
            self.counts[what, why] += count
        return bool(why)

    def warnings(self, totals: dict[str, int]) -> Iterator[str]:
        """Yield a sentence for each kind and reason; `totals` are the numbers of each kind in the file.

        >>> left_out = LeftOut()
        >>> left_out.add("kernels", NO_TIME), list(left_out.warnings({"kernels": 2}))
        (True, ['1 of 2 kernels have no time in the trace and were left out'])
        """
        for (what, why), count in sorted(self.counts.items()):
            of_all = f" of {totals[what]}" if what in totals and why != NO_END else ""  # as older versions say it
            yield f"{count}{of_all} {what} {why}"


def overlaps(
    starts: "NDArray[np.int64]", ends: "NDArray[np.int64]", *streams: "NDArray[np.int64]"
) -> tuple["NDArray[np.bool_]", int]:
    """Return which spans lie inside an earlier one of their stream, and how many others begin before its end.

    Spans are of one stream if all columns of `streams` agree.

    A stream runs its kernels in order. One inside another is a record that was written twice, or damaged. One that
    begins a little early may be true: programmatic dependent launch lets a kernel begin while the last one ends.

    >>> import numpy as np
    >>> within, across = overlaps(*(np.array(a) for a in ([0, 10, 90, 50], [100, 20, 110, 60], [7, 7, 7, 8])))
    >>> within.tolist(), across
    ([False, True, False, False], 1)
    """
    import numpy as np  # it takes a tenth of a second, and not every reader needs it

    if not len(starts):
        return np.zeros(0, dtype=np.bool_), 0
    order = np.lexsort((-ends, starts, *streams))
    start, end = starts[order], ends[order]
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = np.logical_or.reduce([(s := stream[order])[1:] != s[:-1] for stream in streams])
    within = np.zeros(len(order), dtype=np.bool_)
    if (first[1:] | (start[1:] >= end[:-1])).all():
        return within, 0  # nearly every trace
    # The streams one after another on one axis, so that the latest end so far is that of the stream.
    number = np.cumsum(first) - 1
    ranks = np.unique(end, return_inverse=True)[1] + number * (len(order) + 1)
    latest = np.maximum.accumulate(ranks)
    before = np.full(len(order), np.iinfo(np.int64).min)
    before[1:] = end[_places_of(ranks, latest)][:-1]
    before[first] = np.iinfo(np.int64).min
    inside = end <= before
    within[order] = inside
    return within, int(((start < before) & ~inside).sum())


def _places_of(ranks: "NDArray[np.int64]", latest: "NDArray[np.int64]") -> "NDArray[np.int64]":
    """Return for each place the one at which the latest rank so far was reached."""
    import numpy as np

    return np.maximum.accumulate(np.where(ranks == latest, np.arange(len(ranks)), 0))


def doubled(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names that occur more than once, in order of the file.

    >>> doubled(["a", "b", "a", "a"])
    ('a',)
    """
    return tuple(name for name, count in Counter(names).items() if count > 1)
