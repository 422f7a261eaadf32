"""A case against its baseline, through the whole: what is passed on to the rule, and what a finding keeps."""

from dataclasses import replace

import pytest

from ci_perf.judge.gates import judge_gate
from ci_perf.judge.outcome import size
from ci_perf.judge.stats import ratio_interval
from ci_perf.judge.stored import decide
from ci_perf.judge.verdict import is_red, judge
from ci_perf.values.kernel import Gate
from ci_perf.values.measurement import Failure
from ci_perf.values.reasons import GateState, Reason
from ci_perf.values.run import Against, Fuzzed, Note, Policy, Sanitized
from ci_perf.values.timeline_metrics import BY_NAME
from ci_perf.values.trace import CaseTimeline, Reading
from tests.builders import STEADY, a_baseline, a_baseline_case, a_measurement, a_run, counters, replicates, times

NOT_EVERY = "not measured of every launch"
PASSED = Sanitized("sdpa", "s128", "cuda", "memcheck")


def found(case=None, **measured):
    slower = replicates(times(1.10), times(1.10))
    measurement = a_measurement(**{"replicates": slower, **measured})
    (finding,) = judge(a_run(measurement, baselines=(a_baseline(cases={"s128": case or a_baseline_case()}),)))
    return finding


def with_time(**changes):
    case = a_baseline_case()
    return replace(case, time=replace(case.time, **changes))


def at(clock):
    return tuple(replace(r, sm_clock_hz=clock) for r in replicates(times(1.10), times(1.10)))


@pytest.mark.parametrize(
    ("case", "measured", "code"),
    [
        (with_time(noise_floor=0.08), {}, "slower"),
        (with_time(noise_floor=0.11), {}, "slower-not-significant"),
        (with_time(sm_clock_hz=1.98e9), {"replicates": at(1.98e9)}, "slower"),
        (with_time(sm_clock_hz=1.98e9), {"replicates": at(1.80e9)}, "slower-clock"),
        (with_time(), {"replicates": at(1.88e9)}, "slower"),
        (with_time(sm_clock_hz=1.98e9), {}, "slower"),
    ],
)
def test_the_scatter_and_the_clock_of_the_baseline_count(case, measured, code):
    assert found(case, **measured).code == code


def test_a_finding_keeps_the_numbers_of_both_sides():
    finding = found()

    assert (finding.base, finding.head) == (50.3e-6, pytest.approx(finding.change.point * 50.3e-6))
    assert finding.detectable == pytest.approx(0.080, abs=0.001)  # of a baseline of one session
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


@pytest.mark.parametrize(
    ("readings", "found"),
    [
        (({"sm_throughput_pct": Reading(2.0, "%")},), (GateState.KEPT, Reading(2.0, "%"))),
        (({"sm_throughput_pct": Reading(2.0, "%")}, {}), (GateState.NOT_MEASURED, Reading(None, "", NOT_EVERY))),
    ],
)
def test_a_gate_counts_where_every_launch_has_its_counter(readings, found):
    judged = judge_gate(Gate("sm_throughput_pct", ">=", 1.0), a_measurement(counters=readings))

    assert (judged.state, judged.reading) == found


def test_a_metric_of_the_timeline_is_gated_by_its_reading():
    timeline = CaseTimeline(1, (), metrics={"cuda_time_pct": Reading(59.0, "%")})
    judged = judge_gate(Gate("cuda_time_pct", ">=", 60.0), a_measurement(timeline=timeline))

    assert (judged.state, judged.reading) == (GateState.BROKEN, Reading(59.0, "%"))


@pytest.mark.parametrize(
    ("ratio", "words"), [(1.0, "0.0 % slower"), (1.05, "5.0 % slower"), (0.5, "2.00 times as fast")]
)
def test_a_change_is_written_as_slower_or_as_how_many_times_as_fast(ratio, words):
    assert size(ratio) == words


@pytest.mark.parametrize(
    ("batches", "code", "sentence"),
    [
        ([times(1.05)], "slower-unconfirmed", "5.0 % slower, but not yet measured a second time"),
        ([times(1.0), times(1.05)], "interval-too-wide", "the interval allows -0.4 % to +5.4 %"),
        ([(50e-6,)], "interval-too-wide", "too few processes for an interval"),
    ],
)
def test_an_inconclusive_outcome_has_its_interval_and_what_would_be_seen(batches, code, sentence):
    outcome = decide(STEADY, batches, Policy())

    assert (outcome.code, outcome.sentence) == (code, sentence)
    assert outcome.change == ratio_interval(STEADY, [v for batch in batches for v in batch], 0.99)
    assert outcome.detectable > 0.01


def test_the_unit_and_the_direction_of_a_measurement_are_those_of_its_finding():
    rates = tuple(replace(r, unit="byte/s", better="higher") for r in replicates(times(1.2), times(1.2)))
    finding = found(with_time(unit="byte/s", better="higher"), replicates=rates)

    assert (finding.code, finding.unit) == ("faster", "byte/s")
    mixed = found(replicates=(*replicates(STEADY), *replicates(STEADY, method="cuda-events")))
    assert mixed.sentence == "its processes were timed by several methods: cuda-events, cuda-graph"
    failed = found(replicates=rates, failure=Failure("time", "timeout", "30 s"))
    assert (failed.code, failed.unit) == ("timeout", "byte/s")
    note = Note(Reason.MEMORY_ERRORS, "2 errors")
    (broken,) = judge(a_run(a_measurement(replicates=rates), notes=(note,), baselines=(a_baseline(),)))
    assert (broken.base, broken.head, broken.unit) == (50.3e-6, pytest.approx(60.3e-6), "byte/s")


@pytest.mark.parametrize("checked", [{"fuzzed": (Fuzzed("sdpa", "cuda", "launch", 7, 1),)}, {"sanitized": (PASSED,)}])
def test_in_a_run_of_checks_no_case_is_missing(checked):
    assert judge(replace(a_run(**checked, baselines=(a_baseline(),)), measurements=(), kernels=())) == ()


@pytest.mark.parametrize(
    ("before", "says"),
    [
        ("cuda-graph", "cuda-graph, now cupti; it can no longer be captured in a CUDA graph: E at k.py:7"),
        ("cuda-events", "cuda-events, now cupti"),
    ],
)
def test_a_case_that_can_no_longer_be_captured_says_what_prevents_it(before, says):
    taken = tuple(replace(r, not_captured="E at k.py:7") for r in replicates(STEADY, method="cupti"))
    finding = found(with_time(method=before), replicates=taken)

    assert (finding.verdict, finding.code) == ("NOT_COMPARABLE", "other-method")
    assert finding.sentence == f"the timing method differs: baseline {says}"
