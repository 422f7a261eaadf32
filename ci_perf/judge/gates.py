"""Limits that a kernel must keep, on counters and on its timeline; counters that differ from what was agreed."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ci_perf.values.baseline import BaselineCase
from ci_perf.values.device import Device
from ci_perf.values.kernel import Gate
from ci_perf.values.measurement import PEAK_MEMORY, Measurement
from ci_perf.values.metrics import BY_NAME, Trust
from ci_perf.values.reasons import GateState
from ci_perf.values.timeline_metrics import BY_NAME as TIMELINE
from ci_perf.values.trace import Reading


@dataclass(frozen=True, slots=True)
class GateFinding:
    """A gate, its reading, and whether it was kept."""

    gate: Gate
    reading: Reading
    state: GateState


@dataclass(frozen=True, slots=True)
class CounterChange:
    """A counter of both sides; of a baseline: one that differs by more than its repeatability."""

    metric: str
    unit: str
    base: float
    head: float


def judge_gate(gate: Gate, measurement: Measurement) -> GateFinding:
    """Compare the worst of the profiled launches with a limit; a value that is not available is not a pass."""
    sources: Sequence[Mapping[str, Reading]]
    if gate.metric == PEAK_MEMORY:
        readings_of = (Reading(replicate.memory_bytes, "byte", "not known") for replicate in measurement.timed)
        sources, absence = [{PEAK_MEMORY: reading} for reading in readings_of], "nothing was timed"
    elif gate.metric in TIMELINE:
        sources = (measurement.timeline.metrics,) if measurement.timeline else ()
        absence = "the timeline does not tell it" if sources else "no timeline was recorded"
    else:
        sources = measurement.counters
        absence = "ncu gave no counters" if sources else "no counters were measured"
    if any(gate.metric in source for source in sources):
        absence = "not measured of every launch"
    readings = [source.get(gate.metric, Reading(None, reason=absence)) for source in sources]
    values = [r.value for r in readings if r.value is not None and math.isfinite(r.value)]
    if not values or len(values) < len(readings):
        lacking = (r for r in readings if r.value is None or not math.isfinite(r.value))
        return GateFinding(gate, next(lacking, Reading(None, reason=absence)), GateState.NOT_MEASURED)
    worst = min(values) if gate.operator == ">=" else max(values)
    kept = worst >= gate.limit if gate.operator == ">=" else worst <= gate.limit
    return GateFinding(gate, Reading(worst, readings[0].unit), GateState.KEPT if kept else GateState.BROKEN)


def counter_changes(
    base: BaselineCase, agreed_with: tuple[Device, str | None], measurement: Measurement, now: tuple[Device, str | None]
) -> tuple[CounterChange, ...]:
    """Compare exact and banded counters; a counter that one side lacks is not compared.

    Both sides come with their device and the version of ncu: on another GPU model, or by an ncu whose definitions may
    be others, nothing is compared.
    """
    (old, old_ncu), (new, new_ncu) = agreed_with, now
    same = (
        old.name == new.name and release(old_ncu) == release(new_ncu) and dict(base.params) == dict(measurement.params)
    )
    if not same or not measurement.counters:
        return ()
    found = (_compare(name, counter.values, measurement) for name, counter in base.counters.items())
    return tuple(change for change in found if change is not None)


def uncompared(
    base: BaselineCase, agreed_ncu: str | None, measurement: Measurement, now_ncu: str | None
) -> tuple[str, ...]:
    """Name the counters that were measured but not compared with the baseline: otherwise they would look passed."""
    judged = [name for name in base.counters if name in BY_NAME and BY_NAME[name].trust is not Trust.EXPLAINING]
    measured = [name for name in judged if any(name in launch for launch in measurement.counters)]
    if measured and release(agreed_ncu) != release(now_ncu):
        before, now = (f"ncu {version}" if version else "no ncu" for version in (agreed_ncu, now_ncu))
        return (f"counters were not compared: the baseline's are of {before}, these of {now}",)
    reasons = {
        name: launch[name].reason or "not available"
        for name in measured
        for launch in measurement.counters
        if name in launch and launch[name].value is None
    }
    if not reasons:
        return ()
    return (f"not compared with the baseline: {', '.join(f'{name} ({reason})' for name, reason in reasons.items())}",)


def _compare(name: str, agreed: Sequence[float], measurement: Measurement) -> CounterChange | None:
    metric = BY_NAME.get(name)
    readings = [launch[name].value for launch in measurement.counters if name in launch]
    values = [value for value in readings if value is not None]
    if metric is None or metric.trust is Trust.EXPLAINING or not values or len(values) < len(readings):
        return None
    low = min(agreed) * (1 - metric.band) - metric.slack
    high = max(agreed) * (1 + metric.band) + metric.slack
    outside = [value for value in values if not low <= value <= high]
    return CounterChange(name, metric.unit, statistics.median(agreed), outside[0]) if outside else None


def release(version: str | None, parts: int = 2) -> str | None:
    """Return the first parts of a version.

    >>> release("2025.3.1.0"), release(None)
    ('2025.3', None)
    """
    return ".".join(version.split(".")[:parts]) if version else None
