"""Shards: the cases of a plan shared out over jobs."""

from dataclasses import dataclass

from ci_perf.values.kernel import KernelSpec


@dataclass(frozen=True, slots=True)
class Shard:
    """What one job measures."""

    name: str
    """Unique in the plan; fit for the name of an artifact: `h100-1-of-2`."""
    runner: tuple[str, ...]
    """The labels of its runner, for `runs-on`."""
    cases: tuple[str, ...]
    """`kernel/case`, in the order of the files."""
    patterns: tuple[str, ...]
    """What selects these cases on the command line: a kernel that is not split goes by its name."""
    seconds: float
    """How long it will probably hold the GPU."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is expected of all jobs together: by it `merge` finds what is missing."""

    selection: tuple[str, ...]
    """The patterns that chose the cases; empty: everything."""
    devices: tuple[str, ...]
    """Kinds: `cuda`, `cpu` or both."""
    kernels: tuple[KernelSpec, ...]
    shards: tuple[Shard, ...]
