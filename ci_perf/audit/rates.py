"""The error rate of the rule, as an audit found it: counts, scatter, the operating curve, and the others' rules."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from ci_perf.audit.anchor_shares import RuleShares, judge_anchors
from ci_perf.audit.session import CLASSES, AuditSession, Judged, judge_controls, judge_sessions
from ci_perf.judge.decision import Outcome
from ci_perf.judge.stats import upper_bound
from ci_perf.values.errors import ConfigError
from ci_perf.values.run import Policy
from ci_perf.values.verdict import Verdict

ALL = ""
"""The name under which all duration classes stand together."""
SEEN = 0.99
"""The share that must be flagged for a change to count as detectable."""
CONFIDENCE = 0.95
"""Of the upper bound of the false-alarm rate."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Verdicts on cases, counted."""

    verdicts: int
    red: int
    green: int
    unchanged: int
    inconclusive: int
    codes: Mapping[str, int]
    """The inconclusive ones by their reason code."""

    @property
    def alarm_bound(self) -> float:
        """The upper bound of the false-alarm rate of a verdict, red or green, in A/A sessions."""
        return upper_bound(self.red + self.green, self.verdicts, CONFIDENCE) if self.verdicts else 1.0


@dataclass(frozen=True, slots=True)
class Spread:
    """How the reported ratio of one case scatters over the A/A sessions; the truth is 1."""

    case: str
    device: str
    method: str
    duration_class: str
    sessions: int
    bias: float
    """The mean of head / base - 1."""
    sd: float
    """Of head / base; 0 where there is one session only."""
    positive: int
    """In how many of the sessions the head seemed slower: about half of them, where nothing favours a side."""


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the operating curve: what is said of one planted step in one duration class."""

    step: float
    """As it was asked for; 0 is A/A."""
    duration_class: str
    planted: tuple[float, float, float]
    """The least, mean and largest of the slowdowns that were really planted."""
    counts: Counts

    @property
    def flagged(self) -> float:
        """The share of REGRESSION."""
        return self.counts.red / self.counts.verdicts


@dataclass(frozen=True, slots=True)
class Seconds:
    """Wall time of an A/A session over the number of its cases, the control and what failed included, in seconds."""

    smallest: float
    median: float
    largest: float


@dataclass(frozen=True, slots=True)
class Seen:
    """The slowdowns that are flagged: a planted step and all larger ones."""

    step: float
    flagged: int
    verdicts: int


@dataclass(frozen=True, slots=True)
class AuditReport:
    """All that the sessions tell."""

    sessions: tuple[AuditSession, ...]
    unchanged: Counts
    """Of the A/A sessions."""
    swapped: Counts
    """Of the same sessions with base and head exchanged."""
    controls: Counts
    """Of the base against itself, in all sessions, whatever was planted in the head."""
    alarmed_sessions: int
    """A/A sessions with at least one red or green verdict."""
    unchanged_sessions: int
    failed: int
    """Cases without pairs, in all sessions."""
    cut_short: tuple[int, int]
    """Records that end before the rule decides: in A/A sessions, and in those with a planted slowdown."""
    spreads: tuple[Spread, ...]
    detectable: Mapping[str, tuple[float, float]]
    """By duration class: the smallest change that an A/A row could have told from none, median and largest."""
    curve: tuple[Point, ...]
    """By class, all of them together last; by step within."""
    seconds_per_case: Seconds
    rules: tuple[RuleShares, ...]
    threshold: float
    """From which slowdown on a case is a regression."""

    @property
    def session_bound(self) -> float:
        """The upper bound of the share of A/A sessions with an alarm."""
        return upper_bound(self.alarmed_sessions, self.unchanged_sessions, CONFIDENCE)

    @property
    def missed_bound(self) -> float | None:
        """The upper bound of the share that is not flagged of the planted slowdowns beyond the threshold."""
        beyond = [point.counts for point in self.curve if point.duration_class == ALL and point.step > self.threshold]
        return _bound(beyond, sum(counts.verdicts - counts.red for counts in beyond))

    @property
    def early_bound(self) -> float | None:
        """The upper bound of the share that is flagged of the planted slowdowns below the threshold."""
        below = [p.counts for p in self.curve if p.duration_class == ALL and 0 < p.step < self.threshold]
        return _bound(below, sum(counts.red for counts in below))

    @property
    def cards(self) -> int:
        """How many physical GPUs were recorded."""
        return len({session.card for session in self.sessions if session.card})

    @property
    def without_card(self) -> int:
        """How many sessions on a GPU do not say on which card."""
        return sum(session.device.kind == "cuda" and not session.card for session in self.sessions)

    @property
    def steps(self) -> tuple[float, ...]:
        """The steps that were planted, ascending, without A/A."""
        return tuple(sorted({session.planted for session in self.sessions if session.planted}))

    @property
    def classes(self) -> tuple[str, ...]:
        """The duration classes that occur, then all together."""
        found = {point.duration_class for point in self.curve}
        return (*(name for name, _ in CLASSES if name in found), ALL)

    def point(self, step: float, duration_class: str = ALL) -> Point | None:
        """Return a point of the curve, where there is one."""
        return next((p for p in self.curve if (p.step, p.duration_class) == (step, duration_class)), None)

    def worst(self, duration_class: str) -> Spread | None:
        """Return the case of a class that scatters most."""
        found = [s for s in self.spreads if s.sessions > 1 and duration_class in {ALL, s.duration_class}]
        return max(found, key=lambda s: s.sd, default=None)

    def seen_from(self, duration_class: str = ALL) -> Seen | None:
        """Return from which planted step on each is flagged in 99 % of the cases, if there is one."""
        points = [point for step in reversed(self.steps) if (point := self.point(step, duration_class))]
        seen = list(takewhile(lambda point: point.flagged >= SEEN, points))
        if not seen:
            return None
        return Seen(seen[-1].step, sum(p.counts.red for p in seen), sum(p.counts.verdicts for p in seen))


def build_audit(sessions: Sequence[AuditSession], policy: Policy) -> AuditReport:
    """Judge the sessions, count, and judge the same samples by the rules of others."""
    if not sessions:
        raise ConfigError("the audit holds no session", hint="`ci-perf audit` without --show measures one")
    judged = judge_sessions(sessions, policy)
    same = [found for found in judged if found.session.planted == 0]
    swapped = judge_sessions((s.swapped for s in sessions if s.planted == 0), policy)
    cases = sum(len(session.cases) for session in sessions)
    return AuditReport(
        sessions=tuple(sessions),
        unchanged=_count(found.outcome for found in same),
        swapped=_count(found.outcome for found in swapped),
        controls=_count(judge_controls(sessions, policy)),
        alarmed_sessions=len({f.session.session for f in same if _alarmed(f)}),
        unchanged_sessions=sum(session.planted == 0 for session in sessions),
        failed=cases - len(judged),
        cut_short=(sum(f.cut_short for f in same), sum(f.cut_short for f in judged if f.session.planted)),
        spreads=_spreads(same),
        detectable=_detectable(same),
        curve=_curve(judged),
        seconds_per_case=_seconds([s for s in sessions if s.planted == 0] or sessions),
        rules=judge_anchors(sessions),
        threshold=policy.regression,
    )


def _bound(counts: Sequence[Counts], of: int) -> float | None:
    number = sum(each.verdicts for each in counts)
    return upper_bound(of, number, CONFIDENCE) if number else None


def _seconds(sessions: Iterable[AuditSession]) -> Seconds:
    each = sorted(session.seconds / max(1, len(session.cases)) for session in sessions)
    return Seconds(each[0], statistics.median(each), each[-1])


def _alarmed(found: Judged) -> bool:
    return found.outcome.verdict.is_change


def _count(outcomes: Iterable[Outcome]) -> Counts:
    outcomes = list(outcomes)
    of = {verdict: sum(o.verdict is verdict for o in outcomes) for verdict in Verdict}
    codes = sorted(o.code for o in outcomes if o.verdict is Verdict.INCONCLUSIVE)
    return Counts(
        verdicts=len(outcomes),
        red=of[Verdict.REGRESSION],
        green=of[Verdict.SPEEDUP],
        unchanged=of[Verdict.UNCHANGED],
        inconclusive=of[Verdict.INCONCLUSIVE],
        codes={code: codes.count(code) for code in dict.fromkeys(codes)},
    )


def _spreads(judged: Iterable[Judged]) -> tuple[Spread, ...]:
    by_case: dict[tuple[str, str, str], list[Judged]] = {}
    for found in judged:
        key = (found.case.id, found.session.device.slug, found.case.method)
        by_case.setdefault(key, []).append(found)
    return tuple(_spread(*key, by_case[key]) for key in sorted(by_case))


def _spread(case: str, device: str, method: str, judged: Sequence[Judged]) -> Spread:
    ratios = [found.outcome.change.point for found in judged if found.outcome.change is not None]
    names = [found.case.duration_class for found in judged]
    return Spread(
        case=case,
        device=device,
        method=method,
        duration_class=max(dict.fromkeys(names), key=names.count),
        sessions=len(ratios),
        bias=statistics.fmean(ratios) - 1 if ratios else 0.0,
        sd=statistics.stdev(ratios) if len(ratios) > 1 else 0.0,
        positive=sum(ratio > 1 for ratio in ratios),
    )


def _detectable(judged: Sequence[Judged]) -> dict[str, tuple[float, float]]:
    found: dict[str, tuple[float, float]] = {}
    for name in (*(name for name, _ in CLASSES), ALL):
        of_class = [j.outcome.detectable for j in judged if name in {ALL, j.case.duration_class}]
        known = [value for value in of_class if value is not None]
        if known:
            found[name] = statistics.median(known), max(known)
    return found


def _curve(judged: Sequence[Judged]) -> tuple[Point, ...]:
    steps = sorted({found.session.planted for found in judged})
    points = []
    for name in (*(name for name, _ in CLASSES), ALL):
        for step in steps:
            here = [j for j in judged if j.session.planted == step and name in {ALL, j.case.duration_class}]
            planted = [j.case.planted for j in here]
            if here:
                of_all = min(planted), statistics.fmean(planted), max(planted)
                points.append(Point(step, name, of_all, _count(j.outcome for j in here)))
    return tuple(points)
