"""The verdicts and the states of a gate."""

from enum import StrEnum


class Verdict(StrEnum):
    """The verdict on a case; a reason code and a sentence always accompany it."""

    SPEEDUP = "SPEEDUP"
    REGRESSION = "REGRESSION"
    UNCHANGED = "UNCHANGED"
    INCONCLUSIVE = "INCONCLUSIVE"
    NEW = "NEW"
    MISSING = "MISSING"
    FAILED = "FAILED"
    NOT_COMPARABLE = "NOT_COMPARABLE"

    @property
    def is_change(self) -> bool:
        """Whether the case became slower or faster."""
        return self in (Verdict.REGRESSION, Verdict.SPEEDUP)


class GateState(StrEnum):
    """Whether a counter kept its limit; what was not measured is neither."""

    KEPT = "KEPT"
    BROKEN = "BROKEN"
    NOT_MEASURED = "NOT_MEASURED"
