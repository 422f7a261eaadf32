"""The main job: verify, time, confirm, profile; the run is saved after every step.

The order of the steps lives here and nowhere else. What touches the machine comes in as a `Lab`.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ci_perf.core.decision import confirming_processes
from ci_perf.core.model import (
    Against,
    CaseTimeline,
    Cost,
    Failure,
    Measurement,
    Note,
    Pair,
    Reading,
    Replicate,
    Run,
    Verdict,
    Verification,
)
from ci_perf.core.paired import LOOKS, NEEDS_MORE_PAIRS
from ci_perf.core.plan import Job
from ci_perf.core.verdict import judge


@dataclass(frozen=True, slots=True)
class Profiled:
    """What one profiler learned: by case, and what it could not do."""

    timelines: Mapping[str, CaseTimeline] = field(default_factory=dict)
    counters: Mapping[str, tuple[Mapping[str, Reading], ...]] = field(default_factory=dict)
    trace: Mapping[str, Reading] = field(default_factory=dict)
    """The metrics of the whole trace."""
    notes: tuple[Note, ...] = ()


class Lab(Protocol):
    """The machine: everything that takes time or can die. Failures are values; jobs come back in any order."""

    def verify(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, tuple[Verification, Cost | None] | Failure]]:
        """Hold each job's output against its reference."""

    def time(self, jobs: Sequence[Job], *, batch: int, turn: int) -> Iterator[tuple[Job, Replicate | Failure]]:
        """Time each job once, each in a fresh process; `turn` rotates their order."""

    def pairs(self, jobs: Sequence[Job], number: int) -> Iterator[tuple[Job, Pair | str | Failure]]:
        """Time each job in turns with the base, in fresh processes; `number` counts the pairs, to vary the order.

        Text says why there is no base to compare with; a Failure is the head's own.
        """

    def control(self, job: Job, number: int) -> Pair | str | Failure:
        """Time the base in turns with itself."""

    def profile(self, jobs: Sequence[Job]) -> Iterator[Profiled]:
        """Run the jobs under each profiler that is wanted and works."""

    def seconds_used(self) -> float:
        """Return for how long the GPU was held so far."""

    def now(self) -> float:
        """Return the time in seconds since any moment."""


class Progress(Protocol):
    """Told what happens; draws it or not."""

    def begin(self, stage: str, steps: int) -> None:
        """Say that a stage of so many steps begins."""

    def step(self, what: str) -> None:
        """Say that one step is done."""


@dataclass(frozen=True, slots=True)
class Budget:
    """For how many seconds cases may take turns; what is undecided then stays so."""

    total_s: float = math.inf
    case_s: float = math.inf


def execute(
    run: Run,
    jobs: Sequence[Job],
    lab: Lab,
    *,
    processes: int,
    save: Callable[[Run], object],
    progress: Progress,
    budget: Budget = Budget(),  # frozen
) -> Run:
    """Measure all jobs and return the finished run; a failing job costs nothing but its own row."""
    journal = _Journal(run, jobs, lab, save)
    progress.begin("verify", len(jobs))
    for job, answer in lab.verify(jobs):
        if isinstance(answer, Failure):
            journal.update(job, failure=answer)
        else:
            journal.update(job, verification=answer[0], cost=answer[1])
        progress.step(job.id)
    if run.against is None:
        _time(journal, lab, journal.sound(jobs), 0, processes, progress)
        _confirm(journal, lab, jobs, processes, progress)
    else:
        _take_turns(journal, lab, journal.sound(jobs), budget, progress)
    profiled = [job for job in journal.sound(jobs) if job.device == "cuda"]
    if profiled:
        programs = sum(job.spec.program is not None for job in profiled)
        progress.begin("profile", 2 + programs)
    for found in lab.profile(profiled):
        journal.add(profiled, found)
        progress.step("profiler done")
    return journal.finish()


