"""The kernels of a trace and the calls that launched them, as numpy columns: a trace may hold millions.

A kernel and the call that launched it share process and correlation id. Runtime and driver calls may both have that
id, and a graph launch has one id and many kernels; the earliest call counts.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ci_perf.traces.guards import LONGEST_NS, overlaps

Ints = NDArray[np.int64]

VARIANT = (
    *("deviceId", "demangledName", "shortName", "mangledName", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"),
    *("registersPerThread", "staticSharedMemory", "dynamicSharedMemory", "localMemoryPerThread"),
)
"""The columns that make up a variant: a kernel with its launch parameters on one device."""
_ABSENT = -1
"""Replaces a process or a correlation id that a row does not have."""


def _is_launch(name: str) -> str:
    """Return the condition that a call of this name launches exactly one kernel."""
    return f"({name} GLOB 'cudaLaunch*' OR {name} GLOB 'cuLaunch*') AND {name} NOT GLOB '*HostFunc*'"


_CALLS = f"""
    SELECT pid, correlationId, start, globalTid, returnValue = 0 AND CASE
        WHEN nameId IS NULL THEN COALESCE({_is_launch("name")}, 0)
        ELSE nameId IN (SELECT id FROM string WHERE {_is_launch("value")}) END
    FROM api WHERE correlationId IS NOT NULL
