"""The timers: how a sample of several launches is taken."""

from __future__ import annotations

import contextlib
import statistics
import time
import warnings
from typing import Any, Callable

from ci_perf.userside.case import Case, Wrong
from ci_perf.userside.garbage import uncollected
from ci_perf.userside.restore import restore

STEADY = 0.005
"""Warming up ends when two groups of launches differ by less than this fraction, or after four times WARM_UP_S."""
LADDER = (1, 2, 5, 10, 20, 50, 100, 200, 500)
"""Launches per sample: few enough to be captured quickly, enough for a long sample."""
BURST = 2
"""Launches in a row before WallTimer waits for the GPU.

With one, a synchronisation at the end of a launch would cost next to nothing, as the timer synchronises there anyway.
With many, a short allocation would cost nothing where the GPU takes longer than the host. With two, the host's work
before the first launch is always on the critical path, and a synchronisation keeps the second launch from overlapping
the first.
"""


def warm_up(timer: Any, least_s: float, batches: bool = False) -> None:
    """Launch until two successive groups of launches take the same time."""
    started = time.perf_counter()
    before: float | None = None
    while True:
        now = statistics.median(timer.samples(3)) if batches else timer.seconds(3)
        spent = time.perf_counter() - started
        steady = before is not None and abs(now / before - 1) < STEADY
        if spent >= least_s and (steady or spent >= 4 * least_s):
            return
        before = now


class Timer:
    """The launches of one sample of a case.

    Each timer has `seconds(launches)`, the time of one launch measured over a few, and `samples(number)`, the time of
    all launches of each sample; both in seconds.
    """

    least = 1
    """The smallest number of launches of one sample."""
    most = LADDER[-1]
    """The largest number of launches of one sample."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.count = 1
        self.not_captured = ""
        """Why there is no CUDA graph of the launch; empty: there is one, or none was tried."""
        self.waited = 0.0
        """For how many seconds its thread waited for a core, of a kernel on the CPU."""
        self.keeps_waits = False
        """Whether the times include these seconds, of a kernel on the CPU."""
        self.output: Any = None
        """The output of the last timed launch, where it is kept."""

    def prepare(self, count: int) -> None:
        """Set the number of launches of one sample."""
        self.count = count


class WallTimer(Timer):
    """perf_counter from the call of the first of BURST launches until the GPU has finished the last.

    Python's garbage collector does not run meanwhile, as in `timeit`.
    """

    method = "wall-two-launches"
    least = BURST

    def seconds(self, launches: int) -> float:
        launches = max(launches, BURST)
        return self.wait_for(launches) / launches

    def samples(self, number: int) -> list[float]:
        return [self.wait_for(self.count) for _ in range(number)]

    def wait_for(self, launches: int) -> float:
        """Return the time of so many launches, BURST by BURST."""
        launch, synchronize = self.case.launch, self.case.synchronize
        synchronize()
        with uncollected():
            started = time.perf_counter()
            for number in range(1, launches + 1):
                launch()
                if number % BURST == 0 or number == launches:
                    synchronize()
            return time.perf_counter() - started


class RestoredWallTimer(WallTimer):
    """The same, with the inputs restored before each BURST, outside of the time."""

    method = "wall-two-launches-restored"

    def wait_for(self, launches: int) -> float:
        """Return the time of so many launches; the second launch of a BURST works on what the first one left."""
        spent = 0.0
        for done in range(0, launches, BURST):
            restore(self.case.saved)
            spent += super().wait_for(min(BURST, launches - done))
        return spent


class EventTimer(Timer):
    """CUDA events around launches, with a warm L2 cache."""

    method = "cuda-events"

    def __init__(self, case: Case) -> None:
        import torch

        super().__init__(case)
        self.torch = torch

    def seconds(self, launches: int) -> float:
        start, stop = self.event(), self.event()
        start.record()
        for _ in range(launches):
            self.case.launch()
        stop.record()
        self.torch.cuda.synchronize()
        return float(start.elapsed_time(stop)) / 1e3 / launches

    def event(self) -> Any:
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
    """Capture launches on the current stream; torch.cuda.graph() would empty the allocator's cache each time."""
    graph.capture_begin()
    try:
        for _ in range(count):
            launch()
    except BaseException:
        with contextlib.suppress(Exception):  # the first error has the cause
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
        self.count = count
        self.graph = self.output = None
        # Autograd runs a backward pass on the stream of the forward pass, which `prepare` makes.
        side = self.torch.cuda.Stream()
        self.on_side_stream(self.case.prepare, side)
        self.on_side_stream(self.case.launch, side)
        graph = self.torch.cuda.CUDAGraph()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            self.on_side_stream(lambda: capture(graph, self.kept_launch, count), side)
        if any("graph is empty" in str(warning.message).lower() for warning in said):
            message = "its GPU work is not on torch's current stream, so it cannot be timed"
            raise Wrong("raised", message + ": launch on torch.cuda.current_stream()")
        self.graph = graph

    def kept_launch(self) -> None:
        """Launch, and keep the output of the last launch only."""
        self.output = None
        self.output = self.case.launch()

    def on_side_stream(self, work: Callable[[], object], side: Any) -> None:
        """Run `work` on a side stream that is ordered with the current stream before and after."""
        current = self.torch.cuda.current_stream()
        side.wait_stream(current)
        with self.torch.cuda.stream(side):
            work()
        current.wait_stream(side)
        self.torch.cuda.synchronize()

    def seconds(self, launches: int) -> float:
        """Return the time of one launch, measured with the current graph."""
        del launches
        return statistics.median(self.samples(3)) / self.count

    def one(self) -> None:
        self.graph.replay()


class ColdTimer(EventTimer):
    """CUDA events around single launches, with the L2 cache overwritten before each."""

    method = "cuda-events-cold"
    most = 20

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.flush = l2_flush(self.torch)
        if case.saved or case.request.get("restore"):
            self.method = "cuda-events-cold-restored"

    def seconds(self, launches: int) -> float:
        return statistics.median(self.one_cold() for _ in range(launches))

    def samples(self, number: int) -> list[float]:
        return [sum(self.one_cold() for _ in range(self.count)) for _ in range(number)]

    def one_cold(self) -> float:
        """Overwrite the L2 cache, then time one launch; both are queued before either runs."""
        start, stop = self.event(), self.event()
        self.before()
        start.record()
        self.case.launch()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) / 1e3

    def before(self) -> None:
        """Restore the inputs of a kernel that works in place, then overwrite the L2 cache."""
        restore(self.case.saved)
        self.flush.zero_()


class RestoredTimer(ColdTimer):
    """CUDA events around single launches, whose inputs are restored before the first event."""

    method = "cuda-events-restored"

    def __init__(self, case: Case) -> None:
        EventTimer.__init__(self, case)

    def before(self) -> None:
        restore(self.case.saved)


def l2_flush(torch: Any) -> Any:
    """Return a tensor of twice the size of the L2 cache: filling it evicts everything else."""
    cache = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 64 << 20)
    return torch.empty(2 * cache, dtype=torch.int8, device="cuda")
