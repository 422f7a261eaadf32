"""Reads from an nsys export what a program did in some of its NVTX ranges, call by call.

For the ranges of a run, not for traces of any size: Python sees every call, so a trace with more than `MOST` events is
left alone. `database` does the sums that must work on all of them.
"""

import sqlite3
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from ci_perf.traces import activity, filetype
from ci_perf.traces.activity import Call, Work
from ci_perf.traces.nsys import schema as nsys_schema
from ci_perf.traces.timeline import hidden_by_graphs
from ci_perf.values.errors import ProfileError
from ci_perf.values.trace import Reading

MOST = 2_000_000
_PAGEABLE = 0
"""Of ENUM_CUDA_MEM_KIND."""
_UPLOAD, _DOWNLOAD = 1, 2
"""Of ENUM_CUDA_MEMCPY_OPER: host to device, device to host."""
_FOR_ANY_THREAD = (60, 71)

_COUNT = "SELECT (SELECT COUNT(*) FROM api) + (SELECT COUNT(*) FROM kernel) + (SELECT COUNT(*) FROM copy)"
_RANGES = """
    SELECT COALESCE(nvtx.text, string.value), nvtx.start, COALESCE(nvtx.end, 9223372036854775807),
        nvtx.eventType, nvtx.globalTid, nvtx.pid
    FROM nvtx LEFT JOIN string ON string.id = nvtx.textId
    WHERE nvtx.eventType IN (59, 60, 70, 71) AND nvtx.domainId = 0
"""
_CALLS = """
    SELECT COALESCE(string.value, api.name, '?'), api.start, api.end, api.globalTid, api.pid, api.correlationId
    FROM api LEFT JOIN string ON string.id = api.nameId
"""
_WORK = """
    SELECT 'kernel', start, end, pid, correlationId, 0, NULL, NULL FROM kernel
    UNION ALL SELECT copyKind, start, end, pid, correlationId, bytes, srcKind, dstKind FROM copy
    UNION ALL SELECT 'memset', start, end, pid, correlationId, 0, NULL, NULL FROM memset WHERE end >= start
"""


@dataclass(frozen=True, slots=True)
class _Range:
    name: str
    start: int
    end: int
    thread: int | None
    """None: calls of any thread of the process belong to it."""
    process: int

    def holds(self, call: Call, process: int) -> bool:
        """Say whether a call was made inside the range."""
        mine = process == self.process if self.thread is None else call.thread == self.thread
        return mine and self.start <= call.start <= self.end


def read(path: Path, names: Collection[str]) -> tuple[dict[str, dict[str, Reading]], dict[str, Reading]]:
    """Return the metrics of the ranges of each name, and of the whole trace."""
    try:
        with closing(sqlite3.connect(filetype.database_uri(path), uri=True)) as database:
            database.text_factory = lambda raw: raw.decode(errors="replace")
            nsys_schema.create_views(database, path)
            reason = _why_not(database)
            if reason:
                unknown = activity.not_analysed(reason)
                return dict.fromkeys(names, unknown), unknown
            return _read(database, names)
    except sqlite3.Error as error:
        raise ProfileError(f"{path}: not a usable nsys export: {error}", hint="export the trace again") from None


def _why_not(database: sqlite3.Connection) -> str:
    """Say why the events of a trace cannot be looked at one by one; empty: they can."""
    graphs = database.execute("SELECT COUNT(*) FROM graph").fetchone()[0]
    if graphs:
        return hidden_by_graphs(graphs)
    events = database.execute(_COUNT).fetchone()[0]
    return f"the trace has {events} events, more than are looked at one by one" if events > MOST else ""


def _read(
    database: sqlite3.Connection, names: Collection[str]
) -> tuple[dict[str, dict[str, Reading]], dict[str, Reading]]:
    ranges = sorted(_ranges(database, names), key=lambda r: r.start)
    ends = list(accumulate((r.end for r in ranges), max))
    calls: dict[_Range, list[Call]] = {place: [] for place in ranges}
    every: list[Call] = []
    for call, process in _calls(database):
        every.append(call)
        for place in _around(ranges, ends, call, process):
            calls[place].append(call)
    work = list(_work(database))
    by_call: dict[tuple[int, int] | None, list[Work]] = defaultdict(list)
    for done in work:
        by_call[done.correlation].append(done)
    found = defaultdict(list)
    for place, mine in calls.items():
        started = [w for key in {c.correlation for c in mine} if key is not None for w in by_call.get(key, ())]
        end = place.end if place.end < 1 << 62 else max((c.end for c in mine), default=place.start)
        found[place.name].append(activity.measure(place.start, end, mine, started))
    whole = activity.measure_all(every, work)
    return (
        {name: activity.readings(activity.add(parts)) for name, parts in found.items()},
        activity.readings(whole) if whole else activity.not_analysed("the trace holds no CUDA activity at all"),
    )


def _ranges(database: sqlite3.Connection, names: Collection[str]) -> Iterator[_Range]:
    for name, start, end, kind, thread, process in database.execute(_RANGES):
        if name in names:
            yield _Range(name, start, end, None if kind in _FOR_ANY_THREAD else thread, process)


def _around(ranges: list[_Range], ends: list[int], call: Call, process: int) -> Iterator[_Range]:
    """Yield the ranges around a call; they are sorted by their beginning, and `ends` are the latest ends so far."""
    for place in range(bisect_right(ranges, call.start, key=lambda r: r.start) - 1, -1, -1):
        if ends[place] < call.start:
            return
        if ranges[place].holds(call, process):
            yield ranges[place]


def _calls(database: sqlite3.Connection) -> Iterator[tuple[Call, int]]:
    for name, start, end, thread, process, correlation in database.execute(_CALLS):
        key = None if correlation is None else (process, correlation)
        yield Call(name, start, max(start, end), thread, key), process


def _work(database: sqlite3.Connection) -> Iterator[Work]:
    kinds: Mapping[object, str] = {_UPLOAD: "host-to-device", _DOWNLOAD: "device-to-host"}
    for kind, start, end, process, correlation, size, source, target in database.execute(_WORK):
        key = None if correlation is None else (process, correlation)
        if isinstance(kind, str):
            yield Work(kind, start, end, key)
        else:
            yield Work(kinds.get(kind, "copy"), start, end, key, size, _pageable(kind, (source, target)))


def _pageable(kind: int, ends: Iterable[int | None]) -> bool | None:
    """Say whether a copy went through pageable memory; one that never leaves the device did not."""
    if kind not in {_UPLOAD, _DOWNLOAD}:
        return False
    known = tuple(ends)
    return None if None in known else _PAGEABLE in known
