"""The times of one case over commits and runs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """The time of one case, as a baseline or a run has it."""

    when: str
    """ISO 8601 in UTC, such as `2026-01-31T12:00:00+00:00`: of the commit for a baseline, of the run for a run."""
    commit: str
    """Full hash; empty: not known."""
    source: str
    """`baseline` or `run`."""
    kernel: str
    case: str
    device: str
    """The slug of the device."""
    method: str
    unit: str
    better: str
    median: float
    low: float
    """The lowest median of a process."""
    high: float
    """The highest median of a process."""


@dataclass(frozen=True, slots=True)
class Series:
    """The points of one case on one device, timed by one method, from the oldest to the newest."""

    points: tuple[Point, ...]

    @property
    def last(self) -> Point:
        """The newest point."""
        return self.points[-1]

    @property
    def name(self) -> str:
        """The case, its device and how it was timed."""
        last = self.last
        return f"{last.kernel}/{last.case} on {last.device} ({last.method})"

    @property
    def slowness(self) -> tuple[float, ...]:
        """The values such that more is worse: of rates the inverse."""
        return tuple(1 / p.median if p.better == "higher" else p.median for p in self.points)


@dataclass(frozen=True, slots=True)
class Trend:
    """A series, and what changed in it."""

    series: Series
    changes: tuple[int, ...]
    """The place in the series of the first point after each change."""
    sentences: tuple[str, ...]
    """What the changes and the creep are; empty: there are none."""
