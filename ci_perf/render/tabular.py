"""The numbers of a run as CSV, in base units, one line for each case and device."""

import csv
import io

from ci_perf.core.report import Report

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
)


class _Lines(io.StringIO):
    """Ends each line with a newline alone; csv quotes a carriage return in a name only where it ends lines with one."""

    def write(self, line: str) -> int:
        """Add a line as csv ends it."""
        return super().write(line.removesuffix("\r\n") + "\n")


def render_csv(report: Report) -> str:
    """Return the table; what is not available is an empty cell, never a zero."""
    text = _Lines()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\r\n")
    writer.writeheader()
    for row in report.rows:
        finding, summary, roof = row.finding, row.summary, row.roofline
        line: dict[str, object] = {
            "kernel": finding.kernel,
            "case": finding.case,
            "device": finding.device,
            "verdict": finding.verdict,
            "code": finding.code,
            "base_s": finding.base,
            "head_s": finding.head,
        }
        if finding.change:
            line |= {"ratio": finding.change.point, "ratio_low": finding.change.low, "ratio_high": finding.change.high}
        if summary:
            line |= {"n": summary.n, "processes": summary.processes, "mean_s": summary.mean, "sd_s": summary.sd}
            line |= {"cv": summary.cv, "p50_s": summary.p50, "p95_s": summary.p95, "p99_s": summary.p99}
            line |= {"median_s": summary.median.point}
            line |= {"median_low_s": summary.median.low, "median_high_s": summary.median.high}
        if roof:
            line |= {"flop_per_s": roof.flop_per_s, "bytes_per_s": roof.bytes_per_s, "roofline_share": roof.share}
        writer.writerow({k: _cell(v) for k, v in line.items()})
    return text.getvalue()


def _cell(value: object) -> object:
    if value is None:
        return ""
    return f"{value:.7g}" if isinstance(value, float) else value
