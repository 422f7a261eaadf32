"""What a run asks of the world: the machine it measures on, and somebody to tell how far it is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ci_perf.values.measurement import Part
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


class Progress(Protocol):
    """Told what happens; draws it or not."""

    def begin(self, stage: str, steps: int) -> None:
        """Say that a stage of so many steps begins."""

    def step(self, what: str) -> None:
        """Say that one step is done."""
