"""Hides what this process holds from other processes of the same user.

/proc/PID/environ is the memory in which a process received its environment. Every program of the same user can read it:
nsys does, and records it. Python has its own copy in `os.environ`, so nothing is lost here.
"""

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

_FIRST = 50
"""The field of /proc/self/stat with the address of the environment; the next field is its end (man 5 proc_pid_stat)."""
_PR_SET_DUMPABLE = 4
"""Of sys/prctl.h."""


def hide(is_secret: Callable[[str, str], bool]) -> int:
    """Overwrite the value of each variable that `is_secret` names; return how many there were.

    Programs started without an environment of their own get the blanked one. Without /proc, nothing is done.
    """
    place, shown = _received()
    hidden = 0
    for entry in shown.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if value and is_secret(os.fsdecode(name), os.fsdecode(value)):
            ctypes.memset(place + len(name) + 1, ord("*"), len(value))
            hidden += 1
        place += len(entry) + 1
    return hidden


def close_memory() -> None:
    """Keep other processes of this user from reading the memory of this process: /proc/PID/mem, ptrace.

    Root still can. A program that this process starts has memory of its own, and is not affected.
    """
    _received()  # /proc/self/environ cannot be opened any more after this
    with suppress(Exception):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


@cache
def _received() -> tuple[int, bytes]:
    """Return the address of the environment that this process received, and its content; empty without /proc."""
    try:
        shown = Path("/proc/self/environ").read_bytes()
        fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0, b""
    first, last = (int(field) for field in fields[_FIRST - 3 : _FIRST - 1])
    if last - first != len(shown) or not first or ctypes.string_at(first, len(shown)) != shown:
        return 0, b""
    return first, shown
