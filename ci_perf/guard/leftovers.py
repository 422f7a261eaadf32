"""Ends the processes that a measurement leaves running, such as a daemon of a kernel.

A process that starts a session of its own, or whose parent ends, leaves its process group and its parent; a time limit
on the group does not reach it. But Linux gives it to the nearest ancestor that asked for orphans (`man 2
PR_SET_CHILD_SUBREAPER`), so it stays a descendant of the process that called `adopt_orphans`.
"""

import ctypes
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
"""Of sys/prctl.h."""
_ROUNDS = 200
"""A process that forks faster than it is killed cannot be ended; the job's end is the next limit."""


def adopt_orphans() -> bool:
    """Become the parent of every descendant whose own parent ends; return whether Linux accepted this."""
    with suppress(Exception):
        return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    return False


def end_descendants() -> tuple[list[str], list[str]]:
    """Kill every descendant of this process; return the programs that were ended, and those that could not be.

    Call it after every child that is waited for has ended: it takes the exit status of all others. A process of another
    user, such as one that sudo started, cannot be ended. Without /proc, nothing is done.
    """
    ended: dict[int, str] = {}
    alive: dict[int, str] = {}
    for _ in range(_ROUNDS):
        _reap()
        alive = _descendants(os.getpid())
        kept = {pid: name for pid, name in alive.items() if not _kill(pid)}
        ended |= {pid: name for pid, name in alive.items() if pid not in kept}
        if len(kept) == len(alive):
            break
        time.sleep(0.01)  # until the killed ones have ended, and their children have become those of this process
    return sorted(ended.values()), sorted(alive.values())


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except PermissionError:
        return False
    except ProcessLookupError:
        pass
    return True


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _descendants(root: int) -> dict[int, str]:
    """Return the name of each process below `root` that has not ended, by its number."""
    processes: dict[int, tuple[str, str, int]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            number, _, rest = file.read_text(encoding="utf-8", errors="replace").partition(" (")
            name, _, fields = rest.rpartition(") ")
            state, parent = fields.split()[:2]
            processes[int(number)] = name, state, int(parent)
    below, found = {root}, -1
    while len(below) != found:
        found = len(below)
        below |= {pid for pid, (_, _, parent) in processes.items() if parent in below}
    return {pid: processes[pid][0] for pid in below - {root} if processes[pid][1] not in "ZX"}
