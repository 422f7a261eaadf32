"""The audit as tables: for a terminal, as Markdown, and as JSON for programs."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ci_perf.audit.anchor_shares import RuleShares
from ci_perf.audit.rates import ALL, CONFIDENCE, AuditReport, Counts, Point, Seconds, Seen, Spread
from ci_perf.render import markdown
from ci_perf.values.escape import clean, code, prose
from ci_perf.values.quantity import counted, duration, percent

OWN_RULE = "ci-perf"
"""The row of this tool among the rules."""
EVERY_CLASS = "all"
NOTHING = "-"


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
        foreign = [name in section.names for name in section.header]
        lines = [
            [code(c) if f and c != NOTHING else c for c, f in zip(li, foreign, strict=True)] for li in section.lines
        ]
        parts += [f"#### {section.title}", markdown.table(section.header, lines, section.header[1:])]
        parts += [section.note] if section.note else []
    return "\n\n".join(parts) + "\n"


def render_audit_terminal(report: AuditReport) -> RenderableType:
    """Return what `ci-perf audit --show` prints."""
    parts: list[RenderableType] = [Text(clean(_lead(report), 600), style="bold")]
    for section in _sections(report):
        parts.append(_table(section))
        parts += [Text(section.note, style="dim")] if section.note else []
    return Group(*parts)


def _table(section: _Section) -> Table:
    table = Table(title=f"\n{section.title}", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for i, name in enumerate(section.header):
        table.add_column(name, justify="right" if i else "left", no_wrap=True)
    for line in section.lines:
        table.add_row(*(Text(clean(cell)) for cell in line))
    return table


def _lead(report: AuditReport) -> str:
    devices = ", ".join(sorted({_device(session.device.name, session.device.driver) for session in report.sessions}))
    dates = sorted(session.provenance.date[:10] for session in report.sessions)
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    commits = ", ".join(sorted({(session.provenance.commit or "unknown")[:12] for session in report.sessions}))
    planted = len(report.sessions) - report.unchanged_sessions
    sessions = f"{report.unchanged_sessions} A/A sessions, {planted} with a planted slowdown"
    return "; ".join(part for part in (devices, _cards(report), sessions, when, f"commit {commits}") if part)


def _cards(report: AuditReport) -> str:
    """Say on how many physical GPUs; of some sessions it may not be known."""
    if not report.cards:
        return "cards not recorded" if report.without_card else ""
    cards = counted(report.cards, "card")
    return f"{cards}, not recorded in {counted(report.without_card, 'session')}" if report.without_card else cards


def _device(name: str, driver: str | None) -> str:
    return f"{name}, driver {driver}" if driver else name


def _sections(report: AuditReport) -> tuple[_Section, ...]:
    sections = (_figures(report), _classes(report), _curve(report), _scatter(report), _rules(report))
    return tuple(section for section in sections if section.lines)


def _figures(report: AuditReport) -> _Section:
    same, swapped = report.unchanged, report.swapped
    lines = [
        ("A/A verdicts", str(same.verdicts)),
        ("REGRESSION", str(same.red)),
        ("SPEEDUP", str(same.green)),
        (f"false-alarm rate, at most ({percent(CONFIDENCE, digits=0)})", percent(same.alarm_bound, digits=2)),
        ("A/A sessions with an alarm", f"{report.alarmed_sessions} of {report.unchanged_sessions}"),
        (f"of sessions, at most ({percent(CONFIDENCE, digits=0)})", percent(report.session_bound)),
        ("INCONCLUSIVE", _inconclusive(same)),
        ("with the sides swapped", _said(swapped)),
        ("controls, base against itself", f"{report.controls.verdicts}: {_said(report.controls)}"),
        ("wall time per case", _seconds(report.seconds_per_case)),
        ("cases without pairs", str(report.failed)),
        ("records that end before the rule decides", _cut_short(report)),
    ]
    return _Section("Unchanged code", ("what", "figure"), tuple(lines))


def _cut_short(report: AuditReport) -> str:
    unchanged, planted = report.cut_short
    return f"{unchanged} A/A, {planted} with a planted slowdown"


def _said(counts: Counts) -> str:
    return f"{counts.red} REGRESSION, {counts.green} SPEEDUP, {counts.inconclusive} INCONCLUSIVE"


def _seconds(found: Seconds) -> str:
    if found.smallest == found.largest:
        return duration(found.median)
    return f"{duration(found.median)} ({duration(found.smallest)} to {duration(found.largest)})"


def _inconclusive(counts: Counts) -> str:
    share = f"{counts.inconclusive} ({percent(counts.inconclusive / max(1, counts.verdicts))})"
    codes = ", ".join(f"{number} {name}" for name, number in counts.codes.items())
    return f"{share}: {codes}" if codes else share


def _classes(report: AuditReport) -> _Section:
    header = ("duration", "A/A verdicts", "worst sd", "of", "detectable, median", "largest", "99 % flagged from")
    return _Section(
        "By the duration of a launch", header, tuple(_class(report, name) for name in report.classes), ("of",)
    )


def _class(report: AuditReport, name: str) -> tuple[str, ...]:
    point, worst = report.point(0, name), report.worst(name)
    median, largest = report.detectable.get(name, (None, None))
    return (
        name or EVERY_CLASS,
        str(point.counts.verdicts if point else 0),
        _fraction(worst.sd if worst else None),
        worst.case if worst else NOTHING,
        _fraction(median),
        _fraction(largest),
        _seen(report.seen_from(name)),
    )


def _seen(found: Seen | None) -> str:
    return NOTHING if found is None else f"{percent(found.step)} ({found.flagged} of {found.verdicts})"


def _fraction(value: float | None, *, digits: int = 2) -> str:
    return NOTHING if value is None or math.isnan(value) else percent(value, digits=digits)


def _curve(report: AuditReport) -> _Section:
    classes = [name for name in report.classes if name != ALL]
    verdicts = ("REGRESSION", "UNCHANGED", "INCONCLUSIVE", "SPEEDUP")
    header = ("planted", "exactly", "verdicts", *verdicts, *(f"red, {name}" for name in classes))
    points = [point for step in (0.0, *report.steps) if (point := report.point(step)) is not None]
    lines = ((*_point(point), *(_flagged(report.point(point.step, name)) for name in classes)) for point in points)
    return _Section("Planted slowdowns: what is said of them", header, tuple(lines), note=_bounds(report))


def _bounds(report: AuditReport) -> str:
    """Say what so many verdicts allow to conclude of planted slowdowns, on either side of the threshold."""
    beyond = f"changes beyond {percent(report.threshold, digits=0)} are missed"
    bounds = (report.missed_bound, beyond), (report.early_bound, "smaller ones are called regressions")
    said = [f"at most {percent(bound)} of {what}" for bound, what in bounds if bound is not None]
    return f"If cases are independent ({percent(CONFIDENCE, digits=0)}): {', '.join(said)}." if said else ""


def _point(point: Point) -> tuple[str, ...]:
    counts, (least, mean, largest) = point.counts, point.planted
    exactly = percent(mean, digits=2)
    if largest - least >= 5e-5:
        exactly += f" ({100 * least:.2f}-{100 * largest:.2f})"
    said = (counts.red, counts.unchanged, counts.inconclusive, counts.green)
    return (_step(point.step), exactly, str(counts.verdicts), *(percent(n / counts.verdicts) for n in said))


def _step(step: float) -> str:
    return percent(step) if step else "A/A"


def _flagged(point: Point | None) -> str:
    return f"{point.counts.red} of {point.counts.verdicts}" if point else NOTHING


def _scatter(report: AuditReport) -> _Section:
    header = ("case", "device", "method", "duration", "sessions", "bias", "sd", "slower in")
    several = len({spread.device for spread in report.spreads}) > 1
    keep = [i for i, name in enumerate(header) if several or name != "device"]
    lines = (tuple(_spread(spread)[i] for i in keep) for spread in report.spreads)
    return _Section(
        "A/A: the reported ratio", tuple(header[i] for i in keep), tuple(lines), ("case", "device", "method")
    )


def _spread(spread: Spread) -> tuple[str, ...]:
    return (
        spread.case,
        spread.device,
        spread.method,
        spread.duration_class,
        str(spread.sessions),
        percent(spread.bias, sign=True, digits=2),
        percent(spread.sd, digits=2) if spread.sessions > 1 else NOTHING,
        f"{spread.positive} of {spread.sessions}",
    )


def _rules(report: AuditReport) -> _Section:
    steps = (0.0, *report.steps)
    header = ("rule", "base from", "A/A comparisons", *(_step(step) for step in steps))
    own_points = [report.point(step) for step in steps]
    own = (
        OWN_RULE,
        "same job",
        str(report.unchanged.verdicts),
        *(_fraction(p.flagged if p else None, digits=1) for p in own_points),
    )
    note = (
        "Share flagged as slower. ci-perf judges all pairs of a session; every other rule the samples of its first "
        "pair, or of the first pairs of two sessions."
    )
    lines = (own, *(_rule(rule, steps) for rule in report.rules if any(rule.at(step).n for step in steps)))
    return _Section("The same raw data, judged by other rules", header, lines, note=note)


def _rule(rule: RuleShares, steps: Sequence[float]) -> tuple[str, ...]:
    shares = [rule.at(step) for step in steps]
    return (rule.name, rule.setting, str(shares[0].n), *(_fraction(share.fraction, digits=1) for share in shares))


def render_audit_json(report: AuditReport) -> str:
    """Return every figure as JSON; fractions are fractions, what is not known is null."""
    document = {
        "sessions": len(report.sessions),
        "unchanged_sessions": report.unchanged_sessions,
        "alarmed_sessions": report.alarmed_sessions,
        "devices": sorted({session.device.slug for session in report.sessions}),
        "cards": report.cards,
        "sessions_without_card": report.without_card,
        "unchanged": _counts(report.unchanged),
        "false_alarm_rate_upper": report.unchanged.alarm_bound,
        "alarmed_sessions_upper": report.session_bound,
        "missed_upper": report.missed_bound,
        "early_upper": report.early_bound,
        "swapped": _counts(report.swapped),
        "controls": _counts(report.controls),
        "seconds_per_case": asdict(report.seconds_per_case),
        "failed": report.failed,
        "cut_short": dict(zip(("unchanged", "planted"), report.cut_short, strict=True)),
        "cases": [asdict(spread) for spread in report.spreads],
        "classes": [_class_document(report, name) for name in report.classes],
        "curve": [
            {
                "step": point.step,
                "duration_class": point.duration_class or EVERY_CLASS,
                "planted": dict(zip(("least", "mean", "largest"), point.planted, strict=True)),
                **_counts(point.counts),
            }
            for point in report.curve
        ],
        "rules": [
            {
                "rule": rule.name,
                "base_from": rule.setting,
                "step": step,
                "duration_class": name or EVERY_CLASS,
                **asdict(rule.at(step, name)),
            }
            for rule in report.rules
            for step in (0.0, *report.steps)
            for name in report.classes
        ],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _class_document(report: AuditReport, name: str) -> dict[str, object]:
    worst = report.worst(name)
    median, largest = (_finite(v) for v in report.detectable.get(name, (None, None)))
    seen = report.seen_from(name)
    return {
        "duration_class": name or EVERY_CLASS,
        "worst_sd": worst.sd if worst else None,
        "worst_case": worst.case if worst else None,
        "detectable_median": median,
        "detectable_largest": largest,
        "flagged_from": None if seen is None else asdict(seen),
    }


def _counts(counts: Counts) -> dict[str, object]:
    return {
        "verdicts": counts.verdicts,
        "regression": counts.red,
        "speedup": counts.green,
        "unchanged": counts.unchanged,
        "inconclusive": counts.inconclusive,
        "inconclusive_codes": dict(counts.codes),
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
