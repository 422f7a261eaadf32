"""The GPUs of this machine as NVML reports them: their properties and their state.

Without a driver there are no GPUs; what a GPU does not support or a user may not read is None. Nothing here creates a
CUDA context, so no query disturbs a measurement.
"""

import atexit
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import PurePath
from typing import Any

from ci_perf.values.device import Device

# NVML counts CUDA cores, not SMs: cores per SM, from the CUDA C++ Programming Guide, compute capabilities.
_CORES_PER_SM = {
    "7.0": 64, "7.5": 64, "8.0": 64, "8.6": 128, "8.7": 128, "8.9": 128, "9.0": 128, "10.0": 128, "12.0": 128,
}  # fmt: skip

# Constants of nvml.h.
_CLOCK_SM, _CLOCK_MEM, _TEMPERATURE_GPU, _UNCORRECTED, _VOLATILE = 1, 2, 0, 1, 0
_MEMORY_V2 = 0x02000028

# nvmlClocksEventReasons of nvml.h. Bit 0, idle, is no throttling.
_IDLE = 0x1
_THROTTLE_REASONS = {
    0x2: "applications-clocks",
    0x4: "sw-power-cap",
    0x8: "hw-slowdown",
    0x10: "sync-boost",
    0x20: "sw-thermal",
    0x40: "hw-thermal",
    0x80: "hw-power-brake",
    0x100: "display-clocks",
}


@dataclass(frozen=True, slots=True)
class Gpu:
    """One thing that CUDA can run on: a whole GPU, or an instance of one that is split (MIG)."""

    index: int
    """Of the physical GPU, as nvidia-smi numbers it: in the order of the PCI bus."""
    uuid: str
    """`GPU-...`, or `MIG-...` of an instance; as the value of CUDA_VISIBLE_DEVICES it selects just this one."""
    device: Device


@dataclass(frozen=True, slots=True)
class Process:
    """A program with a CUDA context on a GPU."""

    pid: int
    name: str
    """The file name of the program, without its folder and arguments; `unknown` where the driver may not tell."""
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class State:
    """The state of a GPU at one moment; None where it is not supported, or there is no GPU."""

    sm_clock_hz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    others: tuple[Process, ...] | None = None
    """Compute processes of other programs. In a container the driver may list none although there are some."""
    busy_pct: float | None = None
    """The share of the last sample period (1/6 to 1 s) in which any kernel ran."""
    memory_used_bytes: int | None = None
    """Without what the driver keeps for itself, where the driver can tell the two apart."""


@dataclass(frozen=True, slots=True)
class Health:
    """Rarely changing facts that invalidate measurements; None where not supported."""

    persistence: bool | None = None
    uncorrected_errors: int | None = None
    """ECC errors since the driver was loaded."""
    repair_pending: bool | None = None
    """Whether a reset of the GPU is needed to replace broken rows of memory."""


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver of this machine, or why there is none."""

    version: str | None = None
    cuda: str | None = None
    """The newest CUDA that it supports: `13.0`."""
    problem: str = ""


def query_driver() -> Driver:
    """Return the driver's version, or what NVML said instead."""
    cuda = _ask("nvmlSystemGetCudaDriverVersion_v2")
    return Driver(
        version=_ask("nvmlSystemGetDriverVersion"),
        cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        problem=_connect()[1],
    )


def query_gpus() -> tuple[Gpu, ...]:
    """Return what CUDA can run on, in the order of the PCI bus; empty without a working driver."""
    gpus: list[Gpu] = []
    for index in range(_ask("nvmlDeviceGetCount") or 0):
        handle = _ask("nvmlDeviceGetHandleByIndex", index)
        if handle is None:  # fell off the bus, or belongs to another container
            continue
        gpu = Gpu(index, _ask("nvmlDeviceGetUUID", handle) or "", _device(handle))
        gpus += _instances(handle, gpu) or [gpu]
    return tuple(gpus)


