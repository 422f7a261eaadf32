"""A run: everything that a verdict needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from ci_perf.values.baseline import Baseline
from ci_perf.values.check_outcome import Fuzzed, Sanitized
from ci_perf.values.device import Device, Toolchain
from ci_perf.values.extensible import NOT_EMPTY, OMIT_DEFAULT, Extensible, Keyword, NonNegative, Positive, Text, one_of
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.measurement import Measurement, Pair
from ci_perf.values.provenance import Provenance
from ci_perf.values.trace import Reading

CAUSES = ("regression", "failed", "gate", "missing", "new", "inconclusive", "not-comparable", "gate-not-measured")
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
    fuzzed: Annotated[tuple[Fuzzed, ...], OMIT_DEFAULT] = ()
    """The random cases of `run --fuzz`, which times nothing."""
    sanitized: Annotated[tuple[Sanitized, ...], OMIT_DEFAULT] = ()
    """The cases of `run --sanitize`, which times nothing."""
