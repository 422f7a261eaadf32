"""What a run asks of the world: the machine it measures on, and somebody to tell how far it is."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ci_perf.values.job import Job
from ci_perf.values.measurement import Cost, Failure, Pair, Part, Replicate, Verification
from ci_perf.values.run import Note
from ci_perf.values.trace import CaseTimeline, Reading


@dataclass(frozen=True, slots=True)
class Profiled:
    """What one profiler learned: by case, and what it could not do."""

    timelines: Mapping[str, CaseTimeline] = field(default_factory=dict)
    counters: Mapping[str, tuple[Mapping[str, Reading], ...]] = field(default_factory=dict)
    trace: Mapping[str, Reading] = field(default_factory=dict)
    """The metrics of the whole trace."""
    notes: tuple[Note, ...] = ()
    parts: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    base_parts: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)


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

    def profile(self, jobs: Sequence[Job], changed: Sequence[Job] = ()) -> Iterator[Profiled]:
        """Run the jobs under each profiler that is wanted and works; those whose time changed for every counter."""

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


UNBOUNDED = Budget()
