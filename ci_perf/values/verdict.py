"""The verdicts and the states of a gate."""

from enum import StrEnum


class Verdict(StrEnum):
    """What is said of a case; always beside a reason code and a sentence."""

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
        """Whether it says that the case became slower or faster."""
        return self in (Verdict.REGRESSION, Verdict.SPEEDUP)


class GateState(StrEnum):
    """Whether a counter kept its limit; what was not measured is neither."""

    KEPT = "KEPT"
    BROKEN = "BROKEN"
    NOT_MEASURED = "NOT_MEASURED"
