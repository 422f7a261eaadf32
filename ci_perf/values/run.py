"""A run: everything that a verdict needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ci_perf.values.baseline import Baseline
from ci_perf.values.check_outcome import Fuzzed, Sanitized
from ci_perf.values.device import Device, Toolchain
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.measurement import Measurement, Pair
from ci_perf.values.provenance import Provenance
from ci_perf.values.trace import Reading


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
    """The metrics of `values.timeline_metrics` over all that the profiler traced, not only inside the cases' ranges."""
    sessions: tuple[Session, ...] = ()
    """Of a run that `ci-perf merge` made of several; empty: all was measured in one session."""
    fuzzed: tuple[Fuzzed, ...] = ()
    """Of a run that verifies random cases in place of measuring."""
    sanitized: tuple[Sanitized, ...] = ()
    """Of a run that looks for defects with compute-sanitizer in place of measuring."""
