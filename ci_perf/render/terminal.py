"""The report for a terminal of any width; rich omits colours if the output is not a terminal or NO_COLOR is set."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text
from tabulate import tabulate

from ci_perf.judge.report import Report, Row
from ci_perf.render import cells
from ci_perf.render.fitting import Message, Numbers, VerdictRow, Verdicts
from ci_perf.values.escape import clean, lines_of, plain
from ci_perf.values.quantity import number, percent
from ci_perf.values.reasons import Verdict

LONGEST_LINE = 2000
"""Characters of a sentence of the report."""
MOST_CASES = 5
"""The number of cases that are named for a gate that was not measured."""


def render_terminal(report: Report, run: str = cells.RUN) -> RenderableType:
    """Return what `ci-perf run` prints: verdicts, statistics, gates and counters, notes, headline and next step.

    `run` is the path of the run on disk, which the next step names.
    """
    parts: list[RenderableType] = [Text(_title(report), style="bold"), _verdicts(report)]
    if any(row.summary for row in report.rows):
        parts.append(_numbers(report))
    parts += [text for row in report.of(Verdict.FAILED) for text in _failure(row)]
    parts += [Message(clean(text, LONGEST_LINE), style) for text, style in _lines(report)]
    parts.append(Text(f"\n{report.headline}", style="bold red" if report.exit_status else "bold"))
    parts.append(Message(clean(cells.comparison(report), LONGEST_LINE)))
    parts.append(Message(cells.next_step(report, run)))
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
    yield from ((f"gate: {words}: {_some(ids)}", "yellow") for words, ids in cells.unmeasured_gates(report))
    for row in report.rows:
        for c in row.finding.counters:
            counter = f"{c.metric} {number(c.base)} -> {number(c.head)} {c.unit}".rstrip()
            yield f"counter changed: {row.finding.id}: {counter}", ""
    for row in report.rows:
        changes = (change for change in cells.kernel_changes(row) if change[0] != "renamed")
        yield from ((f"GPU kernel {what}: {row.finding.id}: {before or now}", "") for what, before, now in changes)
    yield from ((f"warning: {row.finding.id}: {text}", "yellow") for row in report.rows for text in row.warnings)
    style = "bold red" if report.fails_on_creep else "yellow"
    for case, device, change, merges, since in cells.creep(report):
        yield f"creep: {case} on {device}: {change} in {merges} merges since {since}, before this change", style
    for note in report.other_notes:
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


def _some(cases: list[str]) -> str:
    more = f" and {len(cases) - MOST_CASES:,} more" if len(cases) > MOST_CASES else ""
    return ", ".join(cases[:MOST_CASES]) + more


def _verdicts(report: Report) -> Verdicts:
    rows = []
    for row in report.rows:
        _, *numbers, why = cells.verdict(row)
        names = [clean(name) for name in cells.names(row, report)]
        rows.append(VerdictRow(row.finding.verdict, names, numbers, plain(clean(why, LONGEST_LINE))))
    return Verdicts([*cells.name_titles(report), *cells.VERDICT], rows)


def _numbers(report: Report) -> Numbers:
    rows = [
        ([clean(name) for name in cells.names(row, report)], [clean(cell) for cell in cells.statistics(row)])
        for row in report.rows
        if row.summary
    ]
    # On a CPU there is no roofline, for example.
    known = [place for place in range(len(cells.STATISTICS)) if any(numbers[place] != "-" for _, numbers in rows)]
    titles = [cells.STATISTICS[place] for place in known]
    return Numbers(
        cells.name_titles(report), titles, [(names, [numbers[place] for place in known]) for names, numbers in rows]
    )


def _title(report: Report) -> str:
    devices = "; ".join(cells.device_line(report, i) for i in range(len(report.devices)))
    planted = f" (a slowdown of {percent(report.planted)} was planted)" if report.planted is not None else ""
    return devices + planted
