"""A finished run whose pairs left cases undecided, as the beginning of a run that measures more of them."""

from dataclasses import replace

from ci_perf.judge.control import control_doubt
from ci_perf.judge.verdict import judge
from ci_perf.values.measurement import Measurement
from ci_perf.values.reasons import Reason
from ci_perf.values.run import Run

UNDECIDED = frozenset(
    {
        Reason.INTERVAL_TOO_WIDE,
        Reason.PAIRS_DISAGREE,
        Reason.BUDGET_SPENT,
        Reason.NOT_SURE,
        Reason.DISTURBED,
        Reason.SLOWER_UNEVEN_CLOCK,
        Reason.FASTER_UNEVEN_CLOCK,
    }
)
"""What more pairs may decide."""


def undecided(run: Run) -> tuple[str, ...]:
    """Return the `kernel/case` that more pairs may decide, of a finished run of one session against a base.

    None if the session is not reliable: its pairs are not kept.
    """
    if run.against is None or control_doubt(run, run.against):
        return ()
    return tuple(finding.id for finding in judge(run) if finding.code in UNDECIDED)


def why_not_continued(run: Run) -> str:
    """Return why what an attempt of a job measured is not kept by the next one; empty: it is.

    A session that is not reliable cannot be continued, nor can a run without a base: it has no pairs.
    """
    if run.sessions or run.fuzzed or run.sanitized:
        return "a run that was merged, or of --fuzz or --sanitize"
    if any(note.code == Reason.MEMORY_ERRORS for note in run.notes):
        return "the memory of its GPU had errors"
    if run.finished and run.against is None:
        return "it is finished, and has no base to take more turns with"
    doubt = control_doubt(run, run.against) if run.against else None
    return doubt.sentence if doubt and (run.finished or doubt.code is Reason.CONTROL_MOVED) else ""


def continued(run: Run) -> tuple[Measurement, ...]:
    """Return the measurements of a finished run, those that are undecided with one more look that they have had.

    What is decided stays decided: only the others are measured again. Each keeps its pairs, and its next look spends
    what is left of its error (`looks.share`).
    """
    names = undecided(run)
    return tuple(replace(m, looked=(*m.looked, len(m.sound_pairs))) if m.id in names else m for m in run.measurements)
