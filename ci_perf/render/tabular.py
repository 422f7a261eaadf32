"""The numbers of a run as CSV, one line for each case and device.

The name of a column ends in its base unit: `head_s` for times, `head_byte_per_s` for a bandwidth. Columns
for other units than seconds, for counters and for the timeline exist only if a case has such a value.
"""

import csv
import io
from collections import Counter

from ci_perf.judge.report import Report, Row
from ci_perf.render import cells
from ci_perf.values.metrics import BY_NAME as COUNTERS
from ci_perf.values.metrics import typical
from ci_perf.values.quantity import suffix
from ci_perf.values.reasons import GateState
from ci_perf.values.timeline_metrics import BY_NAME as TIMELINE

COLUMNS = (
    "kernel", "case", "device", "verdict", "code", "base_s", "head_s", "ratio", "ratio_low", "ratio_high",
    "n", "processes", "mean_s", "sd_s", "cv", "median_s", "median_low_s", "median_high_s", "p50_s", "p95_s", "p99_s",
    "flop_per_s", "bytes_per_s", "roofline_share", "arithmetic_intensity", "attainable_flop_per_s",
    "gates_kept", "gates_broken", "gates_not_measured", "sm_clock_hz", "at_power_limit",
    "base_peak_memory_bytes", "peak_memory_bytes",
)  # fmt: skip
_MEASURED = tuple(c for c in COLUMNS if c.endswith("_s") and "_per_" not in c)
"""The columns in the unit of the measurement."""


class _Lines(io.StringIO):
    """Ends each line with a newline. The writer must end lines with CR LF: only then it quotes a CR in a name."""

    def write(self, line: str) -> int:
        """Add a line as csv ends it."""
        return super().write(line.removesuffix("\r\n") + "\n")


def render_csv(report: Report) -> str:
    """Return the table; a value that is not available is an empty cell, not 0."""
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
    finding, unit = row.finding, suffix(row.finding.unit)
    states = Counter(gate.state for gate in finding.gates)
    return {
        "kernel": finding.kernel,
        "case": finding.case,
        "device": finding.device,
        "verdict": finding.verdict,
        "code": finding.code,
        f"base_{unit}": finding.base,
        f"head_{unit}": finding.head,
        "ratio": finding.change.point if finding.change else None,
        "ratio_low": finding.change.low if finding.change else None,
        "ratio_high": finding.change.high if finding.change else None,
        **{f"gates_{state.lower()}": states[state] if finding.gates else None for state in GateState},
        **cells.numbers(row),
    }


def _cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, bool):
        return int(value)
    return f"{value:.7g}" if isinstance(value, float) else value
