"""What can be measured in a repository, and the files that are drafted for it. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["triton", "cuda", "torch", "google_benchmark", "nvbench"]
DESCRIPTIONS: Mapping[Kind, str] = {
    "triton": "wrapper of a Triton kernel",
    "cuda": "CUDA kernel",
    "google_benchmark": "program with google-benchmark",
    "nvbench": "program with nvbench",
    "torch": "function of torch",
}
"""In the order in which they are proposed."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A function, a CUDA kernel or a program that ci-perf can measure."""

    kind: Kind
    path: str
    """Its file, relative to the root of the repository: of a target of CMake the CMakeLists.txt."""
    name: str
    """Of the function, the kernel, the target or the executable."""
    line: int = 0
    """Where it is defined; 0 for a program."""

    @property
    def place(self) -> str:
        """The file with the name, as `ci-perf init` takes it."""
        return self.path if self.path.rpartition("/")[2] == self.name else f"{self.path}:{self.name}"

    def __str__(self) -> str:
        return f"{self.place} ({DESCRIPTIONS[self.kind]})"

    @property
    def kernel_name(self) -> str:
        """A name for its folder: that of the function without what only says how it is made."""
        return re.sub(r"[^A-Za-z0-9_.-]+", "_", self.name).strip("._-") or "kernel"


@dataclass(frozen=True, slots=True)
class Draft:
    """The files of a kernel's folder, by name, before they are written."""

    files: Mapping[str, str]
    open_work: str = ""
    """What a person has to write before the kernel can be measured; empty where it runs as it is."""


def sorted_candidates(found: list[Candidate]) -> list[Candidate]:
    """Return the candidates in the order in which they are proposed; each place once."""
    kinds = list(DESCRIPTIONS)
    unique = {candidate.place: candidate for candidate in reversed(found)}
    return sorted(unique.values(), key=lambda one: (kinds.index(one.kind), one.path, one.line))
