"""A rule that recognises one mechanism, and a cause that it found."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ci_perf.judge.causes.sides import Sides
from ci_perf.judge.gates import CounterChange

LineBy = Literal["samples", "bytes", "spills", "wavefronts", "conflicts"]
"""What a source line can take more of: the last two are wavefronts of shared memory, all and those beyond the ideal."""
CUDA_GUIDE = "CUDA C++ Best Practices Guide"
NCU_GUIDE = "Nsight Compute Profiling Guide"
NSYS_GUIDE = "Nsight Systems User Guide"
SYMPTOM, LAST = 0.7, 0.3
"""A symptom, which other mechanisms bring about, ranks as if it accounted for this part of what it does; one that many
mechanisms bring about, such as waiting for memory, for the second part."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How one mechanism is recognised in the counters of both sides."""

    mechanism: str
    """Its name in files: lower case with hyphens."""
    counters: tuple[str, ...]
    """What the comparison of a case shows for it, the most telling first."""
    share: Callable[[Sides], float]
    """How much of the change it can account for, 0 to 1; 0 where it does not apply."""
    say: Callable[[Sides], str]
    """The sentence, with the numbers of both sides."""
    look: str
    """Where to look, and what to try."""
    source: str
    """Where the mechanism and its counters are described."""
    weight: float = 1.0
    """By which its share is multiplied in the ranking: less than 1 for a symptom."""
    line_by: LineBy = "samples"
    """What tells the source line that brings it about."""

    @property
    def symptom(self) -> bool:
        """Whether other mechanisms bring it about."""
        return self.weight < 1


@dataclass(frozen=True, slots=True)
class Cause:
    """A mechanism that can account for a part of a change."""

    mechanism: str
    share: float
    """How much of the change it can account for, 0 to 1. Causes overlap: their shares need not add up to 1."""
    sentence: str
    look: str
    """Where to look; empty where the case became faster: nothing is to be mended."""
    source: str
    counters: tuple[CounterChange, ...] = ()
    line_by: LineBy = "samples"
    """What tells the source line that brings it about."""
