"""What merges changed: a line for each commit of main that was measured with the commit before it; and their sums."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from ci_perf.values.extensible import Count, Extensible, Keyword, LogRatio, Name, NonNegative, Text

FILE = "merged.jsonl"
"""The name of the ledger in the folder of a device below `baselines/`."""


@dataclass(frozen=True, slots=True)
class MergedChange(Extensible):
    """The change of one case in one merge."""

    change: LogRatio
    """log(head / base) of the time, of rates the other way round: above 0 is slower."""
    error: NonNegative
    """Half of its interval."""


@dataclass(frozen=True, slots=True)
class Merged(Extensible):
    """One merge on one model of device."""

    device: Name
    """The slug of the device."""
    base: Text
    """The full hash of the commit before."""
    head: Text
    date: Text
    """When it was measured: ISO 8601 in UTC."""
    cases: Annotated[Mapping[str, MergedChange], Keyword("minProperties", 1)]
    """By `kernel/case`, those that were compared."""


@dataclass(frozen=True, slots=True)
class Creep(Extensible):
    """Changes of several merges of one case on one device, each too small to be flagged, that add up."""

    case: Text
    """`kernel/case`."""
    device: Name
    """The slug of the device."""
    change: float
    """The sum of the changes, as a fraction of the time: 0.04 is 4 % slower."""
    low: float
    """The lower end of its interval: the errors of the changes are independent."""
    high: float
    merges: Count
    first: Text
    """The commit whose merge began it."""
