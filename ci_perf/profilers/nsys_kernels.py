"""The kernels of a trace of any length, each counted under its launch parameters and the NVTX ranges of its launch.

Handing a row to Python costs more than all that SQLite does with it, and a list of ten million numbers takes 400 MB.
So SQLite packs a kernel into three numbers and many kernels into one text; threads read ahead, since SQLite works
without the interpreter's lock; and what is kept of a kernel are the eight bytes of its code: its variant (a kernel
with its launch parameters), then its duration. Sorted, the codes of a variant lie side by side in order of duration.
"""

import json
import os
import random
import sqlite3
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate, chain, islice
from operator import add, eq, le

CHUNK = 50_000
"""Rows that cross from SQLite at a time."""
WORKERS = min(4, os.cpu_count() or 1)
"""Threads in which SQLite works."""
COLUMNS = (
    *("deviceId", "demangledName", "shortName", "mangledName", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"),
    *("registersPerThread", "staticSharedMemory", "dynamicSharedMemory", "localMemoryPerThread"),
)
"""What tells variants apart; the device comes first."""

_LOST = -2
"""Before the launch of every kernel; -1 stands for a launch that the trace does not have."""

# A launch call and its kernel share the correlation id: runtime and driver calls may both be listed under it, and a
# graph launch has one id and many kernels. The lowest bit says that a call launches exactly one kernel.
_IS_LAUNCH = "(value GLOB 'cudaLaunch*' OR value GLOB 'cuLaunch*') AND value NOT GLOB '*HostFunc*'"
_CALLS = f"""
    INSERT INTO scratch.call
    SELECT api.correlationId + thread.process, (thread.base + api.start) << 1 | (
        COALESCE(api.returnValue, 0) = 0 AND CASE
            WHEN api.nameId IS NULL THEN COALESCE((SELECT {_IS_LAUNCH} FROM (SELECT api.name AS value)), 0)
            ELSE api.nameId IN ({{launches}})
        END
    )
    FROM api CROSS JOIN scratch.thread ON thread.id = api.globalTid WHERE api.correlationId IS NOT NULL
    ON CONFLICT (id) DO UPDATE SET at = MIN(at >> 1, excluded.at >> 1) << 1 | ((at | excluded.at) & 1)
"""  # noqa: S608 - a constant
_PACKED = """
    SELECT GROUP_CONCAT(COALESCE(call.at, -1)), GROUP_CONCAT(({key}) << {bits} | (kernel.end - kernel.start)),
        GROUP_CONCAT(kernel.start)
    FROM kernel LEFT JOIN scratch.call ON call.id = kernel.correlationId + ({process})
    WHERE kernel.place BETWEEN ? AND ?
"""
_BUSY = """
    SELECT deviceId, SUM(MAX(0, end - MAX(start, COALESCE(covered, start)))) FROM (
        SELECT deviceId, start, end, MAX(end) OVER (
            PARTITION BY deviceId ORDER BY start, end ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS covered FROM kernel
    ) GROUP BY deviceId ORDER BY deviceId
"""


@dataclass(frozen=True, slots=True)
class Range:
    """An NVTX range: its name, when it was open, and the threads that it covers."""

    name: str
    start: int
    end: int | None
    thread: int
    process: int
    any_thread: bool
    """It covers all threads of its process."""


@dataclass(frozen=True, slots=True)
class Tally:
    """The executions of one variant."""

    variant: tuple[int, ...]
    """The values of COLUMNS."""
    count: int
    total_ns: int
    median_ns: float
    min_ns: int
    max_ns: int


@dataclass(frozen=True, slots=True)
class Kernels:
    """All that is said of kernels row by row."""

    tallies: tuple[Tally, ...]
    ranges: Mapping[str, tuple[tuple[Tally, ...], float | None]]
    """By the name of the range: its variants, and the median of all their executions."""
    busy_ns: Mapping[int, int]
    """By device: the time during which at least one kernel ran."""
    attributed: int
    """Kernels whose launch call is in the trace."""
    launches: int
    """Successful calls that launch one kernel each."""
    traced_launches: int
    """Those of them whose kernel is in the trace."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Neighbours in a sorted array of codes that have the same variant."""

    codes: "array[int]"
    first: int
    last: int
    floor: int
    """The code of the variant with a duration of zero."""
    total_ns: int

    def durations(self) -> Iterator[int]:
        floor = self.floor
        return (code - floor for code in self.codes[self.first : self.last])

    def up_to(self, duration: int) -> int:
        return bisect_right(self.codes, self.floor + duration, self.first, self.last) - self.first

    def __len__(self) -> int:
        return self.last - self.first


class _Layout:
    """How a row is packed: an expression that gives each variant a number of its own, and the width of a duration."""

    def __init__(self, rows: Sequence[tuple[int, ...]], longest: int) -> None:
        self.bits = max(1, longest.bit_length())
        variants = list(dict.fromkeys(row[:-1] for row in rows))
        if any(type(value) is not int or abs(value) >= 1 << 32 for variant in variants for value in variant):
            raise sqlite3.DataError("the table of kernels holds numbers that no kernel has")
        kept = _telling_columns(variants)
        draw = random.Random(0)  # noqa: S311 - any numbers will do, as long as they are the same every time
        size = 1
        for _ in range(1000):
            size = max(1, min(4 * len(variants) ** 2, 1 << (62 - self.bits)))
            factors = [draw.randrange(1, 1 << 26) for _ in kept]
            keys = [self._key(variant, kept, factors, size) for variant in variants]
            if len(set(keys)) == len(keys):
                break
        else:
            raise sqlite3.DataError(f"{len(variants)} different kernels of up to {longest} ns are too many")
        self.variants = dict(zip(keys, variants, strict=True))
        products = [f"(kernel.{COLUMNS[column]} + 1) * {factor}" for column, factor in zip(kept, factors, strict=True)]
        self.key = f"({' + '.join(products) or '0'} + {size << 40}) % {size}"

    @staticmethod
    def _key(variant: tuple[int, ...], kept: Sequence[int], factors: Sequence[int], size: int) -> int:
        mixed = sum((variant[column] + 1) * factor for column, factor in zip(kept, factors, strict=True))
        return mixed % size


def _telling_columns(variants: Sequence[tuple[int, ...]]) -> list[int]:
    """Return as few columns as are needed to tell the variants apart."""
    kept = [column for column in range(len(COLUMNS)) if len({variant[column] for variant in variants}) > 1]
    for column in reversed(kept[:]):
        fewer = [other for other in kept if other != column]
        if len({tuple(variant[other] for other in fewer) for variant in variants}) == len(variants):
            kept = fewer
    return kept


class _Threads:
    """A line of time on which each thread has a stretch of its own."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self.origin, last = database.execute(
            "SELECT COALESCE(MIN(start), 0), COALESCE(MAX(start), 0) FROM api"
        ).fetchone()
        self.span = last - self.origin
        self.bits = max(1, self.span.bit_length())
        owners = dict(database.execute("SELECT DISTINCT globalTid, pid FROM api WHERE pid IS NOT NULL"))
        self.processes = {pid: place << 32 for place, pid in enumerate(dict.fromkeys(owners.values()))}
        self.owners = {thread: (place, process) for place, (thread, process) in enumerate(owners.items())}

    def rows(self) -> Iterator[tuple[int, int, int]]:
        for thread, (place, process) in self.owners.items():
            yield thread, self.processes[process], (place << self.bits) - self.origin

    def stretches(self, found: Range) -> Iterator[tuple[int, int]]:
        """Yield where on the line the range begins and where it is over, for each thread that it covers."""
        first = max(found.start - self.origin, 0)
        last = self.span if found.end is None else min(found.end - self.origin, self.span)
        if first > last:
            return
        for thread, (place, process) in self.owners.items():
            if process == found.process if found.any_thread else thread == found.thread:
                yield (place << self.bits) + first, (place << self.bits) + last + 1


@dataclass(slots=True)
class _Piles:
    """The codes of kernels, apart for each set of open ranges."""

    points: list[int]
    """Where on the line of time another set of ranges is open; doubled, as calls are."""
    sets: list[frozenset[int]]
    """Which are open from each point on."""
    codes: "dict[frozenset[int], array[int]]" = field(default_factory=dict)
    attributed: int = 0
    traced: int = 0
    _previous: list[int] = field(default_factory=list)
    _latest: int = -1

    def add(self, calls: list[int], codes: list[int]) -> None:
        self.attributed += len(calls) - calls.count(-1)
        in_order = sorted(calls) == calls
        if in_order and calls[0] > self._latest and not any(map(eq, calls, islice(calls, 1, None))):
            self.traced += sum(map((1).__and__, calls))  # no call twice
        else:
            self.traced += sum(map((1).__and__, set(calls) - set(self._previous) - {-1}))
        self._previous, self._latest = calls, max(calls)
        if in_order:
            self._add_sorted(calls, codes)
        else:
            self._add(calls, codes)

    def _add_sorted(self, calls: list[int], codes: list[int]) -> None:
        first = 0
        while first < len(calls):
            place = bisect_right(self.points, calls[first]) - 1
            is_last = place + 1 == len(self.points)
            over = len(calls) if is_last else bisect_left(calls, self.points[place + 1], first)
            self.codes.setdefault(self.sets[place], array("q")).extend(codes[first:over])
            first = over

    def _add(self, calls: list[int], codes: list[int]) -> None:
        place = bisect_right(self.points, min(calls)) - 1
        if place + 1 == len(self.points) or max(calls) < self.points[place + 1]:
            self.codes.setdefault(self.sets[place], array("q")).extend(codes)
        elif len(calls) > 64:
            half = len(calls) // 2
            self._add(calls[:half], codes[:half])
            self._add(calls[half:], codes[half:])
        else:
            for call, code in zip(calls, codes, strict=True):
                place = bisect_right(self.points, call) - 1
                self.codes.setdefault(self.sets[place], array("q")).append(code)


@dataclass(slots=True)
class _Busy:
    """The union of kernels on one device, as long as they come in order of their start."""

    covered: int = -(1 << 63)
    latest: int = -(1 << 63)
    total: int = 0

    def add(self, starts: list[int], durations: list[int]) -> bool:
        """Add some kernels; False if one began before those that are in already."""
        if sorted(starts) != starts:
            order = sorted(zip(starts, durations, strict=True))
            starts, durations = [start for start, _ in order], [duration for _, duration in order]
        if starts[0] < self.latest:
            return False
        self.latest = starts[-1]
        ends = list(map(add, starts, durations))
        if starts[0] >= self.covered and all(map(le, ends, islice(starts, 1, None))):  # nothing overlaps
            self.total += sum(durations)
            self.covered = ends[-1]
            return True
        covered = list(accumulate(ends, max, initial=max(self.covered, starts[0])))
        self.total += sum(covered[1:]) - sum(map(max, starts, covered))
        self.covered = covered[-1]
        return True


@dataclass(frozen=True, slots=True)
class Survey:
    """What is known of the kernels before they are gone over one by one."""

    count: int
    total_ns: int
    longest_ns: int
    first: int
    """The number of the first row."""
    last: int
    variants: Sequence[tuple[int, ...]]
    """The values of COLUMNS, and the process."""

    @property
    def step(self) -> int:
        """How far to go to have about CHUNK rows, also where numbers are missing."""
        return max(CHUNK, -(-(self.last - self.first + 1) // max(1, self.count // CHUNK)))


def survey(connect: Callable[[], sqlite3.Connection]) -> Survey:
    """Count the kernels and list their variants, each processor a stretch of the rows."""
    numbers = "COUNT(*), COALESCE(SUM(end - start), 0), COALESCE(MAX(end - start), 0), COALESCE(MIN(end - start), 0)"
    query = "SELECT place FROM kernel ORDER BY place {} LIMIT 1"
    ends = [connect().execute(query.format(way)).fetchone() for way in ("", "DESC")]
    first, last = (end[0] or 0 for end in ends) if all(ends) else (0, -1)
    within = "WHERE place BETWEEN ? AND ?"

    def look(begin: int, end: int) -> tuple[int, int, int, list[tuple[int, ...]]]:
        database = connect()
        row = database.execute(f"SELECT {numbers} FROM kernel {within}", (begin, end)).fetchone()  # noqa: S608
        count, total, longest, shortest = row
        if shortest < 0 or not all(type(number) is int for number in row):
            raise sqlite3.DataError("the table of kernels holds times that are no numbers")
        query = f"SELECT DISTINCT {', '.join(COLUMNS)}, pid FROM kernel {within}"  # noqa: S608
        return count, total, longest, database.execute(query, (begin, end)).fetchall()

    step = max(CHUNK, -(-(last - first + 1) // WORKERS))
    begins = range(first, last + 1, step)
    with ThreadPoolExecutor(WORKERS) as pool:
        looks = list(pool.map(look, begins, (begin + step - 1 for begin in begins)))
    return Survey(
        count=sum(found[0] for found in looks),
        total_ns=sum(found[1] for found in looks),
        longest_ns=max((found[2] for found in looks), default=0),
        first=first,
        last=last,
        variants=list(dict.fromkeys(row for found in looks for row in found[3])),
    )


def read(
    connect: Callable[[], sqlite3.Connection],
    surveyed: "Future[Survey]",
    ranges: Sequence[Range],
) -> Kernels:
    """Read the kernels through connections that have the views of `nsys_schema` and, attached, an empty `scratch`."""
    database = connect()
    threads = _Threads(database)
    _write_calls(database, threads)
    known = surveyed.result()
    layout = _Layout(known.variants, known.longest_ns)
    names = {name: place for place, name in enumerate(dict.fromkeys(found.name for found in ranges))}
    piles = _Piles(*_points(threads, ranges, names))
    process = " ".join(f"WHEN {pid} THEN {part}" for pid, part in threads.processes.items())
    query = _PACKED.format(
        key=layout.key, bits=layout.bits, process=f"CASE kernel.pid {process} END" if process else "NULL"
    )
    busy: dict[int, _Busy] = {}
    in_order = True
    for texts in _read_ahead(connect, query, range(known.first, known.last + 1, known.step)):
        packed = [json.loads(f"[{text}]") for text in texts]
        piles.add(packed[0], packed[1])
        in_order = in_order and _add_busy(busy, layout, packed[1], packed[2])
    launches = database.execute("SELECT COUNT(*) FROM scratch.call WHERE at & 1").fetchone()[0]
    sums = {device: found.total for device, found in sorted(busy.items())}
    result = _summed(piles, layout, names)
    return Kernels(
        tallies=result[0],
        ranges=result[1],
        busy_ns=sums if in_order else dict(database.execute(_BUSY)),
        attributed=piles.attributed,
        launches=launches,
        traced_launches=piles.traced,
    )


def _write_calls(database: sqlite3.Connection, threads: _Threads) -> None:
    database.executescript("""
        CREATE TABLE scratch.thread (id INTEGER PRIMARY KEY, process INTEGER, base INTEGER);
        CREATE TABLE scratch.call (id INTEGER PRIMARY KEY, at INTEGER);
    """)
    database.executemany("INSERT INTO scratch.thread VALUES (?, ?, ?)", threads.rows())
    launches = [str(row[0]) for row in database.execute(f"SELECT id FROM string WHERE {_IS_LAUNCH}")]  # noqa: S608
    database.execute(_CALLS.format(launches=", ".join(launches)))
    database.commit()


def _points(
    threads: _Threads, ranges: Sequence[Range], names: Mapping[str, int]
) -> tuple[list[int], list[frozenset[int]]]:
    nothing: frozenset[int] = frozenset()
    changes: list[tuple[int, int, int]] = []
    for found in ranges:
        for begin, over in threads.stretches(found):
            changes += [(begin, names[found.name], 1), (over, names[found.name], -1)]
    points, sets = [_LOST, 0], [nothing, nothing]
    opened: Counter[int] = Counter()
    same: dict[frozenset[int], frozenset[int]] = {nothing: nothing}
    for at, name, change in sorted(changes):
        opened[name] += change
        if not opened[name]:
            del opened[name]
        now = frozenset(opened)
        now = same.setdefault(now, now)
        if points[-1] == 2 * at:
            sets[-1] = now
        else:
            points.append(2 * at)
            sets.append(now)
    return points, sets


def _read_ahead(connect: Callable[[], sqlite3.Connection], query: str, firsts: range) -> Iterator[tuple[str, str, str]]:
    """Yield the texts of each chunk that has rows, in order; a few of them are read ahead."""
    own = threading.local()

    def fetch(first: int) -> tuple[str | None, str, str]:
        if not hasattr(own, "database"):
            own.database = connect()
        row: tuple[str | None, str, str] = own.database.execute(query, (first, first + firsts.step - 1)).fetchone()
        return row

    with ThreadPoolExecutor(WORKERS) as pool:
        waiting = iter(firsts)
        pending = deque(pool.submit(fetch, first) for first in islice(waiting, WORKERS + 1))
        while pending:
            whole, codes, starts = pending.popleft().result()
            for first in waiting:
                pending.append(pool.submit(fetch, first))
                break
            if whole is not None:
                yield whole, codes, starts


def _add_busy(busy: dict[int, _Busy], layout: _Layout, codes: list[int], starts: list[int]) -> bool:
    mask, bits = (1 << layout.bits) - 1, layout.bits
    devices = {key: variant[0] for key, variant in layout.variants.items()}
    if len(set(devices.values())) == 1:
        device = next(iter(devices.values()))
        return busy.setdefault(device, _Busy()).add(starts, [code & mask for code in codes])
    apart: dict[int, tuple[list[int], list[int]]] = {}
    for code, start in zip(codes, starts, strict=True):
        mine = apart.setdefault(devices[code >> bits], ([], []))
        mine[0].append(start)
        mine[1].append(code & mask)
    in_order = [busy.setdefault(device, _Busy()).add(*mine) for device, mine in apart.items()]
    return all(in_order)


_Summed = tuple[tuple[Tally, ...], dict[str, tuple[tuple[Tally, ...], float | None]]]


def _summed(piles: _Piles, layout: _Layout, names: Mapping[str, int]) -> _Summed:
    by_set: dict[frozenset[int], dict[int, _Part]] = {}
    for opened in list(piles.codes):
        codes = array("q", sorted(piles.codes.pop(opened)))
        by_set[opened] = {part.floor >> layout.bits: part for part in _parts(codes, layout.bits)}
    by_name: dict[int, list[dict[int, _Part]]] = {}
    for opened, parts in by_set.items():
        for name in opened:
            by_name.setdefault(name, []).append(parts)
    whole = tuple(_tallies(list(by_set.values()), layout))
    ranges: dict[str, tuple[tuple[Tally, ...], float | None]] = {}
    for range_name, place in names.items():
        members = by_name.get(place, [])
        every = [part for parts in members for part in parts.values()]
        ranges[range_name] = (tuple(_tallies(members, layout)), _median(every) if every else None)
    return whole, ranges


def _parts(codes: "array[int]", bits: int) -> Iterator[_Part]:
    first = 0
    while first < len(codes):
        floor = codes[first] >> bits << bits
        last = bisect_left(codes, floor + (1 << bits), first)
        yield _Part(codes, first, last, floor, sum(codes[first:last]) - floor * (last - first))
        first = last


def _tallies(piles: Sequence[Mapping[int, _Part]], layout: _Layout) -> Iterator[Tally]:
    if len(piles) == 1:
        for key, part in piles[0].items():
            yield _tally(layout.variants[key], [part])
        return
    by_key: dict[int, list[_Part]] = {}
    for pile in piles:
        for key, part in pile.items():
            by_key.setdefault(key, []).append(part)
    for key, parts in by_key.items():
        yield _tally(layout.variants[key], parts)


def _tally(variant: tuple[int, ...], parts: Sequence[_Part]) -> Tally:
    if len(parts) == 1:  # a trace with many ranges has hundreds of thousands of these
        part = parts[0]
        codes, first, last, floor = part.codes, part.first, part.last, part.floor
        median = (codes[(first + last - 1) // 2] + codes[(first + last) // 2] - 2 * floor) / 2
        return Tally(variant, last - first, part.total_ns, median, codes[first] - floor, codes[last - 1] - floor)
    return Tally(
        variant=variant,
        count=sum(map(len, parts)),
        total_ns=sum(part.total_ns for part in parts),
        median_ns=_median(parts),
        min_ns=min(part.codes[part.first] - part.floor for part in parts),
        max_ns=max(part.codes[part.last - 1] - part.floor for part in parts),
    )


def _median(parts: Sequence[_Part]) -> float:
    size = sum(map(len, parts))
    places = ((size - 1) // 2, size // 2)
    if size < 100 * len(parts):
        merged = sorted(chain.from_iterable(part.durations() for part in parts))
        return sum(merged[place] for place in places) / 2
    return sum(_find(parts, place) for place in places) / 2


def _find(parts: Sequence[_Part], place: int) -> int:
    """Return the duration at a place of the sorted whole, by halving: no merged copy is made."""
    low = min(part.codes[part.first] - part.floor for part in parts)
    high = max(part.codes[part.last - 1] - part.floor for part in parts)
    while low < high:
        middle = (low + high) // 2
        if sum(part.up_to(middle) for part in parts) > place:
            high = middle
        else:
            low = middle + 1
    return low
