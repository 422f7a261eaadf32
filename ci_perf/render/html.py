"""The report as one HTML page."""

from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import accumulate, chain

from ci_perf.judge.report import Report, Row
from ci_perf.pages.chart import Chart
from ci_perf.pages.document import document
from ci_perf.pages.parts import bullets, prose, table, text
from ci_perf.render import cells
from ci_perf.render.charts import charts
from ci_perf.render.html_case import case
from ci_perf.values.quantity import percent
from ci_perf.values.series import Trend

MOST_DRAWN = 300
"""The number of cases with charts, so that a page of many cases stays small. The most urgent come first."""


def render_html(report: Report, trends: Sequence[Trend] = ()) -> str:
    """Return a page without external resources; a browser may run only its own scripts, known by their hashes.

    `trends` are the history of the cases; those of other cases are left out.
    """
    of_cases: dict[tuple[str, ...], list[Trend]] = {}
    for trend in trends:
        last = trend.series.last
        of_cases.setdefault((last.kernel, last.case, last.device), []).append(trend)
    drawn = [_charts(row, report, of_cases) if index < MOST_DRAWN else [] for index, row in enumerate(report.rows)]
    places = accumulate(map(len, drawn), initial=0)
    rows = zip(report.rows, drawn, places, strict=False)
    cases = "".join(case(index, row, report, own, place) for index, (row, own, place) in enumerate(rows))
    body = (
        f"<p>{prose(cells.comparison(report))}</p>\n"
        f"{_planted(report)}<p><strong>Next:</strong> {prose(report.next_step)}</p>\n"
        f"{_creep(report)}{_verdicts(report)}"
        f"<h2>Cases</h2>\n{_legend(len(report.rows)) if any(drawn) else ''}{cases}{_notes(report)}"
        f"<h2>Environment</h2>\n{table('Environment', ('what', 'which'), cells.environment(report))}"
    )
    script = resources.files("ci_perf.render").joinpath("page.js").read_text("utf-8")
    return document(f"ci-perf: {report.headline}", body, list(chain(*drawn)), [script])


def _charts(row: Row, report: Report, trends: Mapping[tuple[str, ...], Sequence[Trend]]) -> list[Chart]:
    finding = row.finding
    device = next((device for device in report.devices if device.slug == finding.device), None)
    return charts(row, device, trends.get((finding.kernel, finding.case, finding.device), ()))


def _planted(report: Report) -> str:
    if report.planted is None:
        return ""
    return f"<p><strong>A slowdown of {percent(report.planted)} was planted in this run on purpose.</strong></p>\n"


def _verdicts(report: Report) -> str:
    """Return the table with its filter; `data-value` is what a column is sorted by.

    On a narrow screen each row is a block, in which `data-title` stands before each cell. CSS that does so takes the
    roles of a table away, so the elements name them.
    """
    titles = (*cells.name_titles(report), *cells.VERDICT)
    head = "".join(
        f'<th scope="col" role="columnheader"><button type="button">{text(title)}</button></th>' for title in titles
    )
    found = dict.fromkeys(str(row.finding.verdict) for row in report.rows)
    options = "".join(f"<option>{text(verdict)}</option>" for verdict in found)
    body = "".join(_line(index, row, report) for index, row in enumerate(report.rows))
    return (
        '<h2 id="verdicts">Verdicts</h2>\n<form class="filter" role="search" aria-label="Filter the cases">'
        '<label>Filter <input type="search" id="words" autocomplete="off"></label> '
        f'<label>Verdict <select id="verdict"><option value="">all</option>{options}</select></label> '
        '<output id="count" aria-live="polite"></output></form>\n'
        '<div class="wide" role="region" aria-labelledby="verdicts" tabindex="0"><table id="cases" role="table">'
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>\n<tbody role="rowgroup">{body}</tbody>'
        "</table></div>\n"
    )


def _line(index: int, row: Row, report: Report) -> str:
    finding = row.finding
    name, *device = cells.names(row, report)
    verdict, base, head, change, why = cells.verdict(row)
    sign = f'<span aria-hidden="true">{finding.verdict.sign}</span>'
    point = finding.change.point if finding.change else None
    titles = iter((*cells.name_titles(report)[1:], *cells.VERDICT))

    def cell(content: str, more: str = "") -> str:
        return f'<td role="cell" data-title="{text(next(titles))}"{more}>{content}</td>'

    return (
        f'<tr role="row" data-verdict="{text(verdict)}">'
        f'<th scope="row" role="rowheader"><a href="#case-{index}">{text(name)}</a></th>'
        + "".join(cell(text(content)) for content in device)
        + cell(f"{sign} {text(verdict)}", f' class="verdict {finding.verdict.lower()}" data-value="{index}"')
        + "".join(
            cell(text(content), f' class="number" data-value="{"" if value is None else repr(value)}"')
            for value, content in ((finding.base, base), (finding.head, head), (point, change))
        )
        + f"{cell(prose(why))}</tr>\n"
    )


def _legend(cases: int) -> str:
    left = cases - MOST_DRAWN
    note = f"; charts of the first {MOST_DRAWN} cases, without {left:,} less urgent ones" if left > 0 else ""
    marks = (
        '<span class="mark base" aria-hidden="true"></span> base, <span class="mark head" aria-hidden="true"></span>'
    )
    return f'<p class="legend">{marks} head; dashed lines: thresholds or ceilings{note}</p>\n'


def _creep(report: Report) -> str:
    rows = cells.creep(report)
    return f"<h2>{cells.CREEP_TITLE}</h2>\n{table(cells.CREEP_TITLE, cells.CREEP, rows)}" if rows else ""


def _notes(report: Report) -> str:
    notes = [f"{note.message} ({note.hint})" if note.hint else note.message for note in report.other_notes]
    return f"<h2>Notes</h2>\n{bullets(notes)}" if notes else ""
