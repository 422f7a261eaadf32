"""How often the rules of other systems flag what an audit measured: false alarms, and what each sees."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from ci_perf.audit.anchors import RULES, Call, Rule, Samples, Setting
from ci_perf.audit.session import AuditCase, AuditSession
from ci_perf.values.device import Device

MOST_STORED = 200
"""Comparisons of a case with stored runs, for each planted step; of more, so many are drawn."""


@dataclass(frozen=True, slots=True)
class Share:
    """How many of the comparisons were flagged as slower, and as faster."""

    slower: int = 0
    faster: int = 0
    n: int = 0

    @property
    def fraction(self) -> float:
        """The share that was flagged as slower; NaN where nothing was compared."""
        return self.slower / self.n if self.n else math.nan

    def __add__(self, other: "Share") -> "Share":
        return Share(self.slower + other.slower, self.faster + other.faster, self.n + other.n)


@dataclass(frozen=True, slots=True)
class RuleShares:
    """What one rule flags in one setting: by the planted step that was asked for (0 is A/A), and by duration class."""

    name: str
    setting: Setting
    shares: Mapping[tuple[float, str], Share]

    def at(self, step: float, duration_class: str = "") -> Share:
        """Return the share at a step; of all classes together by default."""
        found = (s for (at, name), s in self.shares.items() if at == step and duration_class in {"", name})
        return sum(found, Share())


def judge_anchors(sessions: Sequence[AuditSession]) -> tuple[RuleShares, ...]:
    """Apply every rule to the sessions in each of its settings."""
    compared = {Setting.STORED: tuple(_stored(sessions)), Setting.SAME_JOB: tuple(_same_job(sessions))}
    return tuple(
        _apply(rule, setting, compared[setting]) for setting in Setting for rule in RULES if setting in rule.settings
    )


_Comparison = tuple[float, str, Samples, Samples]
"""The step, the duration class, the samples of the base and of the head."""


def _apply(rule: Rule, setting: Setting, compared: Iterable[_Comparison]) -> RuleShares:
    shares: dict[tuple[float, str], Share] = {}
    for step, name, base, head in compared:
        called = rule.call(base, head)
        found = Share(int(called is Call.SLOWER), int(called is Call.FASTER), 1)
        shares[step, name] = shares.get((step, name), Share()) + found
    return RuleShares(rule.name, setting, shares)


_Alike = tuple[str, str, Device, str]
"""What must be the same for two sessions to be compared: the case, the method, the device, the card.

Two cards of one model differ by more than the rules look for. Sessions that do not name theirs are taken as of one.
"""


def _sampled(sessions: Iterable[AuditSession]) -> Iterator[tuple[AuditSession, AuditCase]]:
    return ((s, case) for s in sessions for case in s.cases if case.judged and case.base and case.head)


def _same_job(sessions: Sequence[AuditSession]) -> Iterator[_Comparison]:
    for session, case in _sampled(sessions):
        yield session.planted, case.duration_class, case.base, case.head


def _stored(sessions: Sequence[AuditSession]) -> Iterator[_Comparison]:
    """Hold the head of each session against the base of every A/A session but its own, or of some drawn ones."""
    stored: dict[_Alike, list[tuple[str, AuditCase]]] = {}
    current: dict[tuple[_Alike, float], list[tuple[str, AuditCase]]] = {}
    for session, case in _sampled(sessions):
        alike = (case.id, case.method, session.device, session.card)
        current.setdefault((alike, session.planted), []).append((session.session, case))
        if session.planted == 0:
            stored.setdefault(alike, []).append((session.session, case))
    for (alike, step), heads in current.items():
        pairs = [(a, b) for a in stored.get(alike, ()) for b in heads if a[0] != b[0]]
        for (_, old), (_, new) in _draw(pairs):
            yield step, old.duration_class, old.base, new.head


_Pairs = list[tuple[tuple[str, AuditCase], tuple[str, AuditCase]]]


def _draw(pairs: _Pairs) -> _Pairs:
    """Return the pairs, or MOST_STORED of them: those whose ids have the smallest hashes, the same ones each time."""
    if len(pairs) <= MOST_STORED:
        return pairs
    return sorted(pairs, key=lambda p: sha256(f"{p[0][0]} {p[1][0]} {p[0][1].id}".encode()).digest())[:MOST_STORED]
