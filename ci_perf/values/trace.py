"""What profilers record of GPU kernels: readings of counters, and a timeline."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Reading:
    """One counter in one of three states: a value (a measured zero is one), or not available, with the reason."""

    value: float | None
    unit: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TracedKernel:
    """A GPU kernel as Nsight Systems saw it inside a case's range."""

    name: str
    count: int
    total_ns: int
    median_ns: float
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers_per_thread: int | None = None
    shared_bytes: int | None = None
    local_bytes: int | None = None
    """Local memory of a thread: where registers are spilled to."""


@dataclass(frozen=True, slots=True)
class CaseTimeline:
    """What the timeline holds of one case: `launches` launches inside its NVTX range, or as many runs of a program."""

    launches: int
    kernels: tuple[TracedKernel, ...]
    source: str = "nsys"
    """Who traced: `nsys`, or `torch` where there was no nsys."""
    metrics: Mapping[str, Reading] = field(default_factory=dict)
    """By the names of `values.timeline_metrics`."""
