"""The verdict on one case, with its reason and its numbers."""

from dataclasses import dataclass, field, replace
from typing import Self

from ci_perf.judge.causes import Explanation
from ci_perf.judge.gates import CounterChange, GateFinding
from ci_perf.judge.parts import PartChange
from ci_perf.judge.stats import Interval
from ci_perf.values.kernel_names import NameChanges
from ci_perf.values.measurement import MemoryPeaks
from ci_perf.values.reasons import GateState, Reason, Verdict


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict on one case on one device."""

    kernel: str
    case: str
    device: str
    """The slug of the device."""
    verdict: Verdict
    code: Reason
    sentence: str
    base: float | None = None
    """Median of the processes of the baseline or the base, in `unit`."""
    head: float | None = None
    """The base by the change, in `unit`; the median of the head's processes where there is no change."""
    unit: str = "s"
    change: Interval | None = None
    """head / base as a ratio of times, which is that of rates the other way round: above 1 is slower."""
    detectable: float | None = None
    """The smallest change, as a fraction, that this session could have told from none."""
    gates: tuple[GateFinding, ...] = ()
    counters: tuple[CounterChange, ...] = ()
    uncompared: tuple[str, ...] = ()
    """Sentences: which counters of the baseline were not compared, and why."""
    kernels: NameChanges = field(default_factory=NameChanges)
    """How the names of the GPU kernels differ from those of the baseline, where both are known."""
    parts: tuple[PartChange, ...] = ()
    """The parts of a program's time, with those of the base where the two may be compared."""

    explanation: Explanation | None = None
    """Why the case changed, where both sides were profiled; `sentence` ends with its first cause."""
    memory: MemoryPeaks = field(default_factory=MemoryPeaks)
    """The peaks of device memory of baseline or base and of head."""

    def say(self, verdict: Verdict, code: Reason, sentence: str) -> Self:
        """Return the finding with another verdict."""
        return replace(self, verdict=verdict, code=code, sentence=sentence)

    @property
    def id(self) -> str:
        """The case on the command line: `kernel/case`."""
        return f"{self.kernel}/{self.case}"

    @property
    def broken_gates(self) -> tuple[GateFinding, ...]:
        """The gates that were measured and exceeded."""
        return tuple(g for g in self.gates if g.state is GateState.BROKEN)

    @property
    def unmeasured_gates(self) -> tuple[GateFinding, ...]:
        """The gates that were not measured: neither kept nor broken."""
        return tuple(g for g in self.gates if g.state is GateState.NOT_MEASURED)
