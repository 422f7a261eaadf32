"""Times a case: alone, or in turns with another process."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from fractions import Fraction
from typing import Any

from ci_perf.userside.case import Answer, Case, Request, Wrong, release_memory
from ci_perf.userside.core_wait import others_ran
from ci_perf.userside.cupti_timers import CuptiRestoredTimer
from ci_perf.userside.identity import inputs_hash, launch_hash, shapes_hash
from ci_perf.userside.imported import installed_packages, own_files
from ci_perf.userside.instructions import Counter
from ci_perf.userside.launches import launched_kernels
from ci_perf.userside.memory import peak_memory
from ci_perf.userside.outputs import leaves
from ci_perf.userside.recheck import check_again, kept
from ci_perf.userside.restore import are_known, is_array, saved, unsaved, worked_on
from ci_perf.userside.stages import stage
from ci_perf.userside.timer_choice import choose_timer
from ci_perf.userside.timers import (
    LADDER,
    GraphTimer,
    RestoredTimer,
    warm_up,
)

SAMPLE_S = {"cuda": 4e-3, "cpu": 2e-3}
"""A sample lasts at least this long, or 500 launches: the overhead at its ends, some us, is then negligible."""
WARM_UP_S = {"cuda": 0.25, "cpu": 0.1}
"""An idle GPU runs at a fraction of its clock: it is under load for this long before the first sample."""
ESTIMATE_S = {"cuda": 0.02, "cpu": 0.02}
"""Launches run for this long to estimate how many make a sample."""
BUDGET_S = {"cuda": 4.0, "cpu": 1.5}
"""Slow kernels get fewer samples (at least 5) to stay within this time for one case in one process."""
PLANTED_LAUNCHES = 100
"""The largest denominator of a planted slowdown: of 3.5 % it is 57, as 2 more launches for 57 are 3.509 %."""
PLACEMENTS_SHARE = 0.05
"""The share of the GPU's memory that all placements of a case may take."""
COPIED_SHARE = 0.2
"""Larger inputs, as a share of the GPU's memory, are not copied: both sides have them, and a copy each."""
OTHERS_SHARE = 0.05
"""A kernel on the CPU has threads of its own if they run for this share of the time of its launches."""
TINY = 1e-300


