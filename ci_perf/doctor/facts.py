"""What was found on a machine, and what is said of it."""

from dataclasses import dataclass
from enum import StrEnum

from ci_perf.values.device import Device
from ci_perf.values.tool import Python, Tool


class CheckState(StrEnum):
    """How bad it is."""

    OK = "OK"
    WARN = "WARN"
    """Measuring works, but the numbers or a part of the report suffer."""
    MISSING = "MISSING"
    """Not there; what needs it is left out."""
    BROKEN = "BROKEN"
    """There, and does not work."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at, in one sentence; `fix` is empty where nothing is wrong."""

    name: str
    state: CheckState
    sentence: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU as it was found; None is not known."""

    index: int
    device: Device
    persistence: bool | None = None
    uncorrected_errors: int | None = None
    repair_pending: bool | None = None
    throttle_reasons: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    """Other programs on it: `python (pid 123)`."""
    memory_used_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the diagnosis rests on; None is not installed or not known."""

    python: str
    """The version that runs ci-perf itself."""
    interpreter: Python | None = None
    interpreter_problem: str = ""
    interpreter_hint: str = ""
    torch: str | None = None
    torch_cuda: str | None = None
    """The CUDA that torch was built with; None: torch was built without."""
    cuda_core: str | None = None
    driver: str | None = None
    driver_cuda: str | None = None
    driver_problem: str = ""
    gpus: tuple[GpuFacts, ...] = ()
    nsys: tuple[Tool, ...] = ()
    ncu: tuple[Tool, ...] = ()
    sanitizer: tuple[Tool, ...] = ()
    """Every compute-sanitizer."""
    counters_admin_only: bool | None = None
    """RmProfilingAdminOnly of the driver."""
    cap_sys_admin: bool = False
    cap_perfmon: bool = False
    dcgm: str | None = None
    """The DCGM program that runs here."""
    container: bool = False
    wsl: bool = False
    disk_folder: str = "."
    disk_free_bytes: int | None = None
    git: str | None = None
    kernels: int = 0
    """How many `kernel.toml` there are."""
