"""Finds the causes of a change: every rule is asked, and those that account for a part of it are ranked."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ci_perf.judge.causes import access, compute, host, launch, reuse, traffic, waiting
from ci_perf.judge.causes.lines import LineChange
from ci_perf.judge.causes.rule import LAST, Cause, Rule
from ci_perf.judge.causes.sides import Sides, arrow
from ci_perf.judge.gates import CounterChange
from ci_perf.values.metrics import BY_NAME, Trust
from ci_perf.values.timeline_metrics import BY_NAME as TIMELINE

ON_GPU: tuple[Rule, ...] = tuple(
    rule for slice_ in (launch, compute, access, reuse, traffic, waiting) for rule in slice_.RULES
)
ON_HOST: tuple[Rule, ...] = host.RULES
HOST_ALONE = frozenset({"allocation", "graph-capture", "idle", "launch-overhead", "synchronisation"})
"""What takes time of the host and none of the GPU's."""
OUTSIDE = " (on the host, outside of the time that is judged)"
_OF_HOST = frozenset(rule.mechanism for rule in ON_HOST)
LEAST = 0.2
"""A mechanism that can account for less of a change is not named."""
SMALLEST = 1.03
"""A change of the time under ncu by a smaller factor is the scatter of unchanged code."""
_MOST_CAUSES, _MOST_MOVED, _MOST_SHOWN = 5, 3, 12
_MOVED = 1.1
_SCATTERS = 0.02
"""Of counters that explain: by so much they differ between launches of unchanged code."""
UNITS: Mapping[str, str] = (
    {name: metric.unit for name, metric in TIMELINE.items()}
    | {name: metric.unit for name, metric in BY_NAME.items()}
    | {"shared_bytes": "byte"}
)
_TELLS_LITTLE = frozenset({"cycles", "cycles_active", "duration_ns", "range_ns", "l1_miss_rate_pct", "longest_gap_ns"})
"""They are the change, not its cause."""
_COUNTERS = ("duration_ns", "cycles", "instructions", "registers_per_thread", "dram_read_bytes", "dram_write_bytes")
"""What a comparison shows beside the counters of its causes."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a case takes another time."""

    causes: tuple[Cause, ...]
    """The one that accounts for most comes first; empty: no rule explains the change."""
    moved: tuple[CounterChange, ...]
    """What changed most, where no rule explains the change."""
    compared: tuple[CounterChange, ...]
    """The dozen counters of both sides that matter most for the case."""
    line: LineChange | None = None
    """The source line of the head that changed most, where the machine code has line information."""
    limiters: tuple[str, str] | None = None
    """What limits the blocks of a multiprocessor on base and head; None where that is not known of both."""
    host_only: bool = False
    """Whether the change was sought on the host alone."""
    judged: bool = False
    """Whether the time that is judged is that of the host too."""

    @property
    def on_gpu(self) -> bool:
        """Whether the first cause is one of the GPU's, or none is known."""
        return not self.causes or self.causes[0].mechanism not in _OF_HOST

    @property
    def sentence(self) -> str:
        """The first cause, or what moved most."""
        if self.causes:
            outside = OUTSIDE if self.host_only and not self.judged else ""
            return f"{self.causes[0].sentence}{outside}"
        if not self.moved:
            return "no known mechanism explains it, and no counter moved"
        return f"no known mechanism explains it; moved most: {', '.join(map(in_words, self.moved))}"


def in_words(change: CounterChange) -> str:
    """Write a counter of both sides."""
    return f"{change.metric} {arrow(change.base, change.head, change.unit)}"


def explain(sides: Sides, *, rules: Iterable[Rule] = (*ON_GPU, *ON_HOST)) -> Explanation:
    """Explain a change that is known to be one, by whatever measured it."""
    causes = _ranked(sides, rules)
    most = () if causes else tuple(_changes(sides, _most_moved(sides))[:_MOST_MOVED])
    shown = [name for cause in causes[:2] for name in _names(cause)] or [change.metric for change in most]
    limiters = launch.limiter(sides.base), launch.limiter(sides.head)
    compared = _matter(sides, (*shown, *_COUNTERS))
    return Explanation(causes, most, compared, limiters=limiters if all(limiters) else None)


