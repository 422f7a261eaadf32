"""What is said of a case: the value that every verdict ends in."""

from dataclasses import dataclass, field

from ci_perf.judge.gates import CounterChange, GateFinding
from ci_perf.judge.parts import PartChange
from ci_perf.judge.stats import Interval
from ci_perf.values.kernel_names import NameChanges
from ci_perf.values.reasons import Reason
from ci_perf.values.verdict import GateState, Verdict


@dataclass(frozen=True, slots=True)
class Finding:
    """What is said of one case on one device."""

    kernel: str
    case: str
    device: str
    """The slug of the device."""
    verdict: Verdict
    code: Reason
    sentence: str
    base: float | None = None
    """Median of the baseline, in `unit`."""
    head: float | None = None
    unit: str = "s"
    change: Interval | None = None
    """head / base as a ratio of times, which is that of rates the other way round: above 1 is slower."""
    detectable: float | None = None
    """The smallest change, as a fraction, that this session could have told from none."""
    gates: tuple[GateFinding, ...] = ()
    counters: tuple[CounterChange, ...] = ()
    uncompared: tuple[str, ...] = ()
    """Which counters of the baseline nothing was held against, in sentences."""
    kernels: NameChanges = field(default_factory=NameChanges)
    """The GPU kernels that ran beside those of the baseline, where both are known."""
    parts: tuple[PartChange, ...] = ()
    """What the time of a program is made of, beside what it was where that may be compared."""

    @property
    def id(self) -> str:
        """How the case is written on the command line."""
        return f"{self.kernel}/{self.case}"

    @property
    def broken_gates(self) -> tuple[GateFinding, ...]:
        """The gates that were measured and not kept."""
        return tuple(g for g in self.gates if g.state is GateState.BROKEN)

    @property
    def unmeasured_gates(self) -> tuple[GateFinding, ...]:
        """The gates of which nothing is known: neither kept nor broken."""
        return tuple(g for g in self.gates if g.state is GateState.NOT_MEASURED)
