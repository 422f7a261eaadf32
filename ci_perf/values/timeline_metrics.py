"""The metrics of a timeline by name: what the host cost, how busy the GPU was, and how the kernels were launched.

Each belongs to one NVTX range and may be gated in a kernel.toml like a counter. `usual` is the limit that one would
choose for a program that should keep the GPU busy; it is shown beside the reading and gates nothing by itself, because
what is right for a server is wrong for a kernel of two microseconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimelineMetric:
    """A number of one range of a trace."""

    name: str
    unit: str
    meaning: str
    usual: str = ""
    """As a gate is written; empty: there is no such limit."""


TIMELINE: tuple[TimelineMetric, ...] = (
    TimelineMetric("cuda_time_pct", "%", "of the range during which a kernel ran", ">= 60"),
    TimelineMetric("launch_overhead_pct", "%", "of the range spent in launch calls", "<= 5"),
    TimelineMetric("idle_pct", "%", "of the time between the GPU's first and last work, in which it was idle"),
    TimelineMetric("longest_gap_ns", "ns", "the longest time without work"),
    # 89 % in the program that taught us to look: 204 of 228 ms in cudaMalloc. The limit is ours.
    TimelineMetric("alloc_share_pct", "%", "of the time in CUDA calls spent on allocating and freeing", "<= 10"),
    TimelineMetric("alloc_pct", "%", "of the range spent on allocating and freeing"),
    TimelineMetric("alloc_calls", "", "calls that allocate or free"),
    TimelineMetric("sync_pct", "%", "of the range spent waiting for the GPU"),
    TimelineMetric("sync_calls", "", "calls that wait for the GPU"),
    TimelineMetric("pageable_copies", "", "copies from or to pageable host memory", "<= 0"),
    # Pageable copies reach 14 to 15 GB/s where pinned ones reach 40 to 50.
    TimelineMetric("h2d_bytes_per_s", "byte/s", "of copies from host to device", ">= 4e10"),
    TimelineMetric("d2h_bytes_per_s", "byte/s", "of copies from device to host", ">= 4e10"),
    TimelineMetric("shared_bytes_per_block", "byte", "the largest shared memory of a block"),
    TimelineMetric("local_bytes_per_thread", "byte", "the largest local memory of a thread: spilled registers", "<= 0"),
    TimelineMetric("theoretical_occupancy_pct", "%", "of the warps that fit, allowed by the launch; the worst kernel"),
    TimelineMetric("range_ns", "ns", "from the beginning of the range to the end of the last work it started"),
    TimelineMetric("launch_calls", "", "calls that launch a kernel or a graph"),
    TimelineMetric("graph_launches", "", "calls that launch a CUDA graph"),
    TimelineMetric("overlap_pct", "%", "of the work of the GPU ran beside other work"),
    TimelineMetric("copied_bytes", "byte", "copied between host and device"),
)

BY_NAME: Mapping[str, TimelineMetric] = {metric.name: metric for metric in TIMELINE}
