"""Selects the GPU kernels that count: by patterns of their names, and of the NVTX ranges around them."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from ci_perf.traces.timeline import KernelStats, Timeline, hidden_by_graphs
from ci_perf.values.errors import ProfileError
from ci_perf.values.kernel_names import is_cut, normalize

_SHOWN = 5


def counts(name: str, patterns: Sequence[str]) -> bool:
    """Tell whether a GPU kernel counts: a pattern may match anywhere in its name, ignoring case.

    A pattern that is written in the style of another demangler matches too, and one with the number or the
    specialisation that a compiler gave a kernel matches it under any other.

    >>> counts("void flash::fwd<128>(...)", ["FLASH"]), counts("memset", ["flash", "gemm"]), counts("memset", [])
    (True, False, True)
    >>> [counts(f"triton_poi_fused_{end}", ["triton_poi_fused_add_0"]) for end in ("add_3", "add_relu_0")]
    [True, False]
    """
    return not patterns or any(
        # the normal form of a pattern whose end was a changing part must match to the end of the name
        _matches(name, f"{p}*") or _matches(normalize(name), normalize(p) + ("" if is_cut(p) else "*"))
        for p in patterns
    )


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name.lower(), f"*{pattern.lower()}")


def inside(names: Iterable[str], patterns: Sequence[str]) -> bool:
    """Say whether one of these NVTX ranges counts: a pattern is that of the whole name; without patterns all do.

    >>> inside(["epoch", "step[3]"], ["step[3]"]), inside(["epoch"], ["step*"]), inside([], [])
    (True, False, True)
    """
    return not patterns or any(name in patterns or any(fnmatchcase(name, p) for p in patterns) for name in names)


def counted_kernels(timeline: Timeline, ranges: Sequence[str], patterns: Sequence[str]) -> tuple[KernelStats, ...]:
    """Return the kernels that count, or raise a ProfileError that says why there are none.

    A kernel counts if a pattern matches its name and it was launched inside an NVTX range whose whole name a pattern of
    `ranges` matches; without patterns all do.
    """
    if not timeline.has_kernel_data:
        raise ProfileError("; ".join(timeline.warnings) or "no kernel was traced")
    if timeline.graph_count:
        raise ProfileError(hidden_by_graphs(timeline.graph_count))
    kernels = timeline.kernels
    if ranges:
        chosen = chosen_ranges(timeline, ranges)
        if not chosen:
            raise ProfileError(f"no NVTX range is called {listed(ranges)}; the trace has {listed([*timeline.ranges])}")
        kernels = timeline.inside(chosen)
    found = tuple(kernel for kernel in kernels if counts(kernel.name, patterns))
    if not found:
        inside = f" inside {listed(ranges)}" if ranges else ""
        names = list(dict.fromkeys(kernel.short_name for kernel in kernels))
        raise ProfileError(f"no kernel{inside} is called {listed(patterns or ['*'])}; there ran {listed(names)}")
    return found


def chosen_ranges(timeline: Timeline, patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the ranges whose kernels count; none where all kernels do, in a range or not."""
    return tuple(name for name in timeline.ranges if patterns and inside([name], patterns))


def parts_of_run(
    timeline: Timeline, kernels: Sequence[KernelStats], ranges: Sequence[str], patterns: Sequence[str]
) -> dict[tuple[str, str], tuple[int, int]]:
    """Return count and total ns of the kernels that count, by kernel name and by range name.

    A kernel in ranges of two names is in the sum of each.
    """
    found: dict[tuple[str, str], tuple[int, int]] = {}
    parts = [(("kernel", kernel.name), kernel) for kernel in kernels]
    parts += [(("range", name), k) for name in ranges for k in timeline.inside([name]) if counts(k.name, patterns)]
    for key, kernel in parts:
        count, total_ns = found.get(key, (0, 0))
        found[key] = count + kernel.count, total_ns + kernel.total_ns
    return found


def listed(names: Sequence[str]) -> str:
    """List the first few names, or `none`.

    >>> listed(["a", "b", "c", "d", "e", "f"]), listed([])
    ('`a`, `b`, `c`, `d`, `e` and 1 more', 'none')
    """
    if not names:
        return "none"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(f"`{name[:60]}`" for name in names[:_SHOWN]) + more
