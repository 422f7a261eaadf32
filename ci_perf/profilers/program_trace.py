"""A program's trace as one number: the GPU kernels that count, summed."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from ci_perf.core.errors import ProfileError
from ci_perf.profilers.attribution import counts
from ci_perf.profilers.timeline import KernelStats, Timeline, hidden_by_graphs

_SHOWN = 5


def counted_kernels(
    timeline: Timeline,
    ranges: Sequence[str],
    patterns: Sequence[str],
    read_inside: Callable[[Sequence[str]], Sequence[KernelStats]],
) -> tuple[KernelStats, ...]:
    """Return the kernels that count, or raise a ProfileError that says why there are none.

    A kernel counts if a pattern matches its name and it was launched inside an NVTX range whose whole name a pattern of
    `ranges` matches; without patterns all do. `read_inside` reads the trace again for the kernels inside ranges of
    several names, where the sum over the names would count a kernel twice that lies in two of them.
    """
    if not timeline.has_kernel_data:
        raise ProfileError("; ".join(timeline.warnings) or "no kernel was traced")
    if timeline.graph_count:
        raise ProfileError(hidden_by_graphs(timeline.graph_count))
    kernels: Sequence[KernelStats] = timeline.kernels
    if ranges:
        chosen = [r for r in timeline.ranges if r.name in ranges or any(fnmatchcase(r.name, p) for p in ranges)]
        if not chosen:
            raise ProfileError(
                f"no NVTX range is called {_listed(ranges)}; the trace has {_listed([r.name for r in timeline.ranges])}"
            )
        kernels = chosen[0].kernels if len(chosen) == 1 else read_inside([r.name for r in chosen])
    found = tuple(kernel for kernel in kernels if counts(kernel.name, patterns))
    if not found:
        inside = f" inside {_listed(ranges)}" if ranges else ""
        names = list(dict.fromkeys(kernel.short_name for kernel in kernels))
        raise ProfileError(f"no kernel{inside} is called {_listed(patterns or ['*'])}; there ran {_listed(names)}")
    return found


def _listed(names: Sequence[str]) -> str:
    if not names:
        return "none"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(f"`{name[:60]}`" for name in names[:_SHOWN]) + more
