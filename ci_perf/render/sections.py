"""The sections of a comment: the tables and lists of a report in Markdown."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ci_perf.judge.report import Report, Row
from ci_perf.render import cells
from ci_perf.render.explanations import explained
from ci_perf.render.tables import FOLDED, table
from ci_perf.values.escape import block, code, prose
from ci_perf.values.metrics import BY_NAME as METRICS
from ci_perf.values.metrics import typical
from ci_perf.values.quantity import counted, number
from ci_perf.values.reasons import Verdict
from ci_perf.values.timeline_metrics import BY_NAME, TIMELINE

MOST_ROWS = 10
"""The number of flagged rows that are not folded: what a reader takes in at a glance."""
MOST_EXPLAINED = 3
"""The number of explanations that are folded one by one; more are folded together."""
MOST_TRACEBACKS = 5
MOST_CASES = 5
"""The number of cases that are named for a gate that was not measured."""
_COUNTED = ("Inconclusive and not comparable", "New cases", "Expected failures", "Unchanged")
PLAIN = "{body}"
TITLED = "#### {title}\n\n{body}"


@dataclass(frozen=True, slots=True)
class Section:
    """A table, or text, with a title. A comment that is too long shows fewer lines of it or omits it."""

    title: str
    lines: Sequence[Sequence[str]]
    """The rows of the table. Without a header: lines of text, each in its own list."""
    header: Sequence[str] = ()
    numbers: Collection[str] = ()
    """The titles of the columns that contain numbers."""
    above: Sequence[Sequence[str]] = ()
    """Rows that are always shown, such as units."""
    form: str = FOLDED
    counted: bool = False
    """Whether the title contains the number of lines."""

    def text(self, most: int | None = None) -> str:
        """Return the Markdown with at most `most` lines; empty if the section has no lines."""
        if not self.lines:
            return ""
        shown = self.lines[:most]
        if self.header:
            body = table(self.header, [*self.above, *shown], self.numbers)
        else:
            body = "\n".join(line for (line,) in shown)
        if left := len(self.lines) - len(shown):
            body += f"\n\nand {left:,} more"
        title = f"{self.title} ({len(self.lines):,})" if self.counted else self.title
        return self.form.format(title=title, body=body)


def report_sections(report: Report) -> list[Section]:
    """Return the sections that show the findings and numbers of a report, in their order."""
    undecided = [row for row in report.of(Verdict.NOT_COMPARABLE, Verdict.INCONCLUSIVE) if not row.flagged]
    unchanged = [row for row in report.of(Verdict.UNCHANGED) if not row.flagged]
    return [
        _creep(report),
        *_flagged(report),
        _broken_gates(report),
        _explanations(report),
        _failures(report),
        _unmeasured_gates(report),
        _counters(report),
        _kernel_changes(report),
        _warnings(report),
        _notes(report),
        _verdicts("Inconclusive and not comparable", undecided, report),
        _verdicts("New cases", report.of(Verdict.NEW), report),
        _verdicts("Expected failures", report.of(Verdict.EXPECTED_FAILURE), report),
        _verdicts("Unchanged", unchanged, report),
        _side_by_side(report),
        _statistics(report),
        _parts(report),
        _kernels(report),
        _timeline(report),
        _all_counters(report),
    ]


def _flagged(report: Report) -> list[Section]:
    """Return the flagged rows, in a section for each device if there are several GPU models."""
    rows = [row for row in report.rows if row.flagged]
    if sum(device.kind == "cuda" for device in report.devices) < 2 or not rows:
        return _shown_and_folded("Flagged", rows, report, PLAIN)
    sections: list[Section] = []
    for device in report.devices:
        mine = [row for row in rows if row.finding.device == device.slug]
        title = prose(device.name)
        if mine:
            sections += _shown_and_folded(title, mine, replace(report, devices=(device,)), TITLED)
        else:
            sections.append(Section(title, [["Nothing is flagged."]], form=TITLED))
    return sections


def _shown_and_folded(title: str, rows: Sequence[Row], report: Report, form: str) -> list[Section]:
    """Return the first flagged rows, which are the worst, and the others folded."""
    more = "1 more flagged row" if len(rows) == MOST_ROWS + 1 else f"{len(rows) - MOST_ROWS:,} more flagged rows"
    return [_verdicts(title, rows[:MOST_ROWS], report, form), _verdicts(more, rows[MOST_ROWS:], report)]


def _creep(report: Report) -> Section:
    """Return the cases that merges before this change made slower: no verdict on the change, but above all of them."""
    lines = [[*map(code, row[:2]), *row[2:4], code(row[4])] for row in cells.creep(report)]
    return Section(cells.CREEP_TITLE, lines, cells.CREEP, cells.CREEP[2:4], form=TITLED)


def _explanations(report: Report) -> Section:
    lines = [[text] for row in report.rows if (text := explained(row))]
    if len(lines) <= MOST_EXPLAINED:
        return Section("Explanations", lines, form=PLAIN)
    return Section("Explanations", lines, counted=True)


def _verdicts(title: str, rows: Sequence[Row], report: Report, form: str = FOLDED) -> Section:
    lines = []
    for row in rows:
        verdict, base, head, change, why = cells.verdict(row)
        bold = f"**{verdict}**" if row.flagged else verdict
        signed = f"{row.finding.verdict.sign} {bold}"
        lines.append([*map(code, cells.names(row, report)), signed, base, head, change, prose(why)])
    header = [*cells.name_titles(report), *cells.VERDICT]
    return Section(title, lines, header, cells.VERDICT[1:4], form=form, counted=title in _COUNTED)


def _failures(report: Report) -> Section:
    """Return the first and the last lines of each traceback: the kernel's own line, and the error."""
    parts = [
        f"{code(row.finding.id)}\n\n{block(row.measurement.failure.detail, 1500)}"
        for row in report.of(Verdict.FAILED)[:MOST_TRACEBACKS]
        if row.measurement and row.measurement.failure and row.measurement.failure.detail
    ]
    return Section("Output of the failed kernels", [["\n\n".join(parts)]] if parts else [])