"""  # noqa: S608
_KERNELS = f"""
    SELECT COALESCE(pid, {_ABSENT}), COALESCE(correlationId, {_ABSENT}), start, end,
        CASE WHEN graphNodeId THEN {_ABSENT}
            ELSE COALESCE((deviceId << 48) + (contextId << 32) + streamId, {_ABSENT}) END,
        variant({", ".join(VARIANT)})
    FROM kernel
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Calls:
    """One call for each process and correlation id, in their order."""

    processes: Ints
    correlations: Ints
    starts: Ints
    threads: Ints
    launches: NDArray[np.bool_]
    """Whether a successful call with this id launches exactly one kernel."""

    def find(self, processes: Ints, correlations: Ints) -> Ints:
        """Return the place of the call with each process and correlation id, -1 where there is none."""
        found = np.full(len(processes), -1)
        for process in np.unique(self.processes):
            begin, end = np.searchsorted(self.processes, [process, process + 1])
            known = self.correlations[begin:end]
            mine = np.flatnonzero(processes == process)
            places = np.minimum(np.searchsorted(known, correlations[mine]), len(known) - 1)
            found[mine] = np.where(known[places] == correlations[mine], begin + places, -1)
        return found

    def launches_by_process(self) -> dict[int, int]:
        """Count the launches of each process that made calls."""
        processes, places = np.unique(self.processes, return_inverse=True)
        counts = np.bincount(places[self.launches], minlength=len(processes))
        return dict(zip(processes.tolist(), counts.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class Kernels:
    """The finished kernels in the order of the trace; a column has one entry for each."""

    variants: Sequence[tuple[int, ...]]
    """The values of VARIANT, -1 where the trace does not have one."""
    variant: Ints
    """The place of each kernel's variant in `variants`."""
    processes: Ints
    starts: Ints
    durations: Ints
    calls: Ints
    """The place of the call that launched each kernel, -1 where the trace has none."""
    within: int = 0
    """How many were left out because they lie inside another one of their stream."""
    across: int = 0
    """How many begin before the one in front of them in their stream ends."""

    def by_process(self) -> dict[int, int]:
        """Count the kernels of each process that is known."""
        processes, counts = np.unique(self.processes, return_counts=True)
        return {p: n for p, n in zip(processes.tolist(), counts.tolist(), strict=True) if p != _ABSENT}

    def busy_ns(self) -> Mapping[int, int]:
        """Return the time during which at least one kernel ran, by device."""
        device = np.array([variant[0] for variant in self.variants], dtype=np.int64)[self.variant]
        busy = {}
        for number in np.unique(device).tolist():
            mine = device == number
            starts, ends = disjoint(self.starts[mine], self.starts[mine] + self.durations[mine])
            busy[number] = int((ends - starts).sum())
        return busy

    def tallies(self, chosen: Ints | slice) -> list[tuple[int, int, int, float, int, int]]:
        """Return variant, count, total, median, least and greatest duration of the chosen kernels, by variant."""
        variant, durations = self.variant[chosen], self.durations[chosen]
        if not len(variant):
            return []
        order = np.argsort(variant, kind="stable")
        variant, durations = variant[order], durations[order]
        first = _first_of_each(variant)
        end = np.append(first[1:], len(variant))
        for begin, over in zip(first, end, strict=True):
            durations[begin:over].sort()
        medians = (durations[(first + end - 1) // 2] + durations[(first + end) // 2]) / 2
        totals = np.add.reduceat(durations, first)
        columns = (variant[first], end - first, totals, medians, durations[first], durations[end - 1])
        return list(zip(*(column.tolist() for column in columns), strict=True))


def read_calls(database: sqlite3.Connection) -> Calls:
    """Read the calls that have a correlation id."""
    processes, correlations, starts, threads, launches = _columns(database, _CALLS, 5)
    order = np.lexsort((starts, correlations, processes))
    processes, correlations = processes[order], correlations[order]
    first = _first_of_each(processes, correlations)
    launched = np.logical_or.reduceat(launches[order], first) if len(first) else np.zeros(0, dtype=np.bool_)
    earliest = order[first]
    return Calls(processes[first], correlations[first], starts[earliest], threads[earliest], launched)


def read_kernels(database: sqlite3.Connection, calls: Calls) -> Kernels:
    """Read the kernels that have an end; values that are no numbers are a ValueError."""
    number_of: dict[tuple[Any, ...], int] = defaultdict(count().__next__)
    # SQLite calls this for each row, which costs less than to fetch all these columns.
    database.create_function("variant", len(VARIANT), lambda *values: number_of[values])
    columns = _columns(database, _KERNELS, 6)
    if odd := next((value for values in number_of for value in values if not isinstance(value, int)), None):
        raise ValueError(f"{odd!r} in the table of kernels")
    processes, correlations, starts, ends, stream, _ = columns
    durations = ends - starts
    if len(durations) and (durations.min() < 0 or durations.sum(dtype=np.float64) > LONGEST_NS):
        raise ValueError(f"a kernel of {max(durations.max(), ends.max())} ns")
    launched_by = calls.find(processes, correlations)
    alone = stream != _ABSENT
    alone[launched_by >= 0] &= calls.launches[launched_by[launched_by >= 0]]  # the branches of a graph run side by side
    in_order = np.flatnonzero(alone)
    within, across = overlaps(*(column[in_order] for column in (starts, ends, stream, processes)))
    kept: Ints | slice = slice(None)
    if within.any():
        kept = np.setdiff1d(np.arange(len(starts)), in_order[within], assume_unique=True)
    variant, processes, starts, durations, launched_by = (
        column[kept] for column in (columns[-1], processes, starts, durations, launched_by)
    )
    return Kernels(
        list(number_of), variant, processes, starts, durations, launched_by, within=int(within.sum()), across=across
    )


def _columns(database: sqlite3.Connection, query: str, width: int) -> list[Ints]:
    """Return the columns of a query, which are all integers."""
    numbers = np.fromiter(chain.from_iterable(database.execute(query)), dtype=np.int64)
    return list(numbers.reshape(-1, width).T)


def _first_of_each(*keys: Ints) -> Ints:
    """Return the places at which sorted keys differ from those before."""
    new = np.ones(len(keys[0]), dtype=np.bool_)
    new[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    return np.flatnonzero(new)


def disjoint(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Sort spans by their start and cut off what earlier ones cover; the union keeps its length.

    >>> starts, ends = disjoint(np.array([5, 0, 20]), np.array([12, 10, 21]))
    >>> starts.tolist(), ends.tolist()
    ([0, 10, 20], [10, 12, 21])
    """
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    starts[1:] = np.maximum(starts[1:], np.maximum.accumulate(ends)[:-1])
    return starts, np.maximum(starts, ends)
