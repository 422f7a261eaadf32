"""The figures of an audit as tables, for a terminal and in Markdown, and as JSON."""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ci_perf.audit.rates import ALL, CONFIDENCE, AuditReport, Counts, Point, Spread
from ci_perf.render.tables import table
from ci_perf.values.escape import clean, code, prose
from ci_perf.values.quantity import counted, duration, percent
from ci_perf.values.run import Policy

NOTHING = "-"
GOAL_SESSIONS = 299
"""If none of so many sessions has an alarm, at most 1 % of all have one, with 95 % confidence: 0.99^299 < 0.05."""


@dataclass(frozen=True, slots=True)
class _Section:
    """A table; `names` are the columns whose cells come from users' code."""

    title: str
    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    names: tuple[str, ...] = ()
    note: str = ""


def render_audit_markdown(report: AuditReport) -> str:
    """Return the audit as Markdown, to be committed beside the data."""
    parts = [prose(_lead(report))]
    for section in _sections(report):
        lines = [
            [
                code(cell) if name in section.names and cell != NOTHING else cell
                for name, cell in zip(section.header, line, strict=True)
            ]
            for line in section.lines
        ]
        parts += [f"#### {section.title}", table(section.header, lines, section.header[1:])]
        parts += [section.note] if section.note else []
    return "\n\n".join(parts) + "\n"


def render_audit_terminal(report: AuditReport) -> RenderableType:
    """Return what `ci-perf audit --show` prints."""
    parts: list[RenderableType] = [Text(clean(_lead(report), 600), style="bold")]
    for section in _sections(report):
        title = f"\n{section.title}"
        table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
        for i, name in enumerate(section.header):
            table.add_column(name, justify="right" if i else "left", no_wrap=True)
        for line in section.lines:
            table.add_row(*(Text(clean(cell)) for cell in line))
        parts.append(table)
        parts += [Text(section.note, style="dim")] if section.note else []
    return Group(*parts)


def _lead(report: AuditReport) -> str:
    devices = {(session.device.name, session.device.driver) for session in report.sessions}
    names = sorted(f"{name}, driver {driver}" if driver else name for name, driver in devices)
    dates = sorted(session.provenance.date[:10] for session in report.sessions)
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    commits = ", ".join(sorted({(session.provenance.commit or "unknown")[:12] for session in report.sessions}))
    planted = len(report.sessions) - report.unchanged_sessions
    sessions = f"{counted(report.unchanged_sessions, 'A/A session')}, {planted} with a planted slowdown"
    threshold = f"threshold {_threshold(report)}" if report.threshold != Policy().regression else ""
    parts = (", ".join(names), _cards(report), sessions, when, f"commit {commits}", threshold)
    return "; ".join(part for part in parts if part)


def _threshold(report: AuditReport) -> str:
    return f"{100 * report.threshold:.3g} %"


def _cards(report: AuditReport) -> str:
    """Return the number of physical GPUs in words; empty where there is no GPU."""
    if not report.cards:
        return "cards not recorded" if report.without_card else ""
    cards = counted(report.cards, "card")
    return f"{cards}, not recorded in {counted(report.without_card, 'session')}" if report.without_card else cards


def _sections(report: AuditReport) -> tuple[_Section, ...]:
    sections = (_later(report), _figures(report), _methods(report), _classes(report), _curve(report), _scatter(report))
    return tuple(section for section in sections if section.lines)


def _later(report: AuditReport) -> _Section:
    """Return the figures of the sessions by which the rule was not chosen."""
    later, confidence = report.later, percent(CONFIDENCE, digits=0)
    counts = later.counts
    lines = [("A/A sessions", f"{later.sessions} of the {GOAL_SESSIONS} that would prove at most 1 %")]
    if later.sessions:
        lines += [
            ("with an alarm", f"{later.alarmed}; of sessions, at most ({confidence}) {percent(later.session_bound)}"),
            ("A/A verdicts", f"{counts.verdicts}: {_changes(counts)}"),
            (f"false-alarm rate, at most ({confidence})", percent(counts.alarm_bound, digits=2)),
            ("with a base that was checked out", counted(later.checked_out, "session")),
        ]
    lines += [
        (f"planted {step_name(step)}, REGRESSION", f"{red} of {verdicts}")
        for step, (red, verdicts) in later.steps.items()
    ]
    note = "The other tables are of all sessions, also of those by which the rule may have been chosen."
    return _Section(f"Sessions recorded after today's rule ({later.rule})", ("what", "figure"), tuple(lines), note=note)


