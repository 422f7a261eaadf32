"""Reads from an nsys export what a program did in some of its NVTX ranges, call by call.

For the ranges of a run, not for traces of any size: each call is an object, so a trace with more than `MOST` events is
left alone. `reader` does the sums that must work on all of them.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path

from ci_perf.traces import activity
from ci_perf.traces.activity import Call, Work
from ci_perf.traces.nsys.ranges import NEVER, Range, read_ranges
from ci_perf.traces.nsys.views import opened
from ci_perf.traces.timeline import hidden_by_graphs
from ci_perf.values.trace import Reading

MOST = 2_000_000
_PAGEABLE = 0
"""Of ENUM_CUDA_MEM_KIND."""
_COPIES = {1: "host-to-device", 2: "device-to-host"}
"""Of ENUM_CUDA_MEMCPY_OPER: the copies between host and device."""

_COUNT = "SELECT (SELECT COUNT(*) FROM api) + (SELECT COUNT(*) FROM kernel) + (SELECT COUNT(*) FROM copy)"
_CALLS = """
    SELECT COALESCE(string.value, api.name, '?'), api.start, api.end, api.globalTid, api.correlationId, api.pid
    FROM api LEFT JOIN string ON string.id = api.nameId
"""
_WORK = """
    SELECT 'kernel', start, end, pid, correlationId, 0, NULL, NULL FROM kernel
    UNION ALL SELECT copyKind, start, end, pid, correlationId, bytes, srcKind, dstKind FROM copy
    UNION ALL SELECT 'memset', start, end, pid, correlationId, 0, NULL, NULL FROM memset
        WHERE end > start AND typeof(start) = 'integer' AND typeof(end) = 'integer'
"""


def read(path: Path, names: Collection[str]) -> tuple[dict[str, dict[str, Reading]], dict[str, Reading]]:
    """Return the metrics of the ranges of each name that the trace has, and of the whole trace."""
    with opened(path) as database:
        if reason := _why_not(database):
            unknown = activity.not_analysed(reason)
            return dict.fromkeys(names, unknown), unknown
        return _read(database, names)


def _why_not(database: sqlite3.Connection) -> str:
    """Say why the events of a trace cannot be looked at one by one; empty: they can."""
    (graphs,) = database.execute("SELECT COUNT(*) FROM graph").fetchone()
    if graphs:
        return hidden_by_graphs(graphs)
    (events,) = database.execute(_COUNT).fetchone()
    return f"the trace has {events} events, more than are looked at one by one" if events > MOST else ""


def _read(
    database: sqlite3.Connection, names: Collection[str]
) -> tuple[dict[str, dict[str, Reading]], dict[str, Reading]]:
    calls = (
        Call(name, start, max(start, end), thread, None if number is None else (process, number), process)
        for name, start, end, thread, number, process in database.execute(_CALLS)
    )
    record = activity.Record(calls, _work(database))
    found: dict[str, list[activity.Activity]] = defaultdict(list)
    for place in read_ranges(database):
        if place.name in names:
            mine = [call for call in record.begun(place.start, place.end) if _covers(place, call)]
            end = max((c.end for c in mine), default=place.start) if place.end == NEVER else place.end
            found[place.name].append(record.measure(place.start, end, mine))
    return {name: activity.readings(activity.add(parts)) for name, parts in found.items()}, record.whole()


def _covers(place: Range, call: Call) -> bool:
    return call.process == place.process if place.any_thread else call.thread == place.thread


def _work(database: sqlite3.Connection) -> Iterator[Work]:
    for kind, start, end, process, number, size, source, target in database.execute(_WORK):
        correlation = None if number is None else (process, number)
        if isinstance(kind, str):
            yield Work(kind, start, end, correlation)
        elif kind in _COPIES:
            pageable = None if source is None or target is None else _PAGEABLE in (source, target)
            yield Work(_COPIES[kind], start, end, correlation, size, pageable)
        else:  # a copy that never leaves the device
            yield Work("copy", start, end, correlation, size, pageable=False)
