"""Sums up what a program did with the GPU during a range, from its CUDA calls and the GPU's work.

Overlapping spans count once: two kernels side by side keep the GPU busy once, and a driver call inside a runtime call
adds no time.
"""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from ci_perf.values.timeline_metrics import BY_NAME
from ci_perf.values.trace import Reading

_LAUNCH = re.compile(r"cu(da)?(Graph)?Launch(?!HostFunc)")
_ALLOCATION = re.compile(
    r"cu(da)?(Malloc|Free|Mem(Alloc|Free|Create|Release|Map|Unmap|Address|Host)|Host(Alloc|Register|Unregister))"
    r"(?!.*(Info|Address(Range)?$|GetAddress))"
)
_WAIT = re.compile(r"cu(da)?(Device|Stream|Event|Ctx|Thread)Synchronize")


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the CUDA runtime or driver."""

    name: str
    start: int
    end: int
    thread: int
    correlation: tuple[int, int] | None = None
    """Process and number; GPU work that the call started has the same."""
    process: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """Something that the GPU did."""

    kind: str
    """`kernel`, `memset`, or the kind of a copy: `host-to-device`."""
    start: int
    end: int
    correlation: tuple[int, int] | None = None
    bytes: int = 0
    pageable: bool | None = None
    """Of a copy: whether one end of it is pageable host memory; None where the trace does not say."""


@dataclass(frozen=True, slots=True)
class Activity:
    """Nanoseconds, counts and bytes of one range, or of several added up."""

    wall: int = 0
    """From the beginning of the range to its end, or to that of the last work that was started in it."""
    kernel_busy: int = 0
    """During which at least one kernel ran."""
    work_span: int = 0
    """From the beginning of the first work of the GPU to the end of the last."""
    work_busy: int = 0
    """During which at least one kernel, copy or memset ran."""
    work_time: int = 0
    """The sum of the durations of all work."""
    longest_gap: int = 0
    launches: int = 0
    graph_launches: int = 0
    kernels: int = 0
    calls: int = 0
    call_time: int = 0
    launch_time: int = 0
    allocations: int = 0
    allocation_time: int = 0
    waits: int = 0
    wait_time: int = 0
    copies: int = 0
    pageable_copies: int = 0
    unknown_copies: int = 0
    """Of which the trace does not say whether they were pageable."""
    upload_bytes: int = 0
    upload_time: int = 0
    download_bytes: int = 0
    download_time: int = 0


def measure(start: int, end: int, calls: Sequence[Call], work: Sequence[Work]) -> Activity:
    """Sum up one range, given the calls that were made in it and the work that they started."""
    launches, allocations, waits = (
        [call for call in calls if pattern.match(call.name)] for pattern in (_LAUNCH, _ALLOCATION, _WAIT)
    )
    kernels = [w for w in work if w.kind == "kernel"]
    copies = [w for w in work if w.kind not in {"kernel", "memset"}]
    up = [w for w in copies if w.kind == "host-to-device"]
    down = [w for w in copies if w.kind == "device-to-host"]
    busy, longest_gap = union((w.start, w.end) for w in work)
    return Activity(
        wall=max(end, *(w.end for w in work), start) - start if work else end - start,
        kernel_busy=union((w.start, w.end) for w in kernels)[0],
        work_span=max((w.end for w in work), default=0) - min((w.start for w in work), default=0),
        work_busy=busy,
        work_time=sum(w.end - w.start for w in work),
        longest_gap=longest_gap,
        launches=len(launches),
        graph_launches=sum("Graph" in call.name for call in launches),
        kernels=len(kernels),
        calls=len(calls),
        call_time=_time_in(calls),
        launch_time=_time_in(launches),
        allocations=len(allocations),
        allocation_time=_time_in(allocations),
        waits=len(waits),
        wait_time=_time_in(waits),
        copies=len(copies),
        pageable_copies=sum(1 for w in copies if w.pageable),
        unknown_copies=sum(1 for w in copies if w.pageable is None),
        upload_bytes=sum(w.bytes for w in up),
        upload_time=sum(w.end - w.start for w in up),
        download_bytes=sum(w.bytes for w in down),
        download_time=sum(w.end - w.start for w in down),
    )


class Record:
    """The calls and the work of a trace, in which ranges are looked up."""

    def __init__(self, calls: Iterable[Call], work: Iterable[Work]) -> None:
        self.calls = sorted(calls, key=lambda call: call.start)
        self.work = tuple(work)
        self._by_call: dict[tuple[int, int] | None, list[Work]] = defaultdict(list)
        for done in self.work:
            self._by_call[done.correlation].append(done)

    def begun(self, start: int, end: int) -> Sequence[Call]:
        """Return the calls that any thread began in a range."""
        first = bisect_left(self.calls, start, key=lambda call: call.start)
        return self.calls[first : bisect_right(self.calls, end, key=lambda call: call.start)]

    def measure(self, start: int, end: int, calls: Sequence[Call]) -> Activity:
        """Sum up a range, given the calls that were made in it."""
        started = {call.correlation for call in calls} - {None}
        return measure(start, end, calls, [done for key in started for done in self._by_call.get(key, ())])

    def whole(self) -> dict[str, Reading]:
        """Return the metrics of the whole trace, from its first event to its last."""
        events: tuple[Call | Work, ...] = (*self.calls, *self.work)
        if not events:
            return not_analysed("the trace holds no CUDA activity at all")
        start, end = min(event.start for event in events), max(event.end for event in events)
        return readings(measure(start, end, self.calls, self.work))


def add(activities: Sequence[Activity]) -> Activity:
    """Add up ranges that have one name, at least one; the longest gap is that of the worst of them."""
    columns = {f.name: [getattr(activity, f.name) for activity in activities] for f in fields(Activity)}
    return Activity(**{name: (max if name == "longest_gap" else sum)(column) for name, column in columns.items()})


def union(spans: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return how much time the spans cover together, and the longest time between them.

    >>> union([(0, 10), (5, 12), (20, 21), (11, 12)])
    (13, 8)
    """
    covered = gap = 0
    last: int | None = None
    for start, end in sorted(spans):
        if last is None or start > last:
            gap = max(gap, start - last if last is not None else 0)
            covered += end - start
            last = end
        elif end > last:
            covered += end - last
            last = end
    return covered, gap


