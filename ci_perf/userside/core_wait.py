"""How long this thread has waited for a core: time that says nothing about a kernel.

On a busy machine a thread that could run waits while other programs have the core. Linux counts this time for each
thread: the second number of `schedstat`, Documentation/scheduler/sched-stats.rst. The time in which a thread sleeps, or
waits for a lock, a file or another thread, does not count. Nor does a wait that other threads of the process, or child
processes that ended meanwhile, may have caused, which is at most as long as they ran: a kernel that starts too many is
slower.

With four other processes on both cores of a virtual machine (load average 10), 8 unchanged cases were all UNCHANGED in
240 s; of 8 cases that are 20 % slower 4 were REGRESSION and 4 undecided, after 11.3 pairs a case. With the waits in the
time none was decided after 9.6 pairs (`scripts/bench-cases --cases 16 --kernels 2 --load 4 --budget 240`).
"""

from __future__ import annotations

import os
import resource
import threading
import time

_FILES: dict[tuple[int, int], int | None] = {}
"""The open file of each thread; None where Linux does not count. A fork has threads of its own."""


def waited() -> float:
    """Return for how many seconds this thread has waited for a core so far; 0.0 where Linux does not say."""
    key = (os.getpid(), threading.get_ident())
    if key not in _FILES:
        _FILES[key] = _opened()
    file = _FILES[key]
    return 0.0 if file is None else int(os.pread(file, 100, 0).split()[1]) / 1e9


def others_ran() -> float:
    """Return for how many seconds the other threads of this process and its ended child processes ran so far."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() - time.thread_time() + children.ru_utime + children.ru_stime


class Wait:
    """The time since it was made in which this thread waited for a core because of other processes."""

    def __init__(self) -> None:
        self._others = others_ran()
        self._ran = time.thread_time()
        self._waited = waited()

    def seconds(self) -> float:
        """Return that time so far."""
        waits = waited() - self._waited
        return max(0.0, waits - (others_ran() - self._others)) if waits else 0.0

    def ran(self) -> float:
        """Return for how many seconds this thread has run since then."""
        return time.thread_time() - self._ran


def _opened() -> int | None:
    try:
        file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        int(os.pread(file, 100, 0).split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return file
