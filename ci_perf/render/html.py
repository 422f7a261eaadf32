"""The report as one HTML page: no file beside it, no network, one script of its own for sorting and filtering."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources

from ci_perf.judge.report import Report, Row
from ci_perf.render import cells
from ci_perf.render.charts import charts
from ci_perf.render.explanations import COMPARED, compared
from ci_perf.values.escape import clean
from ci_perf.values.quantity import percent
from ci_perf.values.reasons import Verdict

MOST_DRAWN = 300
"""The number of cases with charts, so that a page of many cases stays small. The most urgent come first."""
_MOST_OPEN = 3
_SIGNS = {
    Verdict.FAILED: "\u2716",
    Verdict.REGRESSION: "\u25b2",
    Verdict.MISSING: "?",
    Verdict.SPEEDUP: "\u25bc",
    Verdict.NEW: "+",
    Verdict.UNCHANGED: "=",
}
"""A sign beside the word of a verdict; of every other verdict it is a tilde."""


def render_html(report: Report) -> str:
    """Return a page without external resources; a browser may run only its own script, known by its hash."""
    style, script = (resources.files("ci_perf.render").joinpath(name).read_text("utf-8") for name in _PARTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    cases = "".join(_case(index, row, report) for index, row in enumerate(report.rows))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>ci-perf: {_text(report.headline)}</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>ci-perf: {_text(report.headline)}</h1>\n<p>{_text(cells.comparison(report))}</p>\n{_planted(report)}"
        f"<p><strong>Next:</strong> {_text(report.next_step)}</p>\n{_verdicts(report)}"
        f"<h2>Cases</h2>\n{_legend()}{cases}{_notes(report)}"
        f"<h2>Environment</h2>\n{_table('Environment', ('what', 'which'), cells.environment(report))}"
        f"</main>\n<script>{script}</script>\n</body>\n</html>\n"
    )


_PARTS = ("page.css", "page.js")


def _text(text: str, longest: int = 600) -> str:
    """Write a text, which may quote users' code, so that nothing in it is markup."""
    return escape(clean(text, longest))


def _planted(report: Report) -> str:
    if report.planted is None:
        return ""
    return f"<p><strong>A slowdown of {percent(report.planted)} was planted in this run on purpose.</strong></p>\n"


def _verdicts(report: Report) -> str:
    """Return the table with its filter; `data-value` is what a column is sorted by."""
    titles = (*cells.name_titles(report), *cells.VERDICT)
    head = "".join(f'<th scope="col"><button type="button">{_text(title)}</button></th>' for title in titles)
    found = dict.fromkeys(str(row.finding.verdict) for row in report.rows)
    options = "".join(f"<option>{_text(verdict)}</option>" for verdict in found)
    body = "".join(_line(index, row, report) for index, row in enumerate(report.rows))
    return (
        '<h2 id="verdicts">Verdicts</h2>\n<form class="filter" role="search" aria-label="Filter the cases">'
        '<label>Filter <input type="search" id="words" autocomplete="off"></label> '
        f'<label>Verdict <select id="verdict"><option value="">all</option>{options}</select></label> '
        '<output id="count" aria-live="polite"></output></form>\n'
        '<div class="wide" role="region" aria-labelledby="verdicts" tabindex="0"><table id="cases">'
        f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>\n"
    )


def _line(index: int, row: Row, report: Report) -> str:
    finding = row.finding
    name, *device = cells.names(row, report)
    verdict, base, head, change, why = cells.verdict(row)
    sign = _SIGNS.get(finding.verdict, "~")
    point = finding.change.point if finding.change else None
    kind = f"verdict {finding.verdict.lower()}"
    return (
        f'<tr data-verdict="{_text(verdict)}"><th scope="row"><a href="#case-{index}">{_text(name)}</a></th>'
        + "".join(f"<td>{_text(cell)}</td>" for cell in device)
        + f'<td class="{kind}" data-value="{index}"><span aria-hidden="true">{sign}</span> {_text(verdict)}</td>'
        + "".join(
            f'<td class="number" data-value="{"" if value is None else value!r}">{_text(text)}</td>'
            for value, text in ((finding.base, base), (finding.head, head), (point, change))
        )
        + f"<td>{_text(why)}</td></tr>\n"
    )


def _legend() -> str:
    return (
        '<p class="legend"><svg viewBox="0 0 16 16" aria-hidden="true"><path class="dots base large" d="M8 8h0"/></svg>'
        ' base: circles <svg viewBox="0 0 16 16" aria-hidden="true"><path class="dots head large" d="M8 8h0"/></svg>'
        " head: squares; dashed lines: thresholds or ceilings</p>\n"
    )


def _case(index: int, row: Row, report: Report) -> str:
    finding = row.finding
    device = next((device for device in report.devices if device.slug == finding.device), None)
    opened = " open" if index < _MOST_OPEN else ""
    verdict, base, head, change, why = cells.verdict(row)
    name = ", ".join(cells.names(row, report))
    parts = [f"<p>{_text(why)}</p>", f"<p>base {_text(base)}, head {_text(head)}, change {_text(change)}</p>"]
    parts += _causes(row)
    drawn = charts(row, device) if index < MOST_DRAWN else ""
    parts += [f'<div class="charts">{drawn}</div>' if drawn else ""]
    if row.summary:
        numbers = zip(cells.STATISTICS, cells.statistics(row), strict=True)
        parts.append(_table(f"Numbers of {name}", ("statistic", "value"), numbers))
    warnings = [*row.warnings, *(f"gate broken: {cells.gate(gate)}" for gate in finding.broken_gates)]
    warnings += [f"gate: {cells.gate(gate)}" for gate in finding.unmeasured_gates]
    parts.append(_list(warnings))
    failure = row.measurement.failure if row.measurement else None
    if failure and failure.detail:
        lines = (clean(line, 300) for line in failure.detail[-3000:].splitlines())
        parts.append(f'<pre tabindex="0">{escape(chr(10).join(lines))}</pre>')
    title = f"<h3>{_text(name)}: {_text(verdict)}</h3>"
    return f'<details id="case-{index}"{opened}><summary>{title}</summary>{"".join(parts)}</details>\n'


def _causes(row: Row) -> list[str]:
    """Return the causes of a change, and the counters of both sides."""
    found = row.finding.explanation
    if found is None:
        return []
    items = [
        f"{cause.sentence}; this can account for {percent(cause.share, digits=0)} of the change. {cause.look}"
        for cause in found.causes
    ]
    line = [f"The source line that takes most of the change: {found.line.place}, {found.line}."] if found.line else []
    table = _table(f"Counters of {row.finding.id}", COMPARED, compared(found)) if found.compared else ""
    return ["<h4>Causes</h4>", _list([*(items or [found.sentence]), *line]), table]


def _notes(report: Report) -> str:
    notes = [f"{note.message} ({note.hint})" if note.hint else note.message for note in report.notes]
    return f"<h2>Notes</h2>\n{_list(notes)}" if notes else ""


def _list(texts: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{_text(text)}</li>' for text in texts)}</ul>" if texts else ""


def _table(caption: str, titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table that scrolls in a region of its own, which the keyboard reaches."""
    head = "".join(f'<th scope="col">{_text(title)}</th>' for title in titles)
    body = "".join(
        f'<tr><th scope="row">{_text(first)}</th>{"".join(f"<td>{_text(cell)}</td>" for cell in rest)}</tr>'
        for first, *rest in rows
    )
    return (
        f'<div class="wide" role="region" aria-label="{_text(caption)}" tabindex="0"><table>'
        f"<caption>{_text(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>\n"
    )
