"""A run as it grows; every change is saved."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ci_perf.judge.verdict import judge
from ci_perf.measure.backend import Compared, Profiled
from ci_perf.measure.machine import Machine
from ci_perf.values.job import Job
from ci_perf.values.measurement import Measurement, Pair, SameCode
from ci_perf.values.reasons import Reason
from ci_perf.values.run import Confirmation, Note, Run
from ci_perf.values.trace import SideProfile

UNDECIDED = frozenset({Reason.NEEDS_MORE_PAIRS, Reason.NOT_MEASURED})
"""Of cases that are still measured."""


class Journal:
    """The run so far; each change goes to `save`."""

    def __init__(self, run: Run, jobs: Sequence[Job], machine: Machine, save: Callable[[Run], object]) -> None:
        """Measurements that `run` has already are continued. It may be finished: then only what is open goes on."""
        self._machine = machine
        self._save = save
        self.control_job: Job | None = None
        self._index = {(job.spec.name, job.case, job.device): i for i, job in enumerate(jobs)}
        self._seconds_before = run.gpu_seconds
        known = {(m.kernel, m.case, m.device): m for m in run.measurements}
        blank = (Measurement(job.spec.name, job.case, job.params, job.device, job.target) for job in jobs)
        begun = tuple(known.get((m.kernel, m.case, m.device), m) for m in blank)
        self.continues = run.finished or any(measurement.looked for measurement in begun)
        """Whether this run continues a finished one."""
        self.run = replace(run, measurements=begun, finished=False)
        save(self.run)

    def of(self, job: Job) -> Measurement:
        """Return the measurement of a job so far."""
        return self.run.measurements[self._index[job.spec.name, job.case, job.device]]

    def sound(self, jobs: Iterable[Job]) -> list[Job]:
        """Return the jobs that have not failed."""
        return [job for job in jobs if self.of(job).failure is None]

    def update(self, job: Job, **changes: object) -> None:
        """Replace fields of a job's measurement and save."""
        self._put(job, replace(self.of(job), **changes))  # type: ignore[arg-type] # fields by name
        self._save(self.run)

    def to_measure(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Return the jobs to measure: all, or in a run that continues a finished one those that it has not decided."""
        if not self.continues:
            return jobs
        left = {finding.id for finding in judge(self.run) if finding.code in UNDECIDED}
        return [job for job in jobs if job.id in left]

    def paired(self, jobs: Iterable[Job]) -> list[Job]:
        """Return the sound jobs that have a base to be timed with."""
        return [job for job in self.sound(jobs) if not self.of(job).unpaired and not self.of(job).same_code]

    def add_pair(self, job: Job, found: Compared) -> None:
        """Add a pair to a job's measurement, or why there is none, and save."""
        if isinstance(found, Pair):
            self.update(job, pairs=(*self.of(job).pairs, found))
        elif isinstance(found, SameCode):
            self.update(job, same_code=True, pairs=())
        elif isinstance(found, str):
            self.update(job, unpaired=found, pairs=())
        else:
            self.update(job, failure=found)

    def set(self, **changes: Any) -> None:  # noqa: ANN401 # fields by name
        """Replace fields of the run and save."""
        self.run = replace(self.run, **changes)
        self._save(self.run)

    def add(self, jobs: Sequence[Job], found: Profiled) -> None:
        """Add the results of a profiler and save."""
        for job in jobs:
            old = self.of(job)
            timeline = found.timelines.get(job.label, old.timeline)
            counters = found.counters.get(job.label, old.counters)
            parts, base_parts = found.parts.get(job.label, old.parts), found.base_parts.get(job.label, old.base_parts)
            new = replace(old, timeline=timeline, counters=counters, parts=parts, base_parts=base_parts)
            base, head = (of.get(job.label) for of in (found.base_profiles, found.head_profiles))
            base, head = _joined(old.base_profile, base), _joined(old.head_profile, head)
            self._put(job, replace(new, base_profile=base, head_profile=head))
        self.set(notes=(*self.run.notes, *found.notes), trace=found.trace or self.run.trace)

    def add_confirmations(self, found: tuple[Confirmation, ...], gpu_seconds: float) -> None:
        """Add cases that took turns with the commits of their baselines, and how long these held the GPU; save."""
        if found:
            self._seconds_before += gpu_seconds
            seconds = round(self.run.gpu_seconds + gpu_seconds, 1)
            self.set(confirmations=(*self.run.confirmations, *found), gpu_seconds=seconds)

    def note(self, *notes: Note) -> None:
        """Add notes to the run and save."""
        if notes:
            self.set(notes=(*self.run.notes, *notes))

    def finish(self) -> Run:
        """Mark the run as complete and save it for the last time."""
        self.set(finished=True)
        return self.run

    def _put(self, job: Job, measurement: Measurement) -> None:
        index = self._index[job.spec.name, job.case, job.device]
        measurements = (*self.run.measurements[:index], measurement, *self.run.measurements[index + 1 :])
        seconds = round(self._seconds_before + self._machine.seconds_used(), 1)
        self.run = replace(self.run, measurements=measurements, gpu_seconds=seconds)


def _joined(known: SideProfile | None, more: SideProfile | None) -> SideProfile | None:
    """Join what two profilers saw of one side."""
    if known is None or more is None:
        return known or more
    return SideProfile(
        more.counters or known.counters,
        more.timeline or known.timeline,
        more.opcodes or known.opcodes,
        more.lines or known.lines,
    )
