"""The budget of turns: for how many seconds cases may take turns, and which cases get what is left of it."""

import math
import statistics
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from ci_perf.judge.next_pairs import affordable, pairs_of_a_decision
from ci_perf.measure.backend import Compared
from ci_perf.values.job import Job
from ci_perf.values.reasons import Reason


@dataclass(frozen=True, slots=True)
class Budget:
    """For how many seconds cases may take turns, in total and each; undecided cases then stay undecided."""

    total_s: float = math.inf
    case_s: float = math.inf


UNBOUNDED = Budget()
PROBED = 2
"""So many cases get their first pair before it is known what one takes."""
WAVE = 16
"""So many cases of a kernel begin together where the budget is limited: they share the start of their processes."""
RECENT = 2 * WAVE
"""What a pair takes is the median of so many: the first one includes imports, and the load of a machine varies."""


class Undecided(Protocol):
    """The cases that are not decided yet, and what their pairs so far say."""

    jobs: list[Job]

    def expected_pairs(self, job: Job) -> int:
        """Return how many more pairs will probably decide a job."""

    def seems_changed(self, job: Job) -> bool:
        """Return whether each pair of a job is beyond the same threshold."""

    def is_known(self, job: Job) -> bool:
        """Return whether a change of the kernel of a job is known."""


class BudgetLeft:
    """What is left of the budget; a pair starts only if one as long as the last of its case still fits."""

    def __init__(self, budget: Budget, now: Callable[[], float], touched: Collection[str] = ()) -> None:
        """Cases of kernels `touched`, whose own files differ from those of the base, come before others."""
        self._budget = budget
        self._touched = touched
        self._now = now
        self._started = now()
        self._spent: dict[tuple[str, str], float] = {}
        self._last: dict[tuple[str, str], float] = {}
        self._start_s: dict[tuple[str, str], float] = {}
        """What the last start of workers took, by case."""
        self._recent: deque[float] = deque(maxlen=RECENT)
        self.pairs = 0
        """How many were measured so far."""
        self.decided = 0
        """How many cases are decided so far."""

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit for all cases together."""
        return not math.isinf(self._budget.total_s)

    @property
    def left_s(self) -> float:
        """What is left of the total."""
        return self._budget.total_s - (self._now() - self._started)

    @property
    def case_in_s(self) -> float:
        """How long a case without a pair will probably take until it is decided; 0 where nothing is known."""
        usual = statistics.median(self._recent) if self._recent else 0.0
        return usual * pairs_of_a_decision(self.pairs, self.decided)

    def allows(self, job: Job, reserved_s: float = 0.0) -> bool:
        """Return whether another pair of the case fits, after others that will take `reserved_s`."""
        return reserved_s + self._next_s(job) <= self.left_s and self.allows_case(job)

    def allows_case(self, job: Job) -> bool:
        """Return whether another pair of the case fits into its own budget."""
        next_s = self._next_s(job) if _case(job) in self._last else 0.0
        return self._spent.get(_case(job), 0.0) + next_s <= self._budget.case_s

    def decision_s(self, job: Job, pairs: int) -> float:
        """Return how long a case will probably take until it is decided, by so many more pairs."""
        return pairs * self._next_s(job) if _case(job) in self._last else self.case_in_s

    def batch(self, cases: Undecided) -> list[Job]:
        """Return the jobs, in their order, that are measured next: without a limit all.

        With a limit a case is decided before others begin, unless it will take longer than one that has no pair yet;
        and none begins that probably cannot be decided in time. Those of the kernel begin of which the fewest have.
        One case of each kernel that seems changed comes first although it takes the most pairs: a change is what a run
        looks for. For the same reason cases of kernels whose own files differ come before those of others, all that
        seem changed among them, but not those that will take longer than one that has no pair yet: they might never be
        decided.
        """
        jobs = cases.jobs
        if not self.is_limited:
            return list(jobs)
        fresh = [job for job in jobs if _case(job) not in self._last]
        begun = [job for job in jobs if _case(job) in self._last]
        seconds = {_case(job): self.decision_s(job, cases.expected_pairs(job)) for job in begun}
        near = {case: cost for case, cost in seconds.items() if cost <= self.case_in_s or not fresh}
        mine = {_case(job) for job in jobs if job.spec.name in self._touched}
        seem = sorted((job for job in begun if cases.seems_changed(job)), key=lambda job: seconds[_case(job)])
        one_each = {job.spec.name: job for job in reversed(seem) if not cases.is_known(job)}.values()
        orders = (
            {_case(job): seconds[_case(job)] for job in seem if _case(job) in mine},
            {case: cost for case, cost in near.items() if case in mine},
            dict.fromkeys(map(_case, self._next_wave([job for job in fresh if _case(job) in mine])), self.case_in_s),
            {_case(job): seconds[_case(job)] for job in one_each},
            near,
            dict.fromkeys(map(_case, self._next_wave(fresh)), self.case_in_s),
            seconds,
        )
        in_time = (affordable(costs, self.left_s) for costs in orders)
        cheapest = sorted(seconds, key=lambda case: seconds[case])[:1]  # what is expected of it may be wrong
        chosen = set(next(filter(None, in_time), cheapest))
        return [job for job in jobs if _case(job) in chosen]

    def _next_wave(self, fresh: Sequence[Job]) -> Sequence[Job]:
        """Return the jobs without a pair that may begin next."""
        if not self._last:
            return fresh[:PROBED]
        begun = Counter(case.partition("/")[0] for case, _ in self._last)
        kernel = min(dict.fromkeys(job.spec.name for job in fresh), key=lambda name: begun[name], default="")
        return [job for job in fresh if job.spec.name == kernel][:WAVE]

    def _next_s(self, job: Job) -> float:
        if _case(job) in self._last:
            return self._last[_case(job)] + self._start_s.get(_case(job), 0.0)
        return statistics.median(self._recent) if self._recent else 0.0

    def start(self, jobs: Sequence[Job], start_workers: Callable[[], object]) -> None:
        """Start new workers for the next pairs of these jobs; each counts a part of the time."""
        before = self._now()
        start_workers()
        self._start_s.update(dict.fromkeys(map(_case, jobs), (self._now() - before) / len(jobs)))

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
                if self.allows(job, sum(self._next_s(other) for other in allowed)):
                    allowed.append(job)
            before = self._now()
            for job, found in measure(allowed, number) if allowed else ():
                if found == Reason.NOT_IN_BASE:  # it was not measured, so it says nothing of what a pair takes
                    yield job, found
                    continue
                case = _case(job)
                self._last[case] = self._now() - before
                self._recent.append(self._last[case])
                self.pairs += 1
                self._spent[case] = self._spent.get(case, 0.0) + self._last[case]
                yield job, found
                before = self._now()


def _case(job: Job) -> tuple[str, str]:
    return (job.id, job.device)