class Stopwatch:
    """A case that is compiled, warm and ready to be timed."""

    def __init__(self, request: Request) -> None:
        self.case = Case(request)
        self.device = self.case.device
        self._instructions = Counter() if self.device == "cpu" else None
        """Opened before the first launch: it counts the threads that are started from then on."""
        with stage("hash"):
            self.inputs = inputs_hash(self.case) if request.get("identify") else None
            self.shapes = shapes_hash(self.case)
            release_memory()  # memory of hashing must not count for a placement
        with stage("copy"):
            pristine, held = self._copy_of_inputs(request)
        with stage("first launch"):
            self.case.prepare()
            held += self._launch_first(request)
        self.printed = printed_bytes()
        self._pristine = pristine
        self._spacers: list[Any] = []
        self._used: list[Any] = []
        """The timers that took samples."""
        self.placements = min(request.get("placements", 1), self._most_placements(held)) if pristine else 1
        with stage("memory"):
            self.memory_bytes = peak_memory(self.case)
        with stage("timer"):
            self.timers = [choose_timer(self.case, restores=self.restores)]
        self.planted = exact_fraction(request.get("planted") or 0.0)
        with stage("hash"):
            captured = self._is_graph_like() and not self.case.prepares
            identify = bool(request.get("identify"))
            self.code = launch_hash(self.case, self.inputs) if identify and captured else None
            self.kernels = launched_kernels(self.case, self.timers[0], captured=captured) if identify else []
        with stage("warm-up"):
            self.has_threads = self._warm_up_to_estimate()
            self.per_launch = self.timers[0].seconds(1)
        least = request.get("least_s") or SAMPLE_S[self.device]
        fitting = [c for c in LADDER if c >= self.timers[0].least]
        count = min(c for c in fitting if c * self.per_launch >= least or c >= self.timers[0].most)
        step = self.planted.denominator
        self.count = math.ceil(count / step) * step
        if "placements" not in request:
            self.prepare(self.count)

    def _warm_up_to_estimate(self) -> bool:
        """Launch for ESTIMATE_S; return whether the launches run other threads of this process, on a CPU."""
        others, started = others_ran(), time.monotonic()
        warm_up(self.timers[0], ESTIMATE_S[self.device])
        share = (others_ran() - others) / (time.monotonic() - started)
        return self.device == "cpu" and share >= OTHERS_SHARE

    def _is_graph_like(self) -> bool:
        """Return whether a CUDA graph times the case, or would if it did not work in place."""
        return isinstance(self.timers[0], GraphTimer) or type(self.timers[0]) in (CuptiRestoredTimer, RestoredTimer)

    def _launch_first(self, request: Request) -> int:
        """Launch, and find out what the kernel changes in place; return the bytes on the GPU that count for no copy."""
        before = self._allocated()
        fits = before <= COPIED_SHARE * self._memory()
        copies = saved(self.case.arguments) if request["target"] == "launch" and fits else None
        others = unsaved(self.case.arguments)
        held = self._allocated() - before
        output = self.case.launch()  # compiles, tunes and allocates; it may print
        self.case.synchronize()
        before = self._allocated()
        # Outputs may change from launch to launch if the kernel changes inputs that cannot be restored.
        is_checked = request.get("check") and copies is not None and are_known(self.case.arguments, others)
        self.first = kept(output) if is_checked else None
        held += self._allocated() - before
        del output
        self.case.saved = worked_on(self.case, copies or [])
        del copies
        if self.device == "cuda":
            sys.modules["torch"].cuda.empty_cache()  # the other side may need the memory
        self.restores = bool(self.case.saved) or bool(request.get("restore"))
        return held

    def _memory(self) -> float:
        """Return the bytes of the GPU's memory."""
        if self.device == "cpu":
            return math.inf
        import torch

        return float(torch.cuda.get_device_properties(0).total_memory)

    def _allocated(self) -> int:
        """Return the bytes that are allocated on the GPU."""
        if self.device == "cpu":
            return 0
        import torch

        return int(torch.cuda.memory_allocated())

    def check(self) -> None:
        """Compare the outputs of some launches with that of the first; Wrong."""
        if self.first is None:
            return
        with stage("comparison"):
            timed = [timer.output for timer in self._used if timer.output is not None]
            check_again(self.case, self.first, timed, self.per_launch)

    def _copy_of_inputs(self, request: Request) -> tuple[Case | None, int]:
        """Return the case on a copy of its inputs from before the first launch, and the size of the copy in bytes."""
        if self.device == "cpu" or request.get("placements", 1) == 1:
            return None, 0
        import torch

        before = torch.cuda.memory_allocated()
        if before > self._share() / 2:
            return None, 0
        return self.case.with_copied_inputs(), torch.cuda.memory_allocated() - before

    def _most_placements(self, held: int) -> int:
        """Return how many copies of inputs and outputs fit into PLACEMENTS_SHARE of the memory."""
        import torch

        one = max(1, torch.cuda.max_memory_allocated() - held)
        return max(1, int(self._share() / one))

    @staticmethod
    def _share() -> float:
        """Return how many bytes all placements may take; larger data come from DRAM wherever they lie."""
        import torch

        return PLACEMENTS_SHARE * float(torch.cuda.get_device_properties(0).total_memory)

    def _place(self, number: int) -> None:
        """Make placements: the same inputs and outputs elsewhere in memory.

        The pages of a kernel's data determine which slices of the L2 cache serve it: on an H100 this changed the time
        of kernels of 5 to 9 us by 1 to 2 %, always the same way until the data moved. A time over many placements does
        not depend on a single one.
        """
        if self._pristine is None or number <= 1:
            return
        import torch

        for index in range(1, number):
            # Kept, or the next tensor would get the same memory.
            self._spacers.append(torch.empty((1 + 2 * index) << 20, dtype=torch.int8, device=self.device))
            other = self._pristine.with_copied_inputs()
            other.prepare()
            other.saved = self._saved_of(other)
            self.timers.append(type(self.timers[0])(other))

    def _saved_of(self, other: Case) -> list[tuple[Any, Any]]:
        """Return the inputs of a copy that correspond to those that are restored in the first case."""
        if not self.case.saved:
            return []
        restored = {id(leaf) for leaf, _ in self.case.saved}
        mine = [leaf for leaf in leaves(self.case.arguments) if is_array(leaf)]
        return [pair for leaf, pair in zip(mine, saved(other.arguments) or []) if id(leaf) in restored]

    def prepare(self, count: int, placements: int = 1) -> None:
        """Set over how many launches a sample is averaged, and the number of placements.

        A planted slowdown adds launches beyond that count.
        """
        self.count = count
        with stage("prepare"):
            self._place(placements)
            for timer in self.timers:
                timer.prepare(self.really)

    @property
    def really(self) -> int:
        """How many launches a sample makes, planted ones included."""
        return round(self.count * (1 + self.planted))

    @property
    def method(self) -> str:
        return str(self.timers[0].method) + ("" if self.case.request["target"] == "launch" else "/reference")

    def take(self, samples: int, placement: int = 0) -> Answer:
        """Take samples back to back; return seconds per launch, and the window (CLOCK_MONOTONIC) of all of them."""
        timer = self.timers[placement % len(self.timers)]
        if timer not in self._used:
            self._used.append(timer)
        waited, counted = timer.waited, self._count()
        started = time.monotonic()
        with stage("rounds"):
            seconds = timer.samples(samples)
            self.case.synchronize()
        ended = time.monotonic()
        instructions = self._count()
        if printed_bytes() > self.printed:
            message = "the kernel printed to stdout while it was timed: the time would include the printing"
            raise Wrong("printed", message)
        launches = samples * self.count
        return {
            "seconds": [float(f"{s / self.count:.7g}") for s in seconds],
            "window": [started, ended],
            "waited": timer.waited - waited,
            "instructions": None if None in (counted, instructions) else (instructions - counted) / launches,
        }

    def _count(self) -> Any:
        """Return the instructions of this process so far; None where they cannot be counted."""
        return self._instructions.read() if self._instructions else None

    def facts(self) -> Answer:
        """Return what must be the same on both sides for their times to be compared."""
        return {
            "launches": self.count,
            "step": self.planted.denominator,
            "method": self.method,
            "planted": self.really / self.count - 1,
            "not_captured": self.timers[0].not_captured,
            "memory_bytes": self.memory_bytes,
            "has_threads": self.has_threads,
        }


