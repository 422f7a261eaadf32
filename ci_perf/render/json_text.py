"""A report for programs: verdicts, reason codes and numbers; what is not available is null.

The key of a number ends in its base unit: `head_s` for times, `head_byte_per_s` for a bandwidth.
"""

import json
import math
from dataclasses import asdict

from ci_perf.judge.report import Report, Row
from ci_perf.judge.stats import Interval
from ci_perf.values.base_unit import suffix
from ci_perf.values.reasons import Reason


def render_json(report: Report) -> str:
    """Return the report as JSON with stable keys."""
    document = {
        "headline": report.headline,
        "next_step": report.next_step,
        "exit_status": report.exit_status,
        "compared": report.compared,
        "planted": report.planted,
        "cases": [_case(row, in_turns=bool(report.base)) for row in report.rows],
        "notes": [
            {"code": n.code, "meaning": Reason.of(n.code).meaning, "message": n.message, "hint": n.hint}
            for n in report.notes
        ],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _case(row: Row, *, in_turns: bool) -> dict[str, object]:
    finding, summary, roof = row.finding, row.summary, row.roofline
    unit = suffix(finding.unit)
    return {
        "kernel": finding.kernel,
        "case": finding.case,
        "device": finding.device,
        "verdict": finding.verdict,
        "code": finding.code,
        "meaning": finding.code.meaning,
        "next_step": finding.code.steps[in_turns],
        "sentence": finding.sentence,
        "red": row.red,
        f"base_{unit}": finding.base,
        f"head_{unit}": finding.head,
        "change": _interval(finding.change),
        "detectable": _finite(finding.detectable),
        "gates": [
            {"gate": str(g.gate), "value": g.reading.value, "state": g.state, "reason": g.reading.reason}
            for g in finding.gates
        ],
        "counters_changed": [
            {"metric": c.metric, "unit": c.unit, "base": c.base, "head": c.head} for c in finding.counters
        ],
        "kernels_changed": asdict(finding.kernels),
        "parts": [
            {"kind": p.kind, "names": p.names, "base_names": p.before, "base_s": p.base, "head_s": p.head}
            for p in finding.parts
        ],
        "n": summary.n if summary else 0,
        "processes": summary.processes if summary else 0,
        f"mean_{unit}": summary.mean if summary else None,
        f"sd_{unit}": summary.sd if summary else None,
        "cv": summary.cv if summary else None,
        f"median_{unit}": summary.median.point if summary else None,
        f"median_low_{unit}": summary.median.low if summary else None,
        f"median_high_{unit}": summary.median.high if summary else None,
        f"p50_{unit}": summary.p50 if summary else None,
        f"p95_{unit}": summary.p95 if summary else None,
        f"p99_{unit}": summary.p99 if summary else None,
        "flop_per_s": roof.flop_per_s if roof else None,
        "bytes_per_s": roof.bytes_per_s if roof else None,
        "arithmetic_intensity": roof.intensity if roof else None,
        "attainable_flop_per_s": roof.attainable_flop_per_s if roof else None,
        "roofline_share": roof.share if roof else None,
        "sm_clock_hz": summary.sm_clock_hz if summary else None,
        "at_power_limit": summary.at_power_limit if summary else None,
        "warnings": list(row.warnings),
    }


def _interval(interval: Interval | None) -> dict[str, float | None] | None:
    if interval is None:
        return None
    return {"low": interval.low, "ratio": interval.point, "high": _finite(interval.high)}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
