"""What a run measures of one case."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from ci_perf.values.extensible import (
    NOT_EMPTY,
    OMIT_DEFAULT,
    Better,
    Count,
    DeviceKind,
    Extensible,
    Keyword,
    Name,
    NonNegative,
    Positive,
    Target,
    Text,
    Unit,
    Whole,
    one_of,
)
from ci_perf.values.kernel import Params
from ci_perf.values.trace import CaseTimeline, LaunchedKernel, Reading, SideProfile

FAILURE_CODES = (
    *("wrong-output", "raised", "exited", "crashed", "timeout", "out-of-memory", "device-taken", "printed"),
    *("not-started", "no-output", "wrong-format", "no-benchmark", "skipped", "no-kernels", "profiler"),  # programs
    "other-package",
    "no-run",  # a shard
)


@dataclass(frozen=True, slots=True)
class Cost(Extensible):
    """The least work of one launch."""

    flop: NonNegative
    """Operations; a multiply-add is two."""
    bytes: NonNegative
    """Bytes read once plus bytes written once."""
    dtype: str | None = None
    """The type whose peak rate bounds the operations; None: the case's `dtype`."""


@dataclass(frozen=True, slots=True)
class Failure(Extensible):
    """Why a case has no number."""

    stage: Annotated[str, one_of("verify", "time", "nsys", "ncu", "shard", "fuzz", "sanitize")]
    """`shard`: the whole job of a shard left no number."""
    code: Annotated[str, one_of(*FAILURE_CODES)]
    message: str
    """One sentence."""
    detail: str = ""
    """The traceback or the end of what the process wrote on stderr."""


@dataclass(frozen=True, slots=True)
class Verification(Extensible):
    """How far the output was from the reference: the largest |out - ref| / (|ref| + rms(ref)) of all elements."""

    error: NonNegative
    tolerance: NonNegative
    checked: Annotated[str, one_of("launch", "reference", "status")]
    """`launch`: compared with the reference; `reference`: the reference itself ran and is finite; `status`: a program
    ended with status 0."""


@dataclass(frozen=True, slots=True)
class Replicate(Extensible):
    """The samples of one fresh process, in the order in which they were taken."""

    seconds: Annotated[tuple[NonNegative, ...], NOT_EMPTY]
    """Samples per launch, in `unit`. A zero is kept: it makes the case INCONCLUSIVE."""
    launches: Count
    """How many launches each sample was averaged over."""
    method: Text
    """The method id: numbers of different methods are never compared."""
    batch: Whole = 0
    """Which look at the verdict it belongs to: 0 first, 1 to confirm."""
    temperature_c: float | None = None
    """The highest while the samples were taken."""
    sm_clock_hz: NonNegative | None = None
    """The mean while the samples were taken; None: the GPU does not report it."""
    power_w: NonNegative | None = None
    """The mean while the samples were taken."""
    throttle_reasons: tuple[str, ...] = ()
    """Why the GPU held its clock down while the samples were taken, as NVML names it."""
    unit: Unit = "s"
    """Base unit of the samples; default: s."""
    better: Better = "lower"
    """Which samples are better; default: lower."""
    disturbed: Annotated[tuple[str, ...], OMIT_DEFAULT] = ()
    """What disturbed it: other programs on the GPU, or why the hardware slowed down."""
    memory_bytes: Annotated[Count | None, OMIT_DEFAULT] = None
    """The peak of device memory of a launch, or of a program; None: not known."""
    waited: Annotated[NonNegative, OMIT_DEFAULT] = 0.0
    """On a CPU the share of the time in which its thread waited for a core. `seconds` does not include it."""
    not_captured: Annotated[str, OMIT_DEFAULT] = ""
    """Why no CUDA graph of the launch could be captured: the error, and the line that raised it. Empty: none was
    needed."""


PEAK_MEMORY = "peak_memory_bytes"
"""The name of the gate on `memory_bytes`."""


@dataclass(frozen=True, slots=True)
class MemoryPeaks(Extensible):
    """The peaks of device memory of two sides, in bytes; None: not known.

    Of a Python kernel its inputs, and what torch's allocator gave out at most during a launch. Of a program what NVML
    reports for its processes, the CUDA context included, read every 10 ms.
    """

    base: Count | None = None
    head: Count | None = None


Rounds = Annotated[tuple[NonNegative, ...], NOT_EMPTY]


