"""The machine that was measured, the programs on it that ci-perf uses, and where a run or a baseline comes from."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from ci_perf.values.extensible import OMIT_DEFAULT, Count, DeviceKind, Extensible, Positive, Text, pattern


@dataclass(frozen=True, slots=True)
class Device(Extensible):
    """The GPU or CPU that was measured; None is what the driver does not report.

    It decides whether two times may be compared.
    """

    kind: DeviceKind
    name: Text
    """As the driver or the system reports it."""
    compute_capability: Annotated[str, pattern(r"^[0-9]+\.[0-9]+$")] | None = None
    sm_count: Count | None = None
    """Streaming multiprocessors of a GPU, cores of a CPU."""
    memory_bytes: Count | None = None
    l2_bytes: Count | None = None
    sm_clock_max_hz: Positive | None = None
    """The highest clock that the driver allows, not the current one."""
    memory_clock_max_hz: Positive | None = None
    """Before doubling for the data rate."""
    memory_bus_bits: Count | None = None
    power_limit_w: Positive | None = None
    """Times under different power limits are not compared."""
    driver: str | None = None
    """Times under different driver branches (the number before the first dot) are not compared."""
    ecc: bool | None = None
    """Whether memory errors are corrected."""
    mig: bool | None = None
    """Whether the GPU is divided into instances."""
    cpu_model: Annotated[str | None, OMIT_DEFAULT] = None
    """Family, model and stepping of a CPU as Linux reports them, such as `25-17-1`: in virtual machines several models
    have one name. None: not known, or recorded by a version that did not read them."""

    @property
    def slug(self) -> str:
        """The device's folder below `baselines/`.

        >>> Device("cuda", "NVIDIA H100 80GB HBM3").slug
        'h100-80gb-hbm3'
        >>> Device("cpu", "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz").slug
        'cpu-intel-xeon-platinum-8481c-2-70ghz'
        >>> Device("cpu", "AMD EPYC", cpu_model="25-17-1").slugs
        ('cpu-amd-epyc-25-17-1', 'cpu-amd-epyc')
        """
        return self.slugs[0]

    @property
    def slugs(self) -> tuple[str, ...]:
        """The folders that may hold its baselines: its own, and of a CPU the one that its name alone gives."""
        name = re.sub(r"\((?:r|tm|c)\)|\bnvidia\b|\bcpu\b", " ", self.name.lower())
        slug = re.sub(r"[^a-z0-9]+", "-", name).strip("-") or "unknown"
        if self.kind != "cpu":
            return (slug,)
        return (*([f"cpu-{slug}-{self.cpu_model}"] if self.cpu_model else []), f"cpu-{slug}")


@dataclass(frozen=True, slots=True)
class Toolchain(Extensible):
    """Versions that a number may depend on; None: not installed or not known."""

    python: str | None = None
    torch: str | None = None
    cuda: str | None = None
    """The CUDA toolkit that torch was built with."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Other packages of the kernels' interpreter, from name to version."""
    nsys: str | None = None
    """Nsight Systems."""
    ncu: str | None = None
    """Nsight Compute."""


DIRTY = "-dirty"
"""The end of a commit whose files had changes when they were measured."""


def is_dirty(commit: str | None) -> bool:
    """Return whether measured files differed from their commit.

    >>> is_dirty("0123abc-dirty"), is_dirty("0123abc"), is_dirty(None)
    (True, False, False)
    """
    return (commit or "").endswith(DIRTY)


def plain_commit(commit: str | None) -> str:
    """Return a commit as git knows it; empty where there is none.

    >>> plain_commit("0123abc-dirty"), plain_commit(None)
    ('0123abc', '')
    """
    return (commit or "").removesuffix(DIRTY)


@dataclass(frozen=True, slots=True)
class Provenance(Extensible):
    """Where the numbers come from."""

    tool: Text
    """ci-perf and its version."""
    date: Annotated[str, pattern(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|\+00:00)$")]
    """UTC, ISO 8601."""
    command: str
    """The command line that measured."""
    commit: Annotated[str, pattern("^[0-9a-f]{7,64}(-dirty)?$")] | None = None
    """The commit of the repository with the kernels; ends in `-dirty` if files differed from the commit."""
    accepted_by: str | None = None
    """Who accepted these numbers as the baseline."""
    repository: Annotated[str | None, pattern("^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$"), OMIT_DEFAULT] = None
    """`owner/name` of the repository whose workflow measured; None outside of GitHub Actions. Runs only."""
    head: Annotated[str | None, pattern("^[0-9a-f]{40,64}$"), OMIT_DEFAULT] = None
    """The commit of the workflow's event: of a pull request its head, where `commit` is a merge commit."""
    shard: Annotated[str | None, OMIT_DEFAULT] = None
    """Which shard of a plan this run measured; None without a plan. Runs only."""


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
