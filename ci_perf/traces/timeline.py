"""What an nsys trace holds: integer nanoseconds, bytes, counts."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

DIAGNOSTIC = "diagnostic: "
"""How a warning begins that quotes nsys."""

Dim3 = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that the trace lists, whether or not anything ran on it."""

    index: int | None
    """The number that kernels call it by; None where the trace does not say."""
    name: str
    compute_capability: str | None = None
    sm_count: int | None = None


@dataclass(frozen=True, slots=True)
class KernelStats:
    """All executions of one GPU kernel with the same launch parameters on one device.

    A launch parameter is None where the trace has no such column.
    """

    name: str
    """Demangled; else the short, else the mangled name."""
    short_name: str
    count: int
    total_ns: int
    median_ns: float
    """Half a nanosecond is possible: the mean of the middle two."""
    min_ns: int
    max_ns: int
    device: int
    grid: Dim3 | None
    block: Dim3 | None
    registers_per_thread: int | None = None
    static_shared: int | None = None
    dynamic_shared: int | None = None
    local_per_thread: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessStats:
    """What one process of the program did on the GPU: here it shows if a rank is missing."""

    pid: int
    launches: int
    """Successful calls that launch one kernel each."""
    kernel_count: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """One nsys trace, summed up."""

    tool_version: str | None
    schema_version: str | None
    devices: tuple[Gpu, ...]
    kernel_count: int
    kernel_total_ns: int
    """The sum over all kernels: overlapping ones count twice."""
    kernel_busy_ns: Mapping[int, int]
    """Per device number, the time during which at least one kernel ran."""
    graph_count: int
    """CUDA graphs that were traced as a whole: their kernels are in no other number."""
    graph_total_ns: int
    memcpy_count: int
    memset_count: int
    nvtx_count: int
    """NVTX events of every type, not only ranges."""
    call_count: int
    """Calls of the CUDA runtime and driver."""
    kernels: tuple[KernelStats, ...]
    """The longest total first."""
    ranges: Mapping[str, int]
    """How many NVTX ranges have each name (`domain@name` outside the default domain), by first occurrence."""
    inside: Callable[[Iterable[str]], tuple[KernelStats, ...]] = field(repr=False, compare=False)
    """Lists the kernels launched inside any range of these names, each once however many ranges it lies in, wherever
    the GPU ran them; the longest total first. Asked for when needed: a trace may have hundreds of thousands."""
    launches: int = 0
    """Successful calls that launch one kernel each, whether or not the kernel is in the trace."""
    processes: tuple[ProcessStats, ...] = ()
    """Those that launched or ran a kernel; empty where the trace does not tell processes apart."""
    warnings: tuple[str, ...] = ()
    kind: str = "nsys"
    """The profiler: `nsys` or `torch-profiler`."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """The warnings that count what was left out."""
        return tuple(text for text in self.warnings if text.endswith("were left out"))

    @property
    def holds_nothing(self) -> bool:
        """Whether the trace has no event and not even a device."""
        return not (self.uses_gpu or self.graph_count or self.nvtx_count or self.devices)

    @property
    def uses_gpu(self) -> bool:
        """Whether the trace has a kernel, a copy, a memset or a CUDA call."""
        return any((self.kernel_count, self.memcpy_count, self.memset_count, self.call_count))

    @property
    def has_kernel_data(self) -> bool:
        """False: no kernel was traced, and `warnings` says why; never read the zeros as a measurement."""
        return self.kernel_count > 0

    @property
    def tells_kernel_time(self) -> bool:
        """False: none of the kernels that ran may be in the trace, so the zeros are no measurement.

        Without a kernel, only calls that launched none say that none ran, where nsys does not complain of losing any.
        """
        complaints = any(text.startswith(DIAGNOSTIC) and re.search("CUDA|CUPTI", text) for text in self.warnings)
        none_ran = self.call_count > 0 and not self.launches and not self.graph_count and not complaints
        return self.kernel_count > 0 or none_ran


def hidden_by_graphs(count: int) -> str:
    """Say why such a trace is not compared with another: one that was traced node by node has more kernels."""
    return f"{count} CUDA graphs were traced as a whole, so kernels are missing"
