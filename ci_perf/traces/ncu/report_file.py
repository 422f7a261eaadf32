"""Reads .ncu-rep files with NVIDIA's `ncu_report` package; needs neither ncu nor a GPU."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from ci_perf.traces import guards
from ci_perf.traces.ncu import blocks, units
from ci_perf.traces.ncu.counters import Counters, Launch, failed_launches, range_name
from ci_perf.values.errors import ProfileError
from ci_perf.values.trace import Reading

_Made = TypeVar("_Made")


def read(path: Path) -> Counters:
    """Read a report that begins with ncu's magic bytes; one that is cut off or holds no launch is an error."""
    # NOTE: ncu_report 2026.3 opens truncated and empty files without an error.
    held = blocks.check(path)
    launches = each_launch(path, _launch)
    if not launches:
        raise ProfileError(f"{path}: the report holds no launch", hint="ncu profiled no kernel; its output says why")
    if len(launches) < held.launches:
        raise ProfileError(
            f"{path}: {len(launches)} of {held.launches} launches can be read: the report is damaged",
            hint="the disk or the upload may have filled up; profile again",
        )
    return Counters(launches, tuple(failed_launches(launches)))


def each_launch(path: Path, make: Callable[[int, Any], _Made]) -> tuple[_Made, ...]:
    """Return what `make` reads of each launch of a report that is whole, given its place and the package's object.

    ProfileError for what the package raises.
    """
    try:
        # Imported only here: the package is large, and exists for x86-64 Linux alone.
        import ncu_report
    except (ImportError, OSError) as error:
        raise ProfileError(
            f"{path}: the package that reads ncu reports cannot be imported ({error})",
            hint="`pip install ncu-report` on x86-64 Linux, or `ncu --import REPORT --page raw --csv` and read that",
        ) from None
    try:
        report = ncu_report.load_report(str(path))
        ranges = (report.range_by_idx(place) for place in range(report.num_ranges()))
        found = (each.action_by_idx(place) for each in ranges for place in range(each.num_actions()))
        return tuple(make(index, action) for index, action in enumerate(found))
    except Exception as error:  # the package raises whatever its C++ raises; damaged names are a TypeError
        raise ProfileError(
            f"{path}: ncu_report cannot read it: {error}",
            hint="the report is damaged, or of a newer ncu; profile again",
        ) from error


def name_of(action: Any) -> str:  # noqa: ANN401 - the package has no types
    """Return the name of a launched kernel, demangled where the report has that name."""
    return str(action.name(action.NameBase_DEMANGLED) or action.name())


def ranges_of(action: Any) -> tuple[str, ...]:  # noqa: ANN401
    """Return the NVTX ranges around a launch, outermost first."""
    return tuple(_ranges(action.nvtx_state()))


def _launch(index: int, action: Any) -> Launch:  # noqa: ANN401
    return Launch(
        index=index,
        name=name_of(action),
        ranges=ranges_of(action),
        metrics={name: _reading(action.metric_by_name(name)) for name in action.metric_names()},
    )


def _reading(metric: Any) -> Reading:  # noqa: ANN401
    unit = units.parse_unscaled(metric.unit() or "")  # the file holds base units only
    if not metric.has_value():
        return Reading(None, unit.base, "not collected")
    if metric.kind() in {metric.ValueKind_STRING, metric.ValueKind_ANY, metric.ValueKind_UNKNOWN}:
        return Reading(None, unit.base, f"text: {metric.as_string()}")
    value = float(metric.as_double())
    if reason := guards.impossible(value, unit.base):
        return Reading(None, unit.base, reason)
    return Reading(unit.scaled(value), unit.base)


def _ranges(state: Any) -> Iterator[str]:  # noqa: ANN401
    for domain_id in state.domains() if state else ():
        domain = state.domain_by_id(domain_id)
        for name in (*domain.push_pop_ranges(), *domain.start_end_ranges()):
            yield range_name(domain.name(), name)
