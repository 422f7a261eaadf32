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
    """How many were compared with their reference."""
    failures: tuple[FuzzFailure, ...] = ()
    refused: int = 0
    """In how many `launch` refused the inputs with a ValueError, as its kernel.toml allows."""


@dataclass(frozen=True, slots=True)
class Defect:
    """What compute-sanitizer reported at one place of one kernel."""

    message: str
    function: str = ""
    """The GPU kernel, or the function in it; empty: not in a kernel, or not said."""
    place: str = ""
    """`file:line`; empty where there is no line information."""
    thread: str = ""
    """The first that was reported: `(1,0,0)`."""
    block: str = ""
    count: int = 1
    """How often it was reported."""


@dataclass(frozen=True, slots=True)
class Sanitized:
    """One case under one tool of compute-sanitizer; without errors, failure and problem, it passed."""

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
    """Why the tool could not check the case."""
