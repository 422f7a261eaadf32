"""Runs whose changed cases were profiled on both sides: verdict, sentence, comment and JSON."""

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from ci_perf.github.publish import Place, annotations
from ci_perf.judge.report import build_report
from ci_perf.judge.verdict import judge
from ci_perf.render.json_text import render_json
from ci_perf.render.markdown import render_comment
from ci_perf.traces import ncu
from ci_perf.values.codec import dump_run, load_run
from ci_perf.values.measurement import Pair
from ci_perf.values.metrics import METRICS, combine_kernels
from ci_perf.values.reasons import Verdict
from ci_perf.values.run import Against
from ci_perf.values.timeline_metrics import BY_NAME
from ci_perf.values.trace import CaseTimeline, LaunchedKernel, Reading, SideProfile, SourceLine, TracedKernel
from tests.builders import a_device, a_measurement, a_run, a_spec

CLOCK_HZ = 1.98e9


@cache
def counted(name, which):
    """Return the recorded GPU kernels of a fault on one side."""
    report = ncu.read(Path(__file__).parents[1] / f"data/explain/h200-{which}.csv")
    return tuple(launch for launch in report.launches if launch.ranges == (name,))


def timeline(launches, **metrics):
    """Return the timeline of ten launches of a case with these GPU kernels."""
    kernels = [
        TracedKernel(launch.name, 10, int(10 * ns), ns, (1, 1, 1), (256, 1, 1))
        for launch in launches
        for ns in [launch.metrics["gpu__time_duration.sum"].value]
    ]
    readings = {name: Reading(float(value), BY_NAME[name].unit) for name, value in metrics.items()}
    return CaseTimeline(10, tuple(kernels), metrics=readings)


def profile(launches, trace):
    return SideProfile((combine_kernels([launch.metrics for launch in launches], METRICS),), trace)


def a_case(name, ratio, base=None, head=None):
    """Return a case that took `ratio` times as long in five pairs, and was profiled on both sides."""
    old, new = counted(name, "base"), counted(name, "head")
    pairs = [
        Pair((5e-5,), (5e-5 * ratio * (1 + 0.001 * i),), 100, "cuda-graph", clocks=1.0, sm_clock_hz=CLOCK_HZ)
        for i in range(-2, 3)
    ]
    return a_measurement(
        kernel=name,
        replicates=(),
        pairs=tuple(pairs),
        timeline=timeline(new, **(head or {})),
        base_profile=profile(old, timeline(old, **(base or {}))),
        head_profile=replace(profile(new, None), timeline=None),
    )


def explained(*measurements):
    control = tuple(Pair((5e-5,), (5e-5 * (1 + 1e-4 * i),), 100, "cuda-graph", clocks=1.0) for i in range(5))
    against = Against("HEAD~1", "5b1f0c2d", control_case=measurements[0].id, control=control)
    names = dict.fromkeys(m.kernel for m in measurements)
    h200 = a_device(name="NVIDIA H200")
    return a_run(*measurements, kernels=tuple(map(a_spec, names)), devices=(h200,), against=against)


SYNCED = (
    {"range_ns": 400e3, "sync_calls": 1, "sync_pct": 6, "idle_pct": 4, "launch_calls": 20},
    {"range_ns": 700e3, "sync_calls": 11, "sync_pct": 45, "idle_pct": 41, "launch_calls": 20},
)


@pytest.mark.parametrize(
    ("name", "ratio", "traced"),
    [("reg_pressure", 2.05, ({}, {})), ("split_kernel", 2.02, ({}, {})), ("python_sync", 1.0, SYNCED)],
)
def test_an_explained_comment(golden, name, ratio, traced):
    report = build_report(explained(a_case(name, ratio, *traced), a_case("neutral", 1.001)))

    golden(f"comment-explained-{name.replace('_', '-')}.md", render_comment(report))


def test_the_sentence_of_a_changed_case_ends_with_its_first_cause():
    (finding,) = judge(explained(a_case("bank_conflict", 2.5)))

    assert finding.verdict is Verdict.REGRESSION
    assert "; bank conflicts in shared memory: 34.19 k -> 16.38 M conflicts" in finding.sentence
    assert finding.explanation.causes[0].mechanism == "bank-conflicts"