def exact_fraction(planted: float) -> Fraction:
    """Return the fraction that can be planted by whole launches: 5 % is 21 launches for 20.

    >>> exact_fraction(0.05), exact_fraction(0.035)
    (Fraction(1, 20), Fraction(2, 57))
    """
    return Fraction(planted).limit_denominator(PLANTED_LAUNCHES)


def measure(request: Request) -> Answer:
    """Time one case: warm up until steady, then take samples back to back."""
    watch = Stopwatch(request)
    with stage("warm-up"):
        warm_up(watch.timers[0], WARM_UP_S[watch.device], batches=True)
    most = int(BUDGET_S[watch.device] / max(watch.count * watch.per_launch, TINY))
    taken = watch.take(max(5, min(request.get("samples", 30), most)))
    watch.check()
    return {**taken, **watch.facts(), "shapes": watch.shapes, "pid": os.getpid()}


CORES = os.sched_getaffinity(0)
READY: dict[str, Stopwatch] = {}
"""The case that this process times in turns with another process, under the key `case`."""


def ready(request: Request) -> Answer:
    """Prepare a case to be timed in turns; it replaces the previous one."""
    READY.clear()
    os.sched_setaffinity(0, CORES)
    release_memory()
    watch = READY["case"] = Stopwatch(request)
    return {
        **watch.facts(),
        "placements": watch.placements,
        "code": watch.code,
        "kernels": watch.kernels,
        "inputs": watch.inputs,
        "shapes": watch.shapes,
        "files": own_files(),
        "installed": installed_packages(),
        "pid": os.getpid(),
    }


def alike(request: Request) -> Answer:
    """Set the launches of a sample, the number of placements and what is timed, so that both sides are alike."""
    watch = READY["case"]
    watch.prepare(request["launches"], request["placements"])
    for timer in watch.timers:
        timer.keeps_waits = request.get("keeps_waits", False)
    return watch.facts()


def turn(request: Request) -> Answer:
    """Take this side's samples of one round; the first one, right after the other side's turn, is dropped.

    A `core` is where this thread runs from now on: the other side's runs there, too.
    """
    if "core" in request:
        os.sched_setaffinity(0, {request["core"]})
    answer = READY["case"].take(request["samples"] + 1, request["placement"])
    return {**answer, "seconds": answer["seconds"][1:]}


def check(request: Request) -> Answer:
    """Compare the outputs of launches after the timing with that of the first launch."""
    del request
    READY["case"].check()
    return {}


def printed_bytes() -> int:
    """Return how much has been written to stdout so far, buffers included."""
    sys.stdout.flush()
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).fflush(None)
    return os.fstat(1).st_size
