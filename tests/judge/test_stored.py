"""A case against its baseline, through the whole: what is passed on to the rule, and what a finding keeps."""

from dataclasses import replace

import pytest

from ci_perf.judge.gates import judge_gate
from ci_perf.judge.verdict import is_red, judge
from ci_perf.values.kernel import Gate
from ci_perf.values.reasons import GateState
from ci_perf.values.run import Against
from ci_perf.values.timeline_metrics import BY_NAME
from ci_perf.values.trace import CaseTimeline
from tests.builders import a_baseline, a_baseline_case, a_measurement, a_run, counters, replicates, times


def found(case=None, **measured):
    slower = replicates(times(1.05), times(1.05))
    measurement = a_measurement(**{"replicates": slower, **measured})
    (finding,) = judge(a_run(measurement, baselines=(a_baseline(cases={"s128": case or a_baseline_case()}),)))
    return finding


def with_time(**changes):
    case = a_baseline_case()
    return replace(case, time=replace(case.time, **changes))


def at(clock):
    return tuple(replace(r, sm_clock_hz=clock) for r in replicates(times(1.05), times(1.05)))


@pytest.mark.parametrize(
    ("case", "measured", "code"),
    [
        (with_time(noise_floor=0.03), {}, "slower"),
        (with_time(noise_floor=0.06), {}, "slower-not-significant"),
        (with_time(sm_clock_hz=1.98e9), {"replicates": at(1.98e9)}, "slower"),
        (with_time(sm_clock_hz=1.98e9), {"replicates": at(1.88e9)}, "slower-clock"),
        (with_time(), {"replicates": at(1.88e9)}, "slower"),
        (with_time(sm_clock_hz=1.98e9), {}, "slower"),
    ],
)
def test_the_scatter_and_the_clock_of_the_baseline_count(case, measured, code):
    assert found(case, **measured).code == code


def test_a_finding_keeps_the_numbers_of_both_sides():
    finding = found()

    assert (finding.base, finding.head) == (50.3e-6, pytest.approx(1.05 * 50.25e-6))
    assert finding.detectable == pytest.approx(0.01, abs=0.005)
    assert finding.parts == ()


@pytest.mark.parametrize(("cause", "red"), [("new", True), ("regression", False)])
def test_a_new_case_is_red_where_that_is_asked_for(cause, red):
    (finding,) = judge(a_run())

    assert is_red(finding, [cause]) is red
    assert not is_red(found(), ["new"])


@pytest.mark.parametrize(
    ("name", "kernel", "case"), [("sdpa", "sdpa", "*"), ("sdpa/s1", "sdpa", "s1"), ("sdpa/a/b", "sdpa", "a/b")]
)
def test_what_the_base_has_and_the_head_has_not_is_missing(name, kernel, case):
    run = replace(a_run(), measurements=(), against=Against("main", "abc", (name,)))
    (finding,) = judge(run)

    assert (finding.kernel, finding.case, finding.code) == (kernel, case, "removed")
    assert judge(replace(run, selection=("sdpa",))) == ()


@pytest.mark.parametrize(
    ("metric", "measured", "reason"),
    [
        ("sm_throughput_pct", {}, "no counters were measured"),
        ("sm_throughput_pct", {"counters": counters(cycles=1.0)}, "ncu gave no counters"),
        ("gpu_busy_pct", {}, "no timeline was recorded"),
        ("gpu_busy_pct", {"timeline": CaseTimeline(1, ())}, "the timeline does not tell it"),
    ],
)
def test_a_gate_that_was_not_measured_says_what_is_lacking(metric, measured, reason):
    metric = next(iter(BY_NAME)) if metric == "gpu_busy_pct" else metric
    judged = judge_gate(Gate(metric, ">=", 1.0), a_measurement(**measured))

    assert (judged.state, judged.reading.reason) == (GateState.NOT_MEASURED, reason)