def _methods(report: AuditReport) -> _Section:
    header = ("method", "A/A verdicts", "REGRESSION", "SPEEDUP", "UNCHANGED", "INCONCLUSIVE")
    lines = tuple(
        (name, *(str(n) for n in (c.verdicts, c.regression, c.speedup, c.unchanged, c.inconclusive)))
        for name, c in report.methods.items()
    )
    return _Section("By the method of timing", header, lines, ("method",))


def _figures(report: AuditReport) -> _Section:
    same, (cut_short, cut_short_planted) = report.unchanged, report.cut_short
    confidence = percent(CONFIDENCE, digits=0)
    lines = (
        ("A/A verdicts", str(same.verdicts)),
        ("REGRESSION", str(same.regression)),
        ("SPEEDUP", str(same.speedup)),
        (f"false-alarm rate, at most ({confidence})", percent(same.alarm_bound, digits=2)),
        ("A/A sessions with an alarm", f"{report.alarmed_sessions} of {report.unchanged_sessions}"),
        (f"of sessions, at most ({confidence})", percent(report.session_bound)),
        ("INCONCLUSIVE", _inconclusive(same)),
        ("with the sides swapped", _changes(report.swapped)),
        ("controls, base against itself", f"{report.controls.verdicts}: {_changes(report.controls)}"),
        ("wall time per case", _seconds(report)),
        ("cases without pairs", str(report.failed)),
        ("records that end before the rule decides", f"{cut_short} A/A, {cut_short_planted} with a planted slowdown"),
    )
    return _Section("Unchanged code, all sessions", ("what", "figure"), lines)


def _changes(counts: Counts) -> str:
    return f"{counts.regression} REGRESSION, {counts.speedup} SPEEDUP, {counts.inconclusive} INCONCLUSIVE"


def _seconds(report: AuditReport) -> str:
    found = report.seconds_per_case
    if found.smallest == found.largest:
        return duration(found.median)
    return f"{duration(found.median)} ({duration(found.smallest)} to {duration(found.largest)})"


def _inconclusive(counts: Counts) -> str:
    share = f"{counts.inconclusive} ({percent(counts.inconclusive / max(1, counts.verdicts))})"
    codes = ", ".join(f"{number} {name}" for name, number in counts.inconclusive_codes.items())
    return f"{share}: {codes}" if codes else share


def _classes(report: AuditReport) -> _Section:
    header = ("duration", "A/A verdicts", "worst sd", "of", "detectable, median", "largest", "99 % flagged from")
    lines = tuple(_class(report, name) for name in report.classes)
    return _Section("By the duration of a launch", header, lines, ("of",))


def _class(report: AuditReport, name: str) -> tuple[str, ...]:
    point, worst, seen = report.point(0, name), report.worst(name), report.seen_from(name)
    median, largest = report.detectable.get(name, (None, None))
    return (
        name,
        str(point.counts.verdicts if point else 0),
        _fraction(worst.sd if worst else None),
        worst.case if worst else NOTHING,
        _fraction(median),
        _fraction(largest),
        f"{percent(seen.step)} ({seen.flagged} of {seen.verdicts})" if seen else NOTHING,
    )


def _fraction(value: float | None) -> str:
    return NOTHING if value is None or math.isnan(value) else percent(value, digits=2)


def _curve(report: AuditReport) -> _Section:
    classes = [name for name in report.classes if name != ALL]
    verdicts = ("REGRESSION", "UNCHANGED", "INCONCLUSIVE", "SPEEDUP")
    header = ("planted", "exactly", "verdicts", *verdicts, "pairs", *(f"red, {name}" for name in classes))
    points = [point for step in (0.0, *report.steps) if (point := report.point(step)) is not None]
    lines = ((*_point(point), *(_flagged(report.point(point.step, name)) for name in classes)) for point in points)
    return _Section("Planted slowdowns and their verdicts", header, tuple(lines), note=_bounds(report))


