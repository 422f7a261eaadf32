"""The kernels of a trace of any length, each counted under its launch parameters and the NVTX ranges of its launch.

SQLite lists the variants, a variant being a kernel with its launch parameters, and makes one number of the columns that
tell them apart. All that is kept of a kernel are the eight bytes of its code in `nsys_tally`.
"""

import random
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ci_perf.traces.nsys import calls as nsys_calls
from ci_perf.traces.nsys import columns as nsys_columns
from ci_perf.traces.nsys.calls import Calls
from ci_perf.traces.nsys.columns import Column, Columns, Ints, Span
from ci_perf.traces.nsys.pool import Ask, Pool
from ci_perf.traces.nsys.ranges import Range, points_of
from ci_perf.traces.nsys.tally import Codes, RangeTally, Tally

COLUMNS = (
    *("deviceId", "demangledName", "shortName", "mangledName", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"),
    *("registersPerThread", "staticSharedMemory", "dynamicSharedMemory", "localMemoryPerThread", "pid"),
)
"""What tells variants apart: the device comes first, the process last."""
_TELLING_FIRST = ("demangledName", "gridX", "dynamicSharedMemory", "blockX", "registersPerThread")
"""SQLite compares in this order, and is done at the first difference."""
_STRETCH = 250_000
"""Rows whose variants are listed at a time."""

_BUSY = """
    SELECT deviceId, SUM(MAX(0, end - MAX(start, COALESCE(covered, start)))) FROM (
        SELECT deviceId, start, end, MAX(end) OVER (
            PARTITION BY deviceId ORDER BY start, end ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS covered FROM kernel
    ) GROUP BY deviceId ORDER BY deviceId
"""

Variant = tuple[Any, ...]
"""The values of COLUMNS, integers, except that the process may be None; in results, without the process."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """All that is said of kernels and calls row by row."""

    variants: Sequence[Variant]
    count: int
    total_ns: int
    tallies: Sequence[Tally]
    ranges: Mapping[str, RangeTally]
    """By the name of the range."""
    busy_ns: Mapping[int, int]
    """By device: the time during which at least one kernel ran."""
    attributed: int
    """Kernels whose launch call is in the trace."""
    untraced_launches: int
    """Successful calls that launch one kernel each, which is not in the trace."""
    by_process: Mapping[int, int]
    """By `pid`: the kernels that ran."""
    unfinished: int
    """Rows without an end, which are in no other number."""
    calls: Calls


class _Layout:
    """An expression that gives each variant a number of its own, and the way back."""

    def __init__(self, variants: Sequence[Variant]) -> None:
        """Find the expression, which adds up multiples of few columns."""
        if not all(type(v) is int and -1 <= v < 1 << 32 for variant in variants for v in variant[:-1]):
            raise sqlite3.DataError("the table of kernels holds numbers that no kernel has")
        if not all(variant[-1] is None or type(variant[-1]) is int for variant in variants):
            raise sqlite3.DataError("the table of kernels holds processes that are no numbers")
        self.processes = {pid: number for number, pid in enumerate(dict.fromkeys(v[-1] for v in variants))}
        rows = [(*variant[:-1], self.processes[variant[-1]]) for variant in variants]
        kept = _telling_columns(rows)
        draw = random.Random(0)  # noqa: S311 - any numbers will do, as long as they are the same every time
        most = max(1, 4 * len(rows) ** 2)
        for _ in range(1000):
            # Another size each time: sizes that differ by a multiple of it, as powers of two do, are one to any factor.
            size = draw.randrange(most, 2 * most)
            factors = [draw.randrange(1, 1 << 26) for _ in kept]
            keys = [sum((row[c] + 1) * f for c, f in zip(kept, factors, strict=True)) % size for row in rows]
            if len(set(keys)) == len(keys):
                break
        else:
            raise sqlite3.DataError(f"{len(rows)} different kernels are too many")
        terms = [f"({self._value(column)} + 1) * {factor}" for column, factor in zip(kept, factors, strict=True)]
        self.key = f"({' + '.join(terms) or '0'}) % {size}"
        self._order = np.argsort(np.array(keys, dtype=np.int64))
        self._keys = np.array(keys, dtype=np.int64)[self._order]

    def _value(self, column: int) -> str:
        if column < len(COLUMNS) - 1:
            return COLUMNS[column]
        known = ((pid, number) for pid, number in self.processes.items() if pid is not None)
        cases = " ".join(f"WHEN {pid} THEN {number}" for pid, number in known)
        return f"CASE pid {cases} ELSE {self.processes.get(None, -1)} END"

    def variants(self, keys: Ints) -> Ints:
        """Return the place of the variant that each number stands for."""
        places = np.searchsorted(self._keys, keys)
        if places.max() == len(self._keys) or not (self._keys[places] == keys).all():
            raise sqlite3.DataError("the table of kernels holds values that are no numbers")
        return self._order[places]


def _telling_columns(variants: Sequence[Variant]) -> list[int]:
    """Return as few columns as are needed to tell the variants apart."""
    kept = [column for column in range(len(COLUMNS)) if len({variant[column] for variant in variants}) > 1]
    for column in reversed(kept[:]):
        fewer = [other for other in kept if other != column]
        if len({tuple(variant[other] for other in fewer) for variant in variants}) == len(variants):
            kept = fewer
    return kept


@dataclass(slots=True)
class _Busy:
    """The union of the kernels on each device, as long as they come in order of their start."""

    in_order: bool = True
    _devices: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """By device: the time covered so far, its end, and the latest start."""

    def add(self, devices: Ints, starts: Ints, durations: Ints) -> None:
        """Add some kernels."""
        if (devices == devices[0]).all():
            self._add(int(devices[0]), starts, durations)
            return
        for device in np.unique(devices).tolist():
            mine = devices == device
            self._add(device, starts[mine], durations[mine])

    def _add(self, device: int, starts: Ints, durations: Ints) -> None:
        if not (starts[:-1] <= starts[1:]).all():
            order = np.argsort(starts, kind="stable")
            starts, durations = starts[order], durations[order]
        total, covered, latest = self._devices.get(device, (0, int(starts[0]), int(starts[0])))
        self.in_order = self.in_order and starts[0] >= latest
        reached = np.maximum.accumulate(np.concatenate([[covered], starts + durations]))
        total += int(np.maximum(reached[1:] - np.maximum(reached[:-1], starts), 0).sum())
        self._devices[device] = total, int(reached[-1]), int(starts[-1])

    def totals(self) -> dict[int, int]:
        """Return the busy time of each device."""
        return {device: total for device, (total, _, _) in sorted(self._devices.items())}


@dataclass(frozen=True, slots=True)
class Survey:
    """What is known of the kernels before they are gone over one by one."""

    span: Span
    """Of all rows, those of unfinished kernels too."""
    variants: Sequence[Variant]


def survey(pool: Pool) -> Callable[[], Survey]:
    """Begin to count the kernels and to list their variants; what is returned waits for the end."""
    order = [*_TELLING_FIRST, *(name for name in COLUMNS if name not in _TELLING_FIRST)]
    places = [order.index(name) for name in COLUMNS]
    within = "WHERE place BETWEEN ? AND ?"
    listing = f"SELECT DISTINCT {', '.join(order)} FROM kernel {within}"  # noqa: S608
    counting = f"SELECT COUNT(*) FROM any_kernel {within}"  # noqa: S608

    def look(ask: Ask, chunk: tuple[int, int]) -> tuple[int, list[Variant]]:
        return ask(counting, chunk)[0][0], [tuple(row[place] for place in places) for row in ask(listing, chunk)]

    first, last = pool.submit(partial(nsys_columns.ends, view="any_kernel")).result()
    parts = [pool.submit(partial(look, chunk=chunk)) for chunk in nsys_columns.stretches(first, last, _STRETCH)]

    def finish() -> Survey:
        looks = [part.result() for part in parts]
        variants = dict.fromkeys(variant for _, found in looks for variant in found)
        return Survey(Span(sum(count for count, _ in looks), first, last), list(variants))

    return finish


def read(pool: Pool, ranges: Iterable[Range]) -> Kernels:
    """Read calls and kernels through a pool that has the views of `nsys_schema`."""
    surveyed = survey(pool)
    points = points_of(ranges)
    calls = nsys_calls.read(pool, points)
    known = surveyed()
    span, variants = known.span, known.variants
    layout = _Layout(variants)
    merged = {variant: place for place, variant in enumerate(dict.fromkeys(v[:-1] for v in variants))}
    codes = Codes(np.empty(span.count, dtype=np.int64), bits=63 - len(merged).bit_length())
    busy = _Busy()
    sets = np.array([*points.set_at, 0], dtype=np.int64)  # the last, at -1, is for kernels without a launch
    devices = np.array([variant[0] for variant in variants], dtype=np.int64)
    processes = np.array([calls.process_number(variant[-1]) for variant in variants], dtype=np.int64)
    places = np.array([merged[variant[:-1]] for variant in variants], dtype=np.int64)
    counts = np.zeros(len(variants), dtype=np.int64)
    attributed = total = 0
    for found in _chunks(pool, span, layout):
        (mine, durations, starts, correlations), longer = found
        launched = calls.find(processes[mine], correlations)
        attributed += int(np.count_nonzero(launched >= 0))
        total += longer
        busy.add(devices[mine], starts, durations)
        counts += np.bincount(mine, minlength=len(variants))
        codes.add(places[mine], durations, sets[launched])
    codes.close()
    untraced = calls.untraced_launches()
    calls.forget()
    return Kernels(
        variants=list(merged),
        count=codes.filled,
        total_ns=total,
        ranges=codes.by_range(list(points.names), points.sets),
        tallies=codes.whole(),
        busy_ns=busy.totals() if busy.in_order else dict(pool.submit(lambda ask: ask(_BUSY)).result()),
        attributed=attributed,
        untraced_launches=untraced,
        by_process=_by_process(variants, counts.tolist()),
        unfinished=span.count - codes.filled,
        calls=calls,
    )


def _by_process(variants: Sequence[Variant], counts: Sequence[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for variant, count in zip(variants, counts, strict=True):
        if variant[-1] is None:
            continue
        found[variant[-1]] = found.get(variant[-1], 0) + count
    return found


def _chunks(pool: Pool, span: Span, layout: _Layout) -> Iterator[tuple[list[Ints], int]]:
    """Yield of each chunk the variants, durations, starts and correlation ids, and the sum of the durations."""
    columns = Columns(
        "kernel",
        [
            Column(layout.key),
            Column("end - start"),
            Column("start", near=True),
            Column(f"COALESCE(correlationId, {nsys_calls.ABSENT})", near=True),
        ],
        "end - start",
    )

    def look(ask: Ask, chunk: tuple[int, int]) -> tuple[list[Ints], int] | None:
        found = columns.read(ask, chunk)
        if found is None:
            return None
        (keys, *others), total = found
        return [layout.variants(keys), *others], total

    for found in pool.each(look, span.chunks()):
        if found is not None:
            yield found
