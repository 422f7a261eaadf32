"""The sides of a change, from readings of ncu and from timelines."""

import math
import statistics
from collections.abc import Mapping, Sequence

from ci_perf.judge.causes.explanation import UNITS
from ci_perf.judge.causes.sides import GpuKernel, Side, Sides
from ci_perf.values.metrics import BY_NAME, combine_kernels, find_reading, typical
from ci_perf.values.trace import CaseTimeline, Reading

_DURATION = BY_NAME["duration_ns"]
_ALIKE = 1.02
_GROW_WITH_RUNS = frozenset(
    {"alloc_calls", "copied_bytes", "graph_launches", "launch_calls", "pageable_copies", "range_ns", "sync_calls"}
)


def side_of_launches(launches: Sequence[tuple[str, Mapping[str, Reading]]]) -> Side:
    """Return one side from the GPU kernels of an ncu report: names, and readings by ncu's own names of its counters.

    The kernels are taken as those of one launch of a case.
    """
    readings = [found for _, found in launches]
    kernels: dict[str, list[float]] = {}
    for name, found in launches:
        reading = find_reading(_DURATION, found)
        kernels.setdefault(name, []).append(reading.value / 1e9 if reading and reading.value is not None else math.nan)
    named = tuple(GpuKernel(name, float(len(times)), math.fsum(times)) for name, times in kernels.items())
    return Side(_with_shared(values_of(combine_kernels(readings, BY_NAME.values()))), named)


def side_of(counters: Sequence[Mapping[str, Reading]], timeline: CaseTimeline | None) -> Side:
    """Return one side of a case from the counters of its launches and from its timeline; either may be missing."""
    durations = [launch["duration_ns"] for launch in counters if "duration_ns" in launch]
    found = {**typical(counters), **({"duration_ns": durations[0]} if durations else {})}
    metrics = timeline.metrics if timeline else {}
    return Side(_with_shared({**values_of(metrics), **values_of(found)}), kernels_of(timeline) if timeline else ())


def kernels_of(timeline: CaseTimeline) -> tuple[GpuKernel, ...]:
    """Return how often each GPU kernel ran for one launch of a case, and for how long."""
    launches = max(1, timeline.launches)
    return tuple(GpuKernel(k.name, k.count / launches, k.total_ns / 1e9 / launches) for k in timeline.kernels)


def as_often(base: Side, head: Side) -> Side:
    """Return the head's timeline for as many runs of its kernels as in the base's.

    A benchmark that chooses how often it runs does so less often where it became slower. If the number of every kernel
    that both sides have changed by one factor, that is how much more often the head ran.
    """
    before = {kernel.name: kernel.count for kernel in base.kernels}
    ratios = [kernel.count / before[kernel.name] for kernel in head.kernels if before.get(kernel.name)]
    if not ratios or max(ratios) > _ALIKE * min(ratios):
        return head
    more = statistics.median(ratios)
    values = {name: value / more if name in _GROW_WITH_RUNS else value for name, value in head.values.items()}
    kernels = tuple(GpuKernel(k.name, k.count / more, k.seconds / more) for k in head.kernels)
    return Side(values, kernels)


def sides_of(base: Side, head: Side, ratio: float | None = None) -> Sides:
    """Return both sides; without a `ratio` of times it is that under ncu, or of the GPU kernels in the timelines."""
    return Sides(base, head, ratio or ratio_of(base, head) or 1.0, UNITS)


def values_of(readings: Mapping[str, Reading]) -> dict[str, float]:
    """Return the readings that have a value."""
    return {name: reading.value for name, reading in readings.items() if reading.value is not None}


def ratio_of(base: Side, head: Side) -> float | None:
    """Return the head's time over the base's, under ncu or of the GPU kernels; None where it is not known of both."""
    spans = [side.values.get("duration_ns") for side in (base, head)]
    if None in spans:
        spans = [math.fsum(kernel.seconds for kernel in side.kernels) for side in (base, head)]
    before, now = (span or 0.0 for span in spans)
    return now / before if before and now and math.isfinite(now / before) else None


def _with_shared(values: Mapping[str, float]) -> Mapping[str, float]:
    """Add the whole shared memory of a block."""
    parts = [values[name] for name in ("shared_static_bytes", "shared_dynamic_bytes") if name in values]
    whole = math.fsum(parts) if parts else values.get("shared_bytes_per_block")
    return values if whole is None else {**values, "shared_bytes": whole}
