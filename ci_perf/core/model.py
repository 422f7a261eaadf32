"""The values that walk through ci-perf, from a kernel's folder to a recorded run.

Glossary, one word for one thing:

kernel       a folder with a `kernel.toml`; the folder's name is its name
case         one set of parameters of a kernel
launch       one call of the kernel's `launch`; it may start several GPU kernels
program      what is run where a kernel has no `launch`: an application, or a benchmark that writes its own results
sample       the time of one launch in seconds, averaged over the launches timed together; of a program, what it
             measured itself, in the unit of its measurement
replicate    the samples of one fresh process; the process is the unit of replication
batch        the replicates measured before the next look at the verdict: 0 first, 1 to confirm
pair         a process of the base commit and one of the head, alive together, that time a case in turns
measurement  all that one run learned of one case on one device
run          everything a verdict needs, in one file
baseline     what was agreed for one kernel on one GPU model, in `baselines/`
session      what one job of a merged run had to itself: its machine, and its base against itself
shard        a part of a plan that one job measures
finding      the verdict on one case, with its reason code and numbers
report       findings and statistics, ready to be rendered

Units are SI base units (seconds, bytes, hertz, watts); a percentage keeps `_pct` in its name, a trace's time `_ns`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Scalar = str | int | float | bool
Params = Mapping[str, Scalar]


class Verdict(StrEnum):
    """What is said of a case; always beside a reason code and a sentence."""

    SPEEDUP = "SPEEDUP"
    REGRESSION = "REGRESSION"
    UNCHANGED = "UNCHANGED"
    INCONCLUSIVE = "INCONCLUSIVE"
    NEW = "NEW"
    MISSING = "MISSING"
    FAILED = "FAILED"
    NOT_COMPARABLE = "NOT_COMPARABLE"

    @property
    def is_change(self) -> bool:
        """Whether it says that the case became slower or faster."""
        return self in (Verdict.REGRESSION, Verdict.SPEEDUP)


class GateState(StrEnum):
    """Whether a counter kept its limit; what was not measured is neither."""

    KEPT = "KEPT"
    BROKEN = "BROKEN"
    NOT_MEASURED = "NOT_MEASURED"


@dataclass(frozen=True, slots=True)
class Gate:
    """An absolute, one-sided limit on a counter or on a metric of the timeline: `sm_throughput_pct >= 85`."""

    metric: str
    operator: str
    """`>=` or `<=`."""
    limit: float

    def __str__(self) -> str:
        return f"{self.metric} {self.operator} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Program:
    """A program that is measured in place of a Python entry: one fresh run of it is one replicate."""

    kind: str
    """`command`: ci-perf times it. `nvbench`, `google_benchmark`, `pytest_benchmark`, `triton_csv`: it times itself."""
    argv: tuple[str, ...]
    """With `{param}` for the parameters of a case and `{output}` for the file that a benchmark writes."""
    benchmark: str = ""
    """Pattern of the benchmark's name in the file, with `{param}`; empty: any."""
    metric: str = ""
    """Which of the numbers that a benchmark has; empty: the one that the kind of file is about."""
    unit: str = ""
    """Of the numbers where the file does not say, as people write it: `GB/s`."""
    better: str = ""
    """`lower` or `higher`, where the file does not say."""


@dataclass(frozen=True, slots=True)
class FuzzRange:
    """What a parameter of a random case is drawn from: one of `values`, or a whole number of a range."""

    values: tuple[Scalar, ...] = ()
    """Empty: the range counts."""
    min: int = 0
    max: int = 0
    """Inclusive."""
    multiple_of: int = 1


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """A `kernel.toml`, checked."""

    name: str
    folder: str
    """Where the kernel lies, relative to the repository, with forward slashes."""
    entry: str = ""
    """The Python file; empty where a program takes its place."""
    description: str = ""
    devices: tuple[str, ...] = ("cuda",)
    """Where `launch` runs. On any other device ci-perf runs `reference` in its place; a program is left out there."""
    program: Program | None = None
    ranges: tuple[str, ...] = ()
    """Patterns of the NVTX ranges whose GPU kernels count; empty: all kernels, in a range or not. For programs."""
    kernels: tuple[str, ...] = ()
    """Patterns of the GPU kernels that count; empty: all."""
    l2: str = "warm"
    cases: Mapping[str, Params] = field(default_factory=dict)
    cpu_cases: tuple[str, ...] | None = None
    """The cases that run on a CPU by default; None: all."""
    sanitize: tuple[str, ...] | None = None
    """The tools of compute-sanitizer that mean something for it, `racecheck`, or for some cases, `racecheck/small*`.

    None: all tools, for all cases.
    """
    tolerance: Mapping[str, float] = field(default_factory=dict)
    regression: float | None = None
    speedup: float | None = None
    timeout_s: float | None = None
    gates: tuple[Gate, ...] = ()
    fuzz: Mapping[str, FuzzRange] = field(default_factory=dict)
    """By parameter; empty: `--fuzz` leaves the kernel out."""
    refuses_strides: bool = False
    """Whether a random case passes too where `launch` raises a ValueError because of how its inputs lie in memory."""


