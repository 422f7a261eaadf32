"""The driver and its GPUs."""

from collections.abc import Iterator

from ci_perf.doctor.facts import Check, CheckState, Facts, GpuFacts

_DRIVER_TROUBLE = (
    (
        "mismatch",
        "the driver was updated while its old kernel module still runs: NVML and the module do not match",
        "sudo reboot",
    ),
    ("not loaded", "the driver is installed, but its kernel module is not loaded", "sudo modprobe nvidia"),
)
"""What NVML says, what it means, and what to do."""
_GIB = 1024**3
_STRANGERS_MEMORY_BYTES = _GIB // 2
_SLOWED_BY_HARDWARE = ("hw-slowdown", "sw-thermal", "hw-thermal", "hw-power-brake")


def driver(facts: Facts) -> Iterator[Check]:
    """Judge the driver, or say why no GPU is seen."""
    if facts.gpus:
        supports = f", supports CUDA {facts.driver_cuda}" if facts.driver_cuda else ""
        yield Check("driver", CheckState.OK, f"NVIDIA driver {facts.driver}{supports}")
        return
    for trouble, sentence, fix in _DRIVER_TROUBLE:
        if trouble in facts.driver_problem.lower():
            yield Check("driver", CheckState.BROKEN, sentence, fix)
            return
    why = facts.driver_problem or "the driver shows no GPU"
    yield Check(
        "gpu",
        CheckState.MISSING,
        f"no GPU ({why}): `ci-perf run` checks and times the reference implementations on the CPU; "
        "list, replay, report and baseline work in full",
        _bring_gpu(facts),
    )


def _bring_gpu(facts: Facts) -> str:
    if "nvidia-ml-py" in facts.driver_problem:
        return "pip install nvidia-ml-py"
    if facts.wsl:
        return "install the NVIDIA driver on Windows, none inside WSL, then `wsl --shutdown`"
    if facts.container:
        return "start the container with `docker run --gpus all ...`; the host needs nvidia-container-toolkit"
    return "on a machine with an NVIDIA GPU: install its driver, then check `nvidia-smi`"


def gpu(gpu: GpuFacts, facts: Facts) -> Iterator[Check]:
    """Judge one GPU: who else uses it, its memory, clocks and settings."""
    name = f"gpu {gpu.index}"
    memory = f", {gpu.device.memory_bytes / _GIB:.0f} GiB" if gpu.device.memory_bytes else ""
    yield Check(name, CheckState.OK, f"{gpu.device.name}{memory}")
    if gpu.others:
        yield Check(
            f"{name} users",
            CheckState.WARN,
            f"other programs use this GPU and will move every time: {', '.join(gpu.others)}",
            "stop them, or measure when they are done",
        )
    elif (gpu.memory_used_bytes or 0) > _STRANGERS_MEMORY_BYTES:
        yield Check(
            f"{name} users",
            CheckState.WARN,
            f"{(gpu.memory_used_bytes or 0) / _GIB:.1f} GiB of its memory are in use by a program that is not visible"
            f" from {'this container' if facts.container else 'here'}",
            "run `nvidia-smi` on the host and stop what it lists",
        )
    yield from _gpu_health(gpu, name)
    if gpu.device.mig:
        yield Check(
            f"{name} mig",
            CheckState.WARN,
            "the GPU is split (MIG): its instances share clocks and power, clocks cannot be locked, and ncu reads "
            "shared units not at all",
            f"sudo nvidia-smi -i {gpu.index} -mig 0; or keep it: an instance has its own name, so its own baselines",
        )


def _gpu_health(gpu: GpuFacts, name: str) -> Iterator[Check]:
    if gpu.uncorrected_errors:
        yield Check(
            f"{name} memory",
            CheckState.BROKEN,
            f"{gpu.uncorrected_errors} uncorrected ECC errors since the driver was loaded",
            f"sudo nvidia-smi -i {gpu.index} --gpu-reset; replace the GPU if they come back",
        )
    elif gpu.repair_pending:
        yield Check(
            f"{name} memory",
            CheckState.WARN,
            "broken rows of memory wait to be replaced by spare ones",
            f"sudo nvidia-smi -i {gpu.index} --gpu-reset; replace the GPU if the warning stays",
        )
    if slowed := [reason for reason in gpu.throttle_reasons if reason in _SLOWED_BY_HARDWARE]:
        yield Check(
            f"{name} clocks",
            CheckState.WARN,
            f"the clocks are held down just now: {', '.join(slowed)}",
            f"nvidia-smi -i {gpu.index} -q -d PERFORMANCE,TEMPERATURE,POWER; mend the cooling or the power supply",
        )
    if gpu.persistence is False:
        yield Check(
            f"{name} persistence",
            CheckState.WARN,
            "persistence mode is off: the driver unloads its state between processes, which start slowly and cold",
            f"sudo nvidia-smi -i {gpu.index} -pm 1",
        )
