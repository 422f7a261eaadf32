"""The times at which the GPU worked, from CUPTI's activity records: for kernels that events cannot time.

Called through ctypes: torch's profiler reads the same records, but takes 7 s to start, this 20 ms (H100, torch 2.11).
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, NamedTuple

# CUpti_ActivityKind of cupti_activity.h, and the offset of the stream in a record of that kind. Start and end, in
# nanoseconds, have the same offset in all of them. New versions of these records have only added fields at the end.
KERNEL, MEMCPY, MEMSET, MEMCPY_PEER = 10, 1, 2, 22
START, END = 16, 24
STREAM = {KERNEL: 48, MEMCPY: 40, MEMSET: 40, MEMCPY_PEER: 40}
REGISTERS = 6
"""The offset of the registers of a thread in the record of a kernel, a number of 16 bits."""
GRID, BLOCK, STATIC_SHARED, DYNAMIC_SHARED, LOCAL = 52, 64, 76, 80, 84
"""Offsets in the record of a kernel: three numbers of 32 bits for grid and block, one for each of the others."""
_BUFFER_BYTES = 1 << 20
_FORCED = 1  # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED


class CuptiError(Exception):
    """CUPTI is missing, in use by another profiler, or did not deliver all of its records."""


class Span(NamedTuple):
    """One kernel, copy or memset on the GPU."""

    start_ns: int
    end_ns: int
    stream: int
    kernel: dict[str, Any] | None = None
    """How a kernel was launched, where that was asked for."""


class Activities:
    """Records the work of this process on the GPU; there is one for each process."""

    def __init__(self) -> None:
        self._cupti = _library()
        self._spans: list[Span] = []
        self._dropped = 0
        self.describes = False
        """Whether spans have the facts of their kernels."""
        self._buffers: dict[int, Any] = {}
        request = ctypes.CFUNCTYPE(
            None, *[ctypes.POINTER(t) for t in (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)]
        )
        complete = ctypes.CFUNCTYPE(
            None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
        )
        self._callbacks = request(self._hand_out), complete(self._take_back)  # kept, or they would be freed
        self._check("cuptiActivityRegisterCallbacks", *self._callbacks)
        for kind in STREAM:
            self._check("cuptiActivityEnable", ctypes.c_uint32(kind))

    def collect(self) -> list[Span]:
        """Return the work since the last call; the caller must have synchronised with the GPU."""
        self._check("cuptiActivityFlushAll", ctypes.c_uint32(_FORCED))
        spans, self._spans = self._spans, []
        dropped, self._dropped = self._dropped, 0
        if dropped:
            raise CuptiError(f"CUPTI dropped {dropped} records: it had no buffer space for them")
        return spans

    def _hand_out(self, buffer: Any, size: Any, most: Any) -> None:
        memory = ctypes.create_string_buffer(_BUFFER_BYTES)
        buffer[0] = ctypes.addressof(memory)
        size[0], most[0] = _BUFFER_BYTES, 0
        self._buffers[ctypes.addressof(memory)] = memory

    def _take_back(self, context: int, stream: int, buffer: int, size: int, valid: int) -> None:
        del size
        record, dropped = ctypes.c_void_p(), ctypes.c_size_t()
        queue = ctypes.c_void_p(context), ctypes.c_uint32(stream)
        if not self._cupti.cuptiActivityGetNumDroppedRecords(*queue, ctypes.byref(dropped)):
            self._dropped += dropped.value
        next_record = self._cupti.cuptiActivityGetNextRecord
        while not next_record(ctypes.c_void_p(buffer), ctypes.c_size_t(valid), ctypes.byref(record)):
            at = record.value or 0
            kind = ctypes.c_uint32.from_address(at).value
            if kind in STREAM:
                start, end = (ctypes.c_uint64.from_address(at + where).value for where in (START, END))
                stream = ctypes.c_uint32.from_address(at + STREAM[kind]).value
                facts = kernel_facts(at) if self.describes and kind == KERNEL else None
                self._spans.append(Span(start, end, stream, facts))
        del self._buffers[buffer]

    def _check(self, function: str, *arguments: Any) -> None:
        status = getattr(self._cupti, function)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._cupti.cuptiGetResultString(ctypes.c_uint32(status), ctypes.byref(text))
            raise CuptiError(f"{function}: {(text.value or b'').decode() or status}")


def kernel_facts(at: int) -> dict[str, Any]:
    """Return how a kernel was launched, from its record at this address."""

    def number(offset: int) -> int:
        return ctypes.c_uint32.from_address(at + offset).value

    return {
        "grid": [number(GRID + 4 * axis) for axis in range(3)],
        "block": [number(BLOCK + 4 * axis) for axis in range(3)],
        "registers_per_thread": ctypes.c_uint16.from_address(at + REGISTERS).value,
        "static_shared_bytes": number(STATIC_SHARED),
        "dynamic_shared_bytes": number(DYNAMIC_SHARED),
        "local_bytes": number(LOCAL),
    }


@functools.cache
def activities() -> Activities:
    """Return the recorder of this process."""
    return Activities()


def busy_ns(spans: list[Span]) -> int:
    """Return how long the GPU worked, in nanoseconds: the length of the union of the spans.

    >>> busy_ns([Span(0, 10, 7), Span(5, 12, 8), Span(20, 21, 7)])
    13
    """
    busy, until = 0, 0
    for span in sorted(spans):
        busy += max(0, span.end_ns - max(span.start_ns, until))
        until = max(until, span.end_ns)
    return busy


def check_whole(spans: list[Span], least: int) -> None:
    """Raise a CuptiError where records are missing, fewer than `least`, or one has no time.

    A missing record would make the time too short: by a third for one of three kernels.

    >>> check_whole([Span(5, 9, 7)], 1)
    """
    if not spans:
        raise CuptiError("CUPTI recorded no work on the GPU")
    if len(spans) < least:
        raise CuptiError(f"CUPTI recorded {len(spans)} of at least {least} kernels, copies and memsets")
    untimed = sum(span.start_ns == 0 or span.end_ns < span.start_ns for span in spans)
    if untimed:  # CUPTI writes zeros for an unknown time
        raise CuptiError(f"CUPTI could not time {untimed} of {len(spans)} kernels, copies and memsets")


def _library() -> Any:
    """Return the CUPTI that torch has loaded, else the one that the dynamic loader finds."""
    with open("/proc/self/maps") as maps:
        loaded = [line.split()[-1] for line in maps if "/libcupti.so" in line]
    try:
        return ctypes.CDLL(loaded[0] if loaded else "libcupti.so")
    except OSError as error:
        raise CuptiError(str(error)) from None