def _broken_gates(report: Report) -> Section:
    lines = [
        [code(row.finding.id), "**BROKEN**", prose(cells.gate(gate))]
        for row in report.rows
        for gate in row.finding.broken_gates
    ]
    return Section("Broken gates", lines, ["case", "gate", "reading"], form=TITLED)


def _unmeasured_gates(report: Report) -> Section:
    """Return the gates that were not measured, grouped by reason, with their number in the title."""
    lines = []
    for words, cases in cells.unmeasured_gates(report):
        more = f" and {len(cases) - MOST_CASES:,} more" if len(cases) > MOST_CASES else ""
        lines.append([", ".join(map(code, cases[:MOST_CASES])) + more, "NOT MEASURED", prose(words)])
    number = sum(len(row.finding.unmeasured_gates) for row in report.rows)
    return Section(f"{counted(number, 'gate')} not measured", lines, ["case", "gate", "reading"])


def _counters(report: Report) -> Section:
    lines = [
        [code(row.finding.id), change.metric, number(change.base), number(change.head), change.unit]
        for row in report.rows
        for change in row.finding.counters
    ]
    header = ["case", "counter", "base", "head", "unit"]
    return Section("Counters that changed", lines, header, ("base", "head"), counted=True)


def _kernel_changes(report: Report) -> Section:
    """Return the GPU kernels that differ from the baseline; folded if only their names differ."""
    lines = [
        [code(row.finding.id), what, *(code(name) if name else "" for name in names)]
        for row in report.rows
        for what, *names in cells.kernel_changes(row)
    ]
    header = ["case", "what", "in the baseline", "now"]
    if all(row.finding.kernels.same_kernels for row in report.rows):
        return Section("GPU kernels that have another name in the baseline", lines, header)
    return Section("GPU kernels that changed", lines, header, counted=True)


