"""Why one case of a run changed: the profiles of both sides, given to the rules of `causes`."""

import statistics
from collections.abc import Sequence
from dataclasses import replace

from ci_perf.judge.causes import Explanation, Side, Sides, explain, explain_host
from ci_perf.judge.causes.explanation import HOST_ALONE, OUTSIDE
from ci_perf.judge.causes.lines import line_change
from ci_perf.judge.causes.machine_code import values_of_code
from ci_perf.judge.causes.of_readings import as_often, side_of, sides_of
from ci_perf.judge.clocks import clock_ratio
from ci_perf.judge.finding import Finding
from ci_perf.judge.launches import comparable, launch_values
from ci_perf.judge.stats import process_medians
from ci_perf.values.device import Device
from ci_perf.values.measurement import Measurement
from ci_perf.values.trace import SideProfile, SourceLine

_CLOCK = "sm_clock_hz"
_WITH_HOST = ("wall", "google-benchmark", "pytest-benchmark")
"""How the names of methods begin whose times are those of the host too."""
_BENCHMARKS = ("google-benchmark", "nvbench", "pytest-benchmark", "triton")
"""The same of programs that choose how often they run."""
_GPU_ALONE = ("cuda-graph", "cupti", "nsys-kernel-sum")
"""The same of methods whose times are those of the GPU alone."""


def with_explanation(finding: Finding, measurement: Measurement, device: Device) -> Finding:
    """Add why a case became slower or faster, or what changed on the host, where both sides were profiled.

    A case that did not change is explained by nothing on the GPU.
    """
    ratio = finding.change.point if finding.change else None
    sides = sides_of_case(measurement, device, ratio)
    if sides is None:
        return finding
    found = _explanation(sides, measurement.methods) if finding.verdict.is_change else explain_host(sides)
    if found is None:
        return finding
    if any(method.startswith(_WITH_HOST) for method in measurement.methods):
        found = replace(found, judged=True)
    base, head = measurement.base_profile, measurement.head_profile
    if base and head and finding.verdict.is_change:
        found = at_line(found, base.lines, head.lines, sides.ratio)
    return replace(finding, explanation=found, sentence=f"{finding.sentence}; {found.sentence}")


def at_line(found: Explanation, base: Sequence[SourceLine], head: Sequence[SourceLine], ratio: float) -> Explanation:
    """Add the source line that brings about the first cause, if that is one of the GPU."""
    if not found.on_gpu:
        return found
    by = found.causes[0].line_by if found.causes else "samples"
    return replace(found, line=line_change(base, head, ratio, by))


def sides_of_runs(base: Measurement, head: Measurement, device: Device) -> Sides | None:
    """Return both sides of a case from two runs, each by what its profilers saw of its head; None: they saw nothing.

    The change is that of the median times, where both runs timed the case by the same method.
    """
    of_base, of_head = base.head_profile or SideProfile(base.counters), head.head_profile
    seen = replace(of_base, timeline=base.timeline)
    if not seen.counters and seen.timeline is None:
        return None
    ratio = None
    if base.methods == head.methods and len(head.methods) == 1 and (base.unit, base.better) == (head.unit, head.better):
        before, now = (statistics.median(process_medians(m.timed)) for m in (base, head))
        ratio = now / before if head.better == "lower" else before / now
    return sides_of_case(replace(head, pairs=(), base_profile=seen, head_profile=of_head), device, ratio)


def _explanation(sides: Sides, methods: Sequence[str]) -> Explanation | None:
    """Explain a change; where the counters of a side are missing, that no cause is seen says nothing.

    Where the time is that of the GPU, what takes time of the host alone comes last.
    """
    found = explain(sides)
    if methods and all(method.startswith(_GPU_ALONE) for method in methods):
        outside = [
            replace(cause, sentence=f"{cause.sentence}{OUTSIDE}")
            for cause in found.causes
            if cause.mechanism in HOST_ALONE
        ]
        inside = [cause for cause in found.causes if cause.mechanism not in HOST_ALONE]
        found = replace(found, causes=(*inside, *outside))
    return found if found.causes or sides.both("cycles") else None


def sides_of_case(measurement: Measurement, device: Device, ratio: float | None = None) -> Sides | None:
    """Return both sides of a case, `ratio` being head over base of the time; None where nothing is known of the base.

    What is known of the launches without a profiler gives way to what a profiler read.
    """
    launches = launch_values(measurement, device.compute_capability)
    if measurement.base_profile is None and not launches[0]:
        return None
    profile = measurement.base_profile or SideProfile()
    head = measurement.head_profile
    timelines = comparable(profile.timeline, measurement.timeline)
    sides = (
        side_of(profile.counters, timelines[0]),
        side_of(head.counters if head and head.counters else measurement.counters, timelines[1]),
    )
    if measurement.methods and all(method.startswith(_BENCHMARKS) for method in measurement.methods):
        sides = (sides[0], as_often(*sides))
    codes = (profile.opcodes, head.opcodes if head else {})
    base, now = (
        _with_clock(replace(side, values={**launch, **side.values, **values_of_code(code)}), clock)
        for side, launch, code, clock in zip(sides, launches, codes, _clocks(measurement), strict=True)
    )
    return sides_of(base, now, ratio)


def _clocks(measurement: Measurement) -> tuple[float | None, float | None]:
    """Return the SM clock of both sides while they were timed: that under ncu is another."""
    pairs = measurement.sound_pairs
    ratio = clock_ratio([pair.clocks for pair in pairs], len(pairs))
    known = [pair.sm_clock_hz for pair in pairs if pair.sm_clock_hz]
    if ratio is None or not known:
        return None, None
    head = statistics.median_high(known)
    return head / ratio, head


def _with_clock(side: Side, clock: float | None) -> Side:
    values = {name: value for name, value in side.values.items() if name != _CLOCK}
    return replace(side, values=values if clock is None else {**values, _CLOCK: clock})
