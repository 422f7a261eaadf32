"""Series as a table for people."""

from collections.abc import Callable, Sequence

from tabulate import tabulate

from ci_perf.history.trend import Change, creep
from ci_perf.values.errors import ConfigError
from ci_perf.values.quantity import amount, percent
from ci_perf.values.series import Point, Series, Trend

MOST_POINTS = 20
"""The newest points of a series that the table shows."""

Changes = Callable[[Series], Sequence[Change]]


def render_table(series: Sequence[Series], changes_of: Changes) -> str:
    """Return the newest points of each series, its change points and its creep."""
    return "\n\n".join(f"{one.name}\n{_points(one)}\n{trend_lines(one, changes_of)}" for one in series)


def known_changes(series: Series, changes_of: Changes) -> tuple[Sequence[Change], str]:
    """Return the change points; without the extra that finds them none, and how to install it."""
    try:
        return changes_of(series), ""
    except ConfigError as error:
        return (), f"{error}: {error.hint}"


def trend_of(series: Series, changes_of: Changes) -> Trend:
    """Return the change points, where they can be found, and the creep of a series, with a sentence for each."""
    changes, _ = known_changes(series, changes_of)
    places = tuple(series.points.index(change.after) for change in changes)
    return Trend(series, places, tuple(_sentences(series, changes)))


def trend_lines(series: Series, changes_of: Changes) -> str:
    """Return a line for each change point and for the creep of a series."""
    changes, missing = known_changes(series, changes_of)
    lines = [*([missing] if missing else []), *_sentences(series, changes)]
    return "\n".join(lines or ["no change point, no creep"])


def _sentences(series: Series, changes: Sequence[Change]) -> list[str]:
    lines = [f"change at {place(change.after)}: {_size(change)}, level before to level after" for change in changes]
    return [*lines, *_creep_lines(series)]


def _creep_lines(series: Series) -> list[str]:
    slow = creep(series)
    if slow is None:
        return []
    between = f"creep from {place(slow.before)} to {place(slow.after)}"
    return [f"{between}: {_size(slow)}, in changes of less than 3 % each"]


def place(point: Point) -> str:
    """Return the commit of a point, or its time where there is none."""
    return point.commit[:8] or point.when


def _points(series: Series) -> str:
    left = len(series.points) - MOST_POINTS
    shown = list(zip((None, *series.points), series.points, strict=False))[-MOST_POINTS:]
    rows = [
        (p.when[:10], place(p), p.source, amount(p.median, p.unit), _step(before, p) if before else "")
        for before, p in shown
    ]
    more = f"\n({left} older points are not shown)" if left > 0 else ""
    return tabulate(rows, ("date", "commit", "from", "median", "change"), "simple", disable_numparse=True) + more


def _step(before: Point, after: Point) -> str:
    return percent(after.median / before.median - 1, sign=True)


def _size(change: Change) -> str:
    word = "slower" if change.ratio > 1 else "faster"
    return f"time {percent(change.ratio - 1, sign=True)} ({word})"
