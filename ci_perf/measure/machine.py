"""The machine as the flow sees it: each job goes to the backend of its kind, and the time on the GPU is counted."""

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypeVar

from ci_perf.measure.backend import Backend, Compared, Profiled, Verified
from ci_perf.measure.base import Base
from ci_perf.values.job import Job
from ci_perf.values.measurement import Failure, Pair, Replicate
from ci_perf.values.reasons import Reason
from ci_perf.values.run import Note

Found = TypeVar("Found")


class Machine:
    """Runs Python kernels with one backend and programs with the other, on one GPU or CPU."""

    def __init__(self, kernels: Backend, programs: Backend, base: Base | None = None, *, first_start: int = 0) -> None:
        """`base` is the commit that `pairs` and `control` compare with.

        `first_start` is the number of the first start of the workers: above 0 where a run continues another one.
        """
        self._kernels = kernels
        self._programs = programs
        self._base = base
        self._gpu_seconds = 0.0
        self._start = first_start
        self._measured = False
        """Whether a pair is of the last start of the workers."""

    @property
    def touched(self) -> Collection[str]:
        """The kernels whose own files differ from those of the base."""
        return self._base.touched if self._base else ()

    def notes(self, jobs: Sequence[Job]) -> tuple[Note, ...]:
        """Return notes, before anything runs, on how these jobs will be timed."""
        return tuple(note for backend, group in self._by_backend(jobs) for note in backend.notes(group))

    def verify(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Verified | Failure]]:
        """Compare the output of each job with its reference; a program must end with status 0."""
        for backend, group in self._by_backend(jobs):
            yield from self._counted(backend.verify(group))

    def time(self, jobs: Sequence[Job], *, batch: int, turn: int) -> Iterator[tuple[Job, Replicate | Failure]]:
        """Time each job once in a fresh process; `turn` rotates their order."""
        first = turn % max(1, len(jobs))
        rotated = (*jobs[first:], *jobs[:first])
        return self._counted((job, self._backend_of(job).time(job, batch)) for job in rotated)

    def pairs(self, jobs: Sequence[Job], number: int) -> Iterator[tuple[Job, Compared]]:
        """Time each job in turns with the base, in fresh processes; `number` counts the pairs, to vary the order."""
        if self._base is None:
            raise RuntimeError("pairs need a base")
        in_base = self._base.side.kernels
        yield from ((job, Reason.NOT_IN_BASE) for job in jobs if job.spec.name not in in_base)
        for backend, group in self._by_backend([job for job in jobs if job.spec.name in in_base]):
            for job, found in self._counted(backend.pairs(group, number)):
                self._measured = True
                if isinstance(found, Pair) and backend is self._kernels:
                    yield job, replace(found, start=self._start)
                else:
                    yield job, found

    def start_anew(self, jobs: Sequence[Job], pairs: int) -> None:
        """Let the next pair be of new workers, which share nothing with the last but the files.

        It is said before each of so many pairs of these jobs, whose workers start at the same time. Workers that have
        measured no pair yet are new.
        """
        if not self._measured:
            return
        self._measured = False
        started = self.now()
        for backend in (self._kernels, self._programs):
            if mine := [job for job in jobs if self._backend_of(job) is backend]:
                backend.start_anew(mine, pairs)
        self._start += 1
        if any(job.device == "cuda" for job in jobs):
            self._gpu_seconds += self.now() - started

    def control(self, job: Job, number: int) -> Pair | str | Failure:
        """Time the base in turns with itself."""
        ((_, found),) = self._counted((job, self._backend_of(job).control(job, number)) for job in (job,))
        return found

    def profile(self, jobs: Sequence[Job], changed: Sequence[Job] = ()) -> Iterator[Profiled]:
        """Profile the jobs with each profiler that is wanted and works; those that `changed` for every counter."""
        backends = (self._programs, self._kernels)
        for backend in backends:
            backend.close()  # a worker that waits would hold the memory of its last case
        for backend in backends:
            mine, more = ([job for job in of if self._backend_of(job) is backend] for of in (jobs, changed))
            started = self.now()
            for found in backend.profile(mine, more):
                self._gpu_seconds += self.now() - started
                yield found
                started = self.now()

    def seconds_used(self) -> float:
        """Return for how long jobs and profilers held the GPU so far, in seconds."""
        return self._gpu_seconds

    def now(self) -> float:
        """Return time.monotonic()."""
        return time.monotonic()

    def _backend_of(self, job: Job) -> Backend:
        return self._kernels if job.spec.program is None else self._programs

    def _by_backend(self, jobs: Sequence[Job]) -> Iterator[tuple[Backend, list[Job]]]:
        for backend, group in groupby(jobs, key=self._backend_of):
            yield backend, list(group)

    def _counted(self, measured: Iterator[tuple[Job, Found]]) -> Iterator[tuple[Job, Found]]:
        """Count the time that each job on a GPU takes, start and end of its processes included."""
        started = self.now()
        for job, found in measured:
            if job.device == "cuda":
                self._gpu_seconds += self.now() - started
            yield job, found
            started = self.now()
