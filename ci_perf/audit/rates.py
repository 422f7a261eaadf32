"""The error rate of the verdicts in an audit: counts, scatter, and the operating curve."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from ci_perf.audit.rule import rule_hash
from ci_perf.audit.session import CLASSES, AuditSession, Judged, judge_controls, judge_sessions
from ci_perf.judge.outcome import Outcome
from ci_perf.judge.stats import upper_bound
from ci_perf.values.errors import ConfigError
from ci_perf.values.reasons import Verdict
from ci_perf.values.run import Policy

ALL = "all"
"""The name of all duration classes together."""
DETECTED = 0.99
"""The share of verdicts that must be REGRESSION for a planted slowdown to count as detected."""
CONFIDENCE = 0.95
"""Confidence of the upper bounds, one-sided."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many verdicts of each kind there are."""

    verdicts: int
    regression: int
    speedup: int
    unchanged: int
    inconclusive: int
    inconclusive_codes: Mapping[str, int]
    """By their reason code."""

    @property
    def alarm_bound(self) -> float:
        """The upper bound of the false-alarm rate, red or green, where these are verdicts of A/A sessions."""
        return upper_bound(self.regression + self.speedup, self.verdicts, CONFIDENCE) if self.verdicts else 1.0


@dataclass(frozen=True, slots=True)
class Spread:
    """The scatter of the reported ratio of one case over the A/A sessions; the true ratio is 1."""

    case: str
    device: str
    method: str
    duration_class: str
    sessions: int
    bias: float
    """The mean of head / base - 1."""
    sd: float
    """Of head / base; 0 with one session only."""
    positive: int
    """In how many sessions the head was slower; without a bias, in about half of them."""


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the operating curve: the verdicts on one planted step in one duration class."""

    step: float
    """As it was requested; 0 is A/A."""
    duration_class: str
    planted: tuple[float, float, float]
    """The least, mean and largest of the slowdowns that were really planted."""
    counts: Counts
    pairs: float
    """How many pairs a verdict took, in the mean."""
    cut_short: int = 0
    """How many of the verdicts are on records that end before the rule decides."""

    @property
    def flagged(self) -> float:
        """The share of REGRESSION."""
        return self.counts.regression / self.counts.verdicts


@dataclass(frozen=True, slots=True)
class Seconds:
    """Wall time of an A/A session per case, in seconds; cases that failed and the control are included."""

    smallest: float
    median: float
    largest: float


@dataclass(frozen=True, slots=True)
class Seen:
    """The slowdowns that are detected: a planted step and all larger ones."""

    step: float
    flagged: int
    verdicts: int


@dataclass(frozen=True, slots=True)
class Later:
    """The A/A sessions that were recorded after the rule: the rule was not chosen by them."""

    rule: str
    """The hash of today's rule."""
    sessions: int
    alarmed: int
    """Sessions with at least one red or green verdict."""
    counts: Counts
    steps: Mapping[float, tuple[int, int]]
    """For each planted step of these sessions, how many verdicts are REGRESSION, and how many there are."""
    checked_out: int
    """A/A sessions whose base was checked out and built as for `run --against`."""

    @property
    def session_bound(self) -> float:
        """The upper bound of the share of A/A sessions with an alarm."""
        return upper_bound(self.alarmed, self.sessions, CONFIDENCE) if self.sessions else 1.0


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The figures of an audit."""

    sessions: tuple[AuditSession, ...]
    unchanged: Counts
    """Of the A/A sessions."""
    swapped: Counts
    """Of the same sessions with base and head exchanged."""
    controls: Counts
    """Of the base against itself, in all sessions."""
    alarmed_sessions: int
    """A/A sessions with at least one red or green verdict."""
    unchanged_sessions: int
    failed: int
    """Cases without pairs, in all sessions."""
    cut_short: tuple[int, int]
    """Records that end before the rule decides: in A/A sessions, and in those with a planted slowdown."""
    spreads: tuple[Spread, ...]
    detectable: Mapping[str, tuple[float, float]]
    """By duration class, the smallest change that an A/A verdict could have detected: median and largest."""
    curve: tuple[Point, ...]
    """By duration class, ALL last; within, by step."""
    seconds_per_case: Seconds
    threshold: float
    """The slowdown from which a case is a regression, as a fraction."""
    later: Later
    methods: Mapping[str, Counts]
    """Of the A/A sessions, by the method of timing."""

    @property
    def session_bound(self) -> float:
        """The upper bound of the share of A/A sessions with an alarm."""
        return upper_bound(self.alarmed_sessions, self.unchanged_sessions, CONFIDENCE)

    @property
    def missed_bound(self) -> float | None:
        """The upper bound of the share of planted slowdowns beyond the threshold that are not REGRESSION."""
        beyond = [point.counts for point in self._points(ALL) if point.step > self.threshold]
        return _bound(beyond, sum(counts.verdicts - counts.regression for counts in beyond))

    @property
    def early_bound(self) -> float | None:
        """The upper bound of the share of planted slowdowns below the threshold that are REGRESSION."""
        below = [point.counts for point in self._points(ALL) if 0 < point.step < self.threshold]
        return _bound(below, sum(counts.regression for counts in below))

    @property
    def cards(self) -> int:
        """The number of physical GPUs that were recorded."""
        return len({session.card for session in self.sessions if session.card})

    @property
    def without_card(self) -> int:
        """The number of sessions on a GPU whose card was not recorded."""
        return sum(session.device.kind == "cuda" and not session.card for session in self.sessions)

    @property
    def steps(self) -> tuple[float, ...]:
        """The steps that were planted, ascending, without A/A."""
        return tuple(sorted({session.planted for session in self.sessions if session.planted}))

    @property
    def classes(self) -> tuple[str, ...]:
        """The duration classes that occur, then ALL."""
        found = {point.duration_class for point in self.curve}
        return (*(name for name, _ in CLASSES if name in found), ALL)

    def point(self, step: float, duration_class: str = ALL) -> Point | None:
        """Return a point of the curve, if it was measured."""
        return next((point for point in self._points(duration_class) if point.step == step), None)

    def _points(self, duration_class: str) -> list[Point]:
        return [point for point in self.curve if point.duration_class == duration_class]

    def worst(self, duration_class: str) -> Spread | None:
        """Return the case of a class with the largest scatter."""
        found = [s for s in self.spreads if s.sessions > 1 and duration_class in {ALL, s.duration_class}]
        return max(found, key=lambda s: s.sd, default=None)

    def seen_from(self, duration_class: str = ALL) -> Seen | None:
        """Return the smallest planted step that is detected together with all larger ones, if there is one."""
        planted = [point for point in self._points(duration_class) if point.step]
        seen = list(takewhile(lambda point: point.flagged >= DETECTED, reversed(planted)))
        if not seen:
            return None
        return Seen(seen[-1].step, sum(p.counts.regression for p in seen), sum(p.counts.verdicts for p in seen))


def build_audit(sessions: Sequence[AuditSession], policy: Policy) -> AuditReport:
    """Judge the sessions and compute the figures; no session is a ConfigError."""
    if not sessions:
        raise ConfigError("the audit holds no session", hint="`ci-perf audit` without --show measures one")
    unchanged = [session for session in sessions if session.planted == 0]
    judged = judge_sessions(sessions, policy)
    same = [found for found in judged if found.session.planted == 0]
    return AuditReport(
        sessions=tuple(sessions),
        unchanged=_count(found.outcome for found in same),
        swapped=_count(found.outcome for found in judge_sessions((s.swapped for s in unchanged), policy)),
        controls=_count(judge_controls(sessions, policy)),
        alarmed_sessions=len({found.session.session for found in same if found.outcome.verdict.is_change}),
        unchanged_sessions=len(unchanged),
        failed=sum(len(session.cases) for session in sessions) - len(judged),
        cut_short=(sum(f.cut_short for f in same), sum(f.cut_short for f in judged if f.session.planted)),
        spreads=_spreads(same),
        detectable=_detectable(same),
        curve=_curve(judged),
        seconds_per_case=_seconds(unchanged or sessions),
        threshold=policy.regression,
        later=_later([found for found in judged if found.session.rule == rule_hash()]),
        methods=_by_method(same),
    )


def _later(judged: Sequence[Judged]) -> Later:
    same = [found for found in judged if found.session.planted == 0]
    sessions = {found.session.session: found.session for found in same}
    planted = sorted({found.session.planted for found in judged if found.session.planted})
    red = {
        step: [f.outcome.verdict is Verdict.REGRESSION for f in judged if f.session.planted == step] for step in planted
    }
    return Later(
        rule=rule_hash(),
        sessions=len(sessions),
        alarmed=len({found.session.session for found in same if found.outcome.verdict.is_change}),
        counts=_count(found.outcome for found in same),
        steps={step: (sum(flags), len(flags)) for step, flags in red.items()},
        checked_out=sum(session.checked_out for session in sessions.values()),
    )


def _by_method(judged: Sequence[Judged]) -> dict[str, Counts]:
    methods = sorted({found.case.method for found in judged})
    return {name: _count(found.outcome for found in judged if found.case.method == name) for name in methods}


def _bound(counts: Sequence[Counts], of: int) -> float | None:
    number = sum(each.verdicts for each in counts)
    return upper_bound(of, number, CONFIDENCE) if number else None


def _seconds(sessions: Iterable[AuditSession]) -> Seconds:
    each = sorted(session.seconds / max(1, len(session.cases)) for session in sessions)
    return Seconds(each[0], statistics.median(each), each[-1])


def _count(outcomes: Iterable[Outcome]) -> Counts:
    outcomes = list(outcomes)
    of = {verdict: sum(o.verdict is verdict for o in outcomes) for verdict in Verdict}
    codes = sorted(o.code for o in outcomes if o.verdict is Verdict.INCONCLUSIVE)
    return Counts(
        verdicts=len(outcomes),
        regression=of[Verdict.REGRESSION],
        speedup=of[Verdict.SPEEDUP],
        unchanged=of[Verdict.UNCHANGED],
        inconclusive=of[Verdict.INCONCLUSIVE],
        inconclusive_codes={code: codes.count(code) for code in dict.fromkeys(codes)},
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


def _by_class(judged: Sequence[Judged]) -> dict[str, list[Judged]]:
    names = (*(name for name, _ in CLASSES), ALL)
    return {name: [found for found in judged if name in {ALL, found.case.duration_class}] for name in names}


def _detectable(judged: Sequence[Judged]) -> dict[str, tuple[float, float]]:
    detectable = {
        name: [found.outcome.detectable for found in of_class if found.outcome.detectable is not None]
        for name, of_class in _by_class(judged).items()
    }
    return {name: (statistics.median(values), max(values)) for name, values in detectable.items() if values}


def _curve(judged: Sequence[Judged]) -> tuple[Point, ...]:
    points = []
    for name, of_class in _by_class(judged).items():
        for step in sorted({found.session.planted for found in of_class}):
            here = [found for found in of_class if found.session.planted == step]
            planted = [found.case.planted for found in here]
            span = min(planted), statistics.fmean(planted), max(planted)
            cut_short = sum(found.cut_short for found in here)
            pairs = statistics.fmean(found.pairs for found in here)
            points.append(Point(step, name, span, _count(found.outcome for found in here), pairs, cut_short))
    return tuple(points)
