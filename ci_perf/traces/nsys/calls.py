"""The API calls of a trace of any length: how often each function was called, and where each launch was made.

A kernel and the call that launched it share the correlation id. Runtime and driver calls may both be listed under it,
and a graph launch has one id and many kernels; the earliest call counts.
"""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ci_perf.traces.nsys import columns as nsys_columns
from ci_perf.traces.nsys.columns import Column, Columns, Ints, Span, blocks
from ci_perf.traces.nsys.pool import Ask, Pool
from ci_perf.traces.nsys.ranges import Points

_IS_LAUNCH = "(value GLOB 'cudaLaunch*' OR value GLOB 'cuLaunch*') AND value NOT GLOB '*HostFunc*'"
"""Such a call launches exactly one kernel."""
ABSENT = -1
"""Stands for what a row does not have."""


@dataclass(frozen=True, slots=True)
class Functions:
    """The functions that are called, by number: the id of the name, or below -1 where a call bears its name itself."""

    names: Mapping[int, bytes]
    """Of those that bear it themselves."""
    launches: Ints
    """Numbers of the functions that launch a kernel."""

    @property
    def number(self) -> str:
        """The expression for the number of a call's function."""
        cases = " ".join(f"WHEN CAST(x'{name.hex()}' AS TEXT) THEN {n}" for n, name in self.names.items())
        return f"COALESCE(nameId, CASE name {cases} END, {ABSENT})" if cases else f"COALESCE(nameId, {ABSENT})"


@dataclass(slots=True)
class Calls:
    """The calls, and a sorted table of those that a kernel can belong to."""

    functions: Mapping[int, tuple[int, int]]
    """By number: how many calls and nanoseconds."""
    own_names: Mapping[int, str]
    """Of the functions whose number is not the id of a string."""
    launches_by_process: Mapping[int, int]
    """Successful calls that launch one kernel each."""
    _keys: Ints
    """Process, correlation id, point of time, and whether the call launches one kernel, from high bits to low."""
    _has_kernel: NDArray[np.bool_]
    _layout: "_Layout"

    def process_number(self, process: int) -> int:
        """Return the number by which `find` knows a process, -1 for one without calls."""
        return self._layout.processes.get(process, -1)

    def find(self, processes: Ints, correlations: Ints) -> Ints:
        """Return the point of time of each kernel's launch, -1 where the trace has none; note who has a kernel."""
        layout = self._layout
        wanted = layout.key(processes, correlations)
        places = np.searchsorted(self._keys, wanted)
        places[places == len(self._keys)] = 0
        keys = self._keys[places] if len(self._keys) else np.full(len(wanted), -1)
        known = (wanted >= 0) & (keys >> layout.low_bits == wanted >> layout.low_bits)
        self._has_kernel[places[known]] = True
        return np.where(known, (keys & ((1 << layout.low_bits) - 1)) >> 1, -1)

    def forget(self) -> None:
        """Drop the table, which only `find` needs."""
        self._keys, self._has_kernel = self._keys[:0].copy(), self._has_kernel[:0]

    def untraced_launches(self) -> int:
        """Return how many calls launched a kernel that is not in the trace."""
        parts = blocks(len(self._keys))
        return sum(int(np.count_nonzero(self._keys[b] & 1 & ~self._has_kernel[b])) for b in parts)


@dataclass(frozen=True, slots=True)
class _Layout:
    """How a call becomes one number that sorts by process, then by correlation id, then by time."""

    processes: Mapping[int, int]
    """The number of each process."""
    least: int
    """The lowest correlation id."""
    correlation_bits: int
    low_bits: int

    def key(self, processes: Ints, correlations: Ints) -> Ints:
        """Return the lowest key of each pair, -1 for those that no call can have."""
        offsets = correlations - self.least
        known = (processes >= 0) & (offsets >= 0) & (offsets < 1 << self.correlation_bits)
        return np.where(known, (processes << self.correlation_bits | offsets) << self.low_bits, -1)


@dataclass(slots=True)
class _Table:
    """The calls that have a correlation id, as they come."""

    correlations: Ints
    values: NDArray[np.int32]
    """The point of time, and whether the call launches one kernel."""
    count: int = 0

    def add(self, correlations: Ints, values: Ints) -> None:
        end = self.count + len(correlations)
        self.correlations[self.count : end] = correlations
        self.values[self.count : end] = values
        self.count = end


