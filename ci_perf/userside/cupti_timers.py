"""Timers that count the time in which the GPU works, from CUPTI's records."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from ci_perf.userside.case import Case
from ci_perf.userside.cupti import CuptiError, Span, activities, busy_ns, check_whole
from ci_perf.userside.restore import restore
from ci_perf.userside.timers import EventTimer, l2_flush

ATTEMPTS = 3
"""How often a sample is tried when CUPTI does not deliver all records."""
COUNTED_LAUNCHES = 3
"""The number of single launches in which the records of a launch are counted."""


class CuptiTimer(EventTimer):
    """The time in which the GPU works, from CUPTI's records: without gaps, launch overhead and host work."""

    method = "cupti"
    most = 100

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.activities = activities()
        self.per_launch: int | None = None
        """The least number of records of a launch; 0 where launches differ, None before they were counted."""

    def seconds(self, launches: int) -> float:
        return self.busy(launches) / launches

    def samples(self, number: int) -> list[float]:
        return [self.busy(self.count) for _ in range(number)]

    def busy(self, launches: int) -> float:
        """Return how long the GPU worked on some launches, in seconds; incomplete records are measured again."""
        for _ in range(ATTEMPTS - 1):
            with contextlib.suppress(CuptiError):
                return self.busy_once(launches)
        return self.busy_once(launches)

    def busy_once(self, launches: int) -> float:
        """Return how long the GPU worked, in seconds; incomplete records are a CuptiError."""
        if self.per_launch is None:
            numbers = {len(self.recorded(1)) for _ in range(COUNTED_LAUNCHES)}
            self.per_launch = numbers.pop() if len(numbers) == 1 else 0
        spans = self.recorded(launches)
        check_whole(spans, launches * self.per_launch)
        return busy_ns(spans) / 1e9

    def recorded(self, launches: int) -> list[Span]:
        self.collect()
        for _ in range(launches):
            self.before()
            self.case.launch()
        return [span for span in self.collect() if self.counts(span)]

    def kernels(self) -> list[dict[str, Any]]:
        """Return how the GPU kernels of one launch are launched; empty where CUPTI does not deliver all of them."""
        self.activities.describes = True
        try:
            spans = self.recorded(1)
            check_whole(spans, self.per_launch or 1)
            return [span.kernel for span in spans if span.kernel]
        except CuptiError:
            return []
        finally:
            self.activities.describes = False

    def collect(self) -> list[Span]:
        """Wait for the GPU and return its work since the last call."""
        self.torch.cuda.synchronize()
        return self.activities.collect()

    def before(self) -> None:
        """Prepare each launch."""

    def counts(self, span: Span) -> bool:
        """Return whether a span counts as the kernel's work."""
        del span
        return True


class CuptiRestoredTimer(CuptiTimer):
    """The same, with the inputs restored before each launch, on a stream whose work does not count."""

    method = "cupti-restored"
    most = 20

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.aside = self.torch.cuda.Stream(priority=-1)  # kernels seldom use streams of this priority
        self.collect()
        self.before()
        self.not_counted = {span.stream for span in self.collect()}

    def before(self) -> None:
        """Do what does not count, after what was launched before and before what follows."""
        current = self.torch.cuda.current_stream()
        self.aside.wait_stream(current)
        with self.torch.cuda.stream(self.aside):
            self.work_aside()
        current.wait_stream(self.aside)

    def work_aside(self) -> None:
        """Restore the inputs."""
        restore(self.case.saved)

    def counts(self, span: Span) -> bool:
        return span.stream not in self.not_counted


class CuptiColdTimer(CuptiRestoredTimer):
    """The same, with the L2 cache overwritten before each launch."""

    method = "cupti-cold"

    def __init__(self, case: Case) -> None:
        self.flush = l2_flush(sys.modules["torch"])
        super().__init__(case)
        if case.saved or case.request.get("restore"):
            self.method = "cupti-cold-restored"

    def work_aside(self) -> None:
        """Restore the inputs of a kernel that works in place, then overwrite the L2 cache."""
        super().work_aside()
        self.flush.zero_()
