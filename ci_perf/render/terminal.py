"""The report as tables for a terminal; rich omits colours if the output is not a terminal."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from tabulate import tabulate

from ci_perf.judge.report import Report, Row
from ci_perf.render import cells
from ci_perf.values.escape import clean, lines_of
from ci_perf.values.quantity import number, percent
from ci_perf.values.reasons import Verdict

_STYLE = {
    Verdict.FAILED: "bold red",
    Verdict.REGRESSION: "bold red",
    Verdict.MISSING: "yellow",
    Verdict.SPEEDUP: "bold green",
    Verdict.NOT_COMPARABLE: "yellow",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NEW: "cyan",
    Verdict.EXPECTED_FAILURE: "yellow",
    Verdict.UNCHANGED: "green",
}


def render_terminal(report: Report) -> RenderableType:
    """Return what `ci-perf run` prints: verdicts, statistics, gates and counters, notes, headline and next step."""
    parts: list[RenderableType] = [_verdicts(report)]
    if any(row.summary for row in report.rows):
        parts += [_numbers(report, slice(5)), _numbers(report, slice(5, None))]
    parts += [text for row in report.of(Verdict.FAILED) for text in _failure(row)]
    parts += [Text(clean(text, 600), style=style) for text, style in _lines(report)]
    parts.append(Text(f"\n{report.headline}", style="bold red" if report.exit_status else "bold"))
    parts.append(Text(clean(cells.comparison(report), 600)))
    parts.append(Text(report.next_step))
    return Group(*parts)


def _failure(row: Row) -> list[Text]:
    """Return the traceback of a failed case, or what its process wrote at last."""
    failure = row.measurement.failure if row.measurement else None
    if not failure or not failure.detail:
        return []
    lines = (f"  {line}" for line in lines_of(failure.detail, 1000))
    return [Text(clean(f"{row.finding.id}:")), *(Text(line, style="dim") for line in lines)]


def _lines(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the lines below the tables with their styles."""
    if len(report.devices) > 1:
        yield from ((f"{case}: {', '.join(rest)}", "") for case, *rest in cells.side_by_side(report))
    for row in report.rows:
        broken = row.finding.broken_gates
        yield from ((f"gate broken: {row.finding.id}: {cells.gate(gate)}", "bold red") for gate in broken)
    yield from ((f"gate: {words}: {', '.join(ids)}", "yellow") for words, ids in cells.unmeasured_gates(report))
    for row in report.rows:
        for c in row.finding.counters:
            counter = f"{c.metric} {number(c.base)} -> {number(c.head)} {c.unit}".rstrip()
            yield f"counter changed: {row.finding.id}: {counter}", ""
    for row in report.rows:
        changes = (change for change in cells.kernel_changes(row) if change[0] != "renamed")
        yield from ((f"GPU kernel {what}: {row.finding.id}: {before or now}", "") for what, before, now in changes)
    yield from ((f"warning: {row.finding.id}: {text}", "yellow") for row in report.rows for text in row.warnings)
    for note in report.notes:
        yield f"note: {note.message}", "dim"
        if note.hint:
            yield f"hint: {note.hint}", "dim"


def render_timings(report: Report) -> str:
    """Return the seconds by case, side and stage, and their sums: what a run costs beside the times that it reports."""
    spent = [
        (row.finding.id, side, stages)
        for row in report.rows
        if row.measurement
        for side, stages in row.measurement.spent.items()
    ]
    names = list(dict.fromkeys(name for _, _, stages in spent for name in stages))
    lines = [
        (clean(case, 80), side, sum(stages.values()), *(stages.get(name) or None for name in names))
        for case, side, stages in spent
    ]
    table = tabulate(lines, headers=("case", "side", "sum", *names), floatfmt=".2f")
    return f"seconds by stage, over all processes\n\n{table}\n"


def _verdicts(report: Report) -> Table:
    table = Table(title=_title(report), title_justify="left", title_style="bold", box=None, pad_edge=False)
    first, *numbers, last = cells.VERDICT
    for title in (*cells.name_titles(report), first):
        table.add_column(title, no_wrap=True)
    for title in numbers:
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column(last, overflow="fold")
    for row in report.rows:
        verdict, *values, why = cells.verdict(row)
        style = _STYLE[row.finding.verdict]
        table.add_row(*_texts(cells.names(row, report)), Text(verdict, style), *_texts(values), Text(clean(why, 400)))
    return table


def _numbers(report: Report, columns: slice) -> Table:
    """Return some columns of the statistics: all of them are too wide for a terminal."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in cells.name_titles(report):
        table.add_column(f"\n{title}", no_wrap=True)
    for title in cells.STATISTICS[columns]:
        table.add_column(f"\n{title}", justify="right", no_wrap=True)
    for row in report.rows:
        if row.summary:
            table.add_row(*_texts(cells.names(row, report)), *_texts(cells.statistics(row)[columns]))
    return table


def _texts(values: Sequence[str]) -> list[Text]:
    return [Text(clean(value)) for value in values]


def _title(report: Report) -> str:
    devices = "; ".join(cells.device_line(report, i) for i in range(len(report.devices)))
    planted = f" (a slowdown of {percent(report.planted)} was planted)" if report.planted is not None else ""
    return devices + planted