def test_a_case_that_became_faster_is_explained_too():
    case = a_case("uncoalesced", 1 / 7)
    swapped = replace(
        case,
        base_profile=replace(case.head_profile, timeline=case.timeline),
        head_profile=replace(case.base_profile, timeline=None),
        timeline=case.base_profile.timeline,
    )
    (finding,) = judge(explained(swapped))

    assert finding.verdict is Verdict.SPEEDUP
    assert "uncoalesced access to global memory: loads 15.1 -> 2.67, stores 32 -> 4 sectors" in finding.sentence


def test_a_case_without_a_change_is_explained_by_nothing():
    for ratio in (1.0, 1.02, 0.98):
        (finding,) = judge(explained(a_case("neutral", ratio)))

        assert (finding.verdict, finding.explanation) == (Verdict.UNCHANGED, None)


def test_the_clock_is_that_of_the_pairs_and_not_the_one_under_ncu():
    (finding,) = judge(explained(a_case("extra_pass", 1.83)))
    clocks = {c.metric: c for cause in finding.explanation.causes for c in cause.counters}.get("sm_clock_hz")

    assert clocks is None
    assert finding.explanation.causes[0].mechanism == "extra-traffic"


def test_a_run_keeps_what_was_profiled_and_its_json_has_both_sides():
    run = explained(a_case("fp64_slip", 5.9, {"sync_calls": 1}, {"sync_calls": 1}))
    again = load_run(dump_run(run), "run.json")
    (case,) = json.loads(render_json(build_report(again)))["cases"]

    assert again == run
    assert case["causes"][0]["mechanism"] == "fp64"
    assert (case["counters"]["base"]["pipe_fp64_pct"], case["counters"]["head"]["pipe_fp64_pct"]) == (0.0, 7.822791)
    assert case["timeline"] == {"base": {"sync_calls": 1.0}, "head": {"sync_calls": 1.0}}


def test_timelines_of_two_profilers_are_not_compared():
    case = a_case("python_sync", 1.0, *SYNCED)
    by_torch = replace(case.base_profile, timeline=replace(case.base_profile.timeline, source="torch"))
    (finding,) = judge(explained(replace(case, base_profile=by_torch)))

    assert finding.explanation is None


def a_kernel(**changes):
    usual = LaunchedKernel((1056, 1, 1), (256, 1, 1), 32, 0, 0, 0)
    return (replace(usual, **changes),)


@pytest.mark.parametrize(
    ("head", "changed"),
    [
        (a_kernel(), []),
        (a_kernel(grid=(528, 2, 1)), []),
        (a_kernel(registers_per_thread=76), ["registers_per_thread", "theoretical_occupancy_pct"]),
        (a_kernel(registers_per_thread=30), ["registers_per_thread"]),
        (a_kernel(dynamic_shared_bytes=50_000), ["shared_dynamic_bytes", "theoretical_occupancy_pct"]),
        (a_kernel(local_bytes=16), ["local_bytes_per_thread"]),
        (a_kernel() * 2, ["grid_size", "gpu_kernels"]),
        ((), []),
    ],
)
def test_the_launches_of_every_case_are_compared_without_a_profiler(head, changed):
    case = a_case("neutral", 1.0)
    first, *others = case.pairs
    pairs = (replace(first, base_kernels=a_kernel(), head_kernels=head), *others)
    unprofiled = replace(case, pairs=pairs, base_profile=None, head_profile=None, timeline=None)
    run = explained(unprofiled)
    (finding,) = judge(replace(run, devices=(a_device(compute_capability="9.0"),)))

    assert [change.metric for change in finding.counters] == changed
    assert (finding.verdict, finding.explanation) == (Verdict.UNCHANGED, None)


def traced(launches=1, source="nsys", **changes):
    """Return the timeline of a kernel, launched four times for each launch of the case."""
    usual = {"registers_per_thread": 32, "shared_bytes": 0, "local_bytes": 0}
    kernel = TracedKernel("f", 4 * launches, 4000, 1000.0, (1056, 1, 1), (256, 1, 1), **(usual | changes))
    return CaseTimeline(launches, (kernel,), source)


