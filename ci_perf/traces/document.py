"""What a profiler's or a benchmark's file holds: a document with stable keys for programs, a table for people."""

import json
import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, lru_cache
from typing import Any

from ci_perf.traces.benchmarks.results import BenchmarkFile
from ci_perf.traces.ncu.counters import Counters, Launch
from ci_perf.traces.timeline import Timeline
from ci_perf.values.metrics import METRICS
from ci_perf.values.quantity import number
from ci_perf.values.trace import Reading

Document = dict[str, Any]
Found = Timeline | Counters | BenchmarkFile
"""What the readers of this package return."""

_OF_TIMELINE = (
    *("kind", "tool_version", "schema_version", "devices", "kernel_count", "kernel_total_ns", "kernel_busy_ns"),
    *("graph_count", "graph_total_ns", "memcpy_count", "nvtx_count", "processes", "kernels", "warnings"),
)
_KNOWN = frozenset(metric.ncu for metric in METRICS)


def describe(found: Found) -> Document:
    """Describe what a file holds; the values are those that JSON has.

    The kernels of a trace are grouped by name, whatever their launch parameters. Their total time is None where no
    kernel was traced and nothing says that none ran: a zero would look like a measurement.
    """
    if isinstance(found, Timeline):
        kernels = [{"name": name, "count": count, "total_ns": total} for name, count, total in _kernels_by_name(found)]
        total = found.kernel_total_ns if found.tells_kernel_time else None
        summed = {"kernels": kernels, "kernel_total_ns": total}
        return {name: summed[name] if name in summed else _plain(getattr(found, name)) for name in _OF_TIMELINE}
    if isinstance(found, Counters):
        launches = [json.loads(_launch(launch)) for launch in found.launches]
        return {"kind": "ncu", "launches": launches, "warnings": list(found.warnings)}
    return _chosen(found, ("kind", "cases", "warnings"))


def written(found: Found) -> Iterator[str]:
    """Yield the JSON of what a file holds, piece by piece: that of a large report would fill the memory."""
    if not isinstance(found, Counters):
        yield json.dumps(describe(found), indent=2, allow_nan=False)
        return
    yield '{\n  "kind": "ncu",\n  "launches": [\n'
    for place, launch in enumerate(found.launches):
        yield f"{',' * bool(place)}    {_launch(launch)}\n"
    yield f'  ],\n  "warnings": {json.dumps(list(found.warnings))}\n}}'


def _launch(launch: Launch) -> str:
    """Return a launch as JSON."""
    metrics = ", ".join([f"{_key(name)}{_value(reading)}" for name, reading in launch.metrics.items()])
    return f'{{"name": {json.dumps(launch.name)}, "metrics": {{{metrics}}}}}'


@cache
def _key(name: str) -> str:
    return f"{json.dumps(name)}: "


@lru_cache(maxsize=1 << 16)
def _value(reading: Reading) -> str:
    return json.dumps(_metric(reading), allow_nan=False)


def _kernels_by_name(timeline: Timeline) -> list[tuple[str, int, int]]:
    """Return name, count and total ns of the kernels of each name, the longest total first."""
    sums: dict[str, tuple[int, int]] = {}
    for kernel in timeline.kernels:
        count, total = sums.get(kernel.name, (0, 0))
        sums[kernel.name] = count + kernel.count, total + kernel.total_ns
    return sorted(((name, *both) for name, both in sums.items()), key=lambda row: (-row[2], row[0]))


def _metric(reading: Reading) -> Document:
    """Return a metric in one of its three states; one that is not available says why."""
    if reading.value is None:
        return {"value": None, "unit": reading.unit, "state": "not available", "reason": reading.reason}
    return {"value": reading.value, "unit": reading.unit, "state": "value" if reading.value else "zero"}


def _chosen(found: object, names: Iterable[str]) -> Document:
    return {name: _plain(getattr(found, name)) for name in names}


