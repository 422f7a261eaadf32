"""The NVTX ranges of a trace, and the kernels that were launched inside them."""

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from ci_perf.traces.nsys.kernels import Calls, Ints, Kernels, disjoint

NEVER = (1 << 63) - 1
"""The end of a range that was never closed: it lasts to the end of the trace."""

# 59 push/pop, 60 start/end, 70 and 71 the same from a text file, 75 the creation of a domain.
_RANGES = f"""
    SELECT
        CASE WHEN nvtx.domainId = 0 THEN '' ELSE COALESCE(domain.name, nvtx.domainId) || '@' END
            || COALESCE(nvtx.text, string.value, '') AS name,
        nvtx.start, COALESCE(nvtx.end, {NEVER}), nvtx.globalTid, nvtx.pid, nvtx.eventType IN (60, 71)
    FROM nvtx LEFT JOIN string ON string.id = nvtx.textId LEFT JOIN (
        SELECT nvtx.pid, nvtx.domainId, MIN(COALESCE(nvtx.text, string.value)) AS name
        FROM nvtx LEFT JOIN string ON string.id = nvtx.textId WHERE eventType = 75 GROUP BY 1, 2
    ) AS domain ON domain.pid = nvtx.pid AND domain.domainId = nvtx.domainId
    WHERE nvtx.eventType IN (59, 60, 70, 71) ORDER BY nvtx.start, nvtx.end
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Range:
    """An NVTX range: its name, when it was open, and the threads that it covers."""

    name: str
    """`domain@name` outside the default domain."""
    start: int
    end: int
    thread: int
    process: int
    any_thread: bool
    """It covers all threads of its process."""


def read_ranges(database: sqlite3.Connection) -> Iterator[Range]:
    """Read the ranges in the order in which they begin."""
    return (Range(*row) for row in database.execute(_RANGES))


@dataclass(frozen=True, slots=True)
class Launches:
    """The kernels whose launch is in the trace, ordered by its thread and time."""

    kernels: Ints
    """Places in `Kernels`."""
    starts: Ints
    """When each was launched."""
    threads: Mapping[int, tuple[int, int]]
    """Which places are those of a thread: the first, and the one after the last."""
    threads_of: Mapping[int, Sequence[int]]
    """By process."""

    @classmethod
    def of(cls, calls: Calls, kernels: Kernels) -> Self:
        """Order the kernels."""
        launched = np.flatnonzero(kernels.calls >= 0)
        call = kernels.calls[launched]
        order = np.lexsort((calls.starts[call], calls.threads[call]))
        call = call[order]
        names, first = np.unique(calls.threads[call], return_index=True)
        ends = np.append(first, len(call))[1:]
        threads_of = defaultdict(list)
        for process, thread in zip(calls.processes[call[first]].tolist(), names.tolist(), strict=True):
            threads_of[process].append(thread)
        threads = dict(zip(names.tolist(), zip(first.tolist(), ends.tolist(), strict=True), strict=True))
        return cls(launched[order], calls.starts[call], threads, threads_of)

    def inside(self, ranges: Iterable[Range]) -> Ints:
        """Return the kernels launched inside any of these ranges, each once."""
        by_thread: dict[int, list[Range]] = defaultdict(list)
        for found in ranges:
            for thread in self.threads_of.get(found.process, ()) if found.any_thread else (found.thread,):
                by_thread[thread].append(found)
        begins, ends = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        for thread, mine in by_thread.items():
            first, end = self.threads.get(thread, (0, 0))
            starts = self.starts[first:end]
            begins.append(first + np.searchsorted(starts, [r.start for r in mine], side="left"))
            ends.append(first + np.searchsorted(starts, [r.end for r in mine], side="right"))
        spans = zip(*disjoint(np.concatenate(begins), np.concatenate(ends)), strict=True)
        places = np.concatenate([begins[0], *(np.arange(*span) for span in spans)])
        return np.take(self.kernels, places)

    def of_other_threads(self, ranges: Sequence[Range]) -> int:
        """Count the kernels in no range that were launched while a thread of their process had one open."""
        if all(len(threads) < 2 for threads in self.threads_of.values()):
            return 0
        open_anywhere = self.inside(replace(found, any_thread=True) for found in ranges)
        return len(open_anywhere) - len(self.inside(ranges))
