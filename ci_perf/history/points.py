"""Points and series, from baselines and runs."""

import datetime
import json
import statistics
from collections.abc import Iterable, Iterator

from ci_perf.values.run import Run, on_device
from ci_perf.values.series import Point, Series


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
