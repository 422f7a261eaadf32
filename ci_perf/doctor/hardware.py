"""Diagnoses of the driver and its GPUs."""

from collections.abc import Iterator

from ci_perf.doctor.facts import Diagnosis, Facts, GpuFacts, broken, missing, ok, warn

_DRIVER_PROBLEMS = (
    ("mismatch", "the driver was updated, but its old kernel module is still loaded: versions differ", "sudo reboot"),
    ("not loaded", "the driver is installed, but its kernel module is not loaded", "sudo modprobe nvidia"),
)
"""Part of NVML's error message, what it means, and the fix."""
_GIB = 1024**3
_HIDDEN_PROGRAM_BYTES = _GIB // 2
_HARDWARE_SLOWDOWNS = ("hw-slowdown", "sw-thermal", "hw-thermal", "hw-power-brake")


def driver(facts: Facts) -> Iterator[Diagnosis]:
    """Diagnose the driver; without a GPU, say why none is visible."""
    if facts.gpus:
        supports = f", supports CUDA {facts.driver_cuda}" if facts.driver_cuda else ""
        yield ok("driver", f"NVIDIA driver {facts.driver}{supports}")
        return
    for problem, sentence, fix in _DRIVER_PROBLEMS:
        if problem in facts.driver_problem.lower():
            yield broken("driver", sentence, fix)
            return
    why = facts.driver_problem or "the driver shows no GPU"
    sentence = (
        f"no GPU ({why}): `ci-perf run` verifies and times the reference implementations on the CPU; "
        "list, replay, report and baseline work as usual"
    )
    yield missing("gpu", sentence, _fix_no_gpu(facts))


def _fix_no_gpu(facts: Facts) -> str:
    if "nvidia-ml-py" in facts.driver_problem:
        return "pip install nvidia-ml-py"
    if facts.wsl:
        return "install the NVIDIA driver on Windows, not inside WSL, then run `wsl --shutdown`"
    if facts.container:
        return "start the container with `docker run --gpus all ...`; the host needs nvidia-container-toolkit"
    return "on a machine with an NVIDIA GPU: install its driver, then run `nvidia-smi` to check it"


def gpu(gpu: GpuFacts, facts: Facts) -> Iterator[Diagnosis]:
    """Diagnose one GPU: other programs on it, its memory, clocks and settings."""
    name = f"gpu {gpu.index}"
    memory = f", {gpu.device.memory_bytes / _GIB:.0f} GiB" if gpu.device.memory_bytes else ""
    yield ok(name, f"{gpu.device.name}{memory}")
    if gpu.others:
        yield warn(
            f"{name} users",
            f"other programs use this GPU, so times will vary: {', '.join(gpu.others)}",
            "stop them, or measure when they have ended",
        )
    elif (gpu.memory_used_bytes or 0) > _HIDDEN_PROGRAM_BYTES:
        yield warn(
            f"{name} users",
            f"{(gpu.memory_used_bytes or 0) / _GIB:.1f} GiB of its memory are used by a program that is not visible"
            f" from {'this container' if facts.container else 'here'}",
            "run `nvidia-smi` on the host and stop the programs that it lists",
        )
    yield from _gpu_health(gpu, name)
    if gpu.device.mig:
        yield warn(
            f"{name} mig",
            "the GPU is partitioned (MIG): its instances share clocks and power, clocks cannot be locked, and ncu "
            "cannot read the counters of shared units",
            f"sudo nvidia-smi -i {gpu.index} -mig 0; or keep it: each kind of instance has its own baselines",
        )


def _gpu_health(gpu: GpuFacts, name: str) -> Iterator[Diagnosis]:
    reset = f"sudo nvidia-smi -i {gpu.index} --gpu-reset"
    if gpu.uncorrected_errors:
        sentence = f"{gpu.uncorrected_errors} uncorrected ECC errors since the driver was loaded"
        yield broken(f"{name} memory", sentence, f"{reset}; replace the GPU if they occur again")
    elif gpu.repair_pending:
        sentence = "remapping of faulty memory rows is pending"
        yield warn(f"{name} memory", sentence, f"{reset}; replace the GPU if the warning stays")
    if slowed := [reason for reason in gpu.throttle_reasons if reason in _HARDWARE_SLOWDOWNS]:
        yield warn(
            f"{name} clocks",
            f"the clocks are throttled now: {', '.join(slowed)}",
            f"nvidia-smi -i {gpu.index} -q -d PERFORMANCE,TEMPERATURE,POWER; repair the cooling or the power supply",
        )
    if gpu.persistence is False:
        yield warn(
            f"{name} persistence",
            "persistence mode is off: the driver unloads its state between processes, so each process starts slowly",
            f"sudo nvidia-smi -i {gpu.index} -pm 1",
        )
