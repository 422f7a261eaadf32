"""What a profiler's or a benchmark's file holds: a document with stable keys for programs, a table for people."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ci_perf.traces.ncu.counters import Counters
from ci_perf.traces.timeline import Timeline
from ci_perf.values.metrics import METRICS
from ci_perf.values.quantity import number
from ci_perf.values.trace import Reading

Document = dict[str, Any]


def holds_nothing(timeline: Timeline) -> bool:
    """Say whether a trace has no event and not even a device."""
    counts = (timeline.kernel_count, timeline.graph_count, timeline.memset_count, timeline.nvtx_count)
    return not (any(counts) or timeline.copies or timeline.api or timeline.devices)


def of_timeline(timeline: Timeline, kind: str = "nsys") -> Document:
    """Describe a trace of nsys or `torch-profiler`; kernels of one name are one, whatever their launch parameters.

    The total is None where no kernel was traced and nothing says that none ran: nothing measured that it is 0.
    """
    kernels: dict[str, list[int]] = {}
    for kernel in timeline.kernels:
        sums = kernels.setdefault(kernel.name, [0, 0])
        sums[0] += kernel.count
        sums[1] += kernel.total_ns
    return {
        "kind": kind,
        "tool_version": timeline.tool_version,
        "schema_version": timeline.schema_version,
        "devices": [
            {
                "index": gpu.index,
                "name": gpu.name,
                "compute_capability": gpu.compute_capability,
                "sm_count": gpu.sm_count,
            }
            for gpu in timeline.devices
        ],
        "kernel_count": timeline.kernel_count,
        "kernel_total_ns": timeline.kernel_total_ns if timeline.tells_kernel_time else None,
        "kernel_busy_ns": {str(device): busy for device, busy in timeline.kernel_busy_ns.items()},
        "graph_count": timeline.graph_count,
        "graph_total_ns": timeline.graph_total_ns,
        "memcpy_count": sum(copy.count for copy in timeline.copies),
        "nvtx_count": timeline.nvtx_count,
        "processes": [
            {"pid": process.pid, "launches": process.launches, "kernel_count": process.kernel_count}
            for process in timeline.processes
        ],
        "kernels": [
            {"name": name, "count": count, "total_ns": total}
            for name, (count, total) in sorted(kernels.items(), key=lambda item: (-item[1][1], item[0]))
        ],
        "warnings": list(timeline.warnings),
    }


def of_counters(counters: Counters) -> Document:
    """Describe a report of counters, launch by launch."""
    return {
        "kind": "ncu",
        "launches": [
            {"name": launch.name, "metrics": {name: _metric(reading) for name, reading in launch.metrics.items()}}
            for launch in counters.launches
        ],
        "warnings": list(counters.warnings),
    }


def _metric(reading: Reading) -> Document:
    """Return a metric in one of its three states; one that is not available says why."""
    if reading.value is None:
        return {"value": None, "unit": reading.unit, "state": "not available", "reason": reading.reason}
    return {"value": reading.value, "unit": reading.unit, "state": "value" if reading.value else "zero"}


def of_benchmark(found: Any) -> Document:  # noqa: ANN401 - the module that reads these is loaded by name
    """Describe a benchmark's results case by case."""
    return {
        "kind": str(found.kind),
        "cases": [{key: _plain(getattr(case, key)) for key in _CASE if hasattr(case, key)} for case in found.cases],
        "warnings": list(found.warnings),
    }


_KNOWN = frozenset(metric.ncu for metric in METRICS)
_CASE = ("name", "params", "metric", "unit", "better", "values", "skipped")


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, int | float | str | None) else str(value)


Rows = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Headings, and the cells below them."""


def table(document: Document) -> tuple[Sequence[str], Rows]:
    """Return the lines above a document's table, and the table."""
    if document["kind"] in ("nsys", "torch-profiler"):
        return _trace_lines(document), _trace_rows(document)
    if document["kind"] == "ncu":
        most = max(len(launch["metrics"]) for launch in document["launches"])
        counted = f"{len(document['launches'])} launches profiled by ncu, up to {most} metrics each"
        return [f"{counted}; --json prints them all"], _launch_rows(document)
    return [f"{len(document['cases'])} results of {document['kind']}"], _case_rows(document)


def _trace_lines(document: Document) -> list[str]:
    devices = ", ".join(f"{gpu['name']} (device {gpu['index']})" for gpu in document["devices"]) or "not named"
    busy = ", ".join(f"{ns:,} ns on device {device}" for device, ns in document["kernel_busy_ns"].items())
    version, schema = document["tool_version"] or "?", document["schema_version"] or "?"
    written = f"nsys trace, written by nsys {version}, schema {schema}"
    if document["kind"] != "nsys":
        written = f"trace of torch's profiler, schema {schema}"
    total = document["kernel_total_ns"]
    together = "their time is not available" if total is None else f"{total:,} ns together; busy {busy or 'never'}"
    lines = [
        written,
        f"devices: {devices}",
        f"kernels: {document['kernel_count']:,}, {together}",
        f"memory copies: {document['memcpy_count']:,}; NVTX events: {document['nvtx_count']:,}",
    ]
    if len(document["processes"]) > 1:
        counts = ", ".join(f"{p['kernel_count']:,} in process {p['pid']}" for p in document["processes"])
        lines.append(f"kernels by process: {counts}")
    if document["graph_count"]:
        whole = f"{document['graph_count']:,}, {document['graph_total_ns']:,} ns"
        lines.append(f"graphs traced as a whole, their kernels in no other number: {whole}")
    return lines


def _trace_rows(document: Document) -> Rows:
    whole = document["kernel_total_ns"] or 1
    rows = [
        (f"{100 * k['total_ns'] / whole:.1f}", f"{k['count']:,}", f"{k['total_ns']:,}", k["name"])
        for k in document["kernels"]
    ]
    return ("time %", "count", "total ns", "kernel"), rows


def _launch_rows(document: Document) -> Rows:
    rows = []
    for place, launch in enumerate(document["launches"]):
        known = {name: metric for name, metric in launch["metrics"].items() if name in _KNOWN}
        for name, metric in sorted((known or launch["metrics"]).items()):
            missing = f"not available: {metric.get('reason', '')}"
            value = missing if metric["value"] is None else number(metric["value"])
            rows.append((str(place), launch["name"], name, value, metric["unit"]))
    return ("launch", "kernel", "metric", "value", "unit"), rows


def _case_rows(document: Document) -> Rows:
    rows = []
    for case in document["cases"]:
        params = " ".join(f"{key}={value}" for key, value in case.get("params", {}).items())
        values = [value for value in case["values"] if value is not None]
        middle = number(statistics.median(values)) if values else f"skipped: {case['skipped']}"
        better = case["better"] or "?"
        rows.append((case["name"], params, case.get("metric", ""), middle, case["unit"], better, str(len(values))))
    return ("benchmark", "parameters", "metric", "median", "unit", "better", "samples"), rows
