"""The cases of a run against a base that are not decided yet, and what the last look saw of them."""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from ci_perf.judge.looks import LOOKS, goal
from ci_perf.judge.next_pairs import expected_pairs
from ci_perf.judge.outcome import policy_of, thresholds
from ci_perf.judge.pairs import further_starts
from ci_perf.judge.ratios import log_ratio, usable_ratios
from ci_perf.judge.stats import Interval
from ci_perf.judge.verdict import judge
from ci_perf.measure.journal import UNDECIDED, Journal
from ci_perf.values.job import Job
from ci_perf.values.reasons import Reason


class OpenCases:
    """The jobs, of one device, that more pairs may decide."""

    def __init__(self, journal: Journal, jobs: Sequence[Job]) -> None:
        """All jobs are undecided; those of a run that is continued have been looked at."""
        self._journal = journal
        self._all = list(jobs)
        self._looked: dict[str, int] = {}
        """After how many pairs a case was looked at last; some of these may have been disturbed."""
        self._changes: dict[str, Interval | None] = {}
        self._changed: set[str] = set()
        """Kernels of which a case is known to have changed."""
        self._expected: dict[tuple[str, int], int] = {}
        self.jobs = list(jobs)
        self.out_of_time: list[Job] = []
        """Those that the budget does not allow to go on."""
        if journal.continues:
            self._changes.update(self._changes_of(jobs))

    def next_look(self, jobs: Sequence[Job]) -> tuple[list[Job], int]:
        """Return those of the jobs that are looked at next, and after how many pairs; without jobs none, and 0."""
        looks = {job.id: self._next_look(job) for job in jobs}
        look = min(looks.values(), default=0)
        return [job for job in jobs if looks[job.id] == look], look

    def _next_look(self, job: Job) -> int:
        """Return after how many pairs a job is looked at next; 0 after its last look."""
        known = self._journal.of(job)
        done = max(self._looked.get(job.id, 0), *known.looked, 0)
        return min((look for look in {*LOOKS, goal(known.looked)} if look > done), default=0)

    def pairs_before(self, jobs: Sequence[Job]) -> int:
        """Return from which number on the pairs of these jobs are counted: none has fewer, but for disturbed ones."""
        known = {job.id: (self._looked.get(job.id, 0), len(self._journal.of(job).sound_pairs)) for job in jobs}
        return min((max(numbers) for numbers in known.values()), default=0)

    def lacking(self, jobs: Sequence[Job], look: int) -> list[Job]:
        """Return the jobs that have too few pairs for a look."""
        return [job for job in self._journal.paired(jobs) if len(self._journal.of(job).sound_pairs) < look]

    def expected_pairs(self, job: Job) -> int:
        """Return how many more pairs will probably decide a job."""
        known = self._journal.of(job)
        key = job.id, len(known.pairs)
        if key not in self._expected:
            self._expected[key] = expected_pairs(self._journal.run, known, self._compared)
        return self._expected[key]

    def is_known(self, job: Job) -> bool:
        """Return whether a change of the kernel of a job is known."""
        return job.spec.name in self._changed

    def seems_changed(self, job: Job) -> bool:
        """Return whether each pair of a job is beyond the same threshold."""
        values = usable_ratios(self._journal.of(job).sound_pairs)
        if not values:
            return False
        slow, fast = (math.log(limit) for limit in thresholds(policy_of(self._journal.run.policy, job.spec)))
        return min(values) >= slow or max(values) <= -fast

    def further_starts(self, job: Job) -> int:
        """Return of how many further starts of the workers the pairs should be that will probably decide a job."""
        change = self._changes.get(job.id)
        if change is None:
            return 0
        run, pairs = self._journal.run, self._journal.of(job).sound_pairs
        cases = max(run.among, len(run.measurements))
        policy = policy_of(run.policy, job.spec)
        values, known = [log_ratio(pair) for pair in pairs], [pair.start for pair in pairs]
        starts = further_starts(values, change, policy, known, cases)
        return min(starts, self.expected_pairs(job)) if starts else 0

    def look(self, jobs: Collection[Job], pairs: int) -> None:
        """Look at jobs that were measured up to so many pairs; drop those that are decided, or have had their last."""
        changes = self._changes_of(jobs)
        self._changes.update(changes)
        self._looked.update(dict.fromkeys(changes, pairs))
        ended = {job.id for job in jobs if job.id not in changes or not self._next_look(job)}
        self.jobs = [job for job in self.jobs if job.id not in ended]

    def _changes_of(self, jobs: Iterable[Job]) -> dict[str, Interval | None]:
        """Return the changes of those of the jobs that are undecided; None of one without a pair."""
        run = self._journal.run
        seen = tuple(self._journal.of(job) for job in jobs)
        found = judge(replace(run, measurements=seen, among=max(run.among, self._compared)))
        self._changed |= {f.kernel for f in found if f.verdict.is_change}
        return {f.id: f.change for f in found if f.code in UNDECIDED}

    def keep(self, allows: Callable[[Job], bool]) -> None:
        """Drop the jobs that the budget does not allow to go on."""
        self.out_of_time += [job for job in self.jobs if not allows(job)]
        self.jobs = [job for job in self.jobs if allows(job)]

    @property
    def number_decided(self) -> int:
        """How many of the cases that the base has are decided so far."""
        new = sum(self._journal.of(job).unpaired == Reason.NOT_IN_BASE for job in self._all)
        return len(self._all) - new - len(self.jobs) - len(self.out_of_time)

    @property
    def _compared(self) -> int:
        """How many cases are compared, or will be if there is time."""
        return len(self._journal.paired(self._all))
