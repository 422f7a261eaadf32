"""The timers: what is measured, and over how many launches."""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
import warnings
from typing import Any, Callable

from ci_perf.userside.case import Case, Wrong, code_of
from ci_perf.userside.cupti import CuptiError, Span, activities, busy_ns

STEADY = 0.005
"""Warming up ends when two groups of launches differ by less than this fraction, or after four times WARM_UP_S."""
LADDER = (1, 2, 5, 10, 20, 50, 100, 200, 500)
"""Launches per sample: few enough to capture quickly, enough to make a sample long."""


def warm_up(timer: Any, least_s: float, batches: bool = False) -> None:
    """Keep the device busy until two groups of launches take the same time."""
    started = time.perf_counter()
    before: float | None = None
    while True:
        now = statistics.median(timer.samples(3)) if batches else timer.seconds(3)
        spent = time.perf_counter() - started
        steady = before is not None and abs(now / before - 1) < STEADY
        if spent >= least_s and (steady or spent >= 4 * least_s):
            return
        before = now


class CpuTimer:
    """perf_counter around a loop of launches."""

    method = "perf-counter"
    most = LADDER[-1]

    def __init__(self, case: Case) -> None:
        self.case = case
        self.count = 1

    def prepare(self, count: int) -> None:
        """Set the number of launches of one sample."""
        self.count = count

    def seconds(self, launches: int) -> float:
        """Return the time of one launch, measured over a few."""
        launch = self.case.launch
        started = time.perf_counter()
        for _ in range(launches):
            launch()
        return (time.perf_counter() - started) / launches

    def samples(self, number: int) -> list[float]:
        """Return the time of the launches of each sample."""
        return [self.seconds(self.count) * self.count for _ in range(number)]


class EventTimer:
    """CUDA events around launches; the inputs stay in the L2 cache."""

    method = "cuda-events"
    most = LADDER[-1]
    """Launches in one sample at most."""

    def __init__(self, case: Case) -> None:
        import torch

        self.torch = torch
        self.case = case
        self.count = 1

    def prepare(self, count: int) -> None:
        """Set the number of launches of one sample."""
        self.count = count

    def seconds(self, launches: int) -> float:
        """Return the time of one launch, measured over a few."""
        start, stop = self.event(), self.event()
        start.record()
        for _ in range(launches):
            self.case.launch()
        stop.record()
        self.torch.cuda.synchronize()
        return float(start.elapsed_time(stop)) / 1e3 / launches

    def event(self) -> Any:
        """Make a timing event."""
        return self.torch.cuda.Event(enable_timing=True)

    def one(self) -> None:
        """Issue the launches of one sample."""
        for _ in range(self.count):
            self.case.launch()

    def samples(self, number: int) -> list[float]:
        """Return the time of the launches of each sample; all are queued before the first is read."""
        events = [(self.event(), self.event()) for _ in range(number)]
        for start, stop in events:
            start.record()
            self.one()
            stop.record()
        self.torch.cuda.synchronize()
        return [start.elapsed_time(stop) / 1e3 for start, stop in events]


def capture(graph: Any, launch: Callable[[], object], count: int) -> None:
    """Capture launches on the current stream; torch.cuda.graph() would empty the cache of the allocator each time."""
    graph.capture_begin()
    try:
        for _ in range(count):
            launch()
    except BaseException:
        with contextlib.suppress(Exception):  # the first error is the one that tells
            graph.capture_end()
        raise
    graph.capture_end()


class GraphTimer(EventTimer):
    """A CUDA graph of many launches between two events: no launch gaps, warm L2."""

    method = "cuda-graph"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.graph: Any = None

    def prepare(self, count: int) -> None:
        """Capture the launches of one sample."""
        self.count = count
        self.graph = None
        self.on_side_stream(self.case.launch)
        graph = self.torch.cuda.CUDAGraph()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            self.on_side_stream(lambda: capture(graph, self.case.launch, count))
        if any("graph is empty" in str(warning.message).lower() for warning in said):
            message = "its GPU work is not on torch's current stream, where it would be timed"
            raise Wrong("raised", message + ": launch on torch.cuda.current_stream()")
        self.graph = graph

    def on_side_stream(self, work: Callable[[], object]) -> None:
        """Do something on a stream of its own, before and after all else."""
        side, current = self.torch.cuda.Stream(), self.torch.cuda.current_stream()
        side.wait_stream(current)
        with self.torch.cuda.stream(side):
            work()
        current.wait_stream(side)
        self.torch.cuda.synchronize()

    def seconds(self, launches: int) -> float:
        """Return the time of one launch, measured over the graph of this moment."""
        del launches
        return statistics.median(self.samples(3)) / self.count

    def one(self) -> None:
        """Replay the graph."""
        self.graph.replay()


