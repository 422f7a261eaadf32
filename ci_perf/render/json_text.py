"""A report as JSON for programs: verdicts, reason codes and numbers; a value that is not available is null.

The key of a number ends in its base unit: `head_s` for times, `head_byte_per_s` for a bandwidth.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict

from ci_perf.judge.report import Report, Row
from ci_perf.judge.stats import Interval
from ci_perf.render import cells
from ci_perf.render.explanations import counters_document, counters_of_sides, explanation_document
from ci_perf.values.quantity import suffix
from ci_perf.values.reasons import Reason
from ci_perf.values.trace import Reading


def render_json(report: Report) -> str:
    """Return the report as JSON with stable keys."""
    document = {
        "headline": report.headline,
        "next_step": report.next_step,
        "exit_status": report.exit_status,
        "compared": report.compared,
        "planted": report.planted,
        "cases": [_case(row, in_turns=bool(report.base)) for row in report.rows],
        "creep": [
            {"case": c.case, "device": c.device, "change": c.change, "low": c.low, "high": c.high}
            | {"merges": c.merges, "first": c.first}
            for c in report.creep
        ],
        "notes": [
            {"code": n.code, "meaning": Reason.of(n.code).meaning, "message": n.message, "hint": n.hint}
            for n in report.notes
        ],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _case(row: Row, *, in_turns: bool) -> dict[str, object]:
    finding, numbers = row.finding, cells.numbers(row)
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
        "counters_changed": counters_document(finding.counters),
        "kernels_changed": asdict(finding.kernels),
        "parts": [
            {"kind": p.kind, "names": p.names, "base_names": p.before, "base_s": p.base, "head_s": p.head}
            for p in finding.parts
        ],
        **explanation_document(finding.explanation),
        "counters": _counters_by_side(row),
        "timeline": _timeline_by_side(row),
        **numbers,
        "n": numbers["n"] or 0,
        "processes": numbers["processes"] or 0,
        "warnings": list(row.warnings),
    }


def _counters_by_side(row: Row) -> dict[str, dict[str, float | None]]:
    """Return the counters of both sides; the base has none where it was not profiled."""
    base, head = counters_of_sides(row.measurement) if row.measurement else ({}, {})
    return {"base": _values(base), "head": _values(head)}


def _timeline_by_side(row: Row) -> dict[str, dict[str, float | None]]:
    measured = row.measurement
    base = measured.base_profile.timeline if measured and measured.base_profile else None
    head = measured.timeline if measured else None
    return {name: _values(found.metrics) if found else {} for name, found in (("base", base), ("head", head))}


def _values(readings: Mapping[str, Reading]) -> dict[str, float | None]:
    return {name: reading.value for name, reading in readings.items()}


def _interval(interval: Interval | None) -> dict[str, float | None] | None:
    if interval is None:
        return None
    return {"low": interval.low, "ratio": interval.point, "high": _finite(interval.high)}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
