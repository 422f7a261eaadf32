"""Shards: the cases of a plan shared out over jobs."""

from dataclasses import dataclass
from typing import Annotated

from ci_perf.values.extensible import NOT_EMPTY, DeviceKind, Extensible, NonNegative, Text, pattern
from ci_perf.values.kernel import KernelSpec


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
