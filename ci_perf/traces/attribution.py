"""Attributes the GPU kernels and counters of a profiler's file to the cases of a run."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from ci_perf.traces.ncu.counters import Counters, Launch
from ci_perf.traces.selection import counts, inside
from ci_perf.traces.timeline import Gpu, KernelStats, Timeline, hidden_by_graphs
from ci_perf.values.metrics import BY_NAME, Metric, combine_kernels, find_reading
from ci_perf.values.occupancy import occupancy_pct
from ci_perf.values.trace import CaseTimeline, Reading, TracedKernel

_NO_SHAPE = (0, 0, 0)
"""Of a kernel whose grid or block the trace does not tell: no launch has it."""
_NOT_SAID = "the trace does not have it for every kernel"


def case_timeline(
    timeline: Timeline,
    label: str,
    patterns: Sequence[str],
    launches: int,
    metrics: Mapping[str, Reading] | None = None,
    source: str = "nsys",
) -> CaseTimeline | None:
    """Return the kernels that a case launched inside its range, or None where the trace has no such range.

    `metrics` are those of the range; to them come those of how the kernels were launched. Where CUDA graphs were traced
    as a whole, no kernel is listed and no metric known: another trace may show what this one hides.
    """
    if label not in timeline.ranges:
        return None
    kernels = [kernel for kernel in timeline.inside([label]) if counts(kernel.name, patterns)]
    known = {**(metrics or {}), **_launch_metrics(kernels, timeline.devices)}
    if timeline.graph_count:
        reason, kernels = hidden_by_graphs(timeline.graph_count), []
        known = {name: Reading(None, reading.unit, reason) for name, reading in known.items()}
    return CaseTimeline(launches, tuple(map(_traced, kernels)), source, known)


def _launch_metrics(kernels: Sequence[KernelStats], devices: Iterable[Gpu]) -> dict[str, Reading]:
    capabilities = {gpu.index: gpu.compute_capability for gpu in devices}
    shared = [_shared(kernel) for kernel in kernels]
    occupancies = [
        occupancy_pct(capabilities.get(k.device), math.prod(k.block), k.registers_per_thread, mine)
        if k.block and k.registers_per_thread is not None and mine is not None
        else None
        for k, mine in zip(kernels, shared, strict=True)
    ]
    return {
        "shared_bytes_per_block": _of_all(shared, max, "byte"),
        "local_bytes_per_thread": _of_all([k.local_per_thread for k in kernels], max, "byte"),
        "theoretical_occupancy_pct": _of_all(occupancies, min, "%"),
    }


def _of_all(values: Sequence[float | None], choose: Callable[[Iterable[float]], float], unit: str) -> Reading:
    """Return one reading for all kernels; not available where one of them, or there is none, does not have it."""
    known = [value for value in values if value is not None]
    if not values or len(known) < len(values):
        return Reading(None, unit, _NOT_SAID if values else "no kernel ran in the range")
    return Reading(float(choose(known)), unit)


def launch_counters(timeline: CaseTimeline) -> tuple[Mapping[str, Reading], ...]:
    """Return the launch parameters as counters, for runs without ncu."""
    kernels, launches = timeline.kernels, timeline.launches
    if not kernels:
        return ()
    blocks = [math.prod(k.grid) * k.count or None for k in kernels]
    unequal = any(k.count % launches for k in kernels)
    grids = _of_all(blocks, lambda found: sum(found) / launches, "block")
    return (
        {
            "registers_per_thread": _of_all([k.registers_per_thread for k in kernels], max, "register"),
            "block_size": _of_all([math.prod(k.block) or None for k in kernels], max, "thread"),
            "grid_size": Reading(None, "block", "the launches differ") if unequal else grids,
        },
    )


def program_timeline(
    kernels: Sequence[KernelStats], devices: Iterable[Gpu] = (), metrics: Mapping[str, Reading] | None = None
) -> CaseTimeline:
    """Return the kernels of one run of a program; `metrics` are those of what it did, to which come their launches'."""
    known = {**(metrics or {}), **_launch_metrics(kernels, devices)}
    return CaseTimeline(1, tuple(map(_traced, kernels)), metrics=known)


def program_launch_counters(timeline: CaseTimeline) -> tuple[Mapping[str, Reading], ...]:
    """Return what the trace knows of a program's kernels, without the grid: ncu sees no more than the first few."""
    return tuple({k: v for k, v in launch.items() if k != "grid_size"} for launch in launch_counters(timeline))


def program_counters(
    counters: Counters, ranges: Sequence[str], patterns: Sequence[str], metrics: Iterable[Metric], *, once: bool = False
) -> dict[str, Reading]:
    """Return the named readings of one run of a program over the kernels that count; empty where none does.

    With `once` each kernel counts once, with its longest launch: a benchmark launches as often as it needs.
    """
    mine = [launch for launch in counters.launches if inside(launch.ranges, ranges) and counts(launch.name, patterns)]
    if once:
        mine = longest_of_each(mine)
    return combine_kernels([launch.metrics for launch in mine], metrics) if mine else {}


def longest_of_each(launches: Iterable[Launch]) -> list[Launch]:
    """Return the longest launch of each kernel."""
    return list({launch.name: launch for launch in sorted(launches, key=_duration)}.values())


def _duration(launch: Launch) -> float:
    reading = find_reading(BY_NAME["duration_ns"], launch.metrics)
    return reading.value or 0.0 if reading else 0.0


def _traced(kernel: KernelStats) -> TracedKernel:
    return TracedKernel(
        name=kernel.name,
        count=kernel.count,
        total_ns=kernel.total_ns,
        median_ns=kernel.median_ns,
        grid=kernel.grid or _NO_SHAPE,
        block=kernel.block or _NO_SHAPE,
        registers_per_thread=kernel.registers_per_thread,
        shared_bytes=_shared(kernel),
        local_bytes=kernel.local_per_thread,
    )


def _shared(kernel: KernelStats) -> int | None:
    known = [size for size in (kernel.static_shared, kernel.dynamic_shared) if size is not None]
    return sum(known) if known else None


def case_counters(
    counters: Counters, label: str, patterns: Sequence[str], launches: int, metrics: Iterable[Metric]
) -> tuple[Mapping[str, Reading], ...]:
    """Return the named readings of each launch of a case; empty where its range holds no kernel that counts.

    The kernels of a range come launch by launch in the order of the file. Where these are not the same for each launch,
    some were lost or a launch cannot be told from the next, and nothing is said of any.
    """
    metrics = tuple(metrics)
    mine = [launch for launch in counters.launches if label in launch.ranges and counts(launch.name, patterns)]
    if not mine:
        return ()
    each, left_over = divmod(len(mine), launches)
    if left_over or any(launch.name != mine[place % each].name for place, launch in enumerate(mine)):
        others = "" if left_over else ", not the same in each"
        reason = f"{len(mine)} GPU kernels in {launches} launches{others}"
        return ({metric.name: Reading(None, metric.unit, reason) for metric in metrics},)
    return tuple(
        combine_kernels([launch.metrics for launch in mine[first : first + each]], metrics)
        for first in range(0, len(mine), each)
    )