class ColdTimer(EventTimer):
    """CUDA events around single launches, the L2 cache overwritten before each."""

    method = "cuda-events-cold"
    most = 20

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.flush = l2_flush(self.torch)

    def seconds(self, launches: int) -> float:
        """Return the time of one cold launch."""
        return statistics.median(self.one_cold() for _ in range(launches))

    def samples(self, number: int) -> list[float]:
        """Return the time of the launches of each sample, without that of the overwriting."""
        return [sum(self.one_cold() for _ in range(self.count)) for _ in range(number)]

    def one_cold(self) -> float:
        """Overwrite the L2 cache, then time one launch; both are queued before either runs."""
        start, stop = self.event(), self.event()
        self.flush.zero_()
        start.record()
        self.case.launch()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) / 1e3


class CuptiTimer(EventTimer):
    """The time in which the GPU works, from CUPTI's records: no gap, no launch, nothing of the host counts."""

    method = "cupti"
    most = 100

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.activities = activities()

    def seconds(self, launches: int) -> float:
        """Return the busy time of one launch, measured over a few."""
        return self.busy(launches) / launches

    def samples(self, number: int) -> list[float]:
        """Return the busy time of the launches of each sample."""
        return [self.busy(self.count) for _ in range(number)]

    def busy(self, launches: int) -> float:
        """Return for how long the GPU worked on so many launches."""
        self.collect()
        for _ in range(launches):
            self.before()
            self.case.launch()
        spans = [span for span in self.collect() if self.counts(span)]
        if not spans:
            raise CuptiError("CUPTI recorded no work on the GPU")
        return busy_ns(spans) / 1e9

    def collect(self) -> list[Span]:
        """Wait for the GPU and return what it did since the last call."""
        self.torch.cuda.synchronize()
        return self.activities.collect()

    def before(self) -> None:
        """Do what comes before each launch."""

    def counts(self, span: Span) -> bool:
        """Say whether a span is the kernel's."""
        del span
        return True


class CuptiColdTimer(CuptiTimer):
    """The same, with the L2 cache overwritten before each launch, on a stream whose work is not counted."""

    method = "cupti-cold"
    most = 20

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.flush = l2_flush(self.torch)
        self.flushing = self.torch.cuda.Stream(priority=-1)  # of a pool that kernels' own streams are seldom from
        self.collect()
        self.before()
        self.not_counted = {span.stream for span in self.collect()}

    def before(self) -> None:
        """Overwrite the L2 cache, after what was launched before and before what follows."""
        current = self.torch.cuda.current_stream()
        self.flushing.wait_stream(current)
        with self.torch.cuda.stream(self.flushing):
            self.flush.zero_()
        current.wait_stream(self.flushing)

    def counts(self, span: Span) -> bool:
        """Say whether a span is the kernel's, not of the overwriting."""
        return span.stream not in self.not_counted


def l2_flush(torch: Any) -> Any:
    """Return a tensor of twice the size of the L2 cache: filling it leaves nothing else there."""
    cache = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 64 << 20)
    return torch.empty(2 * cache, dtype=torch.int8, device="cuda")


def choose_timer(case: Case) -> Any:
    """Choose how to time a case; its duration has no say, so that both sides of a comparison choose alike.

    On a CPU a loop. On a GPU a graph where the launch can be captured, else CUPTI; cold always CUPTI, as events time
    the launch gap of a small kernel and not the kernel. Where CUPTI is not to be had, events.
    """
    if case.device == "cpu":
        return CpuTimer(case)
    if case.request.get("l2") == "cold":
        return cupti_or(ColdTimer, CuptiColdTimer, case)
    if case.request.get("timer") == "cupti":
        return cupti_or(EventTimer, CuptiTimer, case)
    timer = GraphTimer(case)
    try:
        timer.prepare(3)
    except Exception as error:
        if code_of(error) == "out-of-memory":
            raise
        reason = str(error).split("\n")[0]
        print(f"ci-perf: no CUDA graph of this kernel ({reason}); timed through CUPTI or events", file=sys.stderr)
        case.synchronize()
        instead = cupti_or(EventTimer, CuptiTimer, case)
        if isinstance(error, Wrong) and not isinstance(instead, CuptiTimer):
            raise  # events would not see what a graph does not
        return instead
    return timer


def cupti_or(instead: Any, wanted: Any, case: Case) -> Any:
    """Return a timer that CUPTI serves, or the one in its place."""
    try:
        timer = wanted(case)
        timer.seconds(1)
    except CuptiError as error:
        print(f"ci-perf: no CUPTI ({error}); timing by events", file=sys.stderr)
        return instead(case)
    return timer
