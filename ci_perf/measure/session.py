"""Everything that is settled before the first measurement: interpreter, devices, profilers, and what is missing."""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ci_perf import store
from ci_perf.guard.guard import Guard
from ci_perf.guard.secrets import for_profilers, without_secrets
from ci_perf.measure import git, gpu, tools
from ci_perf.measure.cpu import cpu_device
from ci_perf.measure.machine import Conditions, job_request, query_interpreter
from ci_perf.measure.profile import Profiler, ProfileSession
from ci_perf.measure.program_run import Launcher
from ci_perf.measure.torch_trace import TorchTrace, WithFallback
from ci_perf.measure.worker_process import Worker
from ci_perf.values.device import Device, Toolchain
from ci_perf.values.errors import MachineError
from ci_perf.values.measurement import Failure
from ci_perf.values.run import Note
from ci_perf.values.sessions import MEMORY_ERRORS
from ci_perf.values.settings import Settings

_HINTS = {
    "nsys": "install Nsight Systems (package nsight-systems-cli) or name it with CI_PERF_NSYS",
    "ncu": "install Nsight Compute (package nsight-compute) or name it with CI_PERF_NCU",
}

BUSY_PCT, BUSY_READINGS, BUSY_POLL_S = 5.0, 4, 0.5
"""The GPU counts as busy where it is at least so busy in so many readings in a row, so many seconds apart."""

_INSTEAD = {
    "nsys": "torch's profiler gives the timeline in its place",
    "ncu": "no counters; registers, launch parameters, shared and local memory are those of the timeline",
}


