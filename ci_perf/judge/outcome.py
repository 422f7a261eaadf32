"""The verdict on a number alone, and what both kinds of comparison share: thresholds and words."""

from dataclasses import dataclass, replace

from ci_perf.judge.stats import Interval
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.quantity import percent
from ci_perf.values.reasons import Reason, Verdict
from ci_perf.values.run import Policy

ROUNDING = 1 - 1e-9
"""Two times that are exactly 3 % apart have a quotient that rounding may put just below 1.03."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict on a number, without the case it belongs to."""

    verdict: Verdict
    code: Reason
    sentence: str
    change: Interval | None = None
    detectable: float | None = None
    """The smallest change, as a fraction, that would likely be seen: with 80 % power at this scatter."""


def policy_of(policy: Policy, spec: KernelSpec) -> Policy:
    """Return the policy with the thresholds that the kernel's own file sets."""
    return replace(policy, regression=spec.regression or policy.regression, speedup=spec.speedup or policy.speedup)


def thresholds(policy: Policy) -> tuple[float, float]:
    """Return head / base from which slower counts, and base / head from which faster does."""
    return (1 + policy.regression) * ROUNDING, (1 + policy.speedup) * ROUNDING


def size(ratio: float) -> str:
    """Write a ratio of times: how much slower, or how many times as fast.

    >>> size(1.05), size(0.5)
    ('5.0 % slower', '2.00 times as fast')
    """
    return f"{percent(ratio - 1)} slower" if ratio >= 1 else f"{1 / ratio:.2f} times as fast"


def unchanged(change: Interval, detectable: float, policy: Policy) -> Outcome:
    """Return UNCHANGED, with the change that was measured and the smallest that would likely be seen.

    A change that the interval establishes, but that reaches no threshold, has a reason of its own, and its sentence
    names the threshold.
    """
    seen = percent(change.point - 1, sign=True)
    if change.low > 1 or change.high < 1:
        ends = f"{percent(change.low - 1, sign=True)} to {percent(change.high - 1, sign=True)}"
        what, limit = ("regression", policy.regression) if change.point >= 1 else ("speedup", policy.speedup)
        return Outcome(
            Verdict.UNCHANGED,
            Reason.BELOW_THRESHOLD,
            f"{seen}, certain ({ends}); a {what} begins at {percent(limit)}",
            change,
            detectable,
        )
    sentence = f"{seen}; a change of {percent(detectable)} would likely be seen"
    return Outcome(Verdict.UNCHANGED, Reason.WITHIN_NOISE, sentence, change, detectable)


def allows(change: Interval) -> str:
    """Write an interval that is too wide for a verdict."""
    return f"the interval allows {percent(change.low - 1, sign=True)} to {percent(change.high - 1, sign=True)}"