def _time_in(calls: Iterable[Call]) -> int:
    by_thread: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for call in calls:
        by_thread[call.thread].append((call.start, call.end))
    return sum(union(spans)[0] for spans in by_thread.values())


def readings(found: Activity) -> dict[str, Reading]:
    """Return the metrics of a timeline by name; a metric without data is not available, never zero."""
    no_work, no_calls, no_copy = (
        "the GPU did no work in the range",
        "no CUDA call was traced",
        "no such copy in the range",
    )
    wall, gap = found.wall if found.calls else 0, found.longest_gap if found.work_span else None
    unknown = "the trace does not say which copies were pageable" if found.unknown_copies else no_calls
    pageable = found.pageable_copies if (found.calls or found.copies) and not found.unknown_copies else None
    values = {
        "cuda_time_pct": (_share(found.kernel_busy, found.wall if found.kernels else 0), "no kernel ran in the range"),
        "launch_overhead_pct": (_share(found.launch_time, wall), no_calls),
        "idle_pct": (_share(found.work_span - found.work_busy, found.work_span), no_work),
        "longest_gap_ns": (gap, no_work),
        "alloc_share_pct": (_share(found.allocation_time, found.call_time), no_calls),
        "alloc_pct": (_share(found.allocation_time, wall), no_calls),
        "alloc_calls": (found.allocations if found.calls else None, no_calls),
        "sync_pct": (_share(found.wait_time, wall), no_calls),
        "sync_calls": (found.waits if found.calls else None, no_calls),
        "pageable_copies": (pageable, unknown),
        "h2d_bytes_per_s": (_rate(found.upload_bytes, found.upload_time), no_copy),
        "d2h_bytes_per_s": (_rate(found.download_bytes, found.download_time), no_copy),
        "range_ns": (wall or None, no_calls),
        "launch_calls": (found.launches if found.calls else None, no_calls),
        "graph_launches": (found.graph_launches if found.calls else None, no_calls),
        "overlap_pct": (_share(found.work_time - found.work_busy, found.work_time), no_work),
        "copied_bytes": (found.upload_bytes + found.download_bytes if found.copies else None, no_copy),
    }
    return {
        name: Reading(None, BY_NAME[name].unit, reason) if value is None else Reading(float(value), BY_NAME[name].unit)
        for name, (value, reason) in values.items()
    }


def not_analysed(reason: str) -> dict[str, Reading]:
    """Return the metrics of a range that could not be analysed."""
    return {name: Reading(None, BY_NAME[name].unit, reason) for name in readings(Activity())}


def _share(part: int, whole: int) -> float | None:
    return round(100.0 * part / whole, 4) if whole > 0 else None


def _rate(size: int, time_ns: int) -> float | None:
    return float(f"{size / time_ns * 1e9:.6g}") if time_ns > 0 else None
