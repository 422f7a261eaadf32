"""Both sides of a change from two files of a profiler: two ncu reports or their CSV, or two traces."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from ci_perf.cli import inspection
from ci_perf.judge.causes import Side, Sides
from ci_perf.judge.causes.of_readings import side_of, side_of_launches, sides_of
from ci_perf.traces import chrome, filetype
from ci_perf.traces.attribution import program_timeline
from ci_perf.traces.document import Found
from ci_perf.traces.ncu.counters import Counters, Launch
from ci_perf.traces.nsys import activity as nsys_activity
from ci_perf.traces.timeline import Timeline
from ci_perf.values.errors import ProfileError
from ci_perf.values.job import LABEL
from ci_perf.values.trace import Reading

WHOLE = "the whole file"
_Of = TypeVar("_Of")
_Metrics = Mapping[str, Mapping[str, Reading]]


def compare(base: Path, head: Path, environ: Mapping[str, str]) -> dict[str, Sides]:
    """Return both sides of each part that both files have, by name of the part; ProfileError.

    Parts of ncu reports are the NVTX ranges that both have, else the GPU kernels of the same names, else the whole
    files. Parts of traces are the cases of ci-perf that both have, else the whole files.
    """
    found = [inspection.read(path, environ) for path in (base, head)]
    if all(isinstance(one, Counters) for one in found):
        sides = [_parts_of_counters(one) for one in found if isinstance(one, Counters)]
        for old, new in zip(*sides, strict=True):
            if common := [name for name in old if name in new]:
                return {name: sides_of(*_launches_of(old[name], new[name])) for name in common}
    if all(isinstance(one, Timeline) for one in found):
        old_parts, new_parts = (
            _parts_of_trace(one, _metrics(path, one, environ))
            for path, one in zip((base, head), found, strict=True)
            if isinstance(one, Timeline)
        )
        common = [name for name in old_parts if name in new_parts and name != WHOLE] or [WHOLE]
        return {name: _of_traces(old_parts[name], new_parts[name]) for name in common}
    kinds = " and ".join(_kind(one) for one in found)
    raise ProfileError(
        f"{base} and {head} cannot be compared: they are {kinds}",
        hint="give two ncu reports (.ncu-rep or raw CSV), or two traces (nsys's .sqlite or .nsys-rep, torch's .json)",
    )


def _kind(found: Found) -> str:
    if isinstance(found, Counters):
        return "an ncu report"
    return "a trace" if isinstance(found, Timeline) else "results of a benchmark"


def _parts_of_counters(counters: Counters) -> tuple[dict[str, list[Launch]], ...]:
    """Return the launches by NVTX range, then by GPU kernel where there are several, then all."""
    ranges: dict[str, list[Launch]] = {}
    kernels: dict[str, list[Launch]] = {}
    for launch in counters.launches:
        for name in launch.ranges[:1]:
            ranges.setdefault(name, []).append(launch)
        kernels.setdefault(launch.name, []).append(launch)
    whole = {WHOLE: list(counters.launches)}
    return ranges, kernels if len(kernels) > 1 else {}, whole


def _launches_of(base: Sequence[Launch], head: Sequence[Launch]) -> tuple[Side, Side]:
    """Return both sides of a part; of a case of ci-perf that was launched twice, the first launch."""
    of_case = all(launch.ranges and launch.ranges[0].startswith(LABEL) for launch in (*base, *head))
    if of_case and _is_doubled(base) and _is_doubled(head):
        base, head = base[: len(base) // 2], head[: len(head) // 2]
    old, new = ([(launch.name, launch.metrics) for launch in launches] for launches in (base, head))
    return side_of_launches(old), side_of_launches(new)


def _is_doubled(launches: Sequence[Launch]) -> bool:
    names = [launch.name for launch in launches]
    half = len(names) // 2
    return len(names) % 2 == 0 and names[:half] == names[half:]


def _metrics(path: Path, timeline: Timeline, environ: Mapping[str, str]) -> tuple[_Metrics, Mapping[str, Reading]]:
    """Return the metrics of ci-perf's ranges in a trace, and those of the whole trace."""
    names = {name for name in timeline.ranges if name.startswith(LABEL)}
    head = filetype.read_head(path)
    if head.startswith(filetype.SQLITE_MAGIC):
        return nsys_activity.read(path, names)
    if head.startswith(filetype.NSYS_MAGIC):
        with inspection.exported(path, environ) as database:
            return nsys_activity.read(database, names)
    trace = chrome.read(path)[0]
    return trace.metrics, trace.whole


def _parts_of_trace(timeline: Timeline, found: tuple[_Metrics, Mapping[str, Reading]]) -> dict[str, Side]:
    of_ranges, whole = found
    parts = {name: (timeline.inside([name]), of_ranges[name]) for name in of_ranges if name.startswith(LABEL)}
    parts[WHOLE] = (timeline.kernels, whole)
    return {
        name: side_of((), program_timeline(kernels, timeline.devices, metrics))
        for name, (kernels, metrics) in parts.items()
    }


def _of_traces(base: Side, head: Side) -> Sides:
    """Return both sides of a trace, whose change is that of the time from its beginning to its end."""
    spans = [side.values.get("range_ns") for side in (base, head)]
    known = [span for span in spans if span]
    return sides_of(base, head, known[1] / known[0] if len(known) == 2 else None)


def titles(parts: Mapping[str, _Of]) -> Iterator[tuple[str, _Of]]:
    """Yield the parts with the names that people know: a case without the mark of its range."""
    for name, part in parts.items():
        yield name.removeprefix(LABEL), part