@dataclass(slots=True)
class _Reader:
    functions: Functions
    points: Points
    columns: Columns = field(init=False)
    sums: dict[int, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        columns = [
            Column(f"COALESCE(correlationId, {ABSENT})", near=True),
            Column(f"({self.functions.number} << 1 | (returnValue = 0))", near=True),
            Column("end - start", near=True),
            Column("start", near=True),
            Column("globalTid", near=True),
        ]
        self.columns = Columns("api", columns)

    def read(self, ask: Ask, chunk: tuple[int, int]) -> tuple[list[Ints], "_Sums", dict[int, int]] | None:
        """Return the columns of a chunk, the sums of its functions, and the process of each thread new in it."""
        found = self.columns.read(ask, chunk)
        if found is None:
            return None
        columns = found[0]
        succeeded = columns[1] & 1
        columns[1] >>= 1
        sums = _sums(columns[1], columns[2])
        columns[2] = np.isin(columns[1], self.functions.launches) & (succeeded == 1)
        threads = columns[4]
        some = threads[:1] if (threads == threads[0]).all() else np.unique(threads)
        query = "SELECT pid FROM api WHERE place BETWEEN ? AND ? AND globalTid = ? LIMIT 1"
        new = [thread for thread in some.tolist() if not self.points.knows(thread)]
        return columns, sums, {thread: ask(query, [*chunk, thread])[0][0] for thread in new}

    def add(self, columns: list[Ints], sums: "_Sums", table: _Table) -> None:
        """Add a chunk to the table; the points of its threads are found."""
        correlations, _, launches, starts, threads = columns
        values = self.points.find(threads, starts) << 1 | launches
        traced = correlations != ABSENT
        if not traced.all():
            correlations, values = correlations[traced], values[traced]
        table.add(correlations, values)
        for name, (more, longer) in sums.items():
            count, total = self.sums.get(name, (0, 0))
            self.sums[name] = count + more, total + longer


_Sums = dict[int, tuple[int, int]]
"""By the number of a function: how many calls and nanoseconds."""


def _sums(functions: Ints, durations: Ints) -> _Sums:
    names = np.unique(functions)
    places = np.searchsorted(names, functions)
    totals = np.zeros(len(names), dtype=np.int64)
    np.add.at(totals, places, durations)
    counts = np.bincount(places, minlength=len(names))
    return dict(zip(names.tolist(), zip(counts.tolist(), totals.tolist(), strict=True), strict=True))


def find_functions(ask: Ask) -> Functions:
    """Tell which functions launch kernels, and number those that have no id."""
    own = [row[0] for row in ask("SELECT DISTINCT name FROM api WHERE nameId IS NULL AND name IS NOT NULL")]
    names = {ABSENT - 1 - place: name for place, name in enumerate(own)}
    launches = [row[0] for row in ask(f"SELECT id FROM string WHERE {_IS_LAUNCH}")]  # noqa: S608
    query = f"SELECT {_IS_LAUNCH} FROM (SELECT CAST(x'{{}}' AS TEXT) AS value)"  # noqa: S608
    launches += [number for number, name in names.items() if ask(query.format(name.hex()))[0][0]]
    return Functions(names, np.array(launches, dtype=np.int64))


def read(pool: Pool, points: Points) -> Calls:
    """Read the calls through a pool that has the views of `nsys_schema`; the points of all threads are found."""
    functions = pool.submit(find_functions)
    span: Span = pool.submit(lambda ask: nsys_columns.span(ask, "api")).result()
    reader = _Reader(functions.result(), points)
    table = _Table(np.empty(span.count, dtype=np.int64), np.empty(span.count, dtype=np.int32))
    for found in pool.each(reader.read, span.chunks()):
        if found is not None:
            columns, sums, owners = found
            for thread, process in owners.items():
                points.add(thread, process)
            reader.add(columns, sums, table)
    if sum(count for count, _ in reader.sums.values()) != span.count:
        raise sqlite3.DataError("rows of the table of API calls cannot be found by their number")
    return _sorted(reader, table)


def _sorted(reader: _Reader, table: _Table) -> Calls:
    points = reader.points
    keys, values = table.correlations[: table.count], table.values[: table.count]
    processes = {process: number for number, process in enumerate(dict.fromkeys(points.process_at))}
    least, most = (int(keys.min()), int(keys.max())) if len(keys) else (0, 0)
    low_bits = len(points.set_at).bit_length() + 1
    layout = _Layout(processes, least, max(1, (most - least).bit_length()), low_bits)
    if layout.correlation_bits + low_bits + len(processes).bit_length() > 63:
        raise sqlite3.DataError(f"correlation ids from {least} to {most} are too many")
    process_at = np.array([processes[process] for process in points.process_at], dtype=np.int64)
    for block in blocks(len(keys)):
        keys[block] = layout.key(process_at[values[block] >> 1], keys[block]) | values[block]
    if not all((keys[b][:-1] <= keys[b][1:]).all() for b in blocks(len(keys), overlap=1)):
        keys.sort()
    keys = _earliest(keys, low_bits)
    launches = np.zeros(len(processes), dtype=np.int64)
    for block in blocks(len(keys)):
        made = keys[block][keys[block] & 1 == 1] >> (low_bits + layout.correlation_bits)
        launches += np.bincount(made, minlength=len(processes))
    own_names = {number: name.decode(errors="replace") for number, name in reader.functions.names.items()}
    by_process = dict(zip(processes, launches.tolist(), strict=True))
    return Calls(reader.sums, own_names, by_process, keys, np.zeros(len(keys), dtype=np.bool_), layout)


def _earliest(keys: Ints, low_bits: int) -> Ints:
    """Return one key for all calls of one id: the earliest, a launch if any of them is."""
    again = [
        block.start + 1 + np.flatnonzero(keys[block][:-1] >> low_bits == keys[block][1:] >> low_bits)
        for block in blocks(len(keys), overlap=1)
    ]
    if not any(map(len, again)):
        return keys
    first = np.ones(len(keys), dtype=np.bool_)
    first[np.concatenate(again)] = False
    places = np.flatnonzero(first)
    launches = np.bitwise_or.reduceat(keys, places) & 1
    keys = keys[places]
    keys |= launches
    return keys
