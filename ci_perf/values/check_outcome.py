"""What random cases and compute-sanitizer found."""

from dataclasses import dataclass

from ci_perf.values.kernel import Params
from ci_perf.values.measurement import Failure


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