def _bounds(report: AuditReport) -> str:
    """Return the bounds of the shares of wrong verdicts on either side of the threshold, in words."""
    beyond = f"changes beyond {_threshold(report)} are missed"
    bounds = (report.missed_bound, beyond), (report.early_bound, "smaller ones are called regressions")
    said = [f"at most {percent(bound)} of {what}" for bound, what in bounds if bound is not None]
    return f"If cases are independent ({percent(CONFIDENCE, digits=0)}): {', '.join(said)}." if said else ""


def _point(point: Point) -> tuple[str, ...]:
    counts, (least, mean, largest) = point.counts, point.planted
    exactly = percent(mean, digits=2)
    if largest - least >= 5e-5:
        exactly += f" ({100 * least:.2f}-{100 * largest:.2f})"
    of = (counts.regression, counts.unchanged, counts.inconclusive, counts.speedup)
    shares = (percent(n / counts.verdicts) for n in of)
    return (step_name(point.step), exactly, str(counts.verdicts), *shares, f"{point.pairs:.1f}")


def step_name(step: float) -> str:
    """Return a planted step as the heading of a row or column."""
    return percent(step) if step else "A/A"


def _flagged(point: Point | None) -> str:
    return f"{point.counts.regression} of {point.counts.verdicts}" if point else NOTHING


_SCATTER: dict[str, Callable[[Spread], str]] = {
    "case": lambda spread: spread.case,
    "device": lambda spread: spread.device,
    "method": lambda spread: spread.method,
    "duration": lambda spread: spread.duration_class,
    "sessions": lambda spread: str(spread.sessions),
    "bias": lambda spread: percent(spread.bias, sign=True, digits=2),
    "sd": lambda spread: percent(spread.sd, digits=2) if spread.sessions > 1 else NOTHING,
    "slower in": lambda spread: f"{spread.positive} of {spread.sessions}",
}


def _scatter(report: AuditReport) -> _Section:
    several = len({spread.device for spread in report.spreads}) > 1
    header = tuple(name for name in _SCATTER if several or name != "device")
    lines = tuple(tuple(_SCATTER[name](spread) for name in header) for spread in report.spreads)
    return _Section("A/A: the reported ratio", header, lines, ("case", "device", "method"))


def render_audit_json(report: AuditReport) -> str:
    """Return every figure as JSON; fractions are fractions, what is not known is null."""
    document = {
        "sessions": len(report.sessions),
        "threshold": report.threshold,
        "later": {
            **asdict(report.later),
            "alarmed_sessions_upper": report.later.session_bound,
            "steps": [
                {"step": step, "regression": red, "verdicts": verdicts}
                for step, (red, verdicts) in report.later.steps.items()
            ],
        },
        "methods": {name: asdict(counts) for name, counts in report.methods.items()},
        "unchanged_sessions": report.unchanged_sessions,
        "alarmed_sessions": report.alarmed_sessions,
        "devices": sorted({session.device.slug for session in report.sessions}),
        "cards": report.cards,
        "sessions_without_card": report.without_card,
        "unchanged": asdict(report.unchanged),
        "false_alarm_rate_upper": report.unchanged.alarm_bound,
        "alarmed_sessions_upper": report.session_bound,
        "missed_upper": report.missed_bound,
        "early_upper": report.early_bound,
        "swapped": asdict(report.swapped),
        "controls": asdict(report.controls),
        "seconds_per_case": asdict(report.seconds_per_case),
        "failed": report.failed,
        "cut_short": dict(zip(("unchanged", "planted"), report.cut_short, strict=True)),
        "cases": [asdict(spread) for spread in report.spreads],
        "classes": [_class_document(report, name) for name in report.classes],
        "curve": [
            {
                "step": point.step,
                "duration_class": point.duration_class,
                "planted": dict(zip(("least", "mean", "largest"), point.planted, strict=True)),
                **asdict(point.counts),
                "pairs": point.pairs,
            }
            for point in report.curve
        ],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _class_document(report: AuditReport, name: str) -> dict[str, object]:
    worst, seen = report.worst(name), report.seen_from(name)
    median, largest = (
        value if value is not None and math.isfinite(value) else None
        for value in report.detectable.get(name, (None, None))
    )
    return {
        "duration_class": name,
        "worst_sd": worst.sd if worst else None,
        "worst_case": worst.case if worst else None,
        "detectable_median": median,
        "detectable_largest": largest,
        "flagged_from": None if seen is None else asdict(seen),
    }
