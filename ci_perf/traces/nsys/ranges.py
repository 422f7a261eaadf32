"""Which NVTX ranges are open when a thread makes a call: the times at which that changes, for each thread."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ci_perf.traces.nsys.columns import Ints


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


Opened = tuple[int, ...]
"""The numbers of the names of the ranges that are open, in order."""


@dataclass(slots=True)
class Points:
    """The points of time at which another set of ranges is open, numbered through, thread by thread."""

    names: Mapping[str, int]
    """The number of each name."""
    by_thread: Mapping[int, Sequence[Range]]
    by_process: Mapping[int, Sequence[Range]]
    """Those of any thread."""
    sets: dict[Opened, int] = field(default_factory=lambda: {(): 0})
    """The number of each set of open ranges."""
    set_at: list[int] = field(default_factory=list)
    """By point: the set that is open from there on."""
    process_at: list[int] = field(default_factory=list)
    """By point: the process."""
    _threads: dict[int, tuple[int, Ints]] = field(default_factory=dict)
    """By thread: its first point, and the times of the others."""

    def knows(self, thread: int) -> bool:
        """Say whether the points of a thread are there."""
        return thread in self._threads

    def add(self, thread: int, process: int) -> None:
        """Find the points of a thread."""
        if self.knows(thread):
            return
        first = len(self.set_at)
        times: list[int] = []
        self.set_at.append(0)
        opened: Counter[int] = Counter()
        for at, name, change in self._changes(thread, process):
            opened[name] += change
            if not opened[name]:
                del opened[name]
            now = self.sets.setdefault(tuple(sorted(opened)), len(self.sets))
            if times and times[-1] == at:
                self.set_at[-1] = now
            else:
                times.append(at)
                self.set_at.append(now)
        self.process_at += [process] * (len(self.set_at) - first)
        self._threads[thread] = first, np.array(times, dtype=np.int64)

    def _changes(self, thread: int, process: int) -> list[tuple[int, int, int]]:
        changes = []
        for found in (*self.by_thread.get(thread, ()), *self.by_process.get(process, ())):
            if found.end is None or found.end >= found.start:
                changes.append((found.start, self.names[found.name], 1))
                if found.end is not None:
                    changes.append((found.end + 1, self.names[found.name], -1))
        return sorted(changes)

    def find(self, threads: Ints, starts: Ints) -> Ints:
        """Return the point at which each call lies; `add` has had all of the threads."""
        if (threads == threads[0]).all():
            first, times = self._threads[int(threads[0])]
            return np.searchsorted(times, starts, side="right") + first
        found = np.empty(len(threads), dtype=np.int64)
        for thread in np.unique(threads):
            mine = threads == thread
            first, times = self._threads[int(thread)]
            found[mine] = np.searchsorted(times, starts[mine], side="right") + first
        return found


def points_of(ranges: Iterable[Range]) -> Points:
    """Prepare for finding the points of any thread."""
    names: dict[str, int] = {}
    by_thread: dict[int, list[Range]] = {}
    by_process: dict[int, list[Range]] = {}
    for found in ranges:
        names.setdefault(found.name, len(names))
        if found.any_thread:
            by_process.setdefault(found.process, []).append(found)
        else:
            by_thread.setdefault(found.thread, []).append(found)
    return Points(names, by_thread, by_process)
