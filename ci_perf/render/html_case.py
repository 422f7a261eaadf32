"""A case on the page of a report: its verdict, causes, charts, counters and numbers."""

from collections.abc import Sequence
from html import escape

from ci_perf.judge.report import Report, Row
from ci_perf.pages.chart import Chart
from ci_perf.pages.parts import bullets, figure, prose, table, text
from ci_perf.render import cells
from ci_perf.render.explanations import COMPARED, as_before, compared, counters_of_sides
from ci_perf.values.escape import lines_of
from ci_perf.values.measurement import Measurement
from ci_perf.values.metrics import BY_NAME
from ci_perf.values.quantity import number, percent
from ci_perf.values.trace import Reading

MOST_OPEN = 3
"""The first cases, the most urgent ones, are open."""


def case(index: int, row: Row, report: Report, charts: Sequence[Chart], first: int) -> str:
    """Return the section of the row at `index`; its first chart is the one at `first` of the page's data."""
    opened = " open" if index < MOST_OPEN else ""
    verdict, base, head, change, why = cells.verdict(row)
    name = ", ".join(cells.names(row, report))
    parts = [f"<p>{prose(why)}</p>", f"<p>base {text(base)}, head {text(head)}, change {text(change)}</p>"]
    parts += _causes(row)
    drawn = "".join(figure(chart, place) for place, chart in enumerate(charts, first))
    parts += [f'<div class="charts">{drawn}</div>' if drawn else ""]
    if row.summary:
        numbers = zip(cells.STATISTICS, cells.statistics(row), strict=True)
        parts.append(table(f"Numbers of {name}", ("statistic", "value"), numbers))
    if row.measurement:
        parts.append(_counters(name, row.measurement))
    warnings = [*row.warnings, *(f"gate broken: {cells.gate(gate)}" for gate in row.finding.broken_gates)]
    warnings += [f"gate: {cells.gate(gate)}" for gate in row.finding.unmeasured_gates]
    parts.append(bullets(warnings))
    failure = row.measurement.failure if row.measurement else None
    if failure and failure.detail:
        parts.append(f'<pre tabindex="0">{escape(chr(10).join(lines_of(failure.detail, 3000)))}</pre>')
    title = f"<h3>{text(name)}: {text(verdict)}</h3>"
    return f'<details id="case-{index}"{opened}><summary>{title}</summary>{"".join(parts)}</details>\n'


def _causes(row: Row) -> list[str]:
    """Return the causes of a change, and the counters that matter for it."""
    found = row.finding.explanation
    if found is None:
        return []
    items = [
        f"{cause.sentence}; this can account for {percent(cause.share, digits=0)} of the change. {cause.look}"
        for cause in found.causes
    ]
    line = [f"{found.line.title}: {found.line.place}, {found.line}."] if found.line else []
    rows = compared(found)
    counters = table(f"Counters of {row.finding.id}", COMPARED, rows) if rows else ""
    unmoved = f"<p>{text(as_before(found))}</p>" if as_before(found) else ""
    return ["<h4>Causes</h4>", bullets([*(items or [found.sentence]), *line]), counters, unmoved]


def _counters(name: str, measurement: Measurement) -> str:
    """Return all counters of both sides, side by side; folded, for there may be sixty."""
    base, head = counters_of_sides(measurement)
    names = [metric for metric in BY_NAME if metric in base or metric in head]
    if not names:
        return ""
    rows = [(metric, _reading(base, metric), _reading(head, metric), BY_NAME[metric].unit) for metric in names]
    found = table(f"All counters of {name}", ("counter", "base", "head", "unit"), rows)
    return f"<details><summary>All {len(names)} counters</summary>{found}</details>"


def _reading(readings: dict[str, Reading], metric: str) -> str:
    reading = readings.get(metric)
    return "-" if reading is None or reading.value is None else number(reading.value)
