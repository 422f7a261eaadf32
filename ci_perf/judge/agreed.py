"""What a run was compared with, in words: baselines, or a base in turns and how that session was checked."""

import statistics
from collections.abc import Sequence

from ci_perf.judge.control import identical_pairs
from ci_perf.judge.ratios import mean_change, usable_ratios
from ci_perf.values.quantity import counted
from ci_perf.values.run import Run, sessions_of


def agreed(run: Run) -> tuple[str, ...]:
    """Return what a run, or each session of a merged one, was compared with."""
    if run.sessions:
        held = [s for s in sessions_of(run) if run.against is None or any(m.pairs for m in s.measurements)]
        turns = tuple(session for session in held if session.against)
        others = {line for session in held if not session.against for line in agreed(session)}
        return tuple(sorted(others | {_in_turns(turns)})) if turns else tuple(sorted(others))
    if run.against is not None:
        return (_in_turns((run,)),)
    judged = {(m.kernel, m.device) for m in run.measurements}
    used = [b.provenance for b in run.baselines if (b.kernel, b.device.kind) in judged]
    return tuple(
        sorted({f"the baseline of {p.date[:10]} at commit {p.commit[:8] if p.commit else 'unknown'}" for p in used})
    )


def _in_turns(sessions: Sequence[Run]) -> str:
    """Return a phrase on the base of sessions in turns, and on the code that cannot have changed, which checks them."""
    base = next(session.against for session in sessions if session.against)
    controls = [usable_ratios(session.against.control) if session.against else () for session in sessions]
    checks = [control or identical_pairs(session) for control, session in zip(controls, sessions, strict=True)]
    known = sorted(filter(None, checks), key=statistics.fmean)
    what = "the base against itself" if any(controls) or not known else "cases of identical code"
    where = f"{base.ref} at commit {base.commit[:8]}, measured in turns"
    if len(sessions) > 1:
        where += f" in {len(sessions)} sessions"
    if not known:
        return f"{where}; {what} was not measured"
    if len(sessions) == 1:
        return f"{where}; {what} {mean_change(known[0])} in {len(known[0])} pairs"
    lacking = (
        f", not measured in {counted(len(sessions) - len(known), 'session')}" if len(known) < len(sessions) else ""
    )
    ends = dict.fromkeys(mean_change(values) for values in (known[0], known[-1]))
    return f"{where}; {what} {' to '.join(ends)}{lacking}"
