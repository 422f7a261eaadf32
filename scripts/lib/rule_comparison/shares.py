"""How often each rule flags what an audit measured: false alarms and planted slowdowns."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from ci_perf.audit.session import AuditCase, AuditSession
from ci_perf.values.device import Device
from lib.rule_comparison.rules import RULES, Call, Rule, Samples, Setting

MOST_STORED = 200
"""The most comparisons of one case with stored runs at one planted step; of more, this many are selected."""


@dataclass(frozen=True, slots=True)
class Share:
    """How many of `n` comparisons were flagged as slower, and as faster."""

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
    """What one rule flags in one setting, by the planted step that was requested; 0 is A/A."""

    name: str
    setting: Setting
    shares: Mapping[float, Share]

    def at(self, step: float) -> Share:
        """Return the share at a step."""
        return self.shares.get(step, Share())


def judge_by_rules(sessions: Sequence[AuditSession]) -> tuple[RuleShares, ...]:
    """Apply every rule to the sessions in each of its settings."""
    compared = {Setting.STORED: tuple(_stored(sessions)), Setting.SAME_JOB: tuple(_same_job(sessions))}
    return tuple(
        _apply(rule, setting, compared[setting]) for setting in Setting for rule in RULES if setting in rule.settings
    )


_Comparison = tuple[float, Samples, Samples]
"""The step, the samples of the base, and those of the head."""


def _apply(rule: Rule, setting: Setting, compared: Iterable[_Comparison]) -> RuleShares:
    shares: dict[float, Share] = {}
    for step, base, head in compared:
        called = rule.call(base, head)
        found = Share(int(called is Call.SLOWER), int(called is Call.FASTER), 1)
        shares[step] = shares.get(step, Share()) + found
    return RuleShares(rule.name, setting, shares)


_Alike = tuple[str, str, Device, str]
"""What must be the same for two sessions to be compared: the case, the method, the device, and the card.

Two cards of one model differ by more than the rules are to detect. Sessions without a card count as of one card.
"""


def _sampled(sessions: Iterable[AuditSession]) -> Iterator[tuple[AuditSession, AuditCase]]:
    return ((s, case) for s in sessions for case in s.cases if case.has_pairs and case.base and case.head)


def _same_job(sessions: Sequence[AuditSession]) -> Iterator[_Comparison]:
    for session, case in _sampled(sessions):
        yield session.planted, case.base, case.head


def _stored(sessions: Sequence[AuditSession]) -> Iterator[_Comparison]:
    """Compare the head of each session with the base of every other A/A session, or of MOST_STORED of them."""
    stored: dict[_Alike, list[tuple[str, AuditCase]]] = {}
    current: dict[tuple[_Alike, float], list[tuple[str, AuditCase]]] = {}
    for session, case in _sampled(sessions):
        alike = (case.id, case.method, session.device, session.card)
        current.setdefault((alike, session.planted), []).append((session.session, case))
        if session.planted == 0:
            stored.setdefault(alike, []).append((session.session, case))
    for (alike, step), heads in current.items():
        pairs = [(a, b) for a in stored.get(alike, ()) for b in heads if a[0] != b[0]]
        for (_, old), (_, new) in _selected(pairs):
            yield step, old.base, new.head


_Pairs = list[tuple[tuple[str, AuditCase], tuple[str, AuditCase]]]


def _selected(pairs: _Pairs) -> _Pairs:
    """Return the pairs, or MOST_STORED of them: those with the smallest hashes of their ids."""
    if len(pairs) <= MOST_STORED:
        return pairs
    return sorted(pairs, key=lambda p: sha256(f"{p[0][0]} {p[1][0]} {p[0][1].id}".encode()).digest())[:MOST_STORED]
