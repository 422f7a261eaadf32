"""What a comment says of a report, given what it said before."""

from ci_perf.judge.report import Report
from ci_perf.values.comment import State
from ci_perf.values.errors import EXIT_RED
from ci_perf.values.verdict import Verdict


def next_state(report: Report, before: State | None) -> State:
    """Return what a comment says of this report, given what it said before; what fails a job is never kept quiet."""
    if report.exit_status == EXIT_RED or any(row.flagged for row in report.rows):
        return State.FLAGGED
    if before in (None, State.CLEAN):
        return State.CLEAN
    fine = (Verdict.UNCHANGED, Verdict.NEW)
    known = all(row.finding.verdict in fine and not row.finding.unmeasured_gates for row in report.rows)
    decided = report.finished and report.compared and known
    return State.RESOLVED if decided else State.PENDING
