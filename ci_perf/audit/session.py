"""The audit: sessions in which the truth is known, and what the rule said of each of their cases.

A session is what one `run --against` does: every case in turns, base against head, then the control. In an A/A
session the head is the base; in others a slowdown of known size is planted by extra launches. The verdicts are not
recorded: they are made again from the recorded pairs, so that another rule can be tried on the same data.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ci_perf.judge.decision import Outcome
from ci_perf.judge.paired import LOOKS, NEEDS_MORE_PAIRS, decide_pairs
from ci_perf.judge.versus import base_trouble, believe
from ci_perf.values.device import Device, Toolchain
from ci_perf.values.provenance import Provenance
from ci_perf.values.run import Policy

CLASSES: tuple[tuple[str, float], ...] = (("< 2 us", 2e-6), ("2-20 us", 20e-6), (">= 20 us", float("inf")))
"""The duration classes: a name, and the seconds below which a case belongs to it and to none before."""


@dataclass(frozen=True, slots=True)
class AuditCase:
    """One case of a session."""

    kernel: str
    case: str
    method: str
    """The method id."""
    launches: int
    """How many launches each sample of the base was averaged over."""
    planted: float
    """The planted slowdown exactly: extra launches / launches; 0 in an A/A session."""
    ratios: tuple[float, ...] = ()
    """log(head / base) of each pair, in order."""
    clocks: tuple[float | None, ...] = ()
    """The SM clock of head over that of base, for each pair."""
    base: tuple[float, ...] = ()
    """The samples of the base in the first pair in seconds per launch, in the order in which they were taken."""
    head: tuple[float, ...] = ()
    failure: str = ""
    """Why there are no pairs."""

    @property
    def id(self) -> str:
        """How the case is written on the command line: `kernel/case`."""
        return f"{self.kernel}/{self.case}"

    @property
    def judged(self) -> bool:
        """Whether there is anything to judge."""
        return bool(self.ratios) and not self.failure

    @property
    def duration_class(self) -> str:
        """The name of the class that the median sample of the base belongs to; empty where there is none."""
        if not self.base:
            return ""
        middle = statistics.median(self.base)
        return next(name for name, below in CLASSES if middle < below)


@dataclass(frozen=True, slots=True)
class AuditSession:
    """One session: a line of an audit file."""

    session: str
    """Hexadecimal; no two sessions have the same."""
    provenance: Provenance
    device: Device
    toolchain: Toolchain
    planted: float
    """The slowdown that was asked for, as a fraction; 0 is A/A."""
    seconds: float
    """Wall time of the session, start-up of the workers included."""
    cases: tuple[AuditCase, ...]
    control_case: str = ""
    """`kernel/case` of the control; empty: none was measured."""
    control: tuple[float, ...] = ()
    """log(base / base) of each pair of the control."""
    card: str = ""
    """Which physical GPU it was, as a hash of its UUID; empty: not recorded, or no GPU."""

    @property
    def swapped(self) -> "AuditSession":
        """The same session with base and head exchanged: whatever favours a side favours the other one here."""
        return replace(
            self,
            cases=tuple(_swap(case) for case in self.cases),
            control=tuple(-value for value in self.control),
        )


def _swap(case: AuditCase) -> AuditCase:
    return replace(
        case,
        ratios=tuple(-value for value in case.ratios),
        clocks=tuple(1 / clock if clock else None for clock in case.clocks),
        base=case.head,
        head=case.base,
    )


@dataclass(frozen=True, slots=True)
class Judged:
    """What the rule says of one case of a session."""

    session: AuditSession
    case: AuditCase
    outcome: Outcome
    pairs: int
    """How many of the pairs the rule looked at before it decided."""
    cut_short: bool = False
    """Whether the record ends before the rule decides, by its budget or another rule: its end is the last look."""


def judge_sessions(sessions: Iterable[AuditSession], policy: Policy) -> tuple[Judged, ...]:
    """Judge every case that has pairs, each as a part of its own session."""
    return tuple(found for session in sessions for found in judge_session(session, policy))


def judge_session(session: AuditSession, policy: Policy) -> tuple[Judged, ...]:
    """Judge a session as `run --against` judges it when it is finished."""
    cases = [case for case in session.cases if case.judged]
    trouble = base_trouble(session.control, session.control_case)
    return tuple(
        Judged(session, case, believe(outcome, trouble), pairs, cut_short)
        for case in cases
        for outcome, pairs, cut_short in [replay(case.ratios, case.clocks, policy, comparisons=len(cases))]
    )


def judge_controls(sessions: Iterable[AuditSession], policy: Policy) -> tuple[Outcome, ...]:
    """Judge the base against itself, in the sessions that have such a control, as if it were one case more of them.

    The rule of the clock does not apply: a control has no clocks on record, so that none explains its difference.
    """
    return tuple(
        replay(session.control, (), policy, comparisons=sum(case.judged for case in session.cases) + 1)[0]
        for session in sessions
        if len(session.control) > 1
    )


def replay(
    ratios: Sequence[float], clocks: Sequence[float | None], policy: Policy, *, comparisons: int
) -> tuple[Outcome, int, bool]:
    """Look at the pairs as often as the flow does; return what is decided, after how many pairs, and of too few.

    Where the record ends before the rule has decided, the end of the record is the last look.
    """
    for look in (look for look in LOOKS if look <= len(ratios)):
        outcome = _look(ratios[:look], clocks[:look], policy, comparisons, last=look == LOOKS[-1])
        if outcome.code != NEEDS_MORE_PAIRS:
            return outcome, look, False
    return _look(ratios, clocks, policy, comparisons, last=True), len(ratios), True


def _look(
    ratios: Sequence[float], clocks: Sequence[float | None], policy: Policy, comparisons: int, *, last: bool
) -> Outcome:
    return decide_pairs(ratios, policy, comparisons=comparisons, last=last, clocks=clocks)
