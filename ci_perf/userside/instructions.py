"""Counts the instructions of this process in user mode, by the CPU's own counter.

The count is the same on a busy machine, so it is a second witness beside the time. Often it cannot be had: virtual
machines may have no counter, and containers may forbid the system call.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

_SYSCALL = {"x86_64": 298, "aarch64": 241}
"""The number of perf_event_open, which libc does not wrap."""
HARDWARE, INSTRUCTIONS = 0, 1
"""PERF_TYPE_HARDWARE and PERF_COUNT_HW_INSTRUCTIONS of linux/perf_event.h."""
_INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HV = 1 << 1, 1 << 5, 1 << 6
_TIMES = 1 | 2
"""The file also says for how long the event was enabled, and for how long it really counted."""
_SIZE = 64
"""PERF_ATTR_SIZE_VER0: every kernel accepts it."""


class Counter:
    """An event of perf_event_open over this process and the threads that it starts from now on."""

    def __init__(self, kind: int = HARDWARE, event: int = INSTRUCTIONS) -> None:
        self._file = _open(kind, event)

    def read(self) -> int | None:
        """Return the count so far; None where it cannot be had, or where the counter was shared with other events."""
        if self._file < 0:
            return None
        count, enabled, running = struct.unpack("QQQ", os.read(self._file, 24))
        return int(count) if running == enabled else None

    def __del__(self) -> None:
        if getattr(self, "_file", -1) >= 0:
            os.close(self._file)


def _open(kind: int, event: int) -> int:
    """Return the file of an event, or -1."""
    number = _SYSCALL.get(platform.machine())
    if number is None or not os.path.exists("/proc/sys/kernel/perf_event_paranoid"):
        return -1
    flags = _INHERIT | _EXCLUDE_KERNEL | _EXCLUDE_HV
    attributes = struct.pack("IIQQQQQ", kind, _SIZE, event, 0, 0, _TIMES, flags).ljust(_SIZE, b"\0")
    buffer = ctypes.create_string_buffer(attributes, _SIZE)
    close_on_exec = 1 << 3
    syscall = ctypes.CDLL(None).syscall
    arguments = (ctypes.c_int(0), ctypes.c_int(-1), ctypes.c_int(-1), ctypes.c_ulong(close_on_exec))
    return int(syscall(ctypes.c_long(number), buffer, *arguments))
