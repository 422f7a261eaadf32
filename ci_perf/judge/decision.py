"""The decision on one number against a stored baseline: medians of processes, by ratios alone.

A stored time is off by 1 % a few minutes later and by several per cent on another day, and no statistic of the two
sessions can see that: where it matters, measure the base in turns (`paired.py`). Here a change counts only when all of
these hold: the estimate passes the threshold in each batch of fresh processes; the interval of all of them, adjusted
over the cases of the run (Bonferroni) and widened by the baseline's own scatter, excludes no change; the two sides
separate, or the whole interval lies twice beyond the threshold; and the change is there in SM cycles too, where the
clocks are known. What is past a threshold and not established is INCONCLUSIVE: shown, never red.

Why separation: within one session every order of the processes of unchanged code is as likely as any other, so that 6
and 12 separate once in 18,564 sessions, also where processes fall into two modes. The interval alone would let recorded
sessions of unchanged, restless kernels become red: `tests/test_noise.py` counts both.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from ci_perf.judge.stats import Interval, ratio_interval
from ci_perf.values.quantity import percent
from ci_perf.values.run import Policy
from ci_perf.values.verdict import Verdict

STORED = 0.01
"""A stored time is off by so much a few minutes later: no smaller change is established, or said to be seen."""
FAR = 2
"""An interval that lies wholly beyond the threshold twice over needs no separation: one odd process cannot hide it."""
_ROUNDING = 1 - 1e-9
"""Two times that are exactly 3 % apart have a quotient that rounding may put just below 1.03."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict on a number alone: what `decide` returns."""

    verdict: Verdict
    code: str
    sentence: str
    change: Interval | None = None
    detectable: float | None = None


def decide(
    base: Sequence[float],
    batches: Sequence[Sequence[float]],
    policy: Policy,
    *,
    comparisons: int = 1,
    floor: float = 0.0,
    clocks: tuple[float, float] | None = None,
    better: str = "lower",
) -> Outcome:
    """Judge medians of processes against the medians of the baseline's processes.

    `batches` are the medians of this run, batch by batch; a change needs at least two. `comparisons` is the number of
    cases judged in the run; `floor` is the scatter of the baseline's processes, as a fraction; `clocks` are the SM
    clocks of baseline and run in hertz. `better` says which direction is good. Only ratios count: any unit gives the
    same verdict.

    >>> base = [1.00, 1.001, 1.002, 1.003, 1.004, 1.005]
    >>> decide(base, [[1.05] * 6, [1.051] * 6], Policy()).code
    'slower'
    >>> decide(base, [[1.05] * 6], Policy()).code
    'slower-unconfirmed'
    >>> decide(base, [[1.0] * 6], Policy()).code
    'within-noise'
    """
    head = [value for batch in batches for value in batch]
    for side, values in (("baseline", base), ("run", head)):
        if not values:
            return Outcome(Verdict.INCONCLUSIVE, "no-values", f"the {side} holds no value")
        if not all(math.isfinite(v) and v > 0 for v in values):
            return Outcome(
                Verdict.INCONCLUSIVE, "bad-values", f"the {side} holds a value that is not positive and finite"
            )
    if better == "higher":
        base, batches = [1 / v for v in base], [[1 / v for v in batch] for batch in batches]
        head = [1 / v for v in head]
    return _decide_lower(base, head, [b for b in batches if b], policy, comparisons, floor, clocks)


def _decide_lower(
    base: Sequence[float],
    head: Sequence[float],
    batches: Sequence[Sequence[float]],
    policy: Policy,
    comparisons: int,
    floor: float,
    clocks: tuple[float, float] | None,
) -> Outcome:
    plain = ratio_interval(base, head, policy.confidence)
    points = [plain.point, *(ratio_interval(base, batch, policy.confidence).point for batch in batches)]
    slow, fast = thresholds(policy)
    spread = max(plain.high / plain.point, plain.point / plain.low) - 1 if plain.low > 0 else math.inf
    detectable = max((1 + spread) ** times_half(policy.confidence) - 1, STORED)
    if plain.point >= slow or 1 / plain.point >= fast:
        verdict, word = (Verdict.REGRESSION, "slower") if plain.point >= slow else (Verdict.SPEEDUP, "faster")
        beyond = [p >= slow if word == "slower" else 1 / p >= fast for p in points[1:]]
        doubt = (
            _doubt_of_batches(beyond)
            or _doubt_of_store(plain.point)
            or _doubt_of_overlap(base, head, 1 - (1 - policy.confidence) / max(1, comparisons), floor, (slow, fast))
            or _doubt_of_clock(plain.point, clocks, slow if word == "slower" else fast)
        )
        if doubt:
            code, sentence = doubt
            text = f"{size(plain.point)}, but {sentence}"
            return Outcome(Verdict.INCONCLUSIVE, f"{word}-{code}", text, plain, detectable)
        return Outcome(verdict, word, f"{size(plain.point)} in each batch of fresh processes", plain, detectable)
    if plain.high >= slow or 1 / max(plain.low, 1e-300) >= fast:
        return Outcome(Verdict.INCONCLUSIVE, "interval-too-wide", _allows(plain), plain, detectable)
    return Outcome(Verdict.UNCHANGED, "within-noise", _unchanged(plain, detectable), plain, detectable)


