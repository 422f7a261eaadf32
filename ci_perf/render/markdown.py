"""The pull request comment: changes first, everything else folded below."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tabulate import tabulate

from ci_perf.judge.comment_state import next_state
from ci_perf.judge.report import Report, Row
from ci_perf.render import cells
from ci_perf.values.comment import State, marker
from ci_perf.values.escape import block, code, prose
from ci_perf.values.metrics import BY_NAME as METRICS
from ci_perf.values.metrics import typical
from ci_perf.values.quantity import number, percent
from ci_perf.values.timeline_metrics import BY_NAME, TIMELINE
from ci_perf.values.verdict import Verdict

MOST_TRACEBACKS = 5
MOST_CASES = 5
"""The number of cases that are named for a gate that was not measured."""
LARGEST_COMMENT = 65_000
"""Bytes: GitHub accepts 65,536 characters, and each character has at least one byte."""
LARGEST_SUMMARY = 1_000_000
"""Bytes: GitHub accepts 1 MiB for each step."""
_NO_BREAK = "\u00a0"
_HEADINGS = {
    State.FLAGGED: "### ci-perf: {}",
    State.PENDING: "### ci-perf: no longer flagged, but some cases could not be judged: {}",
    State.RESOLVED: "### ci-perf: resolved, now {}",
    State.CLEAN: "### ci-perf: {}",
}


@dataclass(frozen=True, slots=True)
class Frame:
    """The text around the report in a comment, and the largest size of the comment."""

    key: str = "default"
    """Identifies the comment if several runs comment on one pull request."""
    state: State | None = None
    """None: the state of a first comment."""
    run_url: str = ""
    """The page of the workflow run, which has the full report in its artifact and in its summary."""
    artifact: bool = True
    """Whether the workflow run has an artifact."""
    patch_command: str = ""
    """The shell command that accepts the run as the baseline; empty if there is nothing to accept."""
    foreign: bool = False
    """Whether the author of the pull request controlled the measuring code, as in a fork."""
    cost_per_hour: float | None = None
    """Of the GPU, in any currency."""
    limit: int | None = None
    """Bytes; None means no limit."""


def render_comment(report: Report, frame: Frame = Frame()) -> str:
    """Return the exact body of the comment, shortened step by step until it fits.

    The order: padding of tables, unchanged rows, tables of numbers, undecided and new cases, flagged rows beyond a
    count. The comment says what was omitted and where the full report is.
    """
    for text in _ever_shorter(report, frame):
        if frame.limit is None or len(text.encode()) <= frame.limit:
            return text
    return _assemble(report, frame, {}, "everything but the headline")


_NUMBERS = (
    "CPU and GPU",
    "All numbers",
    "Time by NVTX range and GPU kernel",
    "GPU kernels of each case",
    "Timeline",
    "All counters",
)
_LEFT_OUT = (("Unchanged",), _NUMBERS, ("Inconclusive and not comparable", "New cases"))
_MOST_ROWS = (500, 200, 100, 50, 20, 10, 5, 2, 1)


def _ever_shorter(report: Report, frame: Frame) -> Iterator[str]:
    parts = _parts(report, frame)
    yield _assemble(report, frame, parts)
    parts = {name: _without_padding(text) for name, text in parts.items()}
    yield _assemble(report, frame, parts)
    gone: tuple[str, ...] = ()
    for names in _LEFT_OUT:
        gone += tuple(name for name in names if parts.pop(name, ""))
        yield _assemble(report, frame, parts, ", ".join(gone))
    for most in _MOST_ROWS:
        parts = {n: _without_padding(text) for n, text in _parts(report, frame, most).items() if n not in gone}
        yield _assemble(report, frame, parts, ", ".join((*gone, f"rows beyond the first {most} of each table")))


def _assemble(report: Report, frame: Frame, parts: Mapping[str, str], left_out: str = "") -> str:
    state = frame.state or next_state(report, None)
    around = [
        marker(frame.key, state),
        _HEADINGS[state].format(report.headline),
        _FOREIGN if frame.foreign else "",
        _lead(report),
        *parts.values(),
        _where(frame, left_out),
    ]
    return "\n\n".join(part for part in around if part) + "\n"


_FOREIGN = (
    "> These numbers come from a workflow that ran the pull request's code, so its author controls them. Only the"
    " verdicts are computed by this repository."
)


def _where(frame: Frame, left_out: str) -> str:
    """Return a sentence that says where the full report is."""
    link = f"[workflow run]({frame.run_url})" if frame.run_url else "workflow run"
    file, place = ("`report.md`", "artifact") if frame.artifact else ("the page", "summary")
    if left_out:
        return f"Omitted because of the size limit: {left_out}. The full report is {file} in the {place} of the {link}."
    what = "Report, numbers and profiles are" if frame.artifact else "The report is"
    return f"{what} in the {place} of the {link}." if frame.run_url else ""


def _parts(report: Report, frame: Frame, most: int | None = None) -> dict[str, str]:
    """Return the parts of the report in their order, with at most `most` rows in each."""
    flagged = [row for row in report.rows if row.flagged]
    folded = {
        "Output of the failed kernels": _failures(report, most),
        "Inconclusive and not comparable": _plain_table(_undecided(report), report, most),
        "New cases": _plain_table(report.of(Verdict.NEW), report, most),
        "Unchanged": _plain_table(_quiet(report), report, most),
        "CPU and GPU": _side_by_side(report, most),
        "All numbers": _statistics(report, most),
        "Time by NVTX range and GPU kernel": _parts_of_time(report.rows, most),
        "GPU kernels of each case": _kernels(report.rows, most),
        "Timeline": _timeline(report, most),
        "All counters": _all_counters(report, most),
        "Environment": _environment(report, frame.cost_per_hour),
        "How to reproduce": f"```sh\n{cells.reproduce(report, foreign=frame.foreign)}\n```",
        "Accept this run as the baseline": f"```sh\n{frame.patch_command}\n```" if frame.patch_command else "",
        "Measure a baseline": "" if frame.foreign else _make_baseline(report),
    }
    shown = {name: _folded(name, body) for name, body in folded.items()}
    return {
        "Flagged": _flagged(flagged, report, most),
        "failures": shown.pop("Output of the failed kernels"),
        "Gates": _gates(report, most),
        "Counters": _counters(report.rows, most),
        "GPU kernels that changed": _kernel_changes(report.rows, most),
        "Warnings": _warnings(report, most),
        "Notes": _notes(report, most),
        **shown,
    }


def _make_baseline(report: Report) -> str:
    command = cells.accept(report)
    text = (
        "Times that were measured in turns with the base cannot be a baseline. These commands measure a baseline on"
        " this GPU. After the merge, a run on the default branch offers one as a patch."
    )
    return f"{text}\n\n```sh\n{command}\n```" if command else ""


def _without_padding(text: str) -> str:
    """Remove the spaces and dashes that only align the source of a table."""
    lines = (
        re.sub(r" {2,}", " ", re.sub(r"-{3,}", "-", line)) if line.startswith("|") else line
        for line in text.split("\n")
    )
    return "\n".join(lines)


def _lead(report: Report) -> str:
    paragraphs = [prose(cells.comparison(report))]
    if report.planted is not None:
        paragraphs.append(f"**A slowdown of {percent(report.planted)} was planted in this run on purpose.**")
    worst = sorted(
        report.of(Verdict.REGRESSION), key=lambda row: -row.finding.change.point if row.finding.change else 0.0
    )
    if worst:
        paragraphs.append(f"**Worst: {code(worst[0].finding.id)}, {prose(worst[0].finding.sentence)}.**")
    paragraphs.append(report.next_step)
    return "\n\n".join(paragraphs)


def _flagged(rows: Sequence[Row], report: Report, most: int | None) -> str:
    """Return the flagged rows, in a section for each GPU model if there are several."""
    gpus = [device for device in report.devices if device.kind == "cuda"]
    if len(gpus) < 2 or not rows:
        return _plain_table(rows, report, most)
    sections = []
    for device in report.devices:
        mine = [row for row in rows if row.finding.device == device.slug]
        table_of = _plain_table(mine, replace(report, devices=(device,)), most) or "Nothing is flagged."
        sections.append(f"#### {prose(device.name)}\n\n{table_of}")
    return "\n\n".join(sections)


def _undecided(report: Report) -> list[Row]:
    rows = report.of(Verdict.NOT_COMPARABLE, Verdict.INCONCLUSIVE)
    return [row for row in rows if not row.flagged]


def _quiet(report: Report) -> list[Row]:
    return [row for row in report.of(Verdict.UNCHANGED) if not row.flagged]


def _plain_table(rows: Sequence[Row], report: Report, most: int | None = None) -> str:
    lines = []
    for row in rows:
        verdict, base, head, change, why = cells.verdict(row)
        bold = f"**{verdict}**" if row.flagged else verdict
        lines.append([*map(code, cells.names(row, report)), bold, base, head, change, prose(why)])
    return _shortened([*cells.name_titles(report), *cells.VERDICT], lines, most, cells.VERDICT[1:4])


def _more(rows: Sequence[object], most: int | None) -> str:
    """Return a line that says how many rows a table omits."""
    return f"\n\nand {len(rows) - most:,} more" if most is not None and len(rows) > most else ""


def _shortened(
    header: Sequence[str], lines: Sequence[Sequence[str]], most: int | None, right: Iterable[str] = ()
) -> str:
    """Return a table of at most `most` lines; empty if there are no lines."""
    return table(header, lines[:most], right) + _more(lines, most) if lines else ""


def table(header: Sequence[str], lines: Iterable[Sequence[str]], right: Iterable[str] = ()) -> str:
    """Return a GitHub table; the columns named in `right` contain numbers and are not wrapped."""
    numbers = {index for index, name in enumerate(header) if name in set(right)}
    align = ["right" if index in numbers else "left" for index in range(len(header))]
    kept = [[c.replace(" ", _NO_BREAK) if i in numbers else c for i, c in enumerate(line)] for line in lines]
    return tabulate(kept, headers=header, tablefmt="pipe", colalign=align, disable_numparse=True)


def _failures(report: Report, most: int | None) -> str:
    """Return the end of each traceback, which names the error."""
    parts = []
    for row in report.of(Verdict.FAILED)[: min(MOST_TRACEBACKS, most or MOST_TRACEBACKS)]:
        failure = row.measurement.failure if row.measurement else None
        if failure is not None and failure.detail:
            parts.append(f"{code(row.finding.id)}\n\n{block(failure.detail, 1500)}")
    return _folded("Output of the failed kernels", "\n\n".join(parts))


def _side_by_side(report: Report, most: int | None) -> str:
    """Return the times on CPU and GPU, case by case."""
    header = ["case", *(prose(device.name) for device in report.devices), "CPU / GPU"]
    return _shortened(header, [[code(case), *rest] for case, *rest in cells.side_by_side(report)], most, header[1:])


def _gates(report: Report, most: int | None) -> str:
    """Return the broken gates of each case, then the gates that were not measured, grouped by reason."""
    lines = [
        [code(row.finding.id), "**BROKEN**", prose(cells.gate(gate))]
        for row in report.rows
        for gate in row.finding.broken_gates
    ]
    lines += [[_cases(cases), "NOT MEASURED", prose(words)] for words, cases in cells.unmeasured_gates(report)]
    return _titled("Gates", _shortened(["case", "gate", "reading"], lines, most))


def _cases(cases: Sequence[str]) -> str:
    named = ", ".join(code(case) for case in cases[:MOST_CASES])
    return named + (f" and {len(cases) - MOST_CASES:,} more" if len(cases) > MOST_CASES else "")


def _counters(rows: Sequence[Row], most: int | None) -> str:
    lines = [
        [code(row.finding.id), change.metric, number(change.base), number(change.head), change.unit]
        for row in rows
        for change in row.finding.counters
    ]
    header = ["case", "counter", "base", "head", "unit"]
    return _titled("Counters that changed", _shortened(header, lines, most, ("base", "head")))


def _kernel_changes(rows: Sequence[Row], most: int | None) -> str:
    """Return the GPU kernels that differ from the baseline; folded if only their names differ."""
    lines = [
        [code(row.finding.id), what, *(code(name) if name else "" for name in names)]
        for row in rows
        for what, *names in cells.kernel_changes(row)
    ]
    body = _shortened(["case", "what", "in the baseline", "now"], lines, most)
    if all(row.finding.kernels.same_kernels for row in rows):
        return _folded("GPU kernels that have another name in the baseline", body)
    return _titled("GPU kernels that changed", body)


def _warnings(report: Report, most: int | None) -> str:
    lines = [f"- {code(row.finding.id)}: {prose(warning)}" for row in report.rows for warning in row.warnings]
    return _titled("Warnings", "\n".join(lines[:most]) + _more(lines, most))


def _notes(report: Report, most: int | None) -> str:
    lines = [f"- {prose(note.message)}" + (f" ({prose(note.hint)})" if note.hint else "") for note in report.notes]
    return _titled("Notes", "\n".join(lines[:most]) + _more(lines, most))


def _statistics(report: Report, most: int | None) -> str:
    lines = [[*map(code, cells.names(row, report)), *cells.statistics(row)] for row in report.rows if row.summary]
    return _shortened([*cells.name_titles(report), *cells.STATISTICS], lines, most, cells.STATISTICS[:-1])


def _parts_of_time(rows: Sequence[Row], most: int | None) -> str:
    """Return the parts of each program's time, the largest change first."""
    lines = [[code(row.finding.id), kind, code(name), *rest] for row in rows for kind, name, *rest in cells.parts(row)]
    return _shortened(["case", *cells.PARTS], lines, most, cells.PARTS[2:])


