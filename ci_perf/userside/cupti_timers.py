"""The timers that count the time in which the GPU works, as CUPTI recorded it."""

from __future__ import annotations

import contextlib

from ci_perf.userside.case import Case
from ci_perf.userside.cupti import CuptiError, Span, activities, busy_ns, check_whole
from ci_perf.userside.timers import EventTimer, l2_flush

ATTEMPTS = 3
"""So often a sample is taken of which CUPTI did not deliver all records."""
COUNTED_LAUNCHES = 3
"""In so many single launches the records of one are counted."""


class CuptiTimer(EventTimer):
    """The time in which the GPU works, from CUPTI's records: no gap, no launch, nothing of the host counts."""

    method = "cupti"
    most = 100

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.activities = activities()
        self.per_launch: int | None = None
        """How many records each launch leaves at least; 0 where launches differ, None before they were counted."""

    def seconds(self, launches: int) -> float:
        """Return the busy time of one launch, measured over a few."""
        return self.busy(launches) / launches

    def samples(self, number: int) -> list[float]:
        """Return the busy time of the launches of each sample."""
        return [self.busy(self.count) for _ in range(number)]

    def busy(self, launches: int) -> float:
        """Return for how long the GPU worked on so many launches; what is not whole is measured again."""
        for _ in range(ATTEMPTS - 1):
            with contextlib.suppress(CuptiError):
                return self.busy_once(launches)
        return self.busy_once(launches)

    def busy_once(self, launches: int) -> float:
        """Return for how long the GPU worked, if all that it did was recorded."""
        if self.per_launch is None:
            numbers = {len(self.recorded(1)) for _ in range(COUNTED_LAUNCHES)}
            self.per_launch = numbers.pop() if len(numbers) == 1 else 0
        spans = self.recorded(launches)
        check_whole(spans, launches * self.per_launch)
        return busy_ns(spans) / 1e9

    def recorded(self, launches: int) -> list[Span]:
        """Launch, and return what the GPU did for it."""
        self.collect()
        for _ in range(launches):
            self.before()
            self.case.launch()
        return [span for span in self.collect() if self.counts(span)]

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
