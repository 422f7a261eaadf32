"""Decides what a report sends to GitHub, without sending anything: (report, event, current comment) -> effects."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

from ci_perf.github.event import Event
from ci_perf.judge.comment import next_status
from ci_perf.judge.creep import sentence
from ci_perf.judge.finding import Finding
from ci_perf.judge.report import ORDER, Report, Row
from ci_perf.values.comment import CommentStatus, State
from ci_perf.values.errors import MachineError
from ci_perf.values.merged import Creep
from ci_perf.values.reasons import Verdict

MOST_ANNOTATIONS = 10
"""Of each level in a step: GitHub silently drops further ones."""


class Forbidden(MachineError):
    """The token may not write."""


class Action(StrEnum):
    """What is done with the comment."""

    CREATE = "create"
    UPDATE = "update"
    LEAVE = "leave"


class Level(StrEnum):
    """Levels of annotations, as GitHub names them."""

    ERROR = "error"
    WARNING = "warning"
    NOTICE = "notice"


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file, relative to the repository."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Annotation:
    """A message, at a line of the source if it has a place."""

    level: Level
    title: str
    message: str
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Effects:
    """Everything that publishing does."""

    action: Action
    reason: str
    """Why the comment is created, updated or left as it is."""
    status: CommentStatus
    annotations: tuple[Annotation, ...]
    outputs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Thread:
    """The state of the pull request before anything is written."""

    before: CommentStatus | None = None
    """What is said in our comment; None if there is no comment."""
    head_sha: str = ""
    """The current head: it may be newer than the commit of a job that waited for a GPU. Empty if not known."""
    absent: str = ""
    """Why there is no pull request to write to, if the event alone does not tell."""


def decide(
    report: Report, event: Event, policy: str, thread: Thread, places: Mapping[str, Place] | None = None
) -> Effects:
    """Decide about comment, annotations and outputs.

    `policy` is one of COMMENT_POLICIES. `places` is where each kernel is launched; with None there are no annotations,
    as they would refer to another commit than the job's.
    """
    status = next_status(report, thread.before)
    action, reason = _comment(status.state, event, policy, thread)
    return Effects(action, reason, status, () if places is None else annotations(report, places), counts(report))


def _comment(state: State, event: Event, policy: str, thread: Thread) -> tuple[Action, str]:
    what = f"the event `{event.name}`" if event.name else "a run outside of GitHub Actions"
    obstacles = (
        (bool(thread.absent), thread.absent),
        (event.pull_request is None, f"{what} belongs to no pull request"),
        (policy == "never", "`comment` is `never`"),
        (thread.head_sha not in ("", event.head_sha), f"the pull request has moved on to {thread.head_sha}"),
    )
    for holds, why in obstacles:
        if holds:
            return Action.LEAVE, why
    if thread.before is not None:
        return Action.UPDATE, f"the existing comment says `{thread.before.state}`"
    if policy == "always":
        return Action.CREATE, "`comment` is `always`"
    if state is State.FLAGGED:
        return Action.CREATE, "a case became faster, slower or wrong, or was compared with nothing"
    return Action.LEAVE, "nothing is flagged, and there is no comment to update"


def annotations(report: Report, places: Mapping[str, Place]) -> tuple[Annotation, ...]:
    """Return a message for each flagged row at the line where its kernel is launched, within GitHub's limits."""
    rows = [_annotation(row, places.get(row.finding.kernel)) for row in report.rows if row.flagged]
    crept = report.creep if report.fails_on_creep else ()
    return within_limits([*rows, *(_of_creep(one, places.get(one.case.partition("/")[0])) for one in crept)])


def _of_creep(one: Creep, place: Place | None) -> Annotation:
    return Annotation(
        Level.ERROR, f"creep {one.case}", f"merges before this change made it slower: {sentence(one)}", place
    )


def within_limits(annotations: Iterable[Annotation]) -> tuple[Annotation, ...]:
    """Return as many annotations of each level as GitHub shows; the last one counts those that are left out."""
    found = list(annotations)
    kept: list[Annotation] = []
    for level in Level:
        mine = [annotation for annotation in found if annotation.level is level]
        if len(mine) > MOST_ANNOTATIONS:
            left = len(mine) - (MOST_ANNOTATIONS - 1)
            mine[MOST_ANNOTATIONS - 1 :] = [Annotation(level, f"ci-perf: {left} more", "The report has them all.")]
        kept += mine
    return tuple(kept)


def _annotation(row: Row, place: Place | None) -> Annotation:
    finding = row.finding
    quiet = finding.verdict is Verdict.SPEEDUP and not finding.broken_gates
    level = Level.ERROR if row.red else Level.NOTICE if quiet else Level.WARNING
    gates = [f"{gate.gate} is broken" for gate in finding.broken_gates]
    if row.red:
        gates += [f"{gate.gate} was not measured" for gate in finding.unmeasured_gates]
    at_line = _line(finding, place)
    line = finding.explanation.line if finding.explanation and at_line != place else None
    takes = [f"this line: {line}"] if line else []
    message = "; ".join([f"{finding.sentence} ({finding.device})", *gates, *takes])
    return Annotation(level, f"{finding.verdict} {finding.id}", message, at_line)


def _line(finding: Finding, launched: Place | None) -> Place | None:
    """Return the source line that changed most, where the kernel's own folder has it; else where it is launched."""
    line = finding.explanation.line if finding.explanation else None
    if line is None or launched is None:
        return launched
    folder, file = PurePosixPath(launched.file).parent, PurePosixPath(line.file)
    own = file.parent.parts and folder.parts[-len(file.parent.parts) :] == file.parent.parts
    return Place(str(folder / file.name), line.line) if own else launched


def counts(report: Report) -> dict[str, str]:
    """Return the outputs of a step that depend on the report alone."""
    found = Counter(row.finding.verdict for row in report.rows)
    return {
        "verdict": overall(report),
        "regressions": str(found[Verdict.REGRESSION]),
        "speedups": str(found[Verdict.SPEEDUP]),
        "inconclusive": str(found[Verdict.INCONCLUSIVE]),
        "failed": str(found[Verdict.FAILED]),
    }


def overall(report: Report) -> str:
    """Return the verdict that most needs attention, or one of five other words.

    `BROKEN_GATE`; `CREEP` or `GATE_NOT_MEASURED` if that alone fails the run; `INCOMPLETE` (cut short); `NOTHING`
    (no case).
    """
    if not report.finished:
        return "INCOMPLETE"
    if not report.rows:
        return "NOTHING"
    worst = min((row.finding.verdict for row in report.rows), key=ORDER.index)
    if ORDER.index(worst) < ORDER.index(Verdict.SPEEDUP):
        return str(worst)
    if any(row.finding.broken_gates for row in report.rows):
        return "BROKEN_GATE"
    if report.fails_on_creep and not any(row.red for row in report.rows):
        return "CREEP"
    fine = (Verdict.SPEEDUP, Verdict.UNCHANGED)  # only a gate makes such a row red
    return "GATE_NOT_MEASURED" if any(r.red and r.finding.verdict in fine for r in report.rows) else str(worst)
