"""The pull request comment: what changed first, everything else folded below."""

from collections.abc import Iterable, Sequence

from tabulate import tabulate

from ci_perf.core.model import Verdict
from ci_perf.core.quantity import number, percent
from ci_perf.core.report import Report, Row
from ci_perf.core.timeline import BY_NAME, TIMELINE
from ci_perf.render import cells
from ci_perf.render.escape import block, code, prose

MARKER = "<!-- ci-perf:{key} -->"
"""First line of a comment, by which the next run finds it."""
MOST_TRACEBACKS = 5
_NO_BREAK = "\u00a0"


def render_comment(report: Report, key: str = "default") -> str:
    """Return the exact body of the comment."""
    flagged = [row for row in report.rows if row.flagged]
    parts = [
        MARKER.format(key=key),
        f"### ci-perf: {report.headline}",
        _lead(report),
        _plain_table(flagged, report),
        _failures(report),
        _gates(report.rows),
        _counters(report.rows),
        _kernel_changes(report.rows),
        _warnings(report),
        _notes(report),
        _folded("Inconclusive and not comparable", _plain_table(_undecided(report), report)),
        _folded("New cases", _plain_table(report.of(Verdict.NEW), report)),
        _folded("Unchanged", _plain_table(_quiet(report), report)),
        _folded("CPU beside GPU", _side_by_side(report)),
        _folded("All numbers", _statistics(report)),
        _folded("GPU kernels of each case", _kernels(report.rows)),
        _folded("Timeline", _timeline(report)),
        _folded("Environment", _environment(report)),
        _folded("How to reproduce", f"```sh\n{cells.reproduce(report)}\n```"),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _lead(report: Report) -> str:
    paragraphs = [prose(cells.held_against(report))]
    if report.planted is not None:
        paragraphs.append(f"**A slowdown of {percent(report.planted)} was planted in this run on purpose.**")
    worst = sorted(
        report.of(Verdict.REGRESSION), key=lambda row: -row.finding.change.point if row.finding.change else 0.0
    )
    if worst:
        paragraphs.append(f"**Worst: {code(worst[0].finding.id)}, {prose(worst[0].finding.sentence)}.**")
    paragraphs.append(report.next_step)
    return "\n\n".join(paragraphs)


def _undecided(report: Report) -> list[Row]:
    rows = report.of(Verdict.NOT_COMPARABLE, Verdict.INCONCLUSIVE)
    return [row for row in rows if not row.flagged]


def _quiet(report: Report) -> list[Row]:
    return [row for row in report.of(Verdict.UNCHANGED) if not row.flagged]


def _plain_table(rows: Sequence[Row], report: Report) -> str:
    if not rows:
        return ""
    several = len(report.devices) > 1
    header = ["case", *(["device"] if several else []), "verdict", "base", "head", "change [99 % CI]", "why"]
    lines = [
        [
            code(row.finding.id),
            *([code(row.finding.device)] if several else []),
            f"**{row.finding.verdict}**" if row.flagged else str(row.finding.verdict),
            cells.value(row.finding.base, row.finding.unit),
            cells.value(row.finding.head, row.finding.unit),
            cells.change(row.finding.change),
            prose(cells.why(row)),
        ]
        for row in rows
    ]
    right = ("base", "head", "change [99 % CI]")
    return table(header, lines, right)


def table(header: Sequence[str], lines: Iterable[Sequence[str]], right: Iterable[str] = ()) -> str:
    """Return a GitHub table; the columns named in `right` hold numbers, which are not broken into lines."""
    numbers = {index for index, name in enumerate(header) if name in set(right)}
    align = ["right" if index in numbers else "left" for index in range(len(header))]
    kept = [[c.replace(" ", _NO_BREAK) if i in numbers else c for i, c in enumerate(line)] for line in lines]
    return tabulate(kept, headers=header, tablefmt="pipe", colalign=align, disable_numparse=True)


def _failures(report: Report) -> str:
    """Show the end of each traceback: the line that a reader wants to see."""
    parts = []
    for row in report.of(Verdict.FAILED)[:MOST_TRACEBACKS]:
        failure = row.measurement.failure if row.measurement else None
        if failure is not None and failure.detail:
            parts.append(f"{code(row.finding.id)}\n\n{block(failure.detail, 1500)}")
    return _folded("What the failed kernels wrote", "\n\n".join(parts))


def _side_by_side(report: Report) -> str:
    """Put the devices of a run next to each other, case by case."""
    lines = cells.side_by_side(report)
    header = ["case", *(device.name for device in report.devices), "CPU / GPU"]
    return table(header, [[code(first), *rest] for first, *rest in lines], header[1:]) if lines else ""


def _gates(rows: Sequence[Row]) -> str:
    broken = [(row, gate) for row in rows for gate in row.finding.broken_gates]
    if not broken:
        return ""
    lines = [[code(row.finding.id), "**BROKEN**", prose(cells.gate(gate))] for row, gate in broken]
    return "#### Gates\n\n" + table(["case", "gate", "reading"], lines)


def _counters(rows: Sequence[Row]) -> str:
    lines = [
        [code(row.finding.id), change.metric, number(change.base), number(change.head), change.unit]
        for row in rows
        for change in row.finding.counters
    ]
    if not lines:
        return ""
    return "#### Counters that changed\n\n" + table(
        ["case", "counter", "base", "head", "unit"], lines, ("base", "head")
    )


def _kernel_changes(rows: Sequence[Row]) -> str:
    """List the GPU kernels that are not those of the baseline; folded where they are only called differently."""
    lines = [
        [code(row.finding.id), what, *(code(name) if name else "" for name in names)]
        for row in rows
        for what, *names in cells.kernel_changes(row)
    ]
    if not lines:
        return ""
    body = table(["case", "what", "in the baseline", "now"], lines)
    if all(row.finding.kernels.same_kernels for row in rows):
        return _folded("GPU kernels with another name than in the baseline", body)
    return "#### GPU kernels that changed\n\n" + body


def _warnings(report: Report) -> str:
    lines = [f"- {code(row.finding.id)}: {prose(warning)}" for row in report.rows for warning in row.warnings]
    return "#### Warnings\n\n" + "\n".join(lines) if lines else ""


def _notes(report: Report) -> str:
    lines = [f"- {prose(note.message)}" + (f" ({prose(note.hint)})" if note.hint else "") for note in report.notes]
    return "#### Not done\n\n" + "\n".join(lines) if lines else ""


def _statistics(report: Report) -> str:
    several = len(report.devices) > 1
    rows = [row for row in report.rows if row.summary]
    header = ["case", *(["device"] if several else []), *cells.STATISTICS]
    lines = [
        [code(row.finding.id), *([code(row.finding.device)] if several else []), *cells.statistics(row)] for row in rows
    ]
    return table(header, lines, cells.STATISTICS[:-1]) if lines else ""


def _kernels(rows: Sequence[Row]) -> str:
    lines = [
        [code(row.finding.id), code(kernel.name), str(kernel.count), _shape(kernel.grid), _shape(kernel.block)]
        for row in rows
        if row.measurement and row.measurement.timeline
        for kernel in row.measurement.timeline.kernels
    ]
    return table(["case", "GPU kernel", "count", "grid", "block"], lines, ("count",)) if lines else ""


def _timeline(report: Report) -> str:
    """Return what the host cost each case, a column for each metric that any case has."""
    found = [
        (code(row.finding.id), row.measurement.timeline.metrics)
        for row in report.rows
        if row.measurement and row.measurement.timeline
    ]
    found += [("the whole trace", report.trace)] if report.trace else []
    cells_of = [(name, {line[0]: line for line in cells.timeline(metrics)}) for name, metrics in found]
    columns = [m.name for m in TIMELINE if any(of.get(m.name, ("", "-"))[1] != "-" for _, of in cells_of)]
    if not columns:
        return ""
    usual = ["usual", *(prose(BY_NAME[name].usual) for name in columns)]
    lines = [[name, *(of[column][1] if column in of else "-" for column in columns)] for name, of in cells_of]
    return table(["case", *columns], [usual, *lines], columns)


def _shape(dimensions: tuple[int, int, int]) -> str:
    return " x ".join(str(d) for d in dimensions)


def _environment(report: Report) -> str:
    lines = [[prose(name), prose(value)] for name, value in cells.environment(report)]
    if report.gpu_seconds:
        lines.append(["GPU time of this run", f"{report.gpu_seconds:.0f} s"])
    return table(["what", "which"], lines)


def _folded(title: str, body: str) -> str:
    """Fold a part under its title; GitHub needs the empty lines around Markdown inside HTML."""
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>" if body else ""
