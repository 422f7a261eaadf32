"""Both sides of a change from two files of a profiler: two ncu reports or their CSV, or two traces."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ci_perf.cli import inspection
from ci_perf.judge.causes import Side, Sides
from ci_perf.judge.causes.machine_code import values_of_code
from ci_perf.judge.causes.of_readings import side_of, side_of_launches, sides_of
from ci_perf.judge.launches import traced_values
from ci_perf.measure.both_sides import codes_of, lines_in_base
from ci_perf.traces import chrome, filetype
from ci_perf.traces.attribution import longest_of_each, program_timeline
from ci_perf.traces.document import Found
from ci_perf.traces.ncu.code import Code, opcodes
from ci_perf.traces.ncu.counters import Counters, Launch
from ci_perf.traces.ncu.lines import source_lines
from ci_perf.traces.nsys import activity as nsys_activity
from ci_perf.traces.selection import listed
from ci_perf.traces.timeline import KernelStats, Timeline
from ci_perf.values.errors import ProfileError
from ci_perf.values.job import LABEL
from ci_perf.values.kernel_names import matches
from ci_perf.values.metrics import wanted
from ci_perf.values.trace import Reading, SourceLine

WHOLE = "the whole file"
_LACKING = 0.25
"""The part of the counters that causes are read from which may be missing without a word."""
_Metrics = Mapping[str, Mapping[str, Reading]]


@dataclass(frozen=True, slots=True)
class Part:
    """Both sides of a part of two files."""

    sides: Sides
    base_lines: tuple[SourceLine, ...] = ()
    """The source lines of the machine code, where a file has them."""
    head_lines: tuple[SourceLine, ...] = ()
    notes: tuple[str, ...] = ()
    """What makes the comparison doubtful."""


def compare(base: Path, head: Path, environ: Mapping[str, str]) -> dict[str, Part]:
    """Return each part that both files have, by its name; ProfileError.

    Parts of ncu reports are the NVTX ranges that both have, else the GPU kernels of the same names, else the whole
    files. Parts of traces are the cases of ci-perf that both have, else the whole files.
    """
    found = [inspection.read(path, environ) for path in (base, head)]
    old, new = found
    if isinstance(old, Counters) and isinstance(new, Counters):
        return _parts_of_reports((base, head), old, new)
    if isinstance(old, Timeline) and isinstance(new, Timeline):
        old_parts = _parts_of_trace(old, _metrics(base, old, environ))
        new_parts = _parts_of_trace(new, _metrics(head, new, environ))
        common = [name for name in old_parts if name in new_parts and name != WHOLE] or [WHOLE]
        names = [{kernel.name for kernel in one.kernels} for one in (old, new)]
        notes = (*device_note(*({gpu.name for gpu in one.devices} for one in (old, new))), *_stranger_note(*names))
        return {name: Part(_of_traces(old_parts[name], new_parts[name]), notes=notes) for name in common}
    kinds = " and ".join(_kind(one) for one in found)
    raise ProfileError(
        f"{base} and {head} cannot be compared: they are {kinds}",
        hint="give two ncu reports (.ncu-rep or raw CSV), or two traces (nsys's .sqlite or .nsys-rep, torch's .json)",
    )


def _kind(found: Found) -> str:
    if isinstance(found, Counters):
        return "an ncu report"
    return "a trace" if isinstance(found, Timeline) else "results of a benchmark"


def _parts_of_reports(files: tuple[Path, Path], base: Counters, head: Counters) -> dict[str, Part]:
    codes = [codes_of(file) for file in files]
    devices = device_note(*({_device(launch) for launch in one.launches} for one in (base, head)))
    strangers = _stranger_note(*({launch.name for launch in one.launches} for one in (base, head)))
    found = {}
    for old, new in zip(_parts_of_counters(base), _parts_of_counters(head), strict=True):
        for name in (name for name in old if name in new):
            sides = _sides_of(old[name], new[name], *(_of_part(of, name) for of in codes))
            old_lines, new_lines = (source_lines(_of_part(of, name)) for of in codes)
            found[name] = Part(
                sides,
                old_lines,
                lines_in_base(new_lines, old_lines, files),
                (*devices, *strangers, *lacking_note(sides)),
            )
        if found:
            return found
    raise AssertionError("the whole files are a part of both")


def _of_part(codes: Iterable[Code], name: str) -> list[Code]:
    """Return the machine code of a part, of a mean launch."""
    return [code.of_one_launch for code in codes if name in (WHOLE, code.name, *code.ranges)]


def _device(launch: Launch) -> str:
    """Return the name of the GPU of a launch, which ncu has as a metric; empty where it does not say."""
    named = launch.metrics.get("device__attribute_display_name")
    return named.reason.removeprefix("text: ") if named else ""


def device_note(base: Collection[str], head: Collection[str]) -> tuple[str, ...]:
    """Return a note on sides that were measured on different GPUs, which change every counter."""
    old, new = (", ".join(sorted(filter(None, names))) for names in (base, head))
    if not old or not new or old == new:
        return ()
    return (f"the base was measured on {old}, the head on {new}: their times and counters differ without a change",)


def _stranger_note(base: Collection[str], head: Collection[str]) -> tuple[str, ...]:
    if not base or not head or any(all(pair) for pair in matches(list(base), list(head))):
        return ()
    return (f"the files have no GPU kernel in common: {listed(sorted(base))} and {listed(sorted(head))}",)


def lacking_note(sides: Sides) -> tuple[str, ...]:
    """Return a note on sides that lack many of the counters that causes are read from."""
    names = [metric.name for metric in wanted((), explain=True)]
    missing = [name for name in names if name not in sides.base.values or name not in sides.head.values]
    if len(missing) <= _LACKING * len(names):
        return ()
    return (
        f"{len(missing)} of the {len(names)} counters that causes are read from are not known of both sides"
        f" ({listed(missing)}): a cause may stay unseen; `ncu --set full` counts them all",
    )


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


def _sides_of(base: Sequence[Launch], head: Sequence[Launch], old: Iterable[Code], new: Iterable[Code]) -> Sides:
    """Return both sides of a part; of a case of ci-perf that was launched twice, the first launch.

    Where a kernel was profiled more often on one side, each kernel counts once, with its longest launch.
    """
    of_case = all(launch.ranges and launch.ranges[0].startswith(LABEL) for launch in (*base, *head))
    if of_case and _is_doubled(base) and _is_doubled(head):
        base, head = base[: len(base) // 2], head[: len(head) // 2]
    counted = [Counter(launch.name for launch in launches) for launches in (base, head)]
    if any(counted[0][name] != counted[1][name] for name in counted[0] if name in counted[1]):
        base, head = longest_of_each(base), longest_of_each(head)
    return sides_of(_side_of(base, old), _side_of(head, new))


def _side_of(launches: Sequence[Launch], codes: Iterable[Code]) -> Side:
    side = side_of_launches([(launch.name, launch.metrics) for launch in launches])
    return replace(side, values={**side.values, **values_of_code(opcodes(codes))})


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
    return {name: _side_of_kernels(timeline, *part) for name, part in parts.items()}


def _side_of_kernels(timeline: Timeline, kernels: Sequence[KernelStats], metrics: Mapping[str, Reading]) -> Side:
    """Return a side of the kernels of a trace, with how they were launched if they ran on GPUs of one kind."""
    capabilities = {gpu.compute_capability for gpu in timeline.devices}
    found = program_timeline(kernels, timeline.devices, metrics)
    side = side_of((), found)
    launches = traced_values(found, capabilities.pop() if len(capabilities) == 1 else None)
    return replace(side, values={**launches, **side.values})


def _of_traces(base: Side, head: Side) -> Sides:
    """Return both sides of a trace, whose change is that of the time from its beginning to its end."""
    spans = [side.values.get("range_ns") for side in (base, head)]
    known = [span for span in spans if span]
    return sides_of(base, head, known[1] / known[0] if len(known) == 2 else None)


def titles(parts: Mapping[str, Part]) -> Iterator[tuple[str, Part]]:
    """Yield the parts with the names that people know: a case without the mark of its range."""
    for name, part in parts.items():
        yield name.removeprefix(LABEL), part