def _time(journal: "_Journal", lab: Lab, jobs: Sequence[Job], batch: int, processes: int, progress: Progress) -> None:
    if not jobs:
        return
    progress.begin("time" if batch == 0 else "confirm", len(jobs) * processes)
    for turn in range(processes):
        for job, answer in lab.time(journal.sound(jobs), batch=batch, turn=turn):
            if isinstance(answer, Failure):
                journal.update(job, failure=answer)
            else:
                journal.append(job, answer)
            progress.step(job.id)


SPARE_PAIRS = 3
"""So many pairs that something disturbed are measured again for each case and look."""
LONG_ENOUGH_S = 20e-6
"""The control is a case that lasts at least so long, where there is one: shorter ones scatter more."""


def _take_turns(journal: "_Journal", lab: Lab, jobs: Sequence[Job], budget: Budget, progress: Progress) -> None:
    """Measure pairs of every case until its verdict is clear or the budget is spent, then the control."""
    if not jobs:
        return
    purse = _Purse(budget, lab.now)
    before = 0
    for look in LOOKS:
        progress.begin(f"pairs to {look}", len(jobs) * (look - before))
        for number in range(before, look + SPARE_PAIRS):
            lacking = [job for job in journal.paired(jobs) if len(journal.of(job).sound_pairs) < look]
            for job, found in purse.spend(lab.pairs, lacking, number):
                journal.add_pair(job, found)
                progress.step(job.id)
        _control(journal, lab, journal.paired(jobs), range(before, look if before == 0 else before + 1))
        before = look
        undecided = {f.id for f in judge(journal.run) if f.code == NEEDS_MORE_PAIRS}
        jobs = [job for job in journal.paired(jobs) if job.id in undecided and purse.allows(job)]
        if not jobs:
            break


class _Purse:
    """What is left of the budget; a pair is started only where one like the last of its case still fits."""

    def __init__(self, budget: Budget, now: Callable[[], float]) -> None:
        self._budget = budget
        self._now = now
        self._started = now()
        self._spent: dict[tuple[str, str], float] = {}
        self._last: dict[tuple[str, str], float] = {}

    def allows(self, job: Job, promised_s: float = 0.0) -> bool:
        """Say whether another pair of the case fits, after others that take `promised_s`."""
        case = (job.id, job.device)
        next_s = self._last.get(case, 0.0)
        of_all = self._now() - self._started + promised_s + next_s
        of_case = self._spent.get(case, 0.0) + next_s
        return of_all <= self._budget.total_s and of_case <= self._budget.case_s

    def spend(
        self,
        measure: Callable[[Sequence[Job], int], Iterator[tuple[Job, Pair | str | Failure]]],
        jobs: Sequence[Job],
        number: int,
    ) -> Iterator[tuple[Job, Pair | str | Failure]]:
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


def _control(journal: "_Journal", lab: Lab, jobs: Sequence[Job], numbers: Iterable[int]) -> None:
    """Measure the base against itself, on a case that has a base: as often as the cases, then once for each look."""
    against = journal.run.against
    if against is None or not (jobs or against.control_case):
        return
    journal.control_job = job = journal.control_job or _steadiest(journal, jobs)
    found: list[Pair] = []
    for number in numbers:
        for _ in range(SPARE_PAIRS):  # until nothing disturbs it
            pair = lab.control(job, number)
            found += [pair] if isinstance(pair, Pair) else []
            if not isinstance(pair, Pair) or not pair.disturbed:
                break
    journal.put_control(replace(against, control_case=job.id, control=(*against.control, *found)))


def _steadiest(journal: "_Journal", jobs: Sequence[Job]) -> Job:
    """Choose the shortest case that is long enough, else the longest."""
    pairs = {job.id: journal.of(job).pairs for job in jobs}
    seconds = {name: statistics.median(found[0].base) if found else 0.0 for name, found in pairs.items()}
    enough = [job for job in jobs if seconds[job.id] >= LONG_ENOUGH_S]
    if enough:
        return min(enough, key=lambda job: seconds[job.id])
    return max(jobs, key=lambda job: seconds[job.id])


