"""The protocol of what runs cases, Python kernels or programs, and the protocol of progress displays."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ci_perf.traces.ncu.code import Code
from ci_perf.values.job import Job
from ci_perf.values.measurement import Cost, Failure, Pair, Part, Replicate, SameCode, Verification
from ci_perf.values.run import Note
from ci_perf.values.trace import CaseTimeline, Reading, SideProfile

Verified = tuple[Verification, Cost | None]
Compared = Pair | SameCode | str | Failure
"""Base and head in turns, or a proof that nothing differs. Text says why there is no base; a Failure is the head's."""


@dataclass(frozen=True, slots=True)
class Profiled:
    """What one run of a profiler found, by label of the case, and what it could not do."""

    timelines: Mapping[str, CaseTimeline] = field(default_factory=dict)
    counters: Mapping[str, tuple[Mapping[str, Reading], ...]] = field(default_factory=dict)
    trace: Mapping[str, Reading] = field(default_factory=dict)
    """The metrics of the whole trace."""
    notes: tuple[Note, ...] = ()
    parts: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    base_parts: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    base_profiles: Mapping[str, SideProfile] = field(default_factory=dict)
    """What the same profiler saw of the base."""
    head_profiles: Mapping[str, SideProfile] = field(default_factory=dict)
    """The counters of the head beside those of the base."""
    codes: Mapping[str, tuple[Code, ...]] = field(default_factory=dict)
    """The machine code of the GPU kernels of each case, where it is read."""


class Backend(Protocol):
    """Runs the cases of one kind. Whatever fails is a value, never an exception; jobs come back in any order."""

    def notes(self, jobs: Sequence[Job]) -> tuple[Note, ...]:
        """Return notes, before anything runs, on how these jobs will be timed."""

    def verify(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Verified | Failure]]:
        """Compare the output of each job with its reference."""

    def time(self, job: Job, batch: int) -> Replicate | Failure:
        """Time a job once, in a fresh process."""

    def pairs(self, jobs: Sequence[Job], number: int) -> Iterator[tuple[Job, Compared]]:
        """Time each job in turns with the base, in fresh processes; `number` counts the pairs, to vary the order."""

    def control(self, job: Job, number: int) -> Pair | str | Failure:
        """Time the base in turns with itself."""

    def start_anew(self, jobs: Sequence[Job], pairs: int) -> None:
        """Let the next pair of these jobs be of new processes, which share nothing with the last but the files.

        It is said before each of so many pairs, so that the processes of all of them can start at the same time.
        """

    def profile(self, jobs: Sequence[Job], changed: Sequence[Job]) -> Iterator[Profiled]:
        """Profile the jobs with each profiler that is wanted and works.

        Those that `changed` are profiled for what explains the change, on both sides where there is a base.
        """

    def close(self) -> None:
        """End every process that may hold memory on the GPU; the next request starts another."""


class Progress(Protocol):
    """Told what happens; draws it or not."""

    def begin(self, stage: str, steps: int) -> None:
        """Begin a stage of so many steps."""

    def step(self, what: str) -> None:
        """Count one step as done."""
