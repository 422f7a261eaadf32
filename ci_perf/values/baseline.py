"""Baselines: what was agreed for one kernel on one GPU model."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ci_perf.values.device import Device, Toolchain
from ci_perf.values.kernel import Params
from ci_perf.values.measurement import Part
from ci_perf.values.provenance import Provenance


@dataclass(frozen=True, slots=True)
class BaselineTime:
    """The agreed time of a case: the summary for people, the values for any statistic that one may want."""

    method: str
    median: float
    noise_floor: float
    """The largest distance of a replicate's median from `median`, as a fraction."""
    replicates: tuple[tuple[float, ...], ...]
    """The samples of each process, ascending; processes in ascending order of their median."""
    sm_clock_hz: float | None = None
    """The median over the processes; a change of the clock is no change of the code."""
    unit: str = "s"
    """Base unit of the values."""
    better: str = "lower"
    """`lower` or `higher`."""


@dataclass(frozen=True, slots=True)
class BaselineCounter:
    """The agreed readings of one counter, one for each profiled launch, ascending."""

    unit: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class BaselineCase:
    """What was agreed for one case."""

    params: Params
    target: str
    time: BaselineTime
    counters: Mapping[str, BaselineCounter] = field(default_factory=dict)
    kernels: tuple[str, ...] = ()
    """The GPU kernels that ran, by the names that the trace has: demangled, else short, else mangled (`_Z...`)."""
    parts: tuple[Part, ...] = ()
    """What the time of a program was made of."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """A file of `baselines/`: one kernel on one GPU model."""

    kernel: str
    device: Device
    toolchain: Toolchain
    provenance: Provenance
    cases: Mapping[str, BaselineCase]


def path_of(device: Device, kernel: str) -> str:
    """Return where a baseline lies below the baselines folder.

    >>> path_of(Device("cuda", "NVIDIA L4"), "sdpa")
    'l4/sdpa.json'
    """
    return f"{device.slug}/{kernel}.json"