def _confirm(journal: "_Journal", lab: Lab, jobs: Sequence[Job], processes: int, progress: Progress) -> None:
    """Measure the cases again, in fresh processes, whose verdict that may decide."""
    run = journal.run
    devices = {device.slug: device.kind for device in run.devices}
    findings = [f for f in judge(run) if f.change is not None]
    undecided = {(f.kernel, f.case, devices[f.device]) for f in findings if f.verdict is Verdict.INCONCLUSIVE}
    chosen = [job for job in journal.sound(jobs) if (job.spec.name, job.case, job.device) in undecided]
    fewest = min((len(case.time.replicates) for b in run.baselines for case in b.cases.values()), default=processes)
    needed = confirming_processes(fewest, processes, len(findings), run.policy.confidence, processes)
    _time(journal, lab, chosen, 1, needed, progress)


class _Journal:
    """The run as it grows; saved after every change."""

    def __init__(self, run: Run, jobs: Sequence[Job], lab: Lab, save: Callable[[Run], object]) -> None:
        self._lab = lab
        self._save = save
        self.control_job: Job | None = None
        self._index = {(job.spec.name, job.case, job.device): i for i, job in enumerate(jobs)}
        blank = (Measurement(job.spec.name, job.case, job.params, job.device, job.target) for job in jobs)
        self.run = replace(run, measurements=tuple(blank))
        save(self.run)

    def of(self, job: Job) -> Measurement:
        """Return what is known of a job so far."""
        return self.run.measurements[self._index[job.spec.name, job.case, job.device]]

    def sound(self, jobs: Iterable[Job]) -> list[Job]:
        """Return the jobs that have not failed."""
        return [job for job in jobs if self.of(job).failure is None]

    def update(self, job: Job, **changes: object) -> None:
        """Replace fields of a job's measurement and save."""
        self._put(job, replace(self.of(job), **changes))  # type: ignore[arg-type] # fields by name
        self._save(self.run)

    def append(self, job: Job, replicate: Replicate) -> None:
        """Add a replicate to a job's measurement and save."""
        self.update(job, replicates=(*self.of(job).replicates, replicate))

    def paired(self, jobs: Iterable[Job]) -> list[Job]:
        """Return the sound jobs that have a base to compare with."""
        return [job for job in self.sound(jobs) if not self.of(job).unpaired]

    def add_pair(self, job: Job, found: Pair | str | Failure) -> None:
        """Add a pair to a job's measurement, or why there is none, and save."""
        if isinstance(found, Pair):
            self.update(job, pairs=(*self.of(job).pairs, found))
        elif isinstance(found, str):
            self.update(job, unpaired=found, pairs=())
        else:
            self.update(job, failure=found)

    def put_control(self, against: Against) -> None:
        """Replace what is known of the base and save."""
        self.run = replace(self.run, against=against)
        self._save(self.run)

    def add(self, jobs: Sequence[Job], found: Profiled) -> None:
        """Add what a profiler learned and save."""
        for job in jobs:
            old = self.of(job)
            timeline = found.timelines.get(job.label, old.timeline)
            self._put(job, replace(old, timeline=timeline, counters=found.counters.get(job.label, old.counters)))
        notes = (*self.run.notes, *found.notes)
        self.run = replace(self.run, notes=notes, trace=found.trace or self.run.trace)
        self._save(self.run)

    def finish(self) -> Run:
        """Mark the run as complete and save it for the last time."""
        self.run = replace(self.run, finished=True)
        self._save(self.run)
        return self.run

    def _put(self, job: Job, measurement: Measurement) -> None:
        index = self._index[job.spec.name, job.case, job.device]
        measurements = (*self.run.measurements[:index], measurement, *self.run.measurements[index + 1 :])
        self.run = replace(self.run, measurements=measurements, gpu_seconds=round(self._lab.seconds_used(), 1))
