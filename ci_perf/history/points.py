"""One time of one case at one commit, and series of them."""

import datetime
import json
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ci_perf.values.run import Run, on_device


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


def series_of(points: Iterable[Point]) -> tuple[Series, ...]:
    """Group points into series, in the order of kernel, case, device; a point that occurs twice counts once."""
    groups: dict[tuple[str, ...], set[Point]] = {}
    for point in points:
        key = (point.kernel, point.case, point.device, point.method, point.unit, point.better)
        groups.setdefault(key, set()).add(point)
    return tuple(Series(tuple(sorted(groups[key]))) for key in sorted(groups))


def in_utc(text: str) -> str:
    """Return a time of ISO 8601 in UTC; ValueError where it is none. Without a zone it is UTC.

    >>> in_utc("2026-01-31T13:00:00+01:00")
    '2026-01-31T12:00:00+00:00'
    """
    when = datetime.datetime.fromisoformat(text)
    when = when if when.tzinfo else when.replace(tzinfo=datetime.UTC)
    return when.astimezone(datetime.UTC).isoformat(timespec="seconds")


def points_of_baseline(text: str, kernel: str, device: str, when: str, commit: str) -> tuple[Point, ...]:
    """Read the times from the text of a baseline file, committed at `when`; ValueError for another text.

    Only the times are read, so that hundreds of versions take less than a second; `ci-perf baseline check` checks all.
    """
    try:
        document = json.loads(text)
        return tuple(
            _point(kernel, case, device, when, commit, known["time"]) for case, known in document["cases"].items()
        )
    except (KeyError, TypeError, AttributeError, statistics.StatisticsError) as error:
        raise ValueError(f"no times of a baseline: {error!r}") from None


def _point(kernel: str, case: str, device: str, when: str, commit: str, time: dict[str, object]) -> Point:
    replicates = time["replicates"]
    median = time["median"]
    if not isinstance(replicates, list) or not isinstance(median, int | float) or not median > 0:
        raise ValueError(f"`cases.{case}.time` is not a time")
    medians = [float(statistics.median(values)) for values in replicates]
    names = (str(time["method"]), str(time.get("unit", "s")), str(time.get("better", "lower")))
    return Point(when, commit, "baseline", kernel, case, device, *names, float(median), min(medians), max(medians))


def points_of_run(run: Run) -> Iterator[Point]:
    """Yield the times of the head in a run; cases that failed or were timed by several methods have none."""
    when = in_utc(run.provenance.date)
    for model in run.devices:
        for session in on_device(run, model):
            for m in session.measurements:
                medians = [statistics.median(r.seconds) for r in m.timed if r.seconds]
                if m.device != model.kind or m.failure or len(m.methods) != 1 or not medians or min(medians) <= 0:
                    continue
                names = (model.slug, m.methods[0], m.unit, m.better)
                middle = statistics.median(medians)
                commit = run.provenance.commit or ""
                yield Point(when, commit, "run", m.kernel, m.case, *names, middle, min(medians), max(medians))