@dataclass(frozen=True, slots=True)
class Device:
    """The GPU or CPU that was measured: what decides whether two times may be compared."""

    kind: str
    """`cuda` or `cpu`."""
    name: str
    compute_capability: str | None = None
    sm_count: int | None = None
    """Streaming multiprocessors of a GPU, cores of a CPU."""
    memory_bytes: int | None = None
    l2_bytes: int | None = None
    sm_clock_max_hz: float | None = None
    memory_clock_max_hz: float | None = None
    memory_bus_bits: int | None = None
    power_limit_w: float | None = None
    driver: str | None = None
    ecc: bool | None = None
    mig: bool | None = None

    @property
    def slug(self) -> str:
        """The device's folder below `baselines/`.

        >>> Device("cuda", "NVIDIA H100 80GB HBM3").slug
        'h100-80gb-hbm3'
        >>> Device("cpu", "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz").slug
        'cpu-intel-xeon-platinum-8481c-2-70ghz'
        """
        name = re.sub(r"\((?:r|tm|c)\)|\bnvidia\b|\bcpu\b", " ", self.name.lower())
        slug = re.sub(r"[^a-z0-9]+", "-", name).strip("-") or "unknown"
        return f"cpu-{slug}" if self.kind == "cpu" else slug


@dataclass(frozen=True, slots=True)
class Toolchain:
    """Versions that a number may depend on; None is not installed or not known."""

    python: str | None = None
    torch: str | None = None
    cuda: str | None = None
    """The CUDA toolkit that torch was built with."""
    packages: Mapping[str, str] = field(default_factory=dict)
    nsys: str | None = None
    ncu: str | None = None


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
class Reading:
    """One counter in one of three states: a value (a measured zero is one), or not available, with the reason."""

    value: float | None
    unit: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TracedKernel:
    """A GPU kernel as Nsight Systems saw it inside a case's range."""

    name: str
    count: int
    total_ns: int
    median_ns: float
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers_per_thread: int | None = None
    shared_bytes: int | None = None
    local_bytes: int | None = None
    """Local memory of a thread: where registers are spilled to."""


@dataclass(frozen=True, slots=True)
class CaseTimeline:
    """What the timeline holds of one case: `launches` launches inside its NVTX range, or as many runs of a program."""

    launches: int
    kernels: tuple[TracedKernel, ...]
    source: str = "nsys"
    """Who traced: `nsys`, or `torch` where there was no nsys."""
    metrics: Mapping[str, Reading] = field(default_factory=dict)
    """By the names of `core.timeline`."""


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


@dataclass(frozen=True, slots=True)
class Against:
    """The base commit of a run, and the control: base against base, which nothing can have changed."""

    ref: str
    """As it was asked for: a commit, a branch, `merge-base:main`, `base`."""
    commit: str
    gone: tuple[str, ...] = ()
    """What the base has and the head has not, under any name: `kernel`, or `kernel/case`."""
    control_case: str = ""
    """`kernel/case` of the control; empty: no control was measured."""
    control: tuple[Pair, ...] = ()


@dataclass(frozen=True, slots=True)
class FuzzFailure:
    """A random case that failed, and the smallest one found that fails in the same way."""

    case: str
    """`fuzz-SEED-NUMBER`: by this name it can be run again."""
    params: Params
    failure: Failure
    smallest: Params | None = None
    """None: none smaller was found."""


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """The random cases of one kernel on one device."""

    kernel: str
    device: str
    """`cuda` or `cpu`."""
    target: str
    """`launch`, or `reference` where `launch` does not run on this device."""
    seed: int
    cases: int
    """How many were verified."""
    failures: tuple[FuzzFailure, ...] = ()
    refused: int = 0
    """Of how many `launch` refused the inputs, as its kernel.toml allows it to."""


@dataclass(frozen=True, slots=True)
class Defect:
    """What compute-sanitizer complained of at one place of one kernel."""

    message: str
    function: str = ""
    """The GPU kernel, or the function in it; empty: not in a kernel, or not said."""
    place: str = ""
    """`file:line`; empty where there is no line information."""
    thread: str = ""
    """The first that was seen: `(1,0,0)`."""
    block: str = ""
    count: int = 1
    """How often it was reported."""


