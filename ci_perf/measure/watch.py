"""Watches a GPU while something is measured, and names what disturbed the measurement."""

import statistics
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, Self

from ci_perf.measure import gpu
from ci_perf.values.quantity import counted

LOOK_BACK_US = 1_000_000
"""NVML samples which programs used the GPU up to once per second, so a shorter watch may see no sample.

What another program did in the second before a watch counts as well. A burst can therefore mark the next pairs, too.
"""
HARDWARE_SLOWDOWNS = frozenset({"hw-slowdown", "hw-thermal", "hw-power-brake"})
"""Reasons that at least halve the clock within a moment, so that turns do not cancel them."""


def slowdowns(states: Sequence[gpu.State]) -> tuple[str, ...]:
    """Return the reasons of sudden slowdowns of the hardware, each once."""
    found = {reason for state in states for reason in state.throttle_reasons or () if reason in HARDWARE_SLOWDOWNS}
    return tuple(sorted(found))


def disturbances(
    states: Sequence[gpu.State],
    ours: frozenset[int],
    known: frozenset[int] = frozenset(),
    *,
    at_once: int | None = None,
) -> tuple[str, ...]:
    """Return what disturbed a measurement of the processes `ours`: other programs on the GPU, sudden slowdowns.

    `known` are the programs that were there, and idle, before anything was measured. In a container NVML may report
    pids of another namespace, or of no process. Then programs are counted: `at_once` of ours are on the GPU at a time,
    by default all of them.
    """
    found = set(slowdowns(states))
    expected = len(ours) if at_once is None else at_once
    for state in states:
        others = [process for process in state.others or () if process.pid not in known]
        if any(process.pid in ours for process in others):
            found |= {f"{process.name} ({process.pid})" for process in others if process.pid not in ours}
        elif len(others) > expected:
            found.add(f"{counted(len(others) - expected, 'other program')} on this GPU")
    return tuple(sorted(found))


def facts(states: Sequence[gpu.State]) -> dict[str, Any]:
    """Return what a replicate and a pair hold of the states that were read meanwhile.

    The highest temperature in degrees Celsius; the mean clock of the multiprocessors in hertz and the mean power in
    watts, to 6 digits; and why clocks were held down, each reason once.
    """
    return {
        "temperature_c": max((s.temperature_c for s in states if s.temperature_c is not None), default=None),
        "sm_clock_hz": _rounded(mean_clock(states)),
        "power_w": _rounded(_mean(state.power_w for state in states)),
        "throttle_reasons": tuple(sorted({reason for state in states for reason in state.throttle_reasons or ()})),
    }


def mean_clock(states: Sequence[gpu.State]) -> float | None:
    """Return the mean clock of the multiprocessors, in hertz."""
    return _mean(state.sm_clock_hz for state in states)


def _memory_of(state: gpu.State, known: frozenset[int]) -> int:
    """Return the memory of the programs on a GPU that are not `known`."""
    return sum(process.memory_bytes or 0 for process in state.others or () if process.pid not in known)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value]  # a zero of NVML means that it does not know
    return statistics.fmean(known) if known else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


class Watch:
    """Reads a GPU's state at an interval while something else runs, in a thread that takes 1 % of a core."""

    def __init__(
        self, uuid: str | None, other_programs: frozenset[int] = frozenset(), interval_s: float = 0.01
    ) -> None:
        """`other_programs` are the pids of programs that were on the GPU, and idle, before anything was measured."""
        self._uuid = uuid
        self._other_programs = other_programs
        self._began_us = 0
        self.woken: tuple[str, ...] = ()
        """The other programs that used the GPU meanwhile or just before; known when the watch has ended."""
        self._interval_s = interval_s
        self._states: list[tuple[float, gpu.State]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._began_us = time.time_ns() // 1000
        if self._uuid:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._uuid:
            self._thread.join()
            working = gpu.query_working(self._uuid, self._began_us - LOOK_BACK_US, self._other_programs)
            self.woken = tuple(f"{process.name} ({process.pid}), which had been idle" for process in working)

    @property
    def states(self) -> tuple[gpu.State, ...]:
        """All states that were read."""
        return tuple(state for _, state in self._states)

    def disturbances(
        self, states: Sequence[gpu.State], ours: frozenset[int], *, at_once: int | None = None
    ) -> tuple[str, ...]:
        """Return what disturbed a measurement of the processes `ours`; see the function of this name."""
        return (*disturbances(states, ours, self._other_programs, at_once=at_once), *self.woken)

    def between(self, start: float, end: float) -> tuple[gpu.State, ...]:
        """Return the states read between two times of time.monotonic(), which all processes share."""
        return tuple(state for when, state in self._states if start <= when <= end)

    def memory_bytes(self, start: float, end: float) -> int | None:
        """Return the peak of the memory of all programs that were not there before, between two times, in bytes.

        None: the driver reports no memory of processes.
        """
        sums = [_memory_of(state, self._other_programs) for state in self.between(start, end)]
        return max((held for held in sums if held), default=None)

    def _read(self) -> None:
        while not self._stop.wait(self._interval_s):
            self._states.append((time.monotonic(), gpu.query_state(self._uuid or "")))
