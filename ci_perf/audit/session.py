"""An audit session, whose true change is known, and the verdicts on its cases.

A session does what one `run --against` does: each case with base and head in turns, then the control. In an A/A session
the head is the base; in others a slowdown of known size is planted by extra launches. Verdicts are not recorded: they
are made from the recorded pairs each time, so that another rule can be tried on the same data.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from ci_perf.judge.control import base_doubt, believe
from ci_perf.judge.looks import LOOKS
from ci_perf.judge.outcome import Outcome
from ci_perf.judge.pairs import decide_pairs
from ci_perf.values.device import Device, Provenance, Toolchain
from ci_perf.values.extensible import (
    OMIT_DEFAULT,
    Extensible,
    LogRatio,
    Name,
    NonNegative,
    Positive,
    Text,
    Whole,
    pattern,
)
from ci_perf.values.reasons import Reason
from ci_perf.values.run import Policy

CLASSES: tuple[tuple[str, float], ...] = (("< 2 us", 2e-6), ("2-20 us", 20e-6), (">= 20 us", float("inf")))
"""The duration classes, ascending: the name, and the limit in seconds below which a case belongs to it."""


@dataclass(frozen=True, slots=True)
class AuditCase(Extensible):
    """One case of a session."""

    kernel: Name
    case: Text
    method: str
    """The method id; empty: the case was not timed."""
    launches: Whole
    """How many launches each sample of the base was averaged over."""
    planted: NonNegative
    """The slowdown that was really planted: extra launches / launches; 0 in an A/A session."""
    ratios: tuple[LogRatio, ...] = ()
    """log(head / base) of each pair, in order."""
    clocks: tuple[Positive | None, ...] = ()
    """The SM clock of head over that of base, for each pair."""
    base: tuple[NonNegative, ...] = ()
    """The samples of the base in the first pair in seconds per launch, in the order in which they were taken."""
    head: tuple[NonNegative, ...] = ()
    failure: str = ""
    """Why there are no pairs."""
    starts: Annotated[tuple[Whole | None, ...], OMIT_DEFAULT] = ()
    """From which start of the workers each pair is; empty: not recorded, each counts as one of its own."""

    @property
    def id(self) -> str:
        """How the case is written on the command line: `kernel/case`."""
        return f"{self.kernel}/{self.case}"

    @property
    def has_pairs(self) -> bool:
        """Whether there are pairs to judge."""
        return bool(self.ratios) and not self.failure

    @property
    def duration_class(self) -> str:
        """The name of the duration class of the median sample of the base; empty without samples."""
        if not self.base:
            return ""
        middle = statistics.median(self.base)
        return next(name for name, below in CLASSES if middle < below)


@dataclass(frozen=True, slots=True)
class AuditSession(Extensible):
    """One session: a line of an audit file."""

    session: Annotated[str, pattern("^[0-9a-f]{1,64}$")]
    """Its id, hexadecimal."""
    provenance: Provenance
    device: Device
    toolchain: Toolchain
    planted: NonNegative
    """The slowdown that was asked for, as a fraction; 0 is A/A."""
    seconds: NonNegative
    """Wall time of the session, with the start-up of the workers."""
    cases: tuple[AuditCase, ...]
    control_case: str = ""
    """`kernel/case` of the control; empty: no control was measured."""
    control: tuple[LogRatio, ...] = ()
    """log(base / base) of each pair of the control."""
    card: Annotated[str, pattern("^([0-9a-f]{16})?$")] = ""
    """A hash of the UUID of the physical GPU; empty: not recorded, or no GPU."""
    rule: Annotated[str, pattern("^([0-9a-f]{12})?$"), OMIT_DEFAULT] = ""
    """A hash of the rule of that day (`audit.rule`); empty: not recorded."""
    checked_out: Annotated[bool, OMIT_DEFAULT] = False
    """Whether the base was checked out and built as for `run --against`; otherwise both sides ran one tree."""

    @property
    def swapped(self) -> "AuditSession":
        """The same session with base and head exchanged."""
        cases = tuple(_swapped(case) for case in self.cases)
        return replace(self, cases=cases, control=tuple(-value for value in self.control))


def _swapped(case: AuditCase) -> AuditCase:
    return replace(
        case,
        ratios=tuple(-value for value in case.ratios),
        clocks=tuple(1 / clock if clock else None for clock in case.clocks),
        base=case.head,
        head=case.base,
    )


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict on one case of a session."""

    session: AuditSession
    case: AuditCase
    outcome: Outcome
    pairs: int
    """How many pairs the rule used until it decided."""
    cut_short: bool
    """Whether the record ends before the rule decides: its last pair was then the last look."""


def judge_sessions(sessions: Iterable[AuditSession], policy: Policy) -> tuple[Judged, ...]:
    """Judge every case with pairs, each as part of its own session."""
    return tuple(found for session in sessions for found in judge_session(session, policy))


def judge_session(session: AuditSession, policy: Policy) -> tuple[Judged, ...]:
    """Judge a session as `run --against` judges it when it is finished."""
    cases = [case for case in session.cases if case.has_pairs]
    trouble = base_doubt(session.control, session.control_case)
    judged = []
    for case in cases:
        outcome, pairs, cut_short = replay(case.ratios, case.clocks, policy, comparisons=len(cases), starts=case.starts)
        judged.append(Judged(session, case, believe(outcome, trouble), pairs, cut_short))
    return tuple(judged)


def judge_controls(sessions: Iterable[AuditSession], policy: Policy) -> tuple[Outcome, ...]:
    """Judge the control of each session that has one, the base against itself, as one more case of the session.

    A control has no recorded clocks, so a difference is never explained by them.
    """
    return tuple(
        replay(session.control, (), policy, comparisons=sum(case.has_pairs for case in session.cases) + 1)[0]
        for session in sessions
        if len(session.control) > 1
    )


def replay(
    ratios: Sequence[float],
    clocks: Sequence[float | None],
    policy: Policy,
    *,
    comparisons: int,
    starts: Sequence[int | None] = (),
) -> tuple[Outcome, int, bool]:
    """Judge the pairs after each batch as a run does; return the outcome, the number used, whether it was cut short.

    Where the record ends before the rule has decided, the end of the record is the last look.
    """
    decide = partial(decide_pairs, policy=policy, comparisons=comparisons, starts=starts)
    for look in (look for look in LOOKS if look <= len(ratios)):
        outcome = decide(ratios[:look], clocks=clocks[:look], last=look == LOOKS[-1])
        if outcome.code != Reason.NEEDS_MORE_PAIRS:
            return outcome, look, False
    return decide(ratios, clocks=clocks, last=True), len(ratios), True