def _plain(value: object) -> object:
    """Return a value as JSON has it; a number that is not finite is None."""
    if is_dataclass(value):
        return _chosen(value, [field.name for field in fields(value)])
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True, slots=True)
class Table:
    """What a file holds, for people."""

    above: Sequence[str]
    """The lines above the table."""
    headings: Sequence[str]
    rows: Iterable[Sequence[str]]
    """Made one at a time: a report may hold millions, and only the first are shown."""
    count: int
    """Of the rows."""


def table(found: Found) -> Table:
    """Return the table of what a file holds."""
    if isinstance(found, Timeline):
        kernels = _kernels_by_name(found)
        whole = found.kernel_total_ns or 1
        rows = ((f"{100 * total / whole:.1f}", f"{count:,}", f"{total:,}", name) for name, count, total in kernels)
        return Table(_trace_lines(found), ("time %", "count", "total ns", "kernel"), rows, len(kernels))
    if isinstance(found, Counters):
        most = max(len(launch.metrics) for launch in found.launches)
        counted = f"{len(found.launches)} launches profiled by ncu, up to {most} metrics each"
        above = [f"{counted}; --json prints them all"]
        count = sum(len(_shown(launch.metrics)) for launch in found.launches)
        return Table(above, ("launch", "kernel", "metric", "value", "unit"), _launch_rows(found), count)
    headings = ("benchmark", "parameters", "metric", "median", "unit", "better", "samples")
    return Table([f"{len(found.cases)} results of {found.kind}"], headings, _case_rows(found), len(found.cases))


def _trace_lines(timeline: Timeline) -> list[str]:
    devices = ", ".join(f"{gpu.name} (device {gpu.index})" for gpu in timeline.devices) or "not named"
    busy = ", ".join(f"{ns:,} ns on device {device}" for device, ns in timeline.kernel_busy_ns.items())
    version, schema = timeline.tool_version or "?", timeline.schema_version or "?"
    written = f"nsys trace, written by nsys {version}, schema {schema}"
    if timeline.kind != "nsys":
        written = f"trace of torch's profiler, schema {schema}"
    together = f"{timeline.kernel_total_ns:,} ns together; busy {busy or 'never'}"
    if not timeline.tells_kernel_time:
        together = "their time is not available"
    lines = [
        written,
        f"devices: {devices}",
        f"kernels: {timeline.kernel_count:,}, {together}",
        f"memory copies: {timeline.memcpy_count:,}; NVTX events: {timeline.nvtx_count:,}",
    ]
    if len(timeline.processes) > 1:
        counts = ", ".join(f"{p.kernel_count:,} in process {p.pid}" for p in timeline.processes)
        lines.append(f"kernels by process: {counts}")
    if timeline.graph_count:
        whole = f"{timeline.graph_count:,}, {timeline.graph_total_ns:,} ns"
        lines.append(f"graphs traced as a whole, their kernels in no other number: {whole}")
    return lines


def _shown(metrics: Mapping[str, Reading]) -> Collection[str]:
    """Return the names of the metrics that ci-perf knows, or of all where it knows none."""
    return _KNOWN.intersection(metrics) or metrics.keys()


def _launch_rows(counters: Counters) -> Iterator[Sequence[str]]:
    for launch in counters.launches:
        for name in sorted(_shown(launch.metrics)):
            reading = launch.metrics[name]
            value = f"not available: {reading.reason}" if reading.value is None else number(reading.value)
            yield str(launch.index), launch.name, name, value, reading.unit


def _case_rows(found: BenchmarkFile) -> Iterator[Sequence[str]]:
    for case in found.cases:
        params = " ".join(f"{key}={value}" for key, value in case.params.items())
        middle = number(statistics.median(case.values)) if case.values else f"skipped: {case.skipped}"
        yield case.name, params, case.metric, middle, case.unit, case.better or "?", str(len(case.values))