def moved(change: CounterChange) -> bool:
    """Return whether a counter differs between the sides by more than unchanged code does.

    >>> moved(CounterChange("registers_per_thread", "register", 16, 17)), moved(CounterChange("cycles", "", 100, 101))
    (True, False)
    """
    metric = BY_NAME.get(change.metric)
    difference = abs(change.head - change.base)
    if metric is None or metric.trust is not Trust.BANDED:
        exact = metric is not None and metric.trust is Trust.EXACT
        return difference > (0.0 if exact else 1.0 if change.unit == "%" else _SCATTERS * abs(change.base))
    return difference > metric.band * abs(change.base) + metric.slack


def _matter(sides: Sides, names: Iterable[str]) -> tuple[CounterChange, ...]:
    """Return the dozen of these counters that matter most: those that moved come first."""
    return tuple(sorted(_changes(sides, dict.fromkeys(names)), key=lambda c: not moved(c))[:_MOST_SHOWN])


def explain_host(sides: Sides) -> Explanation | None:
    """Explain a timeline that changed although the time of the case did not; None: it did not change enough.

    Such a change is one of the host: the time of a case is that of its GPU kernels. A count of calls repeats from run
    to run, so that one trace of each side tells it.
    """
    spans = [side.values.get("range_ns") or 0.0 for side in (sides.base, sides.head)]
    ratio = spans[1] / spans[0] if all(spans) else 1.0
    scatters = 1 / host.SCATTER < ratio < host.SCATTER
    timeline = Sides(sides.base, sides.head, 1.0 if scatters else ratio, sides.units)
    causes = _ranked(timeline, [rule for rule in ON_HOST if not rule.symptom])
    if not causes:
        return None
    shown = [name for cause in causes[:2] for name in _names(cause)]
    return Explanation(causes, (), _matter(timeline, shown), host_only=True)


def explain_sides(sides: Sides) -> Explanation | None:
    """Explain two sides of which nothing but their profiles is known; None: nothing changed that is to be explained."""
    return explain(sides) if sides.times >= SMALLEST else explain_host(sides)


def _ranked(sides: Sides, rules: Iterable[Rule]) -> tuple[Cause, ...]:
    found = [(rule, rule.share(sides)) for rule in rules]
    named = [(rule, share) for rule, share in found if share >= LEAST]
    if any(not rule.symptom for rule, _ in named):  # which says more than the symptom of all of them
        named = [(rule, share) for rule, share in named if rule.weight > LAST]
    named.sort(key=lambda pair: -round(pair[1] * pair[0].weight, 2))
    return tuple(
        Cause(
            rule.mechanism,
            round(share, 2),
            rule.say(sides),
            rule.look if sides.slower else "",
            rule.source,
            tuple(_changes(sides, rule.counters)),
            rule.line_by,
        )
        for rule, share in named[:_MOST_CAUSES]
    )


def _names(cause: Cause) -> Sequence[str]:
    return [change.metric for change in cause.counters]


def _changes(sides: Sides, names: Iterable[str]) -> list[CounterChange]:
    base, head = sides.base.values, sides.head.values
    return [
        CounterChange(name, UNITS.get(name, ""), base[name], head[name])
        for name in names
        if name in base and name in head
    ]


def _most_moved(sides: Sides) -> list[str]:
    """Return the counters that moved by at least a tenth, those by the largest factor first."""
    base, head = sides.base.values, sides.head.values
    factors = {}
    for name in base.keys() & head.keys() - _TELLS_LITTLE:
        least = _floor(name)
        factors[name] = abs(math.log((abs(head[name]) + least) / (abs(base[name]) + least)))
    most = [name for name, factor in factors.items() if factor >= math.log(_MOVED)]
    return sorted(most, key=lambda name: (-factors[name], name))


def _floor(name: str) -> float:
    """Return below which value a counter is about zero."""
    return {"%": 5.0, "byte": float(1 << 20), "register": 1.0, "warp": 1.0}.get(UNITS.get(name, ""), 100.0)