def times_half(confidence: float) -> float:
    """Return how many times half of an interval a change must be to be seen in four of five runs; once: in one of two.

    >>> f"{times_half(0.99):.2f} {times_half(0.95):.2f}"
    '1.33 1.43'
    """
    return 1 + NormalDist().inv_cdf(0.8) / NormalDist().inv_cdf(1 - (1 - confidence) / 2)


def _doubt_of_batches(beyond: Sequence[bool]) -> tuple[str, str] | None:
    if len(beyond) < 2:
        return "unconfirmed", "not yet measured a second time"
    return None if all(beyond) else ("not-repeated", "not in each batch of fresh processes")


def _doubt_of_store(point: float) -> tuple[str, str] | None:
    small = max(point, 1 / point) < 1 + STORED
    return ("too-small", f"a stored time is off by up to {percent(STORED)} a few minutes later") if small else None


def _doubt_of_overlap(
    base: Sequence[float], head: Sequence[float], confidence: float, floor: float, beyond: tuple[float, float]
) -> tuple[str, str] | None:
    adjusted = ratio_interval(base, head, confidence)
    if adjusted.low <= 0:
        return "too-few-processes", f"{len(base)} and {len(head)} processes are too few to be sure"
    if adjusted.low <= 1 + floor and adjusted.high >= 1 / (1 + floor):
        return "not-significant", "the interval and the baseline's own scatter do not exclude no change"
    separate = max(base) < min(head) or max(head) < min(base)
    far_slower, far_faster = (ratio**FAR for ratio in beyond)
    if not separate and adjusted.low < far_slower and adjusted.high > 1 / far_faster:
        return "overlapping", "some processes of the baseline took as long as some of this run"
    return None


def confirming_processes(base: int, measured: int, comparisons: int, confidence: float, at_least: int) -> int:
    """Return how many processes a confirming batch needs, so that its verdict can be sure among so many cases.

    With complete separation the interval of `base` against n processes has the level 1 - 2 / (base + n choose base).
    Never more than three times `at_least`: a baseline of few processes cannot be made up for by many of the run.

    >>> confirming_processes(6, 6, 12, 0.99, 6), confirming_processes(6, 6, 1000, 0.99, 6)
    (6, 14)
    """
    needed = at_least
    while (
        2 / math.comb(base + measured + needed, base) > (1 - confidence) / max(1, comparisons) and needed < 3 * at_least
    ):
        needed += 1
    return needed


def _doubt_of_clock(point: float, clocks: tuple[float, float] | None, threshold: float) -> tuple[str, str] | None:
    """Time x clock is cycles: a change that is not there in cycles is one of the clock."""
    if clocks is None:
        return None
    before, now = clocks
    cycles = point * now / before
    if max(cycles, 1 / cycles) >= threshold and (cycles > 1) == (point > 1):
        return None
    return "clock", f"the SM clock was {now / 1e6:.0f} MHz, in the baseline {before / 1e6:.0f} MHz"


def thresholds(policy: Policy) -> tuple[float, float]:
    """Return head / base from which slower counts, and base / head from which faster does."""
    return (1 + policy.regression) * _ROUNDING, (1 + policy.speedup) * _ROUNDING


def size(ratio: float) -> str:
    """Say a ratio of times as people do: how much slower, or how many times as fast.

    >>> size(1.05), size(0.5)
    ('5.0 % slower', '2.00 times as fast')
    """
    return f"{percent(ratio - 1)} slower" if ratio >= 1 else f"{1 / ratio:.2f} times as fast"


def _unchanged(interval: Interval, detectable: float) -> str:
    seen = percent(interval.point - 1, sign=True)
    return f"{seen}; a change of {percent(detectable)} would likely be seen"


def _allows(interval: Interval) -> str:
    if interval.low <= 0:
        return "too few processes for an interval"
    return f"the interval allows {percent(interval.low - 1, sign=True)} to {percent(interval.high - 1, sign=True)}"