@dataclass(frozen=True, slots=True)
class Session:
    """A machine that is ready to measure."""

    conditions: Conditions
    worker: Worker
    devices: tuple[Device, ...]
    toolchain: Toolchain
    profilers: tuple[Profiler, ...]
    notes: tuple[Note, ...]
    guard: Guard

    @property
    def folder(self) -> Path:
        """Where the run's files go: the artifact folder."""
        return self.guard.folder

    @property
    def launcher(self) -> Launcher:
        """What starts the programs of the tree that is checked out."""
        conditions = self.conditions
        return Launcher(conditions.root, self.folder, conditions.python, conditions.env, conditions.timeout_s)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of device in the order in which they are measured."""
        return tuple(device.kind for device in self.devices)


def prepare(settings: Settings, root: Path, *, programs_only: bool = False) -> Session:
    """Find the interpreter, the devices and the profilers; a demand that cannot be met is a MachineError.

    Programs need no torch: where nothing else is measured, the driver's word is enough for a GPU.
    """
    env = git.outside_hooks(without_secrets(os.environ, settings["pass-env"]))
    folder = root / settings["output"]
    python = tools.find_python(settings["python"] or None, env)
    store.claim_run_folder(folder)
    guard = Guard.of(folder, os.environ)
    worker = Worker(str(python.path), env, folder / "logs")
    with ExitStack() as on_error:
        on_error.enter_context(worker)
        seen = query_interpreter(worker)
        if isinstance(seen, Failure):
            raise MachineError(
                f"{python.path}: {seen.message}", hint=seen.detail.splitlines()[-1] if seen.detail else "see --python"
            )
        if programs_only and not seen["gpu"]:
            seen["gpu"] = _seen_by_driver()
        devices, notes = _devices(settings["device"], seen, str(python.path))
        conditions = Conditions(
            python=str(python.path),
            root=root,
            env=env,
            samples=settings["samples"],
            timeout_s=settings["timeout"],
            planted=settings["plant-slowdown"],
            gpu_uuid=_uuid(seen),
        )
        on_gpu = any(device.kind == "cuda" for device in devices)
        sessions, missing = _sessions(settings, conditions, guard) if on_gpu else ({}, ())
        versions = {tool: session.version for tool, session in sessions.items()}
        toolchain = Toolchain(
            python=seen["python"],
            torch=seen["torch"],
            cuda=seen["cuda"],
            packages=seen["packages"],
            nsys=versions.get("nsys"),
            ncu=versions.get("ncu"),
        )
        profilers = _profilers(settings, sessions, worker, conditions, guard) if on_gpu else ()
        on_error.pop_all()
    return Session(conditions, worker, devices, toolchain, profilers, (*notes, *missing), guard)


def _devices(
    wanted: tuple[str, ...], seen: Mapping[str, Any], python: str
) -> tuple[tuple[Device, ...], tuple[Note, ...]]:
    if "cuda" in wanted and not seen["gpu"]:
        reason = "has no torch" if not seen["torch"] else f"its torch {seen['torch']} sees no GPU"
        raise MachineError(f"no GPU to measure on: {python} {reason}", hint="`ci-perf doctor` says what is missing")
    kinds = [kind for kind in wanted if kind != "auto"] or ["cuda" if seen["gpu"] else "cpu"]
    devices = tuple(_gpu_device(seen) if kind == "cuda" else cpu_device() for kind in dict.fromkeys(kinds))
    if wanted == ("auto",) and not seen["gpu"]:
        message = "no GPU was found: this is a run on the CPU, without nsys and ncu, to show the flow"
        return devices, (Note("no-gpu", message, "`ci-perf doctor` says what a GPU run needs"),)
    return devices, ()


def _seen_by_driver() -> dict[str, Any] | None:
    """Return the first visible GPU as torch would describe it."""
    found = gpu.visible(gpu.query_gpus(), os.environ)
    if not found:
        return None
    device = found[0].device
    facts = {name: getattr(device, name) for name in ("name", "compute_capability", "sm_count", "memory_bytes")}
    return {**facts, "uuid": found[0].uuid, "l2_bytes": device.l2_bytes}


def find_tracer(env: Mapping[str, str]) -> str | None:
    """Return the nsys that times programs, whatever profilers were asked for."""
    return next((str(tool.path) for tool in tools.find_nsys(env) if tool.complete), None)


def _gpu_device(seen: Mapping[str, Any]) -> Device:
    """Join what NVML and torch know of the GPU that torch sees first."""
    found = seen["gpu"]
    known = _match(found)
    device = known.device if known else Device("cuda", found["name"])
    return replace(
        device,
        compute_capability=device.compute_capability or found["compute_capability"],
        sm_count=found["sm_count"] or device.sm_count,
        memory_bytes=device.memory_bytes or found["memory_bytes"],
        l2_bytes=found["l2_bytes"],
    )


def note_other_programs(uuid: str | None) -> tuple[Note, ...]:
    """Say which other programs are on the GPU before anything of ours is, or that nobody knows.

    They spoil every number. To be asked once the GPU is locked: until then another run may be measuring.
    """
    others = gpu.query_state(uuid).others if uuid else ()
    notes = []
    if uuid and uuid.startswith("MIG-"):
        message = "this is an instance of a GPU (MIG): others on it share power and clock, and nobody watches them"
        notes.append(Note("mig-neighbours", message, "leave the other instances idle, or measure on a whole GPU"))
    if others is None:
        message = "this GPU cannot be watched: NVML does not tell what else runs on it"
        hint = "in a container set NVIDIA_DRIVER_CAPABILITIES=compute,utility; see `ci-perf doctor`"
        notes.append(Note("gpu-unwatched", message, hint))
    if others:
        names = ", ".join(f"{other.name} ({other.pid})" for other in others[:5])
        message = f"other programs were on this GPU when the run began: {names}"
        hint = "stop them and run again: they take turns with what is measured"
        notes.append(Note("foreign-processes", message, hint))
    return tuple(notes)


def broken_memory(uuid: str | None, before: gpu.Health | None) -> tuple[Note, ...]:
    """Say that the GPU's memory has had errors since `before` that ECC could not correct: no output can be trusted."""
    after = gpu.query_health(uuid) if uuid else None
    if before is None or after is None or None in (before.uncorrected_errors, after.uncorrected_errors):
        return ()
    new = (after.uncorrected_errors or 0) - (before.uncorrected_errors or 0)
    message = f"{new} uncorrected memory errors (ECC) while this ran: neither outputs nor times can be trusted"
    return (
        (Note(MEMORY_ERRORS, message, "reset the GPU, and see `nvidia-smi -q -d ECC,ROW_REMAPPER`"),) if new > 0 else ()
    )


