"""Blanks the secrets in the environment of this process as other processes can read it.

/proc/PID/environ is the memory in which a process received its environment. Every program of the same user can read it:
nsys does, and records it. Python has its own copy in `os.environ`, so nothing is lost here.
"""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

_FIRST = 50
"""The field of /proc/self/stat with the address of the environment; the next field is its end (man 5 proc_pid_stat)."""


def hide(is_secret: Callable[[str, str], bool]) -> int:
    """Overwrite the value of each variable that `is_secret` names; return how many there were.

    Programs started without an environment of their own get the blanked one. Without /proc, nothing is done.
    """
    try:
        shown = Path("/proc/self/environ").read_bytes()
        fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0
    first, last = (int(field) for field in fields[_FIRST - 3 : _FIRST - 1])
    if last - first != len(shown) or not first or ctypes.string_at(first, len(shown)) != shown:
        return 0
    hidden, place = 0, first
    for entry in shown.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if value and is_secret(os.fsdecode(name), os.fsdecode(value)):
            ctypes.memset(place + len(name) + 1, ord("*"), len(value))
            hidden += 1
        place += len(entry) + 1
    return hidden