def _kernels(rows: Sequence[Row], most: int | None) -> str:
    lines = [
        [code(row.finding.id), code(kernel.name), str(kernel.count), _shape(kernel.grid), _shape(kernel.block)]
        for row in rows
        if row.measurement and row.measurement.timeline
        for kernel in row.measurement.timeline.kernels
    ]
    return _shortened(["case", "GPU kernel", "count", "grid", "block"], lines, most, ("count",))


def _timeline(report: Report, most: int | None) -> str:
    """Return the timeline metrics of each case, with a column for each metric that any case has."""
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
    return table(["case", *columns], [usual, *lines[:most]], columns) + _more(lines, most)


def _all_counters(report: Report, most: int | None) -> str:
    """Return the counters of each case, with a column for each counter that any case has."""
    found = [(row.finding.id, typical(row.measurement.counters)) for row in report.rows if row.measurement]
    found = [(case, readings) for case, readings in found if readings]
    columns = [name for name in METRICS if any(name in readings for _, readings in found)]
    if not columns:
        return ""
    lines = [
        [code(case), *(_number(readings[name].value) if name in readings else "-" for name in columns)]
        for case, readings in found
    ]
    units = ["unit", *(METRICS[name].unit for name in columns)]
    return table(["case", *columns], [units, *lines[:most]], columns) + _more(lines, most)


def _number(value: float | None) -> str:
    return "-" if value is None else number(value)


def _shape(dimensions: tuple[int, int, int]) -> str:
    """Write a grid or a block; a dash if the trace does not contain it."""
    return " x ".join(str(d) for d in dimensions) if all(dimensions) else "-"


def _environment(report: Report, cost_per_hour: float | None) -> str:
    lines = [[prose(name), prose(value)] for name, value in cells.environment(report)]
    if report.gpu_seconds:
        lines.append(["GPU time of this run", f"{report.gpu_seconds:.0f} s"])
    if report.gpu_seconds and cost_per_hour is not None:
        cost = cost_per_hour * report.gpu_seconds / 3600
        lines.append(["cost of this run", f"{cost:.2f}, at {cost_per_hour:g} an hour"])
    return table(["what", "which"], lines)


def _folded(title: str, body: str) -> str:
    """Fold a part under its title; GitHub needs empty lines around Markdown inside HTML."""
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>" if body else ""


def _titled(title: str, body: str) -> str:
    return f"#### {title}\n\n{body}" if body else ""