@dataclass(frozen=True, slots=True)
class Pair(Extensible):
    """One fresh process of the base and one of the head, alive together, that took turns on the device."""

    base: Rounds
    """The median sample of each round, in seconds per launch; round i of base and head ran within milliseconds."""
    head: Rounds
    launches: Count
    """How many launches each sample was averaged over."""
    method: Text
    """The method id: numbers of different methods are never compared."""
    clocks: Positive | None = None
    """The SM clock of head over that of base, both as the mean while samples were taken."""
    sm_clock_hz: Annotated[float | None, Keyword("exclusiveMinimum", 0), OMIT_DEFAULT] = None
    """The mean SM clock of the head."""
    temperature_c: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    """Of both sides."""
    unit: Unit = "s"
    """Base unit of both sides; default: s."""
    better: Better = "lower"
    """Which samples are better; default: lower."""
    placements: Count = 1
    """How many copies of the inputs there are in memory: each round uses the next one."""
    planted: NonNegative = 0.0
    """The planted slowdown of the head: extra launches / launches."""
    identical: bool = False
    """Machine code, launch parameters and inputs were the same on both sides."""
    other_inputs: bool = False
    """The two sides made different inputs: the times may be of different work."""
    shapes: Annotated[tuple[str, ...], Keyword("minItems", 2), Keyword("maxItems", 2), OMIT_DEFAULT] = ()
    """The first digits of a hash of shapes and types of the inputs of base and head; empty: there are none."""
    power_w: NonNegative | None = None
    """The mean while samples were taken."""
    disturbed: tuple[str, ...] = ()
    """What disturbed it: other programs on the GPU, or why the hardware slowed down. The pair does not count."""
    start: Annotated[Whole | None, OMIT_DEFAULT] = None
    """From which start of the workers its processes are, counted from 0 (a resumed run counts on); None: of one of
    their own."""
    base_kernels: Annotated[tuple[LaunchedKernel, ...], OMIT_DEFAULT] = ()
    """The GPU kernels of one launch of the base, in the first pair of a case; empty where they are not known."""
    head_kernels: Annotated[tuple[LaunchedKernel, ...], OMIT_DEFAULT] = ()
    memory: Annotated[MemoryPeaks | None, OMIT_DEFAULT] = None
    waited: Annotated[NonNegative, OMIT_DEFAULT] = 0.0
    """On a CPU the share of the time in which base and head waited for a core.

    Their rounds do not include it, unless one of them has threads of its own.
    """
    instructions: Annotated[tuple[Positive, ...], Keyword("minItems", 2), Keyword("maxItems", 2), OMIT_DEFAULT] = ()
    """On a CPU the instructions of one launch of base and of head, in user mode; empty: they could not be counted."""
    not_captured: Annotated[tuple[str, ...], Keyword("minItems", 2), Keyword("maxItems", 2), OMIT_DEFAULT] = ()
    """Why no CUDA graph of a launch of base and of head could be captured, where that is so of one side only.

    Of the other side the text is empty. Empty: both are alike.
    """


class SameCode:
    """In place of a pair: both sides run the same machine code with the same launch parameters on the same inputs."""


@dataclass(frozen=True, slots=True)
class Part(Extensible):
    """A part of a program's time: one GPU kernel, or all that count in the NVTX ranges of one name."""

    kind: Annotated[str, one_of("kernel", "range")]
    name: str
    count: Whole
    """How many GPU kernels ran, in the last run that had any."""
    seconds: NonNegative
    """The sum of their times: the median over all runs."""


@dataclass(frozen=True, slots=True)
class Measurement(Extensible):
    """All that one run measured of one case on one device."""

    kernel: Name
    case: Text
    params: Params
    device: DeviceKind
    target: Target
    """The function that ran: `reference` where `launch` does not run on the device."""
    cost: Cost | None = None
    verification: Verification | None = None
    failure: Failure | None = None
    replicates: tuple[Replicate, ...] = ()
    pairs: tuple[Pair, ...] = ()
    """In a run against a base commit, in place of replicates."""
    looked: Annotated[tuple[Whole, ...], OMIT_DEFAULT] = ()
    """With how many sound pairs earlier runs ended undecided that this one continues (`run --resume`)."""
    unpaired: str = ""
    """Why there is no base to compare with: `not-in-base`, or how the base failed; empty: there is one."""
    timeline: CaseTimeline | None = None
    counters: tuple[Mapping[str, Reading], ...] = ()
    """One mapping from metric to reading for each profiled launch."""
    base_profile: Annotated[SideProfile | None, OMIT_DEFAULT] = None
    """What profilers saw of the base, where the case changed; its timeline also where only the kernel's files did."""
    head_profile: Annotated[SideProfile | None, OMIT_DEFAULT] = None
    """The counters of the head beside those of the base, in the same session. Its timeline is `timeline`."""
    parts: Annotated[tuple[Part, ...], OMIT_DEFAULT] = ()
    """The parts of a program that was timed through its GPU kernels."""
    base_parts: Annotated[tuple[Part, ...], OMIT_DEFAULT] = ()
    """The parts of the base that took turns with it."""
    session: Annotated[Whole, OMIT_DEFAULT] = 0
    """In a merged run the index of the session that measured it."""
    spent: Annotated[Mapping[str, Mapping[str, NonNegative]], OMIT_DEFAULT] = field(default_factory=dict)
    """Seconds by side (`head`, `base`, `control`) and stage, over all processes: what the case cost beside its time."""
    same_code: Annotated[bool, OMIT_DEFAULT] = False
    """Both sides run the same machine code with the same launch parameters on the same inputs: it was not timed."""

    @property
    def id(self) -> str:
        """The name of the case on the command line: `kernel/case`."""
        return f"{self.kernel}/{self.case}"

    @property
    def methods(self) -> tuple[str, ...]:
        """The method ids of `timed`, without repetition; more than one: not comparable."""
        return tuple(sorted({timed.method for timed in self.timed}))

    @property
    def sound_pairs(self) -> tuple[Pair, ...]:
        """The undisturbed pairs with the method of the last of them: memory may run out after the first."""
        undisturbed = [pair for pair in self.pairs if not pair.disturbed]
        return tuple(pair for pair in undisturbed if pair.method == undisturbed[-1].method)

    @property
    def unit(self) -> str:
        """The base unit of the samples; all of a case have the same."""
        return self.timed[0].unit if self.timed else "s"

    @property
    def better(self) -> str:
        """Which samples are better: `lower` or `higher`."""
        return self.timed[0].better if self.timed else "lower"

    @property
    def timed(self) -> tuple[Replicate, ...]:
        """The replicates of the head, or the head's side of the pairs; without disturbed ones, unless all were."""
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
                memory_bytes=p.memory.head if p.memory else None,
                not_captured=p.not_captured[1] if p.not_captured else "",
            )
            for p in self.sound_pairs or self.pairs
        )
