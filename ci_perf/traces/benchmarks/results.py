"""The results in a benchmark file: values in base units, or why there are none."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

Scalar = str | int | float | bool
"""A parameter of a benchmark."""


@dataclass(frozen=True, slots=True)
class BenchmarkCase:
    """One number of one benchmark with one set of parameters."""

    name: str
    params: Mapping[str, Scalar]
    metric: str
    unit: str
    """Base unit; empty where the file does not say."""
    better: str | None
    """`lower` or `higher`; None where the file does not say."""
    values: tuple[float, ...]
    """The samples where the file has them, else its summary; empty where it was skipped."""
    skipped: str = ""
    """Why there is no value."""

    def __str__(self) -> str:
        params = ", ".join(f"{key}={value}" for key, value in self.params.items())
        return f"{self.name} [{params}] {self.metric}" if params else f"{self.name} {self.metric}"


@dataclass(frozen=True, slots=True)
class BenchmarkFile:
    """What one file holds, in its order."""

    kind: str
    """`nvbench-json`, `nvbench-csv`, `google-benchmark`, `google-benchmark-csv`, `pytest-benchmark`, `triton-csv`."""
    cases: tuple[BenchmarkCase, ...]
    warnings: tuple[str, ...] = ()


MAIN_METRIC: Mapping[str, str] = {
    "nvbench-json": "gpu_time",
    "nvbench-csv": "gpu_time",
    "google-benchmark": "real_time",
    "google-benchmark-csv": "real_time",
    "pytest-benchmark": "time",
    "triton-csv": "value",
}
"""The number that each kind of file is about."""


def measured(
    name: str, params: Mapping[str, Scalar], metric: str, unit: tuple[str, str | None], values: Sequence[float]
) -> BenchmarkCase:
    """Return the case of these values; one that is not finite is a case without any."""
    wrong = next((value for value in values if not math.isfinite(value)), None)
    if wrong is not None or not values:
        reason = "the file holds no value" if wrong is None else f"the file says {wrong}"
        return BenchmarkCase(name, params, metric, *unit, (), reason)
    return BenchmarkCase(name, params, metric, *unit, tuple(values))


def scaled(value: float, factor: float) -> float:
    """Bring a value to its base unit without the last digits that only binary fractions make.

    >>> 9 * 1e-9, scaled(9, 1e-9)
    (9.000000000000001e-09, 9e-09)
    """
    return float(f"{value * factor:.15g}")


def number(value: object) -> float | None:
    """Return a number, also one that the file wrapped into a string; None for anything else.

    >>> number("0.0010034715849794225"), number(4), number(True), number("2^4"), number("1_0")
    (0.0010034715849794225, 4.0, None, None, None)
    """
    if isinstance(value, str) and "_" not in value:
        try:
            return float(value)
        except ValueError:
            return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return math.inf


def scalar(value: object) -> Scalar:
    """Return a parameter as the number that it spells, else as text; a whole number is an int.

    >>> scalar("4"), scalar("256.000000"), scalar("2.5"), scalar("I8"), scalar(True)
    (4, 256, 2.5, 'I8', True)
    """
    if isinstance(value, bool):
        return value
    found = number(value)
    if found is None or not math.isfinite(found):
        return str(value)
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+", value.strip()):
        return int(value)
    return int(found) if found.is_integer() and abs(found) < 2**53 else found


def select(
    cases: Iterable[BenchmarkCase], params: Mapping[str, Scalar], matches: Callable[[str], bool], metric: str
) -> tuple[BenchmarkCase, ...]:
    """Return the cases that are meant: of a name that matches, of this metric, and with no other value of a parameter.

    A parameter that only one side has says nothing.
    """
    return tuple(
        case
        for case in cases
        if case.metric == metric
        and matches(case.name)
        and all(_same(case.params[key], params[key]) for key in case.params.keys() & params.keys())
    )


def _same(a: Scalar, b: Scalar) -> bool:
    """Compare parameters as they are written in two places: 256, 256.0 and "256" are one.

    So are float16 and torch.float16, as torch prints its data type.
    """
    a, b = (scalar(value.removeprefix("torch.") if isinstance(value, str) else value) for value in (a, b))
    return a == b if isinstance(a, str) == isinstance(b, str) else str(a) == str(b)
