"""Mechanisms of the host, read from the timelines of both sides: waiting, allocating, copying, launching."""

from ci_perf.judge.causes.rule import CUDA_GUIDE, NSYS_GUIDE, SYMPTOM, Rule
from ci_perf.judge.causes.sides import Side, Sides, share

_TIMELINE = ("range_ns", "idle_pct", "cuda_time_pct", "longest_gap_ns")
_NOTABLE = 0.05
"""Of the range: a smaller change is the scatter of one trace."""
SCATTER = 1 + _NOTABLE
_UNKNOWN = 0.5
"""The share where calls were added and the trace does not say how long the range was."""
_POINTS = 5.0
"""Percentage points by which a share of the range must change."""
_LEAST_PART = 0.01
"""Of the range: calls and copies that take less time in addition are not noticed."""


def added_time(s: Sides) -> float | None:
    """Return by how much longer the range is on the side with more of it, as a fraction; None: not known."""
    spans = s.both("range_ns")
    return None if spans is None or not spans[0] else spans[1] / spans[0] - 1


def _points(s: Sides, name: str) -> float:
    found = s.both(name)
    return found[1] - found[0] if found else 0.0


def _span(s: Sides) -> tuple[float, float] | None:
    """Return the ranges of both sides in seconds, where both are known."""
    spans = s.both("range_ns")
    return None if spans is None or not spans[0] else (spans[0] / 1e9, spans[1] / 1e9)


def _part(s: Sides, added: float) -> float:
    """Return the part of the added time of the range that these seconds account for.

    Of a range that is hardly longer, it is the part of the change that was judged, or of the least that is noticed.
    """
    spans = _span(s)
    if spans is None or added < _LEAST_PART * spans[0]:
        return 0.0
    longer = spans[1] - spans[0]
    least = s.times - 1 if s.times > 1 else _NOTABLE
    return share(added / (longer if longer >= _NOTABLE * spans[0] else max(longer, least * spans[0])))


def _part_of_range(s: Sides, *percentages: str) -> float:
    """Return the part of the added time of the range that the largest of these percentages of it accounts for.

    Of a range that is hardly longer, only an idle GPU tells that calls cost time.
    """
    spans, longer = _span(s), added_time(s)
    if spans is None or longer is None:
        return _UNKNOWN if any(_points(s, name) > _POINTS for name in percentages) else 0.0
    names = percentages if longer >= _NOTABLE else ("idle_pct",)
    found = [values for name in names if (values := s.both(name))]
    return _part(s, max((now * spans[1] - before * spans[0] for before, now in found), default=0.0) / 100)


def _copying(s: Sides) -> float:
    """Return the part of the added time of the range during which copies between host and device run in addition."""
    seconds = [_copy_seconds(side) for side in (s.good, s.bad)]
    return _part(s, seconds[1] - seconds[0])


def _copy_seconds(side: Side) -> float:
    """Return for how long copies ran; where both directions were copied, as if each copied as much."""
    rates = [rate for name in ("h2d_bytes_per_s", "d2h_bytes_per_s") if (rate := side.values.get(name))]
    return side.values.get("copied_bytes", 0.0) * sum(1 / rate for rate in rates) / max(1, len(rates))


def _synchronisation(s: Sides) -> float:
    """Recognise more calls that wait; what they wait for copies is the time of the copies."""
    if not s.grew("sync_calls"):
        return 0.0
    return max(0.0, _part_of_range(s, "sync_pct", "idle_pct") - _copying(s))


def _allocating(side: Side) -> float:
    """Return for how many seconds calls allocated or freed.

    Where a trace does not say it of the range, it says it of the time in calls: those that wait or launch are the least
    of the others.
    """
    span, direct = side.values.get("range_ns", 0.0) / 1e9, side.values.get("alloc_pct")
    if direct is not None:
        return span * direct / 100
    part = min(side.values.get("alloc_share_pct", 0.0) / 100, 0.99)
    others = side.values.get("sync_pct", 0.0) + side.values.get("launch_overhead_pct", 0.0)
    return span * others / 100 * part / (1 - part)


def _allocation(s: Sides) -> float:
    if not s.grew("alloc_calls"):
        return 0.0
    if _span(s) is None:
        return _UNKNOWN if _points(s, "alloc_share_pct") > _POINTS else 0.0
    return _part(s, _allocating(s.bad) - _allocating(s.good))


def _pageable(s: Sides) -> float:
    """Recognise slower copies by their time; of a range that is as long as before, they are slow all the same."""
    if not s.grew("pageable_copies"):
        return 0.0
    return _UNKNOWN if _span(s) is None else _copying(s)


def _say_pageable(s: Sides) -> str:
    copies, bytes_ = s.arrow("pageable_copies"), s.arrow("copied_bytes")
    rates = f"host to device {s.arrow('h2d_bytes_per_s')}, device to host {s.arrow('d2h_bytes_per_s')}"
    more = s.bad.values.get("copied_bytes", 0.0) > 1.05 * s.good.values.get("copied_bytes", 0.0)
    if more:
        return f"copies of pageable memory: {copies} copies, {bytes_}; {rates}"
    return f"pageable in place of pinned memory: {copies} pageable copies, {rates}"


def _copies(s: Sides) -> float:
    """Recognise more bytes; a side without a copy has no such metric."""
    bytes_ = [side.values.get("copied_bytes", 0.0) for side in (s.good, s.bad)]
    if bytes_[1] <= 1.05 * bytes_[0] or s.grew("pageable_copies"):
        return 0.0
    longer = added_time(s)
    return _UNKNOWN if longer is None else _copying(s) if longer >= _NOTABLE else 0.0


