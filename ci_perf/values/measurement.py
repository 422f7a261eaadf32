"""What a run measures of one case."""

from collections.abc import Mapping
from dataclasses import dataclass

from ci_perf.values.kernel import Params
from ci_perf.values.trace import CaseTimeline, Reading


@dataclass(frozen=True, slots=True)
class Cost:
    """What one launch must do at least: operations, and bytes read once plus bytes written once."""

    flop: float
    bytes: float
    dtype: str | None = None
    """The type whose peak rate bounds the operations; None: the case's `dtype`."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a case has no number."""

    stage: str
    """`verify`, `time`, `nsys`, `ncu`, `fuzz` or `sanitize`; `shard` where the whole job left no number."""
    code: str
    """`wrong-output`, `raised`, `exited`, `crashed`, `timeout`, `out-of-memory`, `device-taken`, `printed`; of programs
    also `not-started`, `no-output`, `wrong-format`, `no-benchmark`, `skipped`, `no-kernels`, `profiler`; of a shard
    `no-run`."""
    message: str
    detail: str = ""
    """The traceback or the end of what the process wrote on stderr."""


@dataclass(frozen=True, slots=True)
class Verification:
    """How far the output was from the reference: the largest |out - ref| / (|ref| + rms(ref)) of all elements."""

    error: float
    tolerance: float
    checked: str
    """`launch`: held against the reference; `reference`: the reference itself ran and is finite; `status`: a program
    ended with status 0."""


@dataclass(frozen=True, slots=True)
class Replicate:
    """The samples of one fresh process, in the order in which they were taken."""

    seconds: tuple[float, ...]
    """Per launch, in `unit`."""
    launches: int
    """How many launches each sample was averaged over."""
    method: str
    """The method id: numbers of different methods are never compared."""
    batch: int = 0
    temperature_c: float | None = None
    """The highest while the samples were taken."""
    sm_clock_hz: float | None = None
    """The mean while the samples were taken; None where the GPU does not tell."""
    power_w: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    """Why the GPU held its clock down while the samples were taken, as NVML names it."""
    unit: str = "s"
    """Base unit of the samples: seconds, unless a program measured something else about itself."""
    better: str = "lower"
    """`lower` or `higher`: which way the samples are better."""
    disturbed: tuple[str, ...] = ()
    """What spoilt it: another program on the GPU, a sudden slowdown of the hardware."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One fresh process of the base and one of the head, alive together, that took turns on the device."""

    base: tuple[float, ...]
    """The median sample of each round, in seconds per launch; round i of base and head ran within milliseconds."""
    head: tuple[float, ...]
    launches: int
    """How many launches each sample was averaged over."""
    method: str
    clocks: float | None = None
    """The SM clock of head over that of base, both as the mean while samples were taken."""
    sm_clock_hz: float | None = None
    """That of the head."""
    temperature_c: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    """Of both sides."""
    unit: str = "s"
    """Base unit of both sides."""
    better: str = "lower"
    """`lower` or `higher`."""
    placements: int = 1
    """In how many places of the memory the data lay, one after the other: each round used the next."""
    planted: float = 0.0
    """The slowdown of the head that was planted, exactly: extra launches / launches."""
    identical: bool = False
    """Machine code, launch parameters and inputs were the same on both sides."""
    other_inputs: bool = False
    """The two sides made other inputs: the times may be of other work."""
    shapes: tuple[str, ...] = ()
    """The first digits of a hash of shapes and types of the inputs of base and head; empty where there are none."""
    power_w: float | None = None
    """The mean while samples were taken."""
    disturbed: tuple[str, ...] = ()
    """What spoilt it: other programs on the GPU, by name, or why the hardware slowed down; it does not count."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one GPU kernel, or all that count in the NVTX ranges of one name, took of the time of a program."""

    kind: str
    """`kernel` or `range`."""
    name: str
    count: int
    """How many GPU kernels ran, in the last run that had any."""
    seconds: float
    """Their sum: the median over all runs."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """All that one run learned of one case on one device."""

    kernel: str
    case: str
    params: Params
    device: str
    """`cuda` or `cpu`."""
    target: str
    """`launch`, or `reference` where `launch` does not run on this device."""
    cost: Cost | None = None
    verification: Verification | None = None
    failure: Failure | None = None
    replicates: tuple[Replicate, ...] = ()
    pairs: tuple[Pair, ...] = ()
    """In a run against a base commit, in place of replicates."""
    unpaired: str = ""
    """Why there is no base to compare with: `not-in-base`, or how the base failed."""
    timeline: CaseTimeline | None = None
    counters: tuple[Mapping[str, Reading], ...] = ()
    """One mapping from metric to reading for each profiled launch."""
    parts: tuple[Part, ...] = ()
    """Of a program that was timed through its GPU kernels."""
    base_parts: tuple[Part, ...] = ()
    """Those of the base that took turns with it."""
    session: int = 0
    """In a merged run the index of the session that measured it."""

    @property
    def id(self) -> str:
        """How the case is written on the command line: `kernel/case`."""
        return f"{self.kernel}/{self.case}"

    @property
    def methods(self) -> tuple[str, ...]:
        """The method ids of what counts, without repetition; more than one means not comparable."""
        return tuple(sorted({timed.method for timed in self.timed}))

    @property
    def sound_pairs(self) -> tuple[Pair, ...]:
        """The pairs that nothing disturbed, timed as the last of them: memory may run out after the first."""
        undisturbed = [pair for pair in self.pairs if not pair.disturbed]
        return tuple(pair for pair in undisturbed if pair.method == undisturbed[-1].method)

    @property
    def unit(self) -> str:
        """The base unit of the samples; all of a case have the same."""
        return self.timed[0].unit if self.timed else "s"

    @property
    def better(self) -> str:
        """Which way the samples are better."""
        return self.timed[0].better if self.timed else "lower"

    @property
    def timed(self) -> tuple[Replicate, ...]:
        """What was measured of the head alone: the replicates, or the head's side of the pairs.

        What something disturbed is not among it, unless all of it was.
        """
        if self.replicates:
            return tuple(replicate for replicate in self.replicates if not replicate.disturbed) or self.replicates
        return tuple(
            Replicate(
                p.head,
                p.launches,
                p.method,
                sm_clock_hz=p.sm_clock_hz,
                throttle_reasons=p.throttle_reasons,
                unit=p.unit,
                better=p.better,
                disturbed=p.disturbed,
            )
            for p in self.sound_pairs or self.pairs
        )
