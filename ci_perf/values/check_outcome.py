"""What random cases and compute-sanitizer found."""

from dataclasses import dataclass
from typing import Annotated

from ci_perf.values.extensible import OMIT_DEFAULT, Count, DeviceKind, Extensible, Name, Target, Text, Whole, one_of
from ci_perf.values.kernel import Params
from ci_perf.values.measurement import Failure


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
