"""What the dataclasses of a file say beyond their types: limits of values, and how the file may grow.

The JSON Schemas of the package are generated from these classes by `scripts/generate-schemas`: the annotations give
the limits, the docstrings the descriptions.
"""

from dataclasses import dataclass, field
from typing import Annotated


@dataclass(frozen=True, slots=True)
class Extensible:
    """Base of each part of a file: keys that this version does not know are kept and written again."""

    unknown_keys: tuple[tuple[str, object], ...] = field(default=(), compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Keyword:
    """A keyword of JSON Schema that limits the values of the annotated type."""

    name: str
    value: object


@dataclass(frozen=True, slots=True)
class OmitDefault:
    """Marks a field that is not written while it has its default: older files do not have it."""


def one_of(*names: str) -> Keyword:
    """Return the keyword that allows these texts only."""
    return Keyword("enum", names)


def pattern(regex: str) -> Keyword:
    """Return the keyword that requires a match of the regular expression."""
    return Keyword("pattern", regex)


OMIT_DEFAULT = OmitDefault()
NOT_EMPTY = Keyword("minItems", 1)

Text = Annotated[str, Keyword("minLength", 1)]
NonNegative = Annotated[float, Keyword("minimum", 0)]
Positive = Annotated[float, Keyword("exclusiveMinimum", 0)]
LogRatio = Annotated[float, Keyword("minimum", -700), Keyword("maximum", 700)]
"""A logarithm whose exponential is finite and above 0."""
Whole = Annotated[int, Keyword("minimum", 0)]
Count = Annotated[int, Keyword("minimum", 1)]
Name = Annotated[str, pattern("^[A-Za-z0-9_][A-Za-z0-9_.-]*$")]
"""The name of a kernel: that of its folder."""
DeviceKind = Annotated[str, one_of("cuda", "cpu")]
Target = Annotated[str, one_of("launch", "reference")]
Unit = Annotated[str, pattern("^[a-z]*(/[a-z]+)?$"), OMIT_DEFAULT]
Better = Annotated[str, one_of("lower", "higher"), OMIT_DEFAULT]