def visible(gpus: tuple[Gpu, ...], environ: Mapping[str, str]) -> tuple[Gpu, ...]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves, in its order: the first one is torch's `cuda:0`.

    As CUDA does, stop at the first entry that names no GPU. A number counts in the order of the PCI bus, which is
    CUDA's own order only with CUDA_DEVICE_ORDER=PCI_BUS_ID or where all GPUs are alike.
    """
    wanted = environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return gpus
    chosen: list[Gpu] = []
    for entry in (part.strip() for part in wanted.split(",")):
        if entry.isdecimal():
            found = next((gpu for gpu in gpus if gpu.index == int(entry)), None)
        else:
            found = next((gpu for gpu in gpus if entry and gpu.uuid.startswith(entry)), None)
        if found is None:
            break
        chosen.append(found)
    return tuple(chosen)


def query_state(uuid: str, ours: frozenset[int] = frozenset()) -> State:
    """Return the state of a GPU now; `ours` are the pids of our own programs. Takes well under a millisecond."""
    handle = _ask("nvmlDeviceGetHandleByUUID", uuid)
    card = _physical(handle)
    celsius = _ask("nvmlDeviceGetTemperature", card, _TEMPERATURE_GPU)
    power_mw = _ask("nvmlDeviceGetPowerUsage", card)
    busy = _ask("nvmlDeviceGetUtilizationRates", card)
    return State(
        sm_clock_hz=_hertz(_ask("nvmlDeviceGetClockInfo", card, _CLOCK_SM)),
        temperature_c=None if celsius is None else float(celsius),
        power_w=None if power_mw is None else power_mw / 1e3,
        throttle_reasons=_throttle_reasons(card),
        others=_others(handle, ours),
        busy_pct=None if busy is None else float(busy.gpu),
        memory_used_bytes=_memory(handle, "used"),
    )


def query_free_memory(uuid: str) -> int | None:
    """Return the free memory of a GPU in bytes; None where it is not known."""
    return _memory(_ask("nvmlDeviceGetHandleByUUID", uuid), "free")


def card_of(uuid: str | None) -> str | None:
    """Return the UUID of the physical GPU that an instance (MIG) is a part of; of a whole GPU its own."""
    return _ask("nvmlDeviceGetUUID", _physical(_ask("nvmlDeviceGetHandleByUUID", uuid))) or uuid


def query_working(uuid: str, since_us: int, pids: frozenset[int]) -> tuple[Process, ...]:
    """Return which of these programs had kernels on the GPU's multiprocessors since a time in us of the epoch.

    NVML samples this a few times per second; it does not support it for the instances of a split GPU.
    """
    if not pids:
        return ()
    handle = _ask("nvmlDeviceGetHandleByUUID", uuid)
    samples = _ask("nvmlDeviceGetProcessUtilization", handle, since_us) or ()
    working = {sample.pid for sample in samples if sample.smUtil and sample.timeStamp >= since_us}
    return _no_proxies(Process(pid, _process_name(pid)) for pid in sorted(working & pids))


def query_health(uuid: str) -> Health:
    """Return what an operator may have to repair on a GPU."""
    card = _physical(_ask("nvmlDeviceGetHandleByUUID", uuid))
    persistence = _ask("nvmlDeviceGetPersistenceMode", card)
    rows = _ask("nvmlDeviceGetRemappedRows", card)  # corrected, uncorrected, pending, failed
    return Health(
        persistence=None if persistence is None else bool(persistence),
        uncorrected_errors=_ask("nvmlDeviceGetTotalEccErrors", card, _UNCORRECTED, _VOLATILE),
        repair_pending=None if rows is None else bool(rows[2] or rows[3]),
    )


@cache
def _connect() -> tuple[Any | None, str]:
    """Return pynvml, ready for questions, or the reason why there is none.

    The connection is kept until the process ends: opening it can take seconds on a machine with many GPUs.
    """
    try:
        import pynvml
    except ImportError:
        return None, "nvidia-ml-py is not installed"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return None, str(error)
    atexit.register(_ask, "nvmlShutdown")
    return pynvml, ""


def _ask(question: str, *args: Any) -> Any:  # noqa: ANN401 # the answers of NVML have no types
    """Return NVML's answer, or None for any that it refuses, without a driver, and about a device that is None."""
    pynvml, _ = _connect()
    if pynvml is None or None in args:
        return None
    try:
        return getattr(pynvml, question)(*args)
    except (pynvml.NVMLError, UnicodeDecodeError):  # a process may bear any bytes as its name
        return None


def _physical(handle: Any) -> Any:  # noqa: ANN401
    """Return the card that an instance is a part of: only the card has clocks, power and a temperature."""
    return _ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle) or handle


