"""The main job: verify, time, confirm, profile; the run is saved after every step.

The order of the steps is here and nowhere else. Whatever touches the machine is behind `Machine`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ci_perf.judge.finding import Finding
from ci_perf.judge.stored import confirming_processes
from ci_perf.judge.verdict import judge
from ci_perf.measure.backend import Progress
from ci_perf.measure.budget import UNBOUNDED, Budget
from ci_perf.measure.confirm import Confirm
from ci_perf.measure.journal import Journal
from ci_perf.measure.machine import Machine
from ci_perf.measure.pair_loop import take_turns
from ci_perf.values.job import Job
from ci_perf.values.measurement import Failure, Measurement, Replicate
from ci_perf.values.reasons import Verdict
from ci_perf.values.run import Note, Run

SPARE_PROCESSES = 3
"""How often a process that something disturbed is measured again."""


def execute(
    run: Run,
    jobs: Sequence[Job],
    machine: Machine,
    *,
    processes: int,
    save: Callable[[Run], object],
    progress: Progress,
    budget: Budget = UNBOUNDED,
    confirm: Confirm | None = None,
) -> Run:
    """Measure all jobs and return the finished run; a job that fails affects only its own row.

    What `run` has measured already is kept. `confirm` takes turns for the cases that their baselines call changed.
    """
    journal = Journal(run, jobs, machine, save)
    jobs = journal.to_measure(jobs)
    if not jobs and journal.continues:
        return journal.finish()
    unverified = [job for job in journal.sound(jobs) if journal.of(job).verification is None]
    progress.begin("verify", len(unverified))
    for job, answer in machine.verify(unverified):
        if isinstance(answer, Failure):
            journal.update(job, failure=answer)
        else:
            journal.update(job, verification=answer[0], cost=answer[1])
        progress.step(job.id)
    if run.against is None:
        _time(journal, machine, journal.sound(jobs), 0, processes, progress)
        _confirm(journal, machine, jobs, processes, progress)
        if confirm is not None:
            journal.add_confirmations(confirm(journal.run), confirm.gpu_seconds)
    else:
        take_turns(journal, machine, journal.sound(jobs), budget, progress)
    profiled = [job for job in journal.sound(jobs) if job.device == "cuda"]
    changed = _changed(journal, profiled)
    if profiled:
        programs = sum(job.spec.program is not None for job in profiled)
        both = 2 if run.against is not None and changed else 0
        progress.begin("profile", 2 + programs + both)
    for found in machine.profile(profiled, changed):
        journal.add(profiled, found)
        progress.step("profiler done")
    return journal.finish()


def _changed(journal: Journal, jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs that are slower or faster, which alone are profiled for every counter."""
    clear = [f for f in judge(journal.run) if f.verdict.is_change]
    return _jobs_of(clear, journal.run, jobs)


def _jobs_of(findings: Iterable[Finding], run: Run, jobs: Iterable[Job]) -> list[Job]:
    devices = {device.slug: device.kind for device in run.devices}
    meant = {(f.kernel, f.case, devices.get(f.device)) for f in findings}
    return [job for job in jobs if (job.spec.name, job.case, job.device) in meant]


def _time(
    journal: Journal, machine: Machine, jobs: Sequence[Job], batch: int, processes: int, progress: Progress
) -> None:
    if not jobs:
        return
    progress.begin("time" if batch == 0 else "confirm", len(jobs) * processes)
    spares = _Spares(machine, batch)
    for turn in range(processes):
        lacking = [job for job in journal.sound(jobs) if len(_of_batch(journal.of(job), batch)) <= turn]
        for job, first in machine.time(lacking, batch=batch, turn=turn):
            answer = spares.undisturbed(job, first, turn)
            if isinstance(answer, Failure):
                journal.update(job, failure=answer)
            else:
                journal.update(job, replicates=(*journal.of(job).replicates, answer))
            progress.step(job.id)
    journal.note(*spares.notes())


def _of_batch(measurement: Measurement, batch: int) -> tuple[Replicate, ...]:
    return tuple(replicate for replicate in measurement.replicates if replicate.batch == batch)


class _Spares:
    """Repeats processes that something disturbed, and notes it."""

    def __init__(self, machine: Machine, batch: int) -> None:
        self._machine = machine
        self._batch = batch
        self._given_up: set[str] = set()
        self._used: Counter[str] = Counter()
        self._reasons: set[str] = set()

    def undisturbed(self, job: Job, answer: Replicate | Failure, turn: int) -> Replicate | Failure:
        """Return the first answer that nothing disturbed, from this process or its repetitions, else the last answer.

        A case is no longer repeated once all of its repetitions were disturbed, too.
        """
        left = 0 if job.id in self._given_up else SPARE_PROCESSES
        while left and isinstance(answer, Replicate) and answer.disturbed:
            left -= 1
            self._used[job.id] += 1
            self._reasons.update(answer.disturbed)
            ((_, answer),) = self._machine.time([job], batch=self._batch, turn=turn)
        if isinstance(answer, Replicate) and answer.disturbed:
            self._given_up.add(job.id)
        return answer

    def notes(self) -> tuple[Note, ...]:
        """Return a note on how often each case was repeated, and why."""
        if not self._used:
            return ()
        cases = ", ".join(f"{name} ({number})" for name, number in self._used.items())
        message = f"processes that were disturbed, and measured again: {cases}; {', '.join(sorted(self._reasons))}"
        return (Note("measured-again", message, "keep other programs off the GPU, and see `ci-perf doctor`"),)


def _confirm(journal: Journal, machine: Machine, jobs: Sequence[Job], processes: int, progress: Progress) -> None:
    """Measure the undecided cases again, in fresh processes."""
    first = (replace(m, replicates=_of_batch(m, 0)) for m in journal.run.measurements)
    run = replace(journal.run, measurements=tuple(first))  # what is resumed may have been confirmed in part
    findings = [f for f in judge(run) if f.change is not None]
    undecided = [f for f in findings if f.verdict is Verdict.INCONCLUSIVE]
    chosen = _jobs_of(undecided, run, journal.sound(jobs))
    fewest = min((len(case.time.replicates) for b in run.baselines for case in b.cases.values()), default=processes)
    needed = confirming_processes(fewest, processes, len(findings), run.policy.confidence, processes)
    _time(journal, machine, chosen, 1, needed, progress)
