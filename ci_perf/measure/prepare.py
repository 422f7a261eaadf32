"""Finds what a session needs: the interpreter, the devices, the profilers; a demand that cannot be met is an error."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ci_perf.guard.guard import Guard, rules_of
from ci_perf.measure import gpu, tools
from ci_perf.measure.conditions import Conditions
from ci_perf.measure.cpu import cpu_device
from ci_perf.measure.profile import NcuProfiler, NsysProfiler, Profiler
from ci_perf.measure.torch_profiler import NsysOrTorch, TorchProfiler
from ci_perf.measure.worker_process import Worker
from ci_perf.values.device import Device, Tool
from ci_perf.values.errors import MachineError
from ci_perf.values.measurement import Failure
from ci_perf.values.run import Note
from ci_perf.values.settings import Settings

HELLO_TIMEOUT_S = 120.0
_HINTS = {
    "nsys": "install Nsight Systems (package nsight-systems-cli) or name it with CI_PERF_NSYS",
    "ncu": "install Nsight Compute (package nsight-compute) or name it with CI_PERF_NCU",
}
_INSTEAD = {
    "nsys": "torch's profiler gives the timeline in its place",
    "ncu": "no counters; registers, launch parameters, shared and local memory are those of the timeline",
}


@dataclass(frozen=True, slots=True)
class Profilers:
    """The profilers that are wanted and work."""

    of_kernels: tuple[Profiler, ...] = ()
    """Those of Python kernels, in their order."""
    ncu: NcuProfiler | None = None
    """Programs are run under it, too."""
    versions: Mapping[str, str | None] = field(default_factory=dict)
    """Of nsys and ncu."""
    notes: tuple[Note, ...] = ()
    """What is missing."""


def query_interpreter(worker: Worker, python: str, *, programs_only: bool) -> dict[str, Any]:
    """Ask the user's interpreter for its versions and the GPU that torch sees; MachineError.

    Programs need no torch: where nothing else is measured, the driver's word is enough for a GPU.
    """
    seen = worker.ask({"op": "hello"}, HELLO_TIMEOUT_S)
    if isinstance(seen, Failure):
        hint = seen.detail.splitlines()[-1] if seen.detail else "see --python"
        raise MachineError(f"{python}: {seen.message}", hint=hint)
    if programs_only and not seen["gpu"]:
        seen["gpu"] = _seen_by_driver()
    return seen


def find_profilers(settings: Settings, conditions: Conditions, worker: Worker, guard: Guard) -> Profilers:
    """Find the profilers for a GPU; torch's stands in where nsys is wanted and missing or records nothing.

    One that was asked for by name must be there: MachineError.
    """
    wanted = settings["profile"]
    chosen = {"none": (), "nsys": ("nsys",), "ncu": ("ncu",)}.get(wanted, ("nsys", "ncu"))
    found, missing = _find_tools(chosen, conditions.env, wanted)
    recorded = replace(conditions, env=rules_of(settings).for_profilers(conditions.env))
    torch = TorchProfiler(worker, conditions, guard)
    of_kernels: list[Profiler] = []
    if nsys := found.get("nsys"):
        of_kernels.append(NsysOrTorch(NsysProfiler(nsys.path, str(nsys.version), recorded, guard), torch))
    elif "nsys" in chosen:
        of_kernels.append(torch)
    ncu = None
    if tool := found.get("ncu"):
        ncu = NcuProfiler(tool.path, str(tool.version), recorded, guard, full=wanted == "full")
        of_kernels.append(ncu)
    return Profilers(tuple(of_kernels), ncu, {name: tool.version for name, tool in found.items()}, missing)


def _find_tools(
    chosen: tuple[str, ...], env: Mapping[str, str], wanted: str
) -> tuple[dict[str, Tool], tuple[Note, ...]]:
    usable: dict[str, Tool] = {}
    notes: list[Note] = []
    for name in chosen:
        found = tools.find(name, env)
        if complete := next((tool for tool in found if tool.complete), None):
            usable[name] = complete
            continue
        problem = f"{found[0].path}: {found[0].problem or 'it is incomplete'}" if found else f"{name} was not found"
        if wanted == name:
            raise MachineError(f"{name} was asked for and cannot be used: {problem}", hint=_HINTS[name])
        notes.append(Note(f"no-{name}", f"not profiled with {name}: {problem}; {_INSTEAD[name]}", _HINTS[name]))
    return usable, tuple(notes)


def find_devices(
    wanted: tuple[str, ...], seen: Mapping[str, Any], python: str
) -> tuple[tuple[Device, ...], tuple[Note, ...]]:
    """Return the devices to measure on, as the interpreter `seen` sees them; MachineError without a GPU to be had."""
    if "cuda" in wanted and not seen["gpu"]:
        reason = f"torch {seen['torch']} of {python} sees no GPU" if seen["torch"] else f"{python} has no torch"
        doctor = "`ci-perf doctor` says what is missing"
        hint = doctor if seen["torch"] else f"name the interpreter that has torch with --python PATH; {doctor}"
        raise MachineError(f"no GPU to measure on: {reason}", hint=hint)
    kinds = [kind for kind in wanted if kind != "auto"] or ["cuda" if seen["gpu"] else "cpu"]
    devices = tuple(_gpu_device(seen["gpu"]) if kind == "cuda" else cpu_device() for kind in dict.fromkeys(kinds))
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


def _gpu_device(seen: Mapping[str, Any]) -> Device:
    """Join what NVML and torch know of the GPU that torch sees first."""
    known = _match(seen)
    device = known.device if known else Device("cuda", seen["name"])
    return replace(
        device,
        compute_capability=device.compute_capability or seen["compute_capability"],
        sm_count=seen["sm_count"] or device.sm_count,
        memory_bytes=device.memory_bytes or seen["memory_bytes"],
        l2_bytes=seen["l2_bytes"],
    )


def _match(seen: Mapping[str, Any]) -> gpu.Gpu | None:
    """Find torch's GPU among NVML's by its UUID, which torch writes without the prefix."""
    uuid, gpus = seen["uuid"], gpu.query_gpus()
    for candidate in gpus:
        if uuid and candidate.uuid.split("-", 1)[-1] == uuid.removeprefix("GPU-").removeprefix("MIG-"):
            return candidate
    return next(iter(gpu.visible(gpus, os.environ)), None)


def gpu_uuid(seen: Mapping[str, Any]) -> str | None:
    """Return the GPU's UUID as NVML has it, or where there is no NVML as torch has it: there is a GPU to lock."""
    if not seen["gpu"]:
        return None
    known, of_torch = _match(seen["gpu"]), seen["gpu"]["uuid"]
    return known.uuid if known else f"GPU-{of_torch.removeprefix('GPU-')}" if of_torch else None
