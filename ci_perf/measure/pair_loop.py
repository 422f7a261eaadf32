"""Pairs of base and head until each verdict is clear or the budget is spent, and the base against itself."""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ci_perf.judge.control import ENOUGH_IDENTICAL, LEAST_CONTROL, identical_pairs
from ci_perf.judge.looks import LOOKS, goal
from ci_perf.judge.ratios import usable_ratios
from ci_perf.judge.verdict import judge
from ci_perf.measure.backend import Compared, Progress
from ci_perf.measure.journal import Journal
from ci_perf.measure.machine import Machine
from ci_perf.values.job import Job
from ci_perf.values.measurement import Pair
from ci_perf.values.reasons import Reason
from ci_perf.values.run import Note

SPARE_PAIRS = 3
"""How many disturbed pairs are repeated for each case (and the control) at each look."""
MOST_FAILURES = 2
"""After this many failures in a row the control is given up for this look."""
CONTROL_PAIRS = LEAST_CONTROL
"""How many pairs of base against base there are at the first look; one more at each look after it."""
LONG_ENOUGH_S = 20e-6
"""The control is a case of at least this duration, if there is one: shorter ones scatter more."""


@dataclass(frozen=True, slots=True)
class Budget:
    """For how many seconds cases may take turns, in total and each; undecided cases then stay undecided."""

    total_s: float = math.inf
    case_s: float = math.inf


UNBOUNDED = Budget()


def take_turns(journal: Journal, machine: Machine, jobs: Sequence[Job], budget: Budget, progress: Progress) -> None:
    """Measure pairs of every case until its verdict is clear or the budget is spent, then the control.

    The pairs of a run that this one continues count; the control is that of both sessions, and as long as that of one.
    """
    if not jobs:
        return
    left = _BudgetLeft(budget, machine.now)
    before = min(max(journal.of(job).looked, default=0) for job in jobs)
    known = len(usable_ratios(journal.run.against.control)) if journal.run.against and before else 0
    for index, look in enumerate(_looks(journal, jobs, before)):
        progress.begin(f"pairs to {look}", sum(max(0, look - len(journal.of(job).sound_pairs)) for job in jobs))
        for number in range(before, look + SPARE_PAIRS):
            lacking = [job for job in journal.paired(jobs) if len(journal.of(job).sound_pairs) < look]
            for job, found in left.spend(machine.pairs, lacking, number):
                journal.add_pair(job, found)
                progress.step(job.id)
        _control(journal, machine, journal.paired(jobs), before, known + CONTROL_PAIRS + index)
        before = look
        undecided = {f.id for f in judge(journal.run) if f.code == Reason.NEEDS_MORE_PAIRS}
        jobs = [job for job in journal.paired(jobs) if job.id in undecided and left.allows(job)]
        if not jobs:
            break


def _looks(journal: Journal, jobs: Sequence[Job], before: int) -> list[int]:
    """Return after how many pairs this run looks at its cases, which had so many before it at least."""
    goals = {goal(journal.of(job).looked) for job in jobs}
    return sorted(look for look in {*LOOKS, *goals} if look > before)


class _BudgetLeft:
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


def _control(journal: Journal, machine: Machine, jobs: Sequence[Job], first: int, wanted: int) -> None:
    """Measure the base against itself, on a case that has a base, until `wanted` pairs in all are undisturbed.

    Cases of identical code that were timed check the session as well: with enough of their pairs there is no control.
    Disturbed and failed pairs are repeated as often as those of a case; MOST_FAILURES in a row end it.
    """
    against = journal.run.against
    if against is None or not (jobs or against.control_case):
        return
    identical = 0 if journal.continues else len(identical_pairs(journal.run))  # those of another session say nothing
    if not against.control_case and identical >= ENOUGH_IDENTICAL:
        return
    begun = next((job for job in jobs if job.id == against.control_case), None)  # by a run that is resumed
    journal.control_job = job = journal.control_job or begun or _steadiest(journal, jobs)
    pairs = list(against.control)
    failures: list[str] = []

    def sound() -> int:
        return len(usable_ratios(pairs))

    for number in range(first, first + wanted - sound() + SPARE_PAIRS):
        if sound() >= wanted or len(failures) == MOST_FAILURES:
            break
        found = machine.control(job, number)
        if isinstance(found, Pair):
            pairs.append(found)
            failures.clear()
        else:
            failures.append(found if isinstance(found, str) else found.message)
    journal.set(against=replace(against, control_case=job.id, control=tuple(pairs)))
    known = any(note.code == Reason.NO_CONTROL for note in journal.run.notes)
    if failures and not known and sound() < LEAST_CONTROL:
        message = f"the base could not be measured against itself: {failures[-1]}"
        journal.note(Note(Reason.NO_CONTROL, message, "see the worker's log; without a control no verdict is believed"))


def _steadiest(journal: Journal, jobs: Sequence[Job]) -> Job:
    """Return the shortest case of at least LONG_ENOUGH_S, else the longest."""
    pairs = {job.id: journal.of(job).pairs for job in jobs}
    seconds = {name: statistics.median(found[0].base) if found else 0.0 for name, found in pairs.items()}
    enough = [job for job in jobs if seconds[job.id] >= LONG_ENOUGH_S]
    if enough:
        return min(enough, key=lambda job: seconds[job.id])
    return max(jobs, key=lambda job: seconds[job.id])