@pytest.mark.parametrize(
    ("base", "head", "changed"),
    [
        (traced(), traced(), []),
        (traced(), traced(registers_per_thread=76), ["registers_per_thread", "theoretical_occupancy_pct"]),
        (traced(), traced(shared_bytes=50_000), ["shared_bytes_per_block", "theoretical_occupancy_pct"]),
        (traced(), traced(local_bytes=16), ["local_bytes_per_thread"]),
        (traced(), traced(local_bytes=None), []),
        (traced(), traced(source="torch", local_bytes=16), []),
        (traced(), replace(traced(), kernels=traced().kernels * 2), []),
        (traced(launches=10), replace(traced(10), kernels=traced(10).kernels * 2), ["grid_size", "gpu_kernels"]),
        (None, traced(), []),
    ],
    ids=["same", "registers", "shared", "local", "unknown", "profilers", "a program's count", "count", "no base"],
)
def test_the_launches_of_programs_and_uncaptured_kernels_are_compared_by_their_timelines(base, head, changed):
    case = replace(
        a_case("neutral", 1.0), base_profile=base and SideProfile((), base), head_profile=None, timeline=head
    )
    run = explained(case)
    (finding,) = judge(replace(run, devices=(a_device(compute_capability="9.0"),)))

    assert [change.metric for change in finding.counters] == changed
    assert (finding.verdict, finding.explanation) == (Verdict.UNCHANGED, None)


def test_what_limits_the_occupancy_has_a_row_of_its_own():
    report = build_report(explained(a_case("shared_occupancy", 2.0)))
    (case,) = json.loads(render_json(report))["cases"]

    assert case["occupancy_limiter"] == {"base": "registers and warps", "head": "shared memory"}
    assert "occupancy_limiter | registers and warps | shared memory | changed" in re.sub(
        r"\s+", " ", render_comment(report)
    )


def test_without_a_profiler_a_change_is_explained_by_how_the_kernel_is_launched():
    case = a_case("neutral", 2.0)
    first, *others = case.pairs
    pairs = (replace(first, base_kernels=a_kernel(), head_kernels=a_kernel(registers_per_thread=76)), *others)
    run = explained(replace(case, pairs=pairs, base_profile=None, head_profile=None, timeline=None))
    (finding,) = judge(replace(run, devices=(a_device(compute_capability="9.0"),)))

    assert finding.sentence.endswith("registers 32 -> 76 a thread: occupancy 100 -> 37.5 %")


def test_without_counters_of_both_sides_nothing_is_said_of_a_change_that_nothing_explains():
    case = a_case("neutral", 2.0)
    traced = replace(case.base_profile, counters=())
    for base in (None, traced):
        (finding,) = judge(explained(replace(case, base_profile=base, head_profile=None)))

        assert (finding.verdict, finding.explanation) == (Verdict.REGRESSION, None)


@pytest.mark.parametrize(
    ("file", "place"),
    [
        ("kernels/fp64_slip/fp64_slip.cu", Place("sub/kernels/fp64_slip/fp64_slip.cu", 12)),
        ("kernels/other/other.cu", Place("sub/kernels/fp64_slip/kernel.py", 30)),
        ("header.cuh", Place("sub/kernels/fp64_slip/kernel.py", 30)),
    ],
)
def test_the_annotation_is_at_the_line_that_changed_most_if_it_is_the_kernels_own(file, place):
    case = a_case("fp64_slip", 5.9)
    base = replace(case.base_profile, lines=(SourceLine(file, 12, 30.0), SourceLine(file, 3, 70.0)))
    head = replace(case.head_profile, lines=(SourceLine(file, 12, 95.0), SourceLine(file, 3, 5.0)))
    report = build_report(explained(replace(case, base_profile=base, head_profile=head)))
    (annotation,) = annotations(report, {"fp64_slip": Place("sub/kernels/fp64_slip/kernel.py", 30)})

    assert annotation.place == place
    at_line = place.line == 12
    assert annotation.message.endswith("; this line: 30 -> 95 % of the samples") == at_line
    assert ", 30 -&#62; 95 % of the samples." in render_comment(report)


def test_a_wait_of_the_host_comes_after_what_takes_time_of_the_gpu():
    (finding,) = judge(explained(a_case("uncoalesced", 7.0, *SYNCED)))

    assert finding.explanation.causes[0].mechanism == "uncoalesced"
    assert finding.explanation.causes[-1].mechanism in {"synchronisation", "idle"}
    assert finding.explanation.causes[-1].sentence.endswith("(on the host, outside of the time that is judged)")
