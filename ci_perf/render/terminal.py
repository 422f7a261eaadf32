"""The report as a table for a terminal; rich leaves the colours out where there is none."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ci_perf.judge.report import Report, Row
from ci_perf.render import cells
from ci_perf.values.escape import clean
from ci_perf.values.quantity import number, percent
from ci_perf.values.verdict import Verdict

_STYLE = {
    Verdict.FAILED: "bold red",
    Verdict.REGRESSION: "bold red",
    Verdict.MISSING: "yellow",
    Verdict.SPEEDUP: "bold green",
    Verdict.NOT_COMPARABLE: "yellow",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NEW: "cyan",
    Verdict.UNCHANGED: "green",
}


def render_terminal(report: Report) -> RenderableType:
    """Return what `ci-perf run` shows: verdicts, numbers, then what was not done."""
    parts: list[RenderableType] = [_verdicts(report)]
    if any(row.summary for row in report.rows):
        parts += [_numbers(report, cells.STATISTICS[:5]), _numbers(report, cells.STATISTICS[5:])]
    if len(report.devices) > 1:
        parts += [_line(f"{case}: {', '.join(rest)}", "") for case, *rest in cells.side_by_side(report)]
    for row in report.of(Verdict.FAILED):
        failure = row.measurement.failure if row.measurement else None
        lines = failure.detail.strip().splitlines()[-8:] if failure else []
        parts += [_line(f"{row.finding.id}: {line}", "dim") for line in lines]
    parts += [_line(line, "bold red") for line in _broken(report)]
    parts += [_line(line, "yellow") for line in _unmeasured(report)]
    parts += [_line(line, "") for line in (*_counters(report), *_kernels(report))]
    parts += [_line(f"warning: {row.finding.id}: {w}", "yellow") for row in report.rows for w in row.warnings]
    for note in report.notes:
        parts.append(_line(f"note: {note.message}", "dim"))
        parts += [_line(f"hint: {note.hint}", "dim")] if note.hint else []
    parts.append(Text(f"\n{report.headline}", style="bold red" if report.exit_status else "bold"))
    parts.append(_line(cells.held_against(report), ""))
    parts.append(Text(report.next_step))
    return Group(*parts)


def render_timings(report: Report) -> RenderableType:
    """Return the seconds by case, side and stage, and their sums: what a run costs beside the times that it reports."""
    spent = {
        (row.finding.id, side): stages
        for row in report.rows
        if row.measurement
        for side, stages in row.measurement.spent.items()
    }
    names = list(dict.fromkeys(name for stages in spent.values() for name in stages))
    table = Table(title="\nseconds by stage, over all processes", title_justify="left", box=None, pad_edge=False)
    table.add_column("case", no_wrap=True)
    table.add_column("side", no_wrap=True)
    for name in ("sum", *names):
        table.add_column(name, justify="right")
    for (case, side), stages in spent.items():
        cells = (f"{stages[name]:.2f}" if stages.get(name) else "" for name in names)
        table.add_row(clean(case, 80), side, f"{sum(stages.values()):.2f}", *cells)
    return table


def _line(text: str, style: str) -> Text:
    """Return a line that may quote users' code, so that it cannot move the cursor or colour the screen."""
    return Text(clean(text, 600), style=style)


def _verdicts(report: Report) -> Table:
    table = Table(title=_title(report), title_justify="left", title_style="bold", box=None, pad_edge=False)
    several = len(report.devices) > 1
    for name in ("case", *(["device"] if several else []), "verdict"):
        table.add_column(name, no_wrap=True)
    for name in ("base", "head", "change [99 % CI]"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("why", overflow="fold")
    for row in report.rows:
        table.add_row(*_verdict_cells(row, several))
    return table


def _verdict_cells(row: Row, several: bool) -> list[RenderableType]:
    finding = row.finding
    return [
        Text(clean(finding.id)),
        *([Text(finding.device)] if several else []),
        Text(str(finding.verdict), style=_STYLE[finding.verdict]),
        cells.value(finding.base, finding.unit),
        cells.value(finding.head, finding.unit),
        Text(cells.change(finding.change)),
        Text(clean(cells.why(row), 400)),
    ]


def _numbers(report: Report, columns: Sequence[str]) -> Table:
    """Return some of the statistics as a table of their own: all of them side by side fit no terminal."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    several = len(report.devices) > 1
    for name in ("case", *(["device"] if several else [])):
        table.add_column(f"\n{name}", no_wrap=True)
    for name in columns:
        table.add_column(f"\n{name}", justify="right", no_wrap=True)
    for row in report.rows:
        if row.summary:
            device = [row.finding.device] if several else []
            values = dict(zip(cells.STATISTICS, cells.statistics(row), strict=True))
            table.add_row(Text(clean(row.finding.id)), *device, *(Text(values[name]) for name in columns))
    return table


def _title(report: Report) -> str:
    devices = "; ".join(cells.device_line(report, i) for i in range(len(report.devices)))
    planted = f" (a slowdown of {percent(report.planted)} was planted)" if report.planted is not None else ""
    return devices + planted


def _broken(report: Report) -> list[str]:
    return [f"gate broken: {row.finding.id}: {cells.gate(g)}" for row in report.rows for g in row.finding.broken_gates]


def _unmeasured(report: Report) -> list[str]:
    return [f"gate: {words}: {', '.join(cases)}" for words, cases in cells.unmeasured_gates(report)]


def _counters(report: Report) -> list[str]:
    return [
        f"counter changed: {row.finding.id}: {c.metric} {number(c.base)} -> {number(c.head)} {c.unit}".rstrip()
        for row in report.rows
        for c in row.finding.counters
    ]


def _kernels(report: Report) -> list[str]:
    return [
        f"GPU kernel {what}: {row.finding.id}: {before or now}"
        for row in report.rows
        for what, before, now in cells.kernel_changes(row)
        if what != "renamed"
    ]
