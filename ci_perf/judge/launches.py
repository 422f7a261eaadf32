"""How base and head launch their GPU kernels: registers, launch parameters, memory, occupancy; for every case.

No counter is needed. They are read from the compiled code of a case that is timed as a CUDA graph, from CUPTI's records
of one that CUPTI times or that can be captured on one side only, and from the traces of a `command`. Of a benchmark and
of a case with `time = "wall"` they are compared where both sides are traced: if it changed, or its files did.
"""

import math
from collections.abc import Sequence

from ci_perf.judge.gates import CounterChange
from ci_perf.values.measurement import Measurement
from ci_perf.values.occupancy import block_limits, occupancy_pct
from ci_perf.values.trace import CaseTimeline, LaunchedKernel

_REGISTERS = "registers_per_thread"
_UNITS = {
    _REGISTERS: "register",
    "block_size": "thread",
    "grid_size": "block",
    "shared_static_bytes": "byte",
    "shared_dynamic_bytes": "byte",
    "shared_bytes_per_block": "byte",
    "local_bytes_per_thread": "byte",
    "theoretical_occupancy_pct": "%",
    "gpu_kernels": "",
}


def launch_values(measurement: Measurement, capability: str | None) -> tuple[dict[str, float], dict[str, float]]:
    """Return the facts of the launches of base and head by name; empty where they are not known of both.

    They are those that the worker read from the compiled code, else those that a timeline of each side has.
    """
    known = ((pair.base_kernels, pair.head_kernels) for pair in measurement.pairs if pair.base_kernels)
    base, head = next(known, ((), ()))
    if base and head:
        return _values(base, capability), _values(head, capability)
    profile = measurement.base_profile
    old, new = comparable(profile.timeline if profile else None, measurement.timeline)
    return (traced_values(old, capability), traced_values(new, capability)) if old and new else ({}, {})


def comparable(
    base: CaseTimeline | None, head: CaseTimeline | None
) -> tuple[CaseTimeline, CaseTimeline] | tuple[None, None]:
    """Return two timelines of one profiler and of as many launches, or nothing."""
    if base is None or head is None or (base.source, base.launches) != (head.source, head.launches):
        return None, None
    return base, head


def launch_changes(measurement: Measurement, capability: str | None) -> tuple[CounterChange, ...]:
    """Return what differs between the launches of base and head; any difference is one.

    Registers that a profiler counted on both sides are left out: the driver gives each thread at least 16, for example,
    which a profiler shows beside the 10 of the compiled code.
    """
    base, head = launch_values(measurement, capability)
    sides = (measurement.base_profile, measurement.head_profile)
    is_counted = all(side and any(_REGISTERS in launch for launch in side.counters) for side in sides)
    names = [name for name in _UNITS if not (is_counted and name == _REGISTERS)]
    changed = [name for name in names if name in base and name in head and base[name] != head[name]]
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
    values = {name: float(value) for name, value in found.items()}
    return values | _occupancy(capability, [_launch(kernel) for kernel in kernels])


def traced_values(timeline: CaseTimeline, capability: str | None) -> dict[str, float]:
    """Return the facts of the launches in a timeline; what it does not have of each GPU kernel is left out.

    A program may launch as often as time allows: how many blocks and kernels there are is compared of launches alone.
    """
    kernels, launches = timeline.kernels, timeline.launches
    columns: dict[str, list[int | None]] = {
        "registers_per_thread": [kernel.registers_per_thread for kernel in kernels],
        "block_size": [math.prod(kernel.block) or None for kernel in kernels],
        "shared_bytes_per_block": [kernel.shared_bytes for kernel in kernels],
        "local_bytes_per_thread": [kernel.local_bytes for kernel in kernels],
    }
    values = {name: float(max(known)) for name, column in columns.items() if (known := _all(column))}
    blocks = _all([math.prod(kernel.grid) * kernel.count or None for kernel in kernels])
    if launches > 1 and blocks and not any(kernel.count % launches for kernel in kernels):
        values["grid_size"] = sum(blocks) / launches
        values["gpu_kernels"] = sum(kernel.count for kernel in kernels) / launches
    names = ("block_size", "registers_per_thread", "shared_bytes_per_block")
    each = [_all(columns[name]) for name in names]
    return values | _occupancy(capability, list(zip(*each, strict=True)) if all(each) else [])


def _all(column: Sequence[int | None]) -> list[int]:
    """Return the values of a column; none where one is missing."""
    known = [value for value in column if value is not None]
    return known if len(known) == len(column) else []


def _occupancy(capability: str | None, launches: Sequence[tuple[int, ...]]) -> dict[str, float]:
    """Return the worst occupancy of launches (threads, registers, shared bytes); of a single one also its limits."""
    occupancies = [pct for launch in launches if (pct := occupancy_pct(capability, *launch)) is not None]
    limits = [blocks for launch in launches if (blocks := block_limits(capability, *launch)) is not None]
    values = {"theoretical_occupancy_pct": min(occupancies)} if occupancies else {}
    if len(limits) == 1:  # of several kernels none is the limit of all
        values |= {f"blocks_by_{name}": float(blocks) for name, blocks in limits[0].items()}
    return values


def _launch(kernel: LaunchedKernel) -> tuple[int, int, int]:
    shared = kernel.static_shared_bytes + kernel.dynamic_shared_bytes
    return math.prod(kernel.block), kernel.registers_per_thread, shared
