"""Programs of the machine that ci-perf uses: profilers and the interpreter of the kernels."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter that can run kernels."""

    path: str
    version: str
    has_torch: bool


@dataclass(frozen=True, slots=True)
class Importer:
    """The part of nsys that turns a recording into a report."""

    expected: str
    """The folder where nsys looks for it."""
    found: str | None
    """The folder where it is."""
    lacks: str | None = None
    """The first shared library that is missing."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of NVIDIA on this machine. Without a version it could not be started: `problem` says why."""

    path: str
    version: str | None
    source: str = "PATH"
    """How it was found: a variable such as `CI_PERF_NCU`, `PATH`, or a well-known folder."""
    problem: str = ""
    importer: Importer | None = None
    """For nsys, if its folders show it."""

    @property
    def complete(self) -> bool:
        """Whether it starts and, for nsys, can write a report."""
        importer = self.importer
        return self.version is not None and (
            importer is None or (importer.found == importer.expected and importer.lacks is None)
        )
