"""What the comment of a pull request says of a report, given what it said before. Pure."""

from collections.abc import Mapping

from ci_perf.judge.report import Report, Row
from ci_perf.values.comment import CommentStatus, OpenCase, State
from ci_perf.values.errors import EXIT_RED
from ci_perf.values.reasons import Verdict

_FINE = (Verdict.UNCHANGED, Verdict.NEW, Verdict.EXPECTED_FAILURE)


def next_status(report: Report, before: CommentStatus | None) -> CommentStatus:
    """Return what a comment says of this report; `before` is what it said, None if there is no comment yet.

    It says "resolved" only after each case that was flagged was measured again on its device: a change must be compared
    and unchanged, a failure must be gone. What fails a job is always flagged.
    """
    flagged = frozenset(_open(row) for row in report.rows if row.flagged or row.red)
    rows = {(case.device, case.case): row for row in report.rows for case in (_open(row),)}
    left = frozenset(case for case in (before.open if before else ()) if not _is_settled(case, rows, report))
    if report.exit_status == EXIT_RED or flagged:
        return CommentStatus(State.FLAGGED, flagged | left)
    if before is None or before.state is State.CLEAN:
        return CommentStatus(State.CLEAN)
    known = all(row.finding.verdict in _FINE and not row.finding.unmeasured_gates for row in report.rows)
    seen = report.compared or before.open
    decided = report.finished and seen and known and not left
    return CommentStatus(State.RESOLVED if decided else State.PENDING, left)


def _open(row: Row) -> OpenCase:
    kind = "m" if row.finding.verdict is Verdict.MISSING else "c" if row.finding.verdict.is_change else "f"
    return OpenCase.of(row.finding.device, row.finding.id, kind)


def _is_settled(case: OpenCase, rows: Mapping[tuple[str, str], Row], report: Report) -> bool:
    """Return whether a report shows that a case which was flagged is fine now."""
    row = rows.get((case.device, case.case))
    if row is None:  # a missing case is settled where its baseline was dropped too, which the diff shows
        whole = report.finished and not report.patterns and any(device == case.device for device, _ in rows)
        return whole and case.kind == "m"
    finding = row.finding
    if finding.broken_gates or finding.unmeasured_gates:
        return False
    return finding.verdict is Verdict.UNCHANGED or (finding.verdict in _FINE and case.kind != "c")
