"""Jobs: the cases that a run selects, on which devices and in which order; and the shards of a plan."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated

from ci_perf.values.errors import ConfigError, did_you_mean
from ci_perf.values.extensible import NOT_EMPTY, DeviceKind, Extensible, NonNegative, Text, pattern
from ci_perf.values.kernel import CONTIGUOUS, KernelSpec, Params

LABEL = "ci-perf:"
"""Begins the name of the NVTX range of a case."""


@dataclass(frozen=True, slots=True)
class Job:
    """One case on one device, selected to run."""

    spec: KernelSpec
    case: str
    params: Params
    device: str
    """`cuda` or `cpu`."""
    seed: int = 0
    """Seed of the random values of its inputs."""
    strides: str = CONTIGUOUS
    """How its inputs lie in memory: one of STRIDE_KINDS."""

    @property
    def target(self) -> str:
        """The function that runs: `launch`, or `reference` on a device that `launch` does not support."""
        return "launch" if self.device in self.spec.devices else "reference"

    @property
    def runs(self) -> bool:
        """Whether the job can run on its device. A program has no reference to run instead."""
        return self.spec.program is None or self.device in self.spec.devices

    @property
    def is_command(self) -> bool:
        """Whether a program runs that does not measure itself."""
        return self.spec.program is not None and self.spec.program.kind == "command"

    @property
    def id(self) -> str:
        """The name of the case on the command line: `kernel/case`."""
        return f"{self.spec.name}/{self.case}"

    @property
    def label(self) -> str:
        """The name of the case's NVTX range."""
        return f"{LABEL}{self.id}"


def select_jobs(
    specs: Iterable[KernelSpec],
    patterns: Sequence[str],
    devices: Iterable[str],
    *,
    all_cases: bool = False,
    small: bool = False,
) -> tuple[Job, ...]:
    """Return a job for each case that matches a pattern, in the order of the files, device by device.

    A pattern is `KERNEL` or `KERNEL/CASE`, with the wildcards of fnmatch; no pattern selects all cases. On a CPU, and
    with `small` on a GPU too, only the `cpu_cases` are selected, unless `all_cases` is set or a pattern names the case.
    A pattern that matches no case raises ConfigError.

    >>> spec = KernelSpec("sdpa", "kernels/sdpa", "kernel.py", cases={"s128": {}, "s256": {}}, cpu_cases=("s128",))
    >>> [job.id for job in select_jobs([spec], [], ["cpu"])]
    ['sdpa/s128']
    >>> [job.id for job in select_jobs([spec], ["sdpa/s2*"], ["cpu"])]
    ['sdpa/s256']
    """
    specs = tuple(specs)
    names = [f"{spec.name}/{case}" for spec in specs for case in spec.cases]
    for asked in patterns:
        if not any(matches(name, asked) for name in names):
            known = names if "/" in asked else [spec.name for spec in specs]
            hint = did_you_mean(asked, known) or "`ci-perf list` shows all cases"
            raise ConfigError(f"no case matches `{asked}`", hint=hint)
    return tuple(
        Job(spec, case, params, device)
        for device in devices
        for spec in specs
        for case, params in spec.cases.items()
        if _selected(spec, case, patterns, small=(small or device == "cpu") and not all_cases)
    )


def _selected(spec: KernelSpec, case: str, patterns: Sequence[str], *, small: bool) -> bool:
    name = f"{spec.name}/{case}"
    matching = [p for p in patterns if matches(name, p)]
    if patterns and not matching:
        return False
    if not small or spec.cpu_cases is None or case in spec.cpu_cases:
        return True
    return any("/" in p for p in matching)


def matches(name: str, pattern: str) -> bool:
    """Return whether a pattern of the command line matches `kernel/case`."""
    return fnmatchcase(name, pattern if "/" in pattern else f"{pattern}/*")


def may_select(kernel: str, patterns: Sequence[str]) -> bool:
    """Return whether the patterns of the command line can select a case of a kernel of which only the name is known.

    >>> may_select("sdpa", []), may_select("sdpa", ["s*/x"]), may_select("sdpa", ["topk"])
    (True, True, False)
    """
    return not patterns or any(fnmatchcase(kernel, pattern.partition("/")[0]) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Shard(Extensible):
    """What one job measures."""

    name: Annotated[str, pattern("^[A-Za-z0-9_.-]+$")]
    """Unique in the plan and valid in the name of an artifact: `h100-1-of-2`."""
    runner: Annotated[tuple[Text, ...], NOT_EMPTY]
    """The labels of its runner, for `runs-on`."""
    cases: Annotated[tuple[Annotated[str, pattern("^[^/]+/[^/]+$")], ...], NOT_EMPTY]
    """`kernel/case`, in the order of the files."""
    patterns: Annotated[tuple[Text, ...], NOT_EMPTY]
    """What selects these cases on the command line: the name of a kernel that is not split, or `kernel/case`."""
    seconds: NonNegative
    """How long it will probably hold the GPU."""


@dataclass(frozen=True, slots=True)
class Plan(Extensible):
    """A plan: which job measures which cases. `merge` finds what is missing by it."""

    selection: tuple[Text, ...]
    """The patterns that chose the cases; empty: everything."""
    devices: Annotated[tuple[DeviceKind, ...], NOT_EMPTY]
    kernels: tuple[KernelSpec, ...]
    """The kernel.toml files of the planned cases, checked."""
    shards: Annotated[tuple[Shard, ...], NOT_EMPTY]
