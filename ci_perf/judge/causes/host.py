"""Mechanisms of the host, read from the timelines of both sides: waiting, allocating, copying, launching."""

from ci_perf.judge.causes.rule import CUDA_GUIDE, NSYS_GUIDE, SYMPTOM, Rule
from ci_perf.judge.causes.sides import Sides, share

_TIMELINE = ("range_ns", "idle_pct", "cuda_time_pct", "longest_gap_ns")
_NOTABLE = 0.05
"""Of the range: a smaller change is the scatter of one trace."""
SCATTER = 1 + _NOTABLE
_UNKNOWN = 0.5
"""The share where calls were added and the trace does not say how long the range was."""
_POINTS = 5.0
"""Percentage points by which a share of the range must change."""
_LEAST_IDLE = 1.0
"""The same of the idle time, where calls were added."""
_LEAST_ALLOCATION = 0.25
"""What added allocations that are seen among the calls account for at least."""


def added_time(s: Sides) -> float | None:
    """Return by how much longer the range is on the side with more of it, as a fraction; None: not known."""
    spans = s.both("range_ns")
    return None if spans is None or not spans[0] else spans[1] / spans[0] - 1


def _points(s: Sides, name: str) -> float:
    found = s.both(name)
    return found[1] - found[0] if found else 0.0


def _part_of_range(s: Sides, *percentages: str) -> float:
    """Return the part of the added time of the range that the largest of these percentages of it accounts for."""
    spans, longer = s.both("range_ns"), added_time(s)
    if spans is None or longer is None:
        return _UNKNOWN if any(_points(s, name) > _POINTS for name in percentages) else 0.0
    if longer < _NOTABLE:  # calls that were added and leave the GPU idle count all the same
        return _UNKNOWN if _points(s, "idle_pct") >= _LEAST_IDLE else 0.0
    found = [values for name in percentages if (values := s.both(name))]
    added = max((values[1] * spans[1] - values[0] * spans[0] for values in found), default=0.0) / 100
    return share(added / (spans[1] - spans[0]))


def _synchronisation(s: Sides) -> float:
    return _part_of_range(s, "sync_pct", "idle_pct") if s.grew("sync_calls") else 0.0


def _allocation(s: Sides) -> float:
    if not s.grew("alloc_calls"):
        return 0.0
    of_calls = _points(s, "alloc_share_pct")  # where a range waits for calls, their time is that of the range
    seen = max(share(of_calls / 100), _LEAST_ALLOCATION) if of_calls > _POINTS else 0.0
    return max(_part_of_range(s, "idle_pct"), seen)


def _pageable(s: Sides) -> float:
    rates = [s.both(name) for name in ("h2d_bytes_per_s", "d2h_bytes_per_s")]
    slower = max((1 - found[1] / found[0] for found in rates if found and found[0]), default=0.0)
    return max(slower, 0.5) if s.grew("pageable_copies") else 0.0


def _copies(s: Sides) -> float:
    if not s.grew("copied_bytes", by=1.05) or s.grew("pageable_copies"):
        return 0.0
    longer = added_time(s)
    return _UNKNOWN if longer is None or longer >= _NOTABLE else 0.0


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
        ("alloc_calls", "alloc_share_pct", *_TIMELINE),
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
        lambda s: (
            f"pageable in place of pinned memory: {s.arrow('pageable_copies')} pageable copies,"
            f" host to device {s.arrow('h2d_bytes_per_s')}, device to host {s.arrow('d2h_bytes_per_s')}"
        ),
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
