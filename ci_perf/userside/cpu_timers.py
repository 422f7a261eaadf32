"""Timers of kernels on a CPU, whose time does not include that in which their thread waited for a core.

How long the other threads of a kernel waited is not known. If one side of a comparison has such threads, the times of
both sides include the waits.
"""

from __future__ import annotations

import time

from ci_perf.userside import core_wait
from ci_perf.userside.restore import restore
from ci_perf.userside.timers import Timer


class CpuTimer(Timer):
    """perf_counter around a loop of launches, without the time in which this thread waited for a core.

    Linux often takes the core away at the end of a system call, and to read its counts takes some. So they are read
    outside of the timed loop: such a wait is then counted beside the loop, and the time without all waits is too short.
    It is at least the time for which the thread ran.
    """

    method = "perf-counter"

    def seconds(self, launches: int) -> float:
        launch = self.case.launch
        wait = core_wait.Wait()
        started = time.perf_counter()
        for _ in range(launches):
            launch()
        spent = time.perf_counter() - started
        waited, ran = wait.seconds(), min(wait.ran(), spent)
        self.waited += waited
        return (spent if self.keeps_waits else max(spent - waited, ran)) / launches

    def samples(self, number: int) -> list[float]:
        return [self.seconds(self.count) * self.count for _ in range(number)]


class RestoredCpuTimer(CpuTimer):
    """perf_counter around each launch, whose inputs are restored before.

    A launch during which this thread waited for a core is repeated; half of the launches may be.
    """

    method = "perf-counter-restored"

    def seconds(self, launches: int) -> float:
        launch, pairs, spent, done, spare = self.case.launch, self.case.saved, 0.0, 0, launches
        while done < launches:
            restore(pairs)
            wait = core_wait.Wait()
            started = time.perf_counter()
            launch()
            seconds = time.perf_counter() - started
            waited = wait.seconds()
            self.waited += waited
            if waited and spare and not self.keeps_waits:
                spare -= 1
                continue
            spent += seconds
            done += 1
        return spent / launches