def _warnings(report: Report) -> Section:
    lines = [[f"- {code(row.finding.id)}: {prose(warning)}"] for row in report.rows for warning in row.warnings]
    return Section("Warnings", lines, counted=True)


def _notes(report: Report) -> Section:
    lines = [
        [f"- {prose(note.message)}" + (f" ({prose(note.hint)})" if note.hint else "")] for note in report.other_notes
    ]
    return Section("Notes", lines, counted=True)


def _side_by_side(report: Report) -> Section:
    """Return the times on CPU and GPU, case by case."""
    header = ["case", *(prose(device.name) for device in report.devices), "CPU / GPU"]
    return Section(
        "CPU and GPU", [[code(case), *rest] for case, *rest in cells.side_by_side(report)], header, header[1:]
    )


def _statistics(report: Report) -> Section:
    lines = [[*map(code, cells.names(row, report)), *cells.statistics(row)] for row in report.rows if row.summary]
    return Section("All numbers", lines, [*cells.name_titles(report), *cells.STATISTICS], cells.STATISTICS[:-1])


def _parts(report: Report) -> Section:
    """Return the parts of each program's time, the largest change first."""
    lines = [
        [code(row.finding.id), kind, code(name), *rest] for row in report.rows for kind, name, *rest in cells.parts(row)
    ]
    return Section("Time by NVTX range and GPU kernel", lines, ["case", *cells.PARTS], cells.PARTS[2:])


def _kernels(report: Report) -> Section:
    lines = [
        [code(row.finding.id), code(kernel.name), str(kernel.count), _shape(kernel.grid), _shape(kernel.block)]
        for row in report.rows
        if row.measurement and row.measurement.timeline
        for kernel in row.measurement.timeline.kernels
    ]
    return Section("GPU kernels of each case", lines, ["case", "GPU kernel", "count", "grid", "block"], ("count",))


def _shape(dimensions: tuple[int, int, int]) -> str:
    """Write a grid or a block; a dash if the trace does not contain it."""
    return " x ".join(map(str, dimensions)) if all(dimensions) else "-"


def _timeline(report: Report) -> Section:
    """Return the timeline metrics of each case, with a column for each metric that any case has.

    Where both sides were compared, the explanations show those that matter; nsys_summary.txt has them all.
    """
    if any(row.finding.explanation for row in report.rows):
        return Section("Timeline", [])
    metrics = [
        (code(row.finding.id), row.measurement.timeline.metrics)
        for row in report.rows
        if row.measurement and row.measurement.timeline
    ]
    metrics += [("the whole trace", report.trace)] if report.trace else []
    found = [(case, {name: reading for name, reading, *_ in cells.timeline(of)}) for case, of in metrics]
    columns = [m.name for m in TIMELINE if any(of.get(m.name, "-") != "-" for _, of in found)]
    return _matrix("Timeline", found, columns, ["usual", *(prose(BY_NAME[name].usual) for name in columns)])


def _all_counters(report: Report) -> Section:
    """Return the counters of each case, with a column for each counter that any case has.

    Where both sides were compared, the explanations show the counters that matter.
    """
    if any(row.finding.explanation for row in report.rows):
        return Section("All counters", [])
    readings = [(code(row.finding.id), typical(row.measurement.counters)) for row in report.rows if row.measurement]
    found = [
        (case, {name: "-" if r.value is None else number(r.value) for name, r in of.items()})
        for case, of in readings
        if of
    ]
    columns = [name for name in METRICS if any(name in of for _, of in found)]
    return _matrix("All counters", found, columns, ["unit", *(METRICS[name].unit for name in columns)])


def _matrix(
    title: str, found: Sequence[tuple[str, Mapping[str, str]]], columns: list[str], above: list[str]
) -> Section:
    """Return a section with a row for each case and a column for each metric; empty if there are no columns."""
    lines = [[case, *(of.get(column, "-") for column in columns)] for case, of in found] if columns else []
    return Section(title, lines, ["case", *columns], columns, [above])