def _device(handle: Any) -> Device:  # noqa: ANN401
    capability = _ask("nvmlDeviceGetCudaComputeCapability", handle)
    compute_capability = None if capability is None else f"{capability[0]}.{capability[1]}"
    limit_mw = _ask("nvmlDeviceGetEnforcedPowerLimit", handle)
    ecc = _ask("nvmlDeviceGetEccMode", handle)  # current, pending
    mig = _ask("nvmlDeviceGetMigMode", handle)  # current, pending
    return Device(
        kind="cuda",
        name=_ask("nvmlDeviceGetName", handle) or "unknown",
        compute_capability=compute_capability,
        sm_count=_sm_count(_ask("nvmlDeviceGetNumGpuCores", handle), compute_capability),
        memory_bytes=_memory(handle, "total"),
        sm_clock_max_hz=_hertz(_ask("nvmlDeviceGetMaxClockInfo", handle, _CLOCK_SM)),
        memory_clock_max_hz=_hertz(_ask("nvmlDeviceGetMaxClockInfo", handle, _CLOCK_MEM)),
        memory_bus_bits=_ask("nvmlDeviceGetMemoryBusWidth", handle),
        power_limit_w=None if limit_mw is None else limit_mw / 1e3,
        driver=_ask("nvmlSystemGetDriverVersion"),
        ecc=None if ecc is None else bool(ecc[0]),
        mig=None if mig is None else bool(mig[0]),
    )


def _instances(card: Any, whole: Gpu) -> list[Gpu]:  # noqa: ANN401
    """Return the MIG instances of a card that this process may use."""
    if not whole.device.mig:
        return []
    instances: list[Gpu] = []
    for number in range(_ask("nvmlDeviceGetMaxMigDeviceCount", card) or 0):
        handle = _ask("nvmlDeviceGetMigDeviceHandleByIndex", card, number)
        if handle is None:
            continue
        attributes = _ask("nvmlDeviceGetAttributes_v2", handle)
        device = replace(
            whole.device,
            name=_ask("nvmlDeviceGetName", handle) or f"{whole.device.name} MIG",
            sm_count=attributes.multiprocessorCount if attributes else None,
            memory_bytes=_memory(handle, "total"),
            memory_bus_bits=None,  # an instance has a share of the bus, and NVML does not tell which
        )
        instances.append(Gpu(whole.index, _ask("nvmlDeviceGetUUID", handle) or "", device))
    return instances


def _sm_count(cores: int | None, compute_capability: str | None) -> int | None:
    per_sm = _CORES_PER_SM.get(compute_capability or "")
    return cores // per_sm if cores and per_sm else None


def _memory(handle: Any, which: str) -> int | None:  # noqa: ANN401
    # Only version 2 keeps the driver's own reserve, hundreds of MiB on a data-centre GPU, out of `used`.
    memory = _ask("nvmlDeviceGetMemoryInfo", handle, _MEMORY_V2) or _ask("nvmlDeviceGetMemoryInfo", handle)
    return None if memory is None else int(getattr(memory, which))


def _throttle_reasons(card: Any) -> tuple[str, ...] | None:  # noqa: ANN401
    # Drivers before R535 know the question by its old name only.
    bits = _ask("nvmlDeviceGetCurrentClocksEventReasons", card)
    if bits is None:
        bits = _ask("nvmlDeviceGetCurrentClocksThrottleReasons", card)
    return None if bits is None else decode_throttle_reasons(bits)


def decode_throttle_reasons(bits: int) -> tuple[str, ...]:
    """Return the names of the reasons that hold a clock down."""
    return tuple(
        _THROTTLE_REASONS.get(bit, f"unknown-{bit:#x}")
        for bit in (1 << n for n in range(bits.bit_length()))
        if bits & bit and bit != _IDLE
    )


def _others(handle: Any, ours: frozenset[int]) -> tuple[Process, ...] | None:  # noqa: ANN401
    running = _ask("nvmlDeviceGetComputeRunningProcesses", handle)
    if running is None:
        return None
    return _no_proxies(
        Process(process.pid, _process_name(process.pid), process.usedGpuMemory)
        for process in running
        if process.pid not in ours
    )


def _no_proxies(processes: Iterable[Process]) -> tuple[Process, ...]:
    """Leave out the server of CUDA's Multi-Process Service, whose clients are listed beside it."""
    return tuple(process for process in processes if process.name != "nvidia-cuda-mps-server")


def _process_name(pid: int) -> str:
    """Return the program's file name only: its arguments may hold secrets."""
    name = _ask("nvmlSystemGetProcessName", pid)
    return PurePath(name).name if name else "unknown"


def _hertz(mega: int | None) -> float | None:
    return None if mega is None else mega * 1e6
