"""From a profiler's file to the cases: which GPU kernels and counters belong to which range."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from ci_perf.core.metrics import Metric, combine_kernels
from ci_perf.core.model import CaseTimeline, Reading, TracedKernel
from ci_perf.profilers.counters import Counters
from ci_perf.profilers.kernel_names import normalize
from ci_perf.profilers.timeline import KernelStats, Timeline

_NO_SHAPE = (0, 0, 0)


def counts(name: str, patterns: Sequence[str]) -> bool:
    """Say whether a GPU kernel counts: a pattern may match anywhere in its name, in any case of letters.

    A pattern that is written in the style of another demangler matches too.

    >>> counts("void flash::fwd<128>(...)", ["FLASH"]), counts("memset", ["flash", "gemm"]), counts("memset", [])
    (True, False, True)
    """
    return not patterns or any(_matches(name, p) or _matches(normalize(name), normalize(p)) for p in patterns)


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name.lower(), f"*{pattern.lower()}*")


def case_timeline(timeline: Timeline, label: str, patterns: Sequence[str], launches: int) -> CaseTimeline | None:
    """Return the kernels that a case launched inside its range, or None where the trace has no such range."""
    for found in timeline.ranges:
        if found.name == label:
            kernels = tuple(_traced(k) for k in found.kernels if counts(k.name, patterns))
            return CaseTimeline(launches, kernels)
    return None


def program_timeline(kernels: Iterable[KernelStats]) -> CaseTimeline:
    """Return the kernels of one run of a program."""
    return CaseTimeline(1, tuple(_traced(kernel) for kernel in kernels))


def _traced(kernel: KernelStats) -> TracedKernel:
    shared = [bytes_ for bytes_ in (kernel.static_shared, kernel.dynamic_shared) if bytes_ is not None]
    return TracedKernel(
        name=kernel.name,
        count=kernel.count,
        total_ns=kernel.total_ns,
        median_ns=kernel.median_ns,
        grid=kernel.grid or _NO_SHAPE,
        block=kernel.block or _NO_SHAPE,
        registers_per_thread=kernel.registers_per_thread,
        shared_bytes=sum(shared) if shared else None,
    )


def case_counters(
    counters: Counters, label: str, patterns: Sequence[str], launches: int, metrics: Iterable[Metric]
) -> tuple[Mapping[str, Reading], ...]:
    """Return the named readings of each launch of a case; empty where its range holds no kernel that counts.

    The kernels of a range come launch by launch in the order of the file. Where their number is no multiple of the
    launches, a launch cannot be told from the next, and nothing is said of any.
    """
    metrics = tuple(metrics)
    mine = [launch for launch in counters.launches if label in launch.ranges and counts(launch.name, patterns)]
    if not mine:
        return ()
    if len(mine) % launches:
        reason = f"{len(mine)} GPU kernels in {launches} launches"
        return ({metric.name: Reading(None, metric.unit, reason) for metric in metrics},)
    each = len(mine) // launches
    return tuple(
        combine_kernels([launch.metrics for launch in mine[first : first + each]], metrics)
        for first in range(0, len(mine), each)
    )
