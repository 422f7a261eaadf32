"""The facts about a machine, and the type of a diagnosis."""

from dataclasses import dataclass
from enum import StrEnum

from ci_perf.values.device import Device, Python, Tool


class DiagnosisState(StrEnum):
    """The severity of a diagnosis."""

    OK = "OK"
    WARN = "WARN"
    """Measuring works, but times are less precise or a part of the report is missing."""
    MISSING = "MISSING"
    """Not installed; a run skips what needs it."""
    BROKEN = "BROKEN"
    """Installed, but does not work."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The state of one part of the machine, in one sentence; `fix` is empty if nothing is wrong."""

    name: str
    state: DiagnosisState
    sentence: str
    fix: str = ""


def ok(name: str, sentence: str) -> Diagnosis:
    """Return a diagnosis without a problem."""
    return Diagnosis(name, DiagnosisState.OK, sentence)


def warn(name: str, sentence: str, fix: str) -> Diagnosis:
    """Return a problem that does not prevent measuring."""
    return Diagnosis(name, DiagnosisState.WARN, sentence, fix)


def missing(name: str, sentence: str, fix: str) -> Diagnosis:
    """Return a part that is not installed."""
    return Diagnosis(name, DiagnosisState.MISSING, sentence, fix)


def broken(name: str, sentence: str, fix: str) -> Diagnosis:
    """Return a part that is installed but does not work."""
    return Diagnosis(name, DiagnosisState.BROKEN, sentence, fix)


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU; None means not known."""

    index: int
    device: Device
    persistence: bool | None = None
    uncorrected_errors: int | None = None
    repair_pending: bool | None = None
    throttle_reasons: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    """Other programs that use it, such as `python (pid 123)`."""
    memory_used_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about a machine; None means not installed or not known."""

    python: str
    """The version of the Python that runs ci-perf."""
    interpreter: Python | None = None
    interpreter_problem: str = ""
    interpreter_hint: str = ""
    torch: str | None = None
    torch_cuda: str | None = None
    """The CUDA version that torch was built with; None if it was built without CUDA."""
    cuda_core: str | None = None
    driver: str | None = None
    driver_cuda: str | None = None
    driver_problem: str = ""
    gpus: tuple[GpuFacts, ...] = ()
    nsys: tuple[Tool, ...] = ()
    ncu: tuple[Tool, ...] = ()
    sanitizer: tuple[Tool, ...] = ()
    counters_admin_only: bool | None = None
    """The driver parameter RmProfilingAdminOnly."""
    cap_sys_admin: bool = False
    cap_perfmon: bool = False
    dcgm: str | None = None
    """The DCGM program that is running."""
    container: bool = False
    wsl: bool = False
    disk_folder: str = "."
    disk_free_bytes: int | None = None
    git: str | None = None
    kernels: int = 0
    """The number of `kernel.toml` files."""
