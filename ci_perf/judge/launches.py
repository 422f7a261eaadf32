"""How base and head launch their GPU kernels: registers, launch parameters, memory, occupancy; without a profiler."""

import math
from collections.abc import Sequence

from ci_perf.judge.gates import CounterChange
from ci_perf.values.measurement import Measurement
from ci_perf.values.occupancy import block_limits, occupancy_pct
from ci_perf.values.trace import LaunchedKernel

_UNITS = {
    "registers_per_thread": "register",
    "block_size": "thread",
    "grid_size": "block",
    "shared_static_bytes": "byte",
    "shared_dynamic_bytes": "byte",
    "local_bytes_per_thread": "byte",
    "theoretical_occupancy_pct": "%",
    "gpu_kernels": "",
}


def launch_values(measurement: Measurement, capability: str | None) -> tuple[dict[str, float], dict[str, float]]:
    """Return the facts of the launches of base and head by name; empty where they are not known of both."""
    known = ((pair.base_kernels, pair.head_kernels) for pair in measurement.pairs if pair.base_kernels)
    base, head = next(known, ((), ()))
    if not base or not head:
        return {}, {}
    return _values(base, capability), _values(head, capability)


def launch_changes(measurement: Measurement, capability: str | None) -> tuple[CounterChange, ...]:
    """Return what differs between the launches of base and head; any difference is one."""
    base, head = launch_values(measurement, capability)
    changed = [name for name in _UNITS if name in base and name in head and base[name] != head[name]]
    return tuple(CounterChange(name, _UNITS[name], base[name], head[name]) for name in changed)


def _values(kernels: Sequence[LaunchedKernel], capability: str | None) -> dict[str, float]:
    """Combine the GPU kernels of a launch as counters are: the most of each, all blocks, the worst occupancy."""
    found = {
        "registers_per_thread": max(kernel.registers_per_thread for kernel in kernels),
        "block_size": max(math.prod(kernel.block) for kernel in kernels),
        "grid_size": sum(math.prod(kernel.grid) for kernel in kernels),
        "shared_static_bytes": max(kernel.static_shared_bytes for kernel in kernels),
        "shared_dynamic_bytes": max(kernel.dynamic_shared_bytes for kernel in kernels),
        "local_bytes_per_thread": max(kernel.local_bytes for kernel in kernels),
        "gpu_kernels": len(kernels),
    }
    launches = [_launch(kernel) for kernel in kernels]
    occupancies = [pct for launch in launches if (pct := occupancy_pct(capability, *launch)) is not None]
    limits = [blocks for launch in launches if (blocks := block_limits(capability, *launch)) is not None]
    values = {name: float(value) for name, value in found.items()}
    if occupancies:
        values["theoretical_occupancy_pct"] = min(occupancies)
    if len(limits) == 1:  # of several kernels none is the limit of all
        values |= {f"blocks_by_{name}": float(blocks) for name, blocks in limits[0].items()}
    return values


def _launch(kernel: LaunchedKernel) -> tuple[int, int, int]:
    shared = kernel.static_shared_bytes + kernel.dynamic_shared_bytes
    return math.prod(kernel.block), kernel.registers_per_thread, shared
