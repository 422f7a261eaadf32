"""The budget of turns: for how many seconds cases may take turns, and which cases get what is left of it."""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ci_perf.judge.next_pairs import affordable
from ci_perf.measure.backend import Compared
from ci_perf.values.job import Job


@dataclass(frozen=True, slots=True)
class Budget:
    """For how many seconds cases may take turns, in total and each; undecided cases then stay undecided."""

    total_s: float = math.inf
    case_s: float = math.inf


UNBOUNDED = Budget()
PROBED = 16
"""So many cases get their first pair before it is known what one takes."""


class BudgetLeft:
    """What is left of the budget; a pair starts only if one as long as the last of its case still fits."""

    def __init__(self, budget: Budget, now: Callable[[], float]) -> None:
        self._budget = budget
        self._now = now
        self._started = now()
        self._spent: dict[tuple[str, str], float] = {}
        self._last: dict[tuple[str, str], float] = {}

    def allows(self, job: Job, reserved_s: float = 0.0) -> bool:
        """Return whether another pair of the case fits, after others that will take `reserved_s`."""
        case = (job.id, job.device)
        next_s = self._last.get(case, 0.0)
        of_all = self._now() - self._started + reserved_s + next_s
        of_case = self._spent.get(case, 0.0) + next_s
        return of_all <= self._budget.total_s and of_case <= self._budget.case_s

    def nearest(self, jobs: Sequence[Job], expected: Callable[[Job], int]) -> list[Job]:
        """Return the jobs, in their order, that the total budget is expected to decide; without a limit, all.

        `expected` is how many more pairs will probably decide a job. A job without a pair counts as the mean of the
        others; the first PROBED ones show what a pair takes.
        """
        if math.isinf(self._budget.total_s):
            return list(jobs)
        if not self._last:
            return list(jobs[:PROBED])
        usual = statistics.fmean(self._last.values())
        names = [(job.id, job.device) for job in jobs]
        seconds = {name: expected(job) * self._last.get(name, usual) for name, job in zip(names, jobs, strict=True)}
        chosen = set(affordable(seconds, self._budget.total_s - (self._now() - self._started)))
        return [job for name, job in zip(names, jobs, strict=True) if name in chosen]

    def spend(
        self,
        measure: Callable[[Sequence[Job], int], Iterator[tuple[Job, Compared]]],
        jobs: Sequence[Job],
        number: int,
    ) -> Iterator[tuple[Job, Compared]]:
        """Measure a pair of each case that the budget allows, kernel by kernel."""
        for kernel in dict.fromkeys((job.spec.name, job.device) for job in jobs):
            allowed: list[Job] = []
            for job in (job for job in jobs if (job.spec.name, job.device) == kernel):
                if self.allows(job, sum(self._last.get((other.id, other.device), 0.0) for other in allowed)):
                    allowed.append(job)
            before = self._now()
            for job, found in measure(allowed, number) if allowed else ():
                case = (job.id, job.device)
                self._last[case] = self._now() - before
                self._spent[case] = self._spent.get(case, 0.0) + self._last[case]
                yield job, found
                before = self._now()
