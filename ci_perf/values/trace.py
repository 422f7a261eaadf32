"""What profilers record of GPU kernels: readings of counters, and a timeline."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from ci_perf.values.extensible import OMIT_DEFAULT, Count, Extensible, NonNegative, Text, Whole, one_of

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
class LaunchedKernel(Extensible):
    """A GPU kernel as one launch starts it, read from the compiled code and the launch, without a profiler."""

    grid: Dim3
    block: Dim3
    registers_per_thread: Whole
    static_shared_bytes: Whole
    dynamic_shared_bytes: Whole
    local_bytes: Whole
    """Local memory of a thread, where registers are spilled to."""


@dataclass(frozen=True, slots=True)
class SourceLine(Extensible):
    """A line of source code in the machine code of a case."""

    file: Text
    """Relative to the repository; only its name where it lies elsewhere."""
    line: Count
    samples_pct: NonNegative = 0.0
    """Of all samples of warps."""
    spills: Whole = 0
    """Instructions that load from or store to local memory."""
    bytes: Annotated[Whole, OMIT_DEFAULT] = 0
    """What its accesses to global and local memory request from L2 in the profiled launches, as if L1 had none."""
    shared_wavefronts: Annotated[Whole, OMIT_DEFAULT] = 0
    """Wavefronts in L1 of its accesses to shared memory in the profiled launches."""
    excessive_wavefronts: Annotated[Whole, OMIT_DEFAULT] = 0
    """How many of these wavefronts are beyond the ideal: those that bank conflicts add."""
    base_line: Annotated[Whole | None, OMIT_DEFAULT] = None
    """Of a line of the head: the number of the same line in the base, by a diff of both sources; 0: there is none.

    None: the sources were not compared.
    """
    base_file: Annotated[str, OMIT_DEFAULT] = ""
    """What the base calls the file, where it has another name."""


@dataclass(frozen=True, slots=True)
class SideProfile(Extensible):
    """What profilers saw of one side of a case, to be compared with the other side."""

    counters: tuple[Mapping[str, Reading], ...] = ()
    """One mapping from metric to reading for each profiled launch."""
    timeline: CaseTimeline | None = None
    opcodes: Annotated[Mapping[str, Whole], OMIT_DEFAULT] = field(default_factory=dict)
    """How often each instruction stands in the machine code, by opcode with its modifiers."""
    lines: Annotated[tuple[SourceLine, ...], OMIT_DEFAULT] = ()
    """The lines with most samples, where the machine code has line information."""
