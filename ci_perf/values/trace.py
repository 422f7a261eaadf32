"""What profilers record of GPU kernels: readings of counters, and a timeline."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from ci_perf.values.extensible import Count, Extensible, NonNegative, Whole, one_of

Dim3 = tuple[Whole, Whole, Whole]


@dataclass(frozen=True, slots=True)
class Reading(Extensible):
    """A reading of one counter: a value (a measured zero is one), or None and the reason why there is none."""

    value: float | None
    unit: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TracedKernel(Extensible):
    """A GPU kernel in the trace of a case's range."""

    name: str
    count: Count
    """How often the kernel ran in the range."""
    total_ns: Whole
    median_ns: NonNegative
    grid: Dim3
    block: Dim3
    registers_per_thread: Whole | None = None
    shared_bytes: Whole | None = None
    """Static and dynamic shared memory of a block."""
    local_bytes: Whole | None = None
    """Local memory of a thread, where registers are spilled to."""


@dataclass(frozen=True, slots=True)
class CaseTimeline(Extensible):
    """The timeline of one case: `launches` launches inside its NVTX range, or as many runs of a program."""

    launches: Whole
    kernels: tuple[TracedKernel, ...]
    source: Annotated[str, one_of("nsys", "torch")] = "nsys"
    """The profiler: `torch` where there was no nsys."""
    metrics: Mapping[str, Reading] = field(default_factory=dict)
    """By the names of the metrics of a timeline."""


@dataclass(frozen=True, slots=True)
class SideProfile(Extensible):
    """What profilers saw of one side of a case, to be compared with the other side."""

    counters: tuple[Mapping[str, Reading], ...] = ()
    """One mapping from metric to reading for each profiled launch."""
    timeline: CaseTimeline | None = None
