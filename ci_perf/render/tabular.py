"""The numbers of a run as CSV, one line for each case and device.

A number stands in the column that ends in its base unit: `head_s` for times, `head_byte_per_s` for a bandwidth. The
columns of units other than seconds, of counters and of the timeline are there only where a case has them.
"""

import csv
import io
from collections import Counter

from ci_perf.judge.report import Report, Row
from ci_perf.values.base_unit import suffix
from ci_perf.values.metrics import BY_NAME as COUNTERS
from ci_perf.values.metrics import typical
from ci_perf.values.timeline_metrics import BY_NAME as TIMELINE
from ci_perf.values.verdict import GateState

COLUMNS = (
    "kernel",
    "case",
    "device",
    "verdict",
    "code",
    "base_s",
    "head_s",
    "ratio",
    "ratio_low",
    "ratio_high",
    "n",
    "processes",
    "mean_s",
    "sd_s",
    "cv",
    "median_s",
    "median_low_s",
    "median_high_s",
    "p50_s",
    "p95_s",
    "p99_s",
    "flop_per_s",
    "bytes_per_s",
    "roofline_share",
    "arithmetic_intensity",
    "attainable_flop_per_s",
    "gates_kept",
    "gates_broken",
    "gates_not_measured",
    "sm_clock_hz",
    "at_power_limit",
)
_MEASURED = tuple(c for c in COLUMNS if c.endswith("_s") and "_per_" not in c)
"""What is in the unit of the measurement."""


class _Lines(io.StringIO):
    """Ends each line with a newline alone; csv quotes a carriage return in a name only where it ends lines with one."""

    def write(self, line: str) -> int:
        """Add a line as csv ends it."""
        return super().write(line.removesuffix("\r\n") + "\n")


def render_csv(report: Report) -> str:
    """Return the table; what is not available is an empty cell, never a zero."""
    text = _Lines()
    others = sorted({suffix(row.finding.unit) for row in report.rows} - {"s"})
    further = [f"{column.removesuffix('s')}{unit}" for unit in others for column in _MEASURED]
    profiled = [_profiled(row) for row in report.rows]
    metrics = [name for name in (*COUNTERS, *TIMELINE) if any(name in found for found in profiled)]
    writer = csv.DictWriter(text, (*COLUMNS, *further, *metrics), restval="", lineterminator="\r\n")
    writer.writeheader()
    for row, found in zip(report.rows, profiled, strict=True):
        writer.writerow({k: _cell(v) for k, v in (_line(row) | found).items()})
    return text.getvalue()


def _profiled(row: Row) -> dict[str, float | None]:
    """Return counters and the metrics of the timeline by name."""
    measurement = row.measurement
    timeline = measurement.timeline.metrics if measurement and measurement.timeline else {}
    readings = {**typical(measurement.counters if measurement else ()), **timeline}
    return {name: reading.value for name, reading in readings.items() if name in COUNTERS or name in TIMELINE}


def _line(row: Row) -> dict[str, object]:
    finding, summary, roof = row.finding, row.summary, row.roofline
    line: dict[str, object] = {
        "kernel": finding.kernel,
        "case": finding.case,
        "device": finding.device,
        "verdict": finding.verdict,
        "code": finding.code,
    }
    if finding.gates:
        states = Counter(gate.state for gate in finding.gates)
        line |= {f"gates_{state.lower()}": states[state] for state in GateState}
    measured: dict[str, float | None] = {"base": finding.base, "head": finding.head}
    if finding.change:
        line |= {"ratio": finding.change.point, "ratio_low": finding.change.low, "ratio_high": finding.change.high}
    if summary:
        line |= {"n": summary.n, "processes": summary.processes, "cv": summary.cv}
        limited = summary.at_power_limit
        line |= {"sm_clock_hz": summary.sm_clock_hz, "at_power_limit": None if limited is None else int(limited)}
        measured |= {"mean": summary.mean, "sd": summary.sd}
        measured |= {"p50": summary.p50, "p95": summary.p95, "p99": summary.p99, "median": summary.median.point}
        measured |= {"median_low": summary.median.low, "median_high": summary.median.high}
    if roof:
        line |= {"flop_per_s": roof.flop_per_s, "bytes_per_s": roof.bytes_per_s, "roofline_share": roof.share}
        line |= {"arithmetic_intensity": roof.intensity, "attainable_flop_per_s": roof.attainable_flop_per_s}
    return line | {f"{name}_{suffix(finding.unit)}": value for name, value in measured.items()}


def _cell(value: object) -> object:
    if value is None:
        return ""
    return f"{value:.7g}" if isinstance(value, float) else value
