"""Whether a session is reliable: the base against itself, and cases with the same machine code on both sides."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ci_perf.judge.outcome import Outcome
from ci_perf.judge.ratios import pair_interval, usable_ratios
from ci_perf.values.measurement import Measurement, Pair
from ci_perf.values.quantity import percent
from ci_perf.values.reasons import Reason, Verdict
from ci_perf.values.run import Against, Run

LEAST_CONTROL = 4
"""With fewer pairs the interval is too wide to show the differences that matter: 3 pairs that scatter by 0.3 %, which
is usual, allow 1.7 % either way."""
ENOUGH_IDENTICAL = 8
"""With so many pairs of identical code a session needs no control: twice LEAST_CONTROL, as a case has 3."""
CONTROL_FLOOR = 0.01
"""How far base against base may be off without casting doubt on the session: ten times its usual scatter."""
CONTROL_ERROR = 0.01
"""How often a control of unchanged code may lie beyond its interval, over all controls of a session."""


class Doubt(NamedTuple):
    """Why no change in a session is reliable."""

    code: Reason
    """`control-moved`, or `no-control` where the session was not checked."""
    sentence: str


def control_doubt(run: Run, against: Against) -> Doubt | None:
    """Judge a session by what cannot have changed; None: it is reliable.

    That is the base against itself, and every case whose machine code is the same on both sides.
    """
    if not run.finished and not against.control_case:
        sentence = "the run ended before the base was measured against itself: the session was not checked"
        return Doubt(Reason.NO_CONTROL, sentence)
    doubt = base_doubt(usable_ratios(against.control), against.control_case, disturbances(against.control))
    if doubt:
        return doubt
    identical = [m for m in run.measurements if is_identical(m)]
    doubts = (
        _moved(usable_ratios(m.sound_pairs), m.id, "identical code differed", comparisons=len(identical))
        for m in identical
    )
    return next((doubt for doubt in doubts if doubt), None)


def base_doubt(values: Sequence[float], case: str, disturbed: str = "") -> Doubt | None:
    """Judge a session by its control alone: the log ratios of the undisturbed pairs of base against base.

    No control case, no doubt. `disturbed` names what disturbed the other pairs.
    """
    if case and len(values) < LEAST_CONTROL:
        why = f", which was disturbed by {disturbed}" if disturbed else ""
        pairs = f"in {len(values)} of at least {LEAST_CONTROL} pairs"
        sentence = f"the base was measured against itself {pairs} ({case}){why}: this session was not checked"
        return Doubt(Reason.NO_CONTROL, sentence)
    return _moved(values, case, "the base differed from itself") if values else None


def _moved(values: Sequence[float], case: str, what: str, comparisons: int = 1) -> Doubt | None:
    found = pair_interval(values, 1 - CONTROL_ERROR / comparisons)
    if found.low <= 1 <= found.high or max(found.point, 1 / found.point) - 1 < CONTROL_FLOOR:
        return None
    moved = percent(found.point - 1, sign=True)
    return Doubt(Reason.CONTROL_MOVED, f"{what} by {moved} ({case}): this session is not reliable")


def believe(outcome: Outcome, doubt: Doubt | None) -> Outcome:
    """Return the outcome, which is INCONCLUSIVE in a session that is not reliable."""
    if not doubt or outcome.verdict is Verdict.INCONCLUSIVE:
        return outcome
    return replace(outcome, verdict=Verdict.INCONCLUSIVE, code=doubt.code, sentence=doubt.sentence)


def is_identical(measurement: Measurement) -> bool:
    """Return whether the GPU did the very same on both sides in every pair, so that no change can be the code's."""
    pairs = measurement.sound_pairs
    return all(pair.identical for pair in pairs) and bool(usable_ratios(pairs))


def identical_pairs(run: Run) -> tuple[float, ...]:
    """Return the log ratios of all sound pairs of the cases whose machine code is the same on both sides."""
    return tuple(value for m in run.measurements if is_identical(m) for value in usable_ratios(m.sound_pairs))


def disturbances(pairs: Sequence[Pair]) -> str:
    """Return what disturbed the pairs, each once."""
    return ", ".join(sorted({reason for pair in pairs for reason in pair.disturbed}))