@dataclass(frozen=True, slots=True)
class Sanitized:
    """One case under one tool of compute-sanitizer; it passed where it has no errors, no failure and no problem."""

    kernel: str
    case: str
    device: str
    """`cuda` or `cpu`."""
    tool: str
    """`memcheck`, `racecheck`, `initcheck` or `synccheck`."""
    errors: int = 0
    """As the tool counts them, which may be more than it printed."""
    defects: tuple[Defect, ...] = ()
    failure: Failure | None = None
    """How the case itself failed."""
    problem: str = ""
    """Why the tool can say nothing of the case."""


@dataclass(frozen=True, slots=True)
class Note:
    """Something that was not done or not normal, what that means, and how to mend it."""

    code: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of the verdict. Fractions are fractions: 0.03 is 3 %."""

    regression: float = 0.03
    """head / base - 1 from which slower is a regression."""
    speedup: float = 0.10
    """base / head - 1 from which faster is a speedup."""
    confidence: float = 0.99
    cv_warning: float = 0.12
    temperature_warning_c: float = 80.0
    fail_on: tuple[str, ...] = ("regression", "failed", "gate", "missing")


@dataclass(frozen=True, slots=True)
class BaselineTime:
    """The agreed time of a case: the summary for people, the values for any statistic that one may want."""

    method: str
    median: float
    noise_floor: float
    """The largest distance of a replicate's median from `median`, as a fraction."""
    replicates: tuple[tuple[float, ...], ...]
    """The samples of each process, ascending; processes in ascending order of their median."""
    sm_clock_hz: float | None = None
    """The median over the processes; a change of the clock is no change of the code."""
    unit: str = "s"
    """Base unit of the values."""
    better: str = "lower"
    """`lower` or `higher`."""


@dataclass(frozen=True, slots=True)
class BaselineCounter:
    """The agreed readings of one counter, one for each profiled launch, ascending."""

    unit: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class BaselineCase:
    """What was agreed for one case."""

    params: Params
    target: str
    time: BaselineTime
    counters: Mapping[str, BaselineCounter] = field(default_factory=dict)
    kernels: tuple[str, ...] = ()
    """The GPU kernels that ran, by the names that the trace has: demangled, else short, else mangled (`_Z...`)."""
    parts: tuple[Part, ...] = ()
    """What the time of a program was made of."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a baseline or a run comes from."""

    tool: str
    date: str
    """UTC, ISO 8601."""
    command: str
    commit: str | None = None
    """Of the repository with the kernels; ends in `-dirty` where files differed from the commit."""
    accepted_by: str | None = None
    repository: str | None = None
    """`owner/name` of the repository whose workflow measured; None outside of GitHub Actions. Runs only."""
    head: str | None = None
    """The commit that the workflow's event was about: of a pull request its head, where `commit` is a merge commit."""
    shard: str | None = None
    """Which shard of a plan this run is; None where there is no plan. Runs only."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """A file of `baselines/`: one kernel on one GPU model."""

    kernel: str
    device: Device
    toolchain: Toolchain
    provenance: Provenance
    cases: Mapping[str, BaselineCase]


@dataclass(frozen=True, slots=True)
class Session:
    """What one job of a merged run had to itself: its machine, and its base against itself."""

    name: str
    """Of the shard in the plan; empty where there was no plan."""
    devices: tuple[Device, ...]
    toolchain: Toolchain
    finished: bool
    against: Against | None = None
    trace: Mapping[str, Reading] = field(default_factory=dict)
    memory_errors: str = ""
    """What its GPU's memory lost meanwhile, in words; empty: nothing that is known."""


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that a verdict needs: `replay` turns it into the same report anywhere."""

    provenance: Provenance
    selection: tuple[str, ...]
    """The patterns that chose the cases; empty: everything, so that a case without a measurement is MISSING."""
    policy: Policy
    kernels: tuple[KernelSpec, ...]
    devices: tuple[Device, ...]
    toolchain: Toolchain
    measurements: tuple[Measurement, ...] = ()
    baselines: tuple[Baseline, ...] = ()
    notes: tuple[Note, ...] = ()
    planted: float | None = None
    """A slowdown that was planted on purpose, as a fraction; such a run can never become a baseline."""
    gpu_seconds: float = 0.0
    against: Against | None = None
    """The base commit that was measured in turns with this one; None: times are held against baselines."""
    finished: bool = False
    trace: Mapping[str, Reading] = field(default_factory=dict)
    """The metrics of `core.timeline` over all that the profiler traced, not only inside the cases' ranges."""
    sessions: tuple[Session, ...] = ()
    """Of a run that `ci-perf merge` made of several; empty: all was measured in one session."""
    fuzzed: tuple[Fuzzed, ...] = ()
    """Of a run that verifies random cases in place of measuring."""
    sanitized: tuple[Sanitized, ...] = ()
    """Of a run that looks for defects with compute-sanitizer in place of measuring."""