def wait_until_idle(uuid: str | None, wait_s: float, say: Callable[[str], object]) -> None:
    """Wait until no other program's kernels run on the GPU; `say` is told once.

    To be asked while the GPU is locked and nothing of ours runs. A program that only holds memory is not waited for.
    """
    deadline = time.monotonic() + wait_s
    said = False
    while uuid and all(_is_busy(uuid) for _ in range(BUSY_READINGS)):
        others = ", ".join(f"{p.name} ({p.pid})" for p in gpu.query_state(uuid).others or ()) or "another program"
        if time.monotonic() >= deadline:
            message = f"{others} has kept this GPU busy for {wait_s:.0f} s: what is measured beside it means nothing"
            raise MachineError(message, hint="stop it, or raise --wait")
        if not said:
            say(f"waiting for {others} to leave the GPU alone ...")
            said = True


def other_pids(uuid: str | None) -> frozenset[int]:
    """Return the pids of the programs on the GPU; to be asked while nothing of ours is there."""
    return frozenset(process.pid for process in (gpu.query_state(uuid).others or () if uuid else ()))


def _is_busy(uuid: str) -> bool:
    time.sleep(BUSY_POLL_S)
    return (gpu.query_state(uuid).busy_pct or 0.0) >= BUSY_PCT


def _match(found: Mapping[str, Any]) -> gpu.Gpu | None:
    """Find torch's GPU among NVML's by its UUID, which torch writes without the prefix."""
    uuid = found["uuid"]
    for candidate in gpu.query_gpus():
        if uuid and candidate.uuid.split("-", 1)[-1] == uuid.removeprefix("GPU-").removeprefix("MIG-"):
            return candidate
    visible = gpu.visible(gpu.query_gpus(), os.environ)
    return visible[0] if visible else None


def _uuid(seen: Mapping[str, Any]) -> str | None:
    """Return the GPU's UUID as NVML has it, or where there is no NVML as torch has it: there is a GPU to lock."""
    if not seen["gpu"]:
        return None
    known, of_torch = _match(seen["gpu"]), seen["gpu"]["uuid"]
    return known.uuid if known else f"GPU-{of_torch.removeprefix('GPU-')}" if of_torch else None


def _sessions(
    settings: Settings, conditions: Conditions, guard: Guard
) -> tuple[dict[str, ProfileSession], tuple[Note, ...]]:
    """Return the sessions to run, by tool; a tool that was asked for by name must be there."""
    wanted = settings["profile"]
    chosen = {"none": (), "nsys": ("nsys",), "ncu": ("ncu",)}.get(wanted, ("nsys", "ncu"))
    finders = {"nsys": tools.find_nsys, "ncu": tools.find_ncu}
    sessions: dict[str, ProfileSession] = {}
    notes: list[Note] = []
    env = for_profilers(conditions.env, settings["pass-env"])
    for tool in chosen:
        found = finders[tool](conditions.env)
        usable = next((t for t in found if t.complete), None)
        if usable:
            request = partial(job_request, root=conditions.root)
            sessions[tool] = ProfileSession(
                *(
                    tool,
                    str(usable.path),
                    str(usable.version),
                    conditions.python,
                    guard,
                    env,
                    request,
                    conditions.timeout_s,
                ),
                full=wanted == "full",
            )
            continue
        problem = f"{found[0].path}: {found[0].problem or 'it is incomplete'}" if found else f"{tool} was not found"
        if wanted == tool:
            raise MachineError(f"{tool} was asked for and cannot be used: {problem}", hint=_HINTS[tool])
        notes.append(Note(f"no-{tool}", f"not profiled with {tool}: {problem}; {_INSTEAD[tool]}", _HINTS[tool]))
    return sessions, tuple(notes)


def _profilers(
    settings: Settings, sessions: Mapping[str, ProfileSession], worker: Worker, conditions: Conditions, guard: Guard
) -> tuple[Profiler, ...]:
    """Return what profiles, in order: torch stands in where nsys is wanted and missing or records nothing."""
    profilers: list[Profiler] = []
    if settings["profile"] in {"auto", "full", "nsys"}:
        torch = TorchTrace(worker, guard, partial(job_request, root=conditions.root), conditions.timeout_s)
        nsys = sessions.get("nsys")
        profilers.append(WithFallback(nsys, torch) if nsys else torch)
    if "ncu" in sessions:
        profilers.append(sessions["ncu"])
    return tuple(profilers)