def _lost_graph(s: Sides) -> float:
    graphs = s.both("graph_launches")
    if graphs is None or graphs[1] >= graphs[0] or not s.grew("launch_calls", by=1.5):
        return 0.0
    longer = added_time(s)
    least = _UNKNOWN if longer is None or longer >= _NOTABLE else 0.0
    return max(_part_of_range(s, "launch_overhead_pct", "idle_pct"), least)


def _launches(s: Sides) -> float:
    graphs = s.both("graph_launches")
    if not s.grew("launch_calls", by=1.1) or (graphs and graphs[1] < graphs[0]):
        return 0.0
    return _part_of_range(s, "launch_overhead_pct", "idle_pct")


def _lost_overlap(s: Sides) -> float:
    found = s.both("overlap_pct")
    if found is None or found[1] > found[0] - _POINTS:
        return 0.0
    longer = added_time(s)
    # the same work without overlap takes 1 / (1 - overlap) times as long
    alone = (100 - found[1]) / (100 - found[0]) - 1 if found[0] < 100 else 1.0
    if longer is None:
        return s.predicted(1 + alone)
    return share(alone / longer) if longer >= _NOTABLE else 0.0


def _idle(s: Sides) -> float:
    return _part_of_range(s, "idle_pct") if _points(s, "idle_pct") > _POINTS else 0.0


RULES = (
    Rule(
        "graph-capture",
        ("graph_launches", "launch_calls", "launch_overhead_pct", *_TIMELINE),
        _lost_graph,
        lambda s: (
            f"CUDA graph {'lost' if s.slower else 'captured'}: {s.arrow('graph_launches')} graph launches,"
            f" {s.arrow('launch_calls')} launch calls, launch overhead {s.arrow('launch_overhead_pct')}"
        ),
        "What cannot be captured (synchronisation, allocation outside of the pool, changing shapes) breaks the graph.",
        "CUDA C++ Programming Guide, CUDA Graphs",
    ),
    Rule(
        "allocation",
        ("alloc_calls", "alloc_pct", "alloc_share_pct", *_TIMELINE),
        _allocation,
        lambda s: (
            f"allocation: {s.arrow('alloc_calls')} calls that allocate or free,"
            f" {s.arrow('alloc_share_pct')} of the time in CUDA calls"
        ),
        "Allocate once outside of the loop, or use `cudaMallocAsync` with a pool that keeps its memory.",
        f"{CUDA_GUIDE}, Memory Allocation",
    ),
    Rule(
        "pageable-copies",
        ("pageable_copies", "h2d_bytes_per_s", "d2h_bytes_per_s", "copied_bytes", *_TIMELINE),
        _pageable,
        _say_pageable,
        "`cudaMallocHost`, or `pin_memory()` in PyTorch: copies from pageable memory go through a buffer, and wait.",
        f"{CUDA_GUIDE}, Pinned Memory",
    ),
    Rule(
        "synchronisation",
        ("sync_calls", "sync_pct", *_TIMELINE),
        _synchronisation,
        lambda s: (
            f"synchronisation: {s.arrow('sync_calls')} calls wait for the GPU, {s.arrow('sync_pct')} of the time;"
            f" GPU idle {s.arrow('idle_pct')}"
        ),
        "`.item()`, `.cpu()`, printing a tensor and `cudaDeviceSynchronize` wait; wait once, at the end.",
        f"{NSYS_GUIDE}, CUDA API trace; {CUDA_GUIDE}, Asynchronous Transfers",
    ),
    Rule(
        "overlap",
        ("overlap_pct", *_TIMELINE),
        _lost_overlap,
        lambda s: (
            f"{'lost' if s.slower else 'more'} overlap: {s.arrow('overlap_pct')} of the GPU's work beside other work"
        ),
        "Streams of their own, no default stream, pinned memory for copies, no synchronisation in between.",
        f"{CUDA_GUIDE}, Asynchronous and Overlapping Transfers with Computation",
    ),
    Rule(
        "copies",
        ("copied_bytes", "h2d_bytes_per_s", "d2h_bytes_per_s", *_TIMELINE),
        _copies,
        lambda s: f"more copies between host and device: {s.arrow('copied_bytes')}",
        "Keep the data on the device.",
        f"{CUDA_GUIDE}, Data Transfer Between Host and Device",
    ),
    Rule(
        "launch-overhead",
        ("launch_calls", "launch_overhead_pct", *_TIMELINE),
        _launches,
        lambda s: (
            f"launch overhead: {s.arrow('launch_calls')} launch calls, {s.arrow('launch_overhead_pct')} of the time;"
            f" GPU idle {s.arrow('idle_pct')}"
        ),
        "Fewer and larger kernels, or a CUDA graph.",
        "CUDA C++ Programming Guide, CUDA Graphs",
    ),
    Rule(
        "idle",
        ("idle_pct", "longest_gap_ns", "range_ns", "cuda_time_pct", "launch_overhead_pct", "sync_pct"),
        _idle,
        lambda s: f"the GPU is idle for {s.arrow('idle_pct')} of the time, it waits for the host",
        "Look at the gaps between kernels in the timeline: work of Python, I/O, locks.",
        f"{NSYS_GUIDE}, GPU gaps",
        weight=SYMPTOM,
    ),
)
