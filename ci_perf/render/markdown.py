"""The pull request comment: changes first, everything else folded below."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ci_perf.judge.comment import next_status
from ci_perf.judge.report import Report
from ci_perf.render import cells
from ci_perf.render.sections import Section, report_sections
from ci_perf.render.tables import table
from ci_perf.values.comment import CommentStatus, State, marker
from ci_perf.values.escape import prose
from ci_perf.values.quantity import counted, percent

LARGEST_COMMENT = 65_000
"""Bytes: GitHub accepts 65,536 characters, and each character has at least one byte."""
LARGEST_SUMMARY = 1_000_000
"""Bytes: GitHub accepts 1 MiB for each step."""
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
    status: CommentStatus | None = None
    """None: that of a first comment."""
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
    frame = replace(frame, status=frame.status or next_status(report, None))
    for text in _ever_shorter(report, frame):
        if frame.limit is None or len(text.encode()) <= frame.limit:
            return text
    return _assemble(report, frame, (), "everything but the headline")


_NUMBERS = (
    "CPU and GPU",
    "All numbers",
    "Time by NVTX range and GPU kernel",
    "GPU kernels of each case",
    "Timeline",
    "All counters",
)
_LEFT_OUT = (
    ("Unchanged",),
    _NUMBERS,
    ("Explanations",),
    ("Inconclusive and not comparable", "New cases"),
)
_MOST_ROWS = (500, 200, 100, 50, 20, 10, 5, 2, 1)


def _ever_shorter(report: Report, frame: Frame) -> Iterator[str]:
    whole = [(s, s.text()) for s in (*report_sections(report), *_closing_sections(report, frame))]
    yield _assemble(report, frame, (text for _, text in whole))
    kept = [(section, _without_padding(text)) for section, text in whole]
    yield _assemble(report, frame, (text for _, text in kept))
    gone: list[str] = []
    for titles in _LEFT_OUT:
        gone += [section.title for section, _ in kept if section.title in titles and section.lines]
        kept = [(section, text) for section, text in kept if section.title not in titles]
        yield _assemble(report, frame, (text for _, text in kept), ", ".join(gone))
    for most in _MOST_ROWS:
        parts = (_without_padding(section.text(most)) for section, _ in kept)
        yield _assemble(report, frame, parts, ", ".join((*gone, f"rows beyond the first {most} of each table")))


def _assemble(report: Report, frame: Frame, parts: Iterable[str], left_out: str = "") -> str:
    status = frame.status or next_status(report, None)
    around = [
        marker(frame.key, status),
        _HEADINGS[status.state].format(report.headline),
        _still_open(status),
        _FOREIGN if frame.foreign else "",
        _lead(report),
        *parts,
        _where(frame, left_out),
    ]
    return "\n\n".join(part for part in around if part) + "\n"


def _still_open(status: CommentStatus) -> str:
    """Return a sentence on the cases that keep a comment from saying "resolved"."""
    if status.state is not State.PENDING or not status.open:
        return ""
    count = counted(len(status.open), "case")
    return f"Before this is resolved, {count} that an earlier run flagged must be measured again on the same device."


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


def _closing_sections(report: Report, frame: Frame) -> list[Section]:
    """Return the environment and the commands to reproduce and to accept the run."""
    texts = {
        "Environment": _environment(report, frame.cost_per_hour),
        "How to reproduce": f"```sh\n{cells.reproduce(report, foreign=frame.foreign)}\n```",
        "Accept this run as the baseline": f"```sh\n{frame.patch_command}\n```" if frame.patch_command else "",
        "Measure a baseline": "" if frame.foreign else _make_baseline(report),
    }
    return [Section(title, [[text]]) for title, text in texts.items() if text]


def _make_baseline(report: Report) -> str:
    command = cells.accept(report)
    text = (
        "Times that were measured in turns with the base cannot be a baseline. These commands measure a baseline on"
        " this machine. After the merge, a run on the default branch offers one as a patch."
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
    paragraphs.append(f"**Next:** {report.next_step}")
    return "\n\n".join(paragraphs)


def _environment(report: Report, cost_per_hour: float | None) -> str:
    lines = [[prose(name), prose(value)] for name, value in cells.environment(report)]
    if report.gpu_seconds:
        lines.append(["GPU time of this run", f"{report.gpu_seconds:.0f} s"])
    if report.gpu_seconds and cost_per_hour is not None:
        cost = cost_per_hour * report.gpu_seconds / 3600
        lines.append(["cost of this run", f"{cost:.2f}, at {cost_per_hour:g} an hour"])
    return table(["what", "which"], lines)
