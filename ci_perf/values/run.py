"""A run: everything that a verdict needs; and what random cases and compute-sanitizer found."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

from ci_perf.values.baseline import Baseline, KnownScatter
from ci_perf.values.device import Device, Provenance, Toolchain
from ci_perf.values.extensible import (
    NOT_EMPTY,
    OMIT_DEFAULT,
    Count,
    DeviceKind,
    Extensible,
    Keyword,
    Name,
    NonNegative,
    Positive,
    Target,
    Text,
    Whole,
    one_of,
)
from ci_perf.values.kernel import KernelSpec, Params
from ci_perf.values.measurement import Failure, Measurement, Pair
from ci_perf.values.merged import Creep
from ci_perf.values.reasons import Reason
from ci_perf.values.trace import Reading


@dataclass(frozen=True, slots=True)
class FuzzFailure(Extensible):
    """A random case that failed, and the smallest one found that fails in the same way."""

    case: Text
    """`fuzz-SEED-NUMBER`: this name runs it again."""
    params: Params
    failure: Failure
    smallest: Params | None = None
    """The smallest parameters found that fail in the same way; None: no smaller ones."""


@dataclass(frozen=True, slots=True)
class Fuzzed(Extensible):
    """The random cases of one kernel on one device."""

    kernel: Name
    device: DeviceKind
    target: Target
    """The function that ran: `reference` where `launch` does not run on the device."""
    seed: Whole
    cases: Whole
    """How many cases were verified."""
    failures: tuple[FuzzFailure, ...] = ()
    refused: Annotated[Whole, OMIT_DEFAULT] = 0
    """In how many cases `launch` refused the inputs, as its kernel.toml allows it to."""


@dataclass(frozen=True, slots=True)
class Defect(Extensible):
    """What compute-sanitizer reported at one place of one kernel."""

    message: Text
    function: str = ""
    """The GPU kernel, or the function in it; empty: not in a kernel, or unknown."""
    place: str = ""
    """`file:line`; empty where there is no line information."""
    thread: str = ""
    """The first thread with the defect: `(1,0,0)`."""
    block: str = ""
    count: Count = 1
    """How often it was reported."""


@dataclass(frozen=True, slots=True)
class Sanitized(Extensible):
    """One case under one tool of compute-sanitizer. It passed if it has no errors, no failure and no problem."""

    kernel: Name
    case: Text
    device: DeviceKind
    tool: Annotated[str, one_of("memcheck", "racecheck", "initcheck", "synccheck")]
    errors: Whole = 0
    """As the tool counts them, which may be more than it printed."""
    defects: tuple[Defect, ...] = ()
    failure: Failure | None = None
    """How the case itself failed."""
    problem: str = ""
    """Why the tool could not check the case; empty: it could."""


CAUSES = (
    "regression",
    "failed",
    "gate",
    "missing",
    "new",
    "inconclusive",
    "not-comparable",
    "gate-not-measured",
    "creep",
)
"""What can make the exit status 1."""


@dataclass(frozen=True, slots=True)
class Against(Extensible):
    """The base commit of a run, measured in turns with the head; and the control, base against base."""

    ref: Text
    """The setting `against`: a commit, a branch, `merge-base:main`, `base`."""
    commit: Text
    gone: tuple[str, ...] = ()
    """What the base has and the head has not, under any name: `kernel`, or `kernel/case`."""
    control_case: str = ""
    """`kernel/case` of the control; empty: no control was measured."""
    control: tuple[Pair, ...] = ()
    scatter: Annotated[Mapping[str, KnownScatter], OMIT_DEFAULT] = field(default_factory=dict)
    """By `kernel/case`: what the baselines in the tree of the base know of the scatter, never those of the head."""
    creep: Annotated[tuple[Creep, ...], OMIT_DEFAULT] = ()
    """Of the selected cases, what the ledger of merges in the tree of the base shows."""


@dataclass(frozen=True, slots=True)
class Confirmation(Extensible):
    """Cases that a baseline calls slower or faster, measured in turns with the commit that the baseline is of."""

    device: DeviceKind
    cases: Annotated[tuple[Text, ...], NOT_EMPTY]
    """`kernel/case`, on this device."""
    against: Against | None = None
    """The commit, and its control."""
    measurements: tuple[Measurement, ...] = ()
    """Of these cases, with pairs."""
    problem: str = ""
    """Why they could not be measured in turns; empty: they were."""
    session: Annotated[Whole, OMIT_DEFAULT] = 0
    """In a merged run the index of the session that measured them."""


@dataclass(frozen=True, slots=True)
class Note(Extensible):
    """Something that was not done or not normal, what that means, and how to fix it."""

    code: Text
    message: Text
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Policy(Extensible):
    """The rules of the verdict. Fractions are fractions: 0.03 is 3 %."""

    regression: Positive = 0.03
    """head / base - 1 from which slower is a regression."""
    speedup: Positive = 0.10
    """base / head - 1 from which faster is a speedup."""
    confidence: Annotated[Positive, Keyword("exclusiveMaximum", 1)] = 0.99
    """Of the interval of a change, before it is adjusted over the cases of the run."""
    cv_warning: Positive = 0.12
    """sd / mean of the samples from which the report warns."""
    temperature_warning_c: float = 80.0
    """Temperature of the GPU in degrees Celsius from which the report warns."""
    fail_on: Annotated[tuple[Annotated[str, one_of(*CAUSES)], ...], Keyword("uniqueItems", True)] = (
        "regression",
        "failed",
        "gate",
        "missing",
    )
    """What makes the exit status 1."""


@dataclass(frozen=True, slots=True)
class Session(Extensible):
    """One session of a merged run: the machine and the control of one job."""

    name: str
    """The name of the shard in the plan; empty without a plan."""
    devices: Annotated[tuple[Device, ...], NOT_EMPTY]
    toolchain: Toolchain
    finished: bool
    """False: the job was stopped."""
    against: Against | None = None
    trace: Mapping[str, Reading] = field(default_factory=dict)
    among: Annotated[Whole, OMIT_DEFAULT] = 0
    """The number of cases of the plan that the job belongs to; 0: it was not told."""
    memory_errors: str = ""
    """The memory errors of its GPU during the session, in words; empty: none are known."""


@dataclass(frozen=True, slots=True)
class Run(Extensible):
    """A run: everything that a verdict needs, so that `replay` makes the same report anywhere."""

    provenance: Provenance
    selection: tuple[Text, ...]
    """The patterns that chose the cases; empty: everything, so that a case without a measurement is MISSING."""
    policy: Policy
    kernels: tuple[KernelSpec, ...]
    """The kernel.toml files of the selected cases, checked."""
    devices: tuple[Device, ...]
    toolchain: Toolchain
    measurements: tuple[Measurement, ...] = ()
    """One for each case and device."""
    baselines: tuple[Baseline, ...] = ()
    """What the run is compared with: the rows of the repository's baselines that the selection needs."""
    notes: tuple[Note, ...] = ()
    planted: Annotated[float, Keyword("exclusiveMinimum", -1)] | None = None
    """A slowdown that was planted on purpose, as a fraction; such a run can never become a baseline."""
    gpu_seconds: NonNegative = 0.0
    """How long the run held the GPU."""
    against: Against | None = None
    """The base commit that was measured in turns with this one; None: times are compared with baselines."""
    finished: bool = False
    """False: the run was stopped before its end."""
    trace: Mapping[str, Reading] = field(default_factory=dict)
    """The metrics of the timeline over all that the profiler traced, not only inside the cases' ranges."""
    sessions: Annotated[tuple[Session, ...], OMIT_DEFAULT] = ()
    """The sessions of a run that `ci-perf merge` made of several; empty: there was one session."""
    among: Annotated[Whole, OMIT_DEFAULT] = 0
    """The number of cases of the plan that this shard belongs to; 0: it was not told, or there is no plan."""
    fuzzed: Annotated[tuple[Fuzzed, ...], OMIT_DEFAULT] = ()
    """The random cases of `run --fuzz`, which times nothing."""
    sanitized: Annotated[tuple[Sanitized, ...], OMIT_DEFAULT] = ()
    """The cases of `run --sanitize`, which times nothing."""
    confirmations: Annotated[tuple[Confirmation, ...], OMIT_DEFAULT] = ()
    """The cases that a baseline calls changed, in turns with the commit that it is of."""

    def spec_of(self, measurement: Measurement) -> KernelSpec:
        """Return the kernel of a measurement; a file without it cannot be read."""
        return next(spec for spec in self.kernels if spec.name == measurement.kernel)


def sessions_of(run: Run) -> Iterator[Run]:
    """Return each session as a separate run; a run that was not merged is one session."""
    if not run.sessions:
        yield run
        return
    others = tuple(note for note in run.notes if note.code != Reason.MEMORY_ERRORS)
    for index, session in enumerate(run.sessions):
        broken = (Note(Reason.MEMORY_ERRORS, session.memory_errors),) if session.memory_errors else ()
        yield replace(
            run,
            notes=(*others, *broken),
            devices=session.devices,
            toolchain=session.toolchain,
            finished=session.finished,
            against=session.against,
            trace=session.trace,
            among=session.among,
            measurements=tuple(m for m in run.measurements if m.session == index),
            sessions=(),
        )


def on_device(run: Run, device: Device) -> tuple[Run, ...]:
    """Return the sessions on devices of this model, each with what was measured on that device alone."""
    found = []
    for session in sessions_of(run):
        kinds = {d.kind for d in session.devices if d.slug == device.slug}
        mine: tuple[Measurement, ...] = tuple(m for m in session.measurements if m.device in kinds)
        if mine:
            found.append(replace(session, measurements=mine))
    return tuple(found)
