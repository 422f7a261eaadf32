from dataclasses import replace

import pytest

from ci_perf.judge.baseline import Difference, check_baseline, diff_baselines, make_baselines
from ci_perf.judge.verdict import judge
from ci_perf.values.codec import dump_baseline, load_baseline
from ci_perf.values.errors import ConfigError
from ci_perf.values.measurement import Failure, Replicate
from ci_perf.values.reasons import Reason, Verdict
from ci_perf.values.run import Against, Fuzzed, Note, Sanitized
from ci_perf.values.trace import CaseTimeline, TracedKernel
from tests.builders import (
    PARAMS,
    STEADY,
    a_baseline,
    a_baseline_case,
    a_cpu,
    a_device,
    a_measurement,
    a_provenance,
    a_run,
    a_spec,
    agreed,
    counters,
    replicates,
    times,
)

TWO_CASES = a_spec(cases={"s128": PARAMS, "s256": {**PARAMS, "seq": 256}})


def accept(run, kernels=(), accepted_by="ada"):
    return make_baselines(run, kernels, accepted_by, "run.json")


def accepted_case(measurement):
    (baseline,) = accept(a_run(measurement))
    return baseline.cases["s128"]


def test_a_run_becomes_the_baseline_that_it_is_unchanged_against():
    run = a_run(a_measurement(STEADY))

    (baseline,) = accept(run)

    assert (baseline.kernel, baseline.device, baseline.toolchain) == ("sdpa", a_device(), run.toolchain)
    assert baseline.provenance == replace(run.provenance, accepted_by="ada")
    assert [f.verdict for f in judge(replace(run, baselines=(baseline,)))] == [Verdict.UNCHANGED]


def test_a_baseline_keeps_every_sample_in_ascending_order():
    slow, fast = Replicate((3.0, 2.0, 4.0), 1, "cuda-graph"), Replicate((2.0, 1.0, 2.2), 1, "cuda-graph")

    time = accepted_case(a_measurement(replicates=(slow, fast, slow, slow, fast, fast))).time

    assert time.replicates == ((1.0, 2.0, 2.2),) * 3 + ((2.0, 3.0, 4.0),) * 3
    assert (time.median, time.noise_floor) == (2.5, 0.2)


def test_counters_are_kept_where_every_launch_has_them_and_exact_ones_where_they_repeat():
    read = counters(
        registers_per_thread=(128, 128), grid_size=(64, 65), cycles=(110.0, 100.0), dram_read_bytes=(1.0, None)
    )

    kept = accepted_case(a_measurement(counters=read)).counters

    assert {name: counter.values for name, counter in kept.items()} == {
        "registers_per_thread": (128, 128),
        "cycles": (100.0, 110.0),
    }


def test_one_launch_cannot_show_that_a_counter_repeats():
    kept = accepted_case(a_measurement(counters=counters(registers_per_thread=(128,), cycles=(100.0,)))).counters

    assert list(kept) == ["cycles"]


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        ({"planted": 0.05}, "this run was slowed down on purpose", "a baseline needs an honest run"),
        ({"against": Against("main", "abc")}, "measured in turns with main", "accept a run without --against"),
        (
            {"fuzzed": (Fuzzed("sdpa", "cuda", "launch", 7, 1),)},
            "this run measured nothing",
            "accept a run without --fuzz and --sanitize",
        ),
        (
            {"sanitized": (Sanitized("sdpa", "s128", "cuda", "memcheck"),)},
            "this run measured nothing",
            "accept a run without --fuzz and --sanitize",
        ),
        ({"finished": False}, "this run did not finish", "`ci-perf run` again and accept that run"),
        ({"notes": (Note(Reason.MEMORY_ERRORS, "2 errors"),)}, "2 errors", "run again on a GPU whose memory is sound"),
    ],
)
def test_a_run_that_is_not_whole_or_not_honest_is_refused(changes, message, hint):
    with pytest.raises(ConfigError, match=f"^run.json: {message}") as error:
        accept(a_run(**changes))

    assert error.value.hint == hint


def test_memory_errors_of_a_gpu_do_not_spoil_what_a_cpu_measured():
    run = a_run(a_measurement(device="cpu"), devices=(a_cpu(),), notes=(Note(Reason.MEMORY_ERRORS, "2 errors"),))

    assert len(accept(run)) == 1


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        ({"disturbed": ("python (7)",)}, "was disturbed: python", "measure again where nothing disturbs the GPU"),
        ({}, "was timed in 4 processes", "a baseline needs 5 or more"),
    ],
)
def test_a_case_that_was_measured_too_little_is_refused(changes, message, hint):
    few = tuple(replace(process, **changes) for process in replicates(STEADY[:4]))
    with pytest.raises(ConfigError, match=message) as error:
        accept(a_run(a_measurement(replicates=few)))

    assert error.value.hint.startswith(hint)
    assert len(accept(a_run(a_measurement(replicates=replicates(STEADY[:5]))))) == 1


def test_a_baseline_keeps_clock_unit_and_direction_and_not_where_the_run_came_from():
    measured = tuple(replace(p, sm_clock_hz=1e9, unit="byte/s", better="higher") for p in replicates(STEADY))
    provenance = a_provenance(repository="a/b", head="0" * 40, shard="1")
    (baseline,) = accept(a_run(a_measurement(replicates=measured), provenance=provenance))
    time = baseline.cases["s128"].time

    assert (time.sm_clock_hz, time.unit, time.better) == (1e9, "byte/s", "higher")
    assert baseline.provenance == a_provenance(accepted_by="ada")
    slower = replace(baseline, cases={"s128": replace(baseline.cases["s128"], time=replace(time, median=1.0))})
    assert [row.unit for row in diff_baselines(baseline, slower)] == ["byte/s"]


@pytest.mark.parametrize(
    "unusable",
    [
        {"failure": Failure("time", "timeout", "30 s")},
        {"replicates": ()},
        {"replicates": replicates(STEADY) + replicates(STEADY, method="cuda-events")},
        {"replicates": replicates((0.0, *STEADY))},
    ],
)
def test_a_kernel_without_a_number_for_each_case_is_refused(unusable):
    run = a_run(a_measurement(), a_measurement(case="s256", **unusable), kernels=(TWO_CASES,))

    with pytest.raises(ConfigError, match=r"no usable time for case `sdpa/s256` on h100") as error:
        accept(run)

    assert "`ci-perf run sdpa` measures the whole kernel" in error.value.hint


def test_a_kernel_of_which_a_case_was_not_run_is_refused():
    for spec in (TWO_CASES, replace(TWO_CASES, cpu_cases=("s128",))):
        with pytest.raises(ConfigError, match="sdpa/s256"):
            accept(a_run(a_measurement(), kernels=(spec,)))


def test_on_a_cpu_the_small_cases_are_the_whole_kernel():
    spec = replace(TWO_CASES, cpu_cases=("s128",))
    run = a_run(a_measurement(device="cpu", target="reference"), kernels=(spec,), devices=(a_cpu(),))

    (baseline,) = accept(run)

    assert list(baseline.cases) == ["s128"]


def test_only_the_kernels_that_are_named_are_accepted():
    run = a_run(a_measurement(), a_measurement(kernel="gemm"), kernels=(a_spec(), a_spec("gemm")))

    assert [b.kernel for b in accept(run)] == ["sdpa", "gemm"]
    assert [b.kernel for b in accept(run, ["gemm"])] == ["gemm"]


def test_a_kernel_that_was_not_measured_cannot_be_accepted():
    run = a_run(a_measurement(), kernels=(a_spec(), a_spec("gemm")))

    for name in ("gemm", "no-such-kernel"):
        with pytest.raises(ConfigError, match=rf"the run has no kernel `{name}`") as error:
            accept(run, [name])
        assert error.value.hint == "it has sdpa"


def test_an_equal_successor_changes_nothing():
    assert diff_baselines(a_baseline(), a_baseline()) == ()


def test_a_successor_shows_what_comes_goes_and_changes():
    old = a_baseline(cases={"a": a_baseline_case(), "b": a_baseline_case(counters=agreed(cycles=100, grid_size=1))})
    slower = a_baseline_case(times(2.0), counters=agreed(cycles=120, block_size=256))
    new = a_baseline(cases={"b": slower, "c": a_baseline_case()})

    middle = old.cases["a"].time.median
    assert [(d.case, d.what, d.old, d.new) for d in diff_baselines(old, new)] == [
        ("a", "removed", middle, None),
        ("b", "time", middle, 2 * middle),
        ("b", "block_size", None, 256),
        ("b", "cycles", 100, 120),
        ("b", "grid_size", 1, None),
        ("c", "added", None, middle),
    ]


def test_a_first_baseline_adds_its_cases():
    (row,) = diff_baselines(None, a_baseline())

    assert row == Difference("sdpa", "s128", "h100-80gb-hbm3", "added", None, a_baseline_case().time.median)


PLACE = "h100-80gb-hbm3/sdpa.json"
ODD = STEADY[:5]
"""An odd number of processes, so that the builder's median is theirs."""


def problems(baseline, path=PLACE, spec=TWO_CASES):
    return check_baseline(baseline, path, {spec.name: spec})


def test_a_sound_baseline_has_no_problem():
    assert problems(a_baseline(ODD)) == []


def test_a_baseline_lies_where_its_content_says():
    assert problems(a_baseline(ODD), path="l4/sdpa.json") == [
        f"holds sdpa on NVIDIA H100 80GB HBM3, so its place is {PLACE}"
    ]


def test_a_baseline_belongs_to_a_kernel_its_cases_and_their_parameters():
    cases = {"s512": a_baseline_case(ODD), "s256": a_baseline_case(ODD)}

    assert problems(a_baseline(ODD), spec=a_spec("gemm")) == [
        "there is no kernel `sdpa`: remove the file or restore the kernel"
    ]
    assert problems(a_baseline(cases=cases)) == [
        "key `cases.s512`: the kernel has no such case",
        "key `cases.s256.params`: differ from kernels/sdpa/kernel.toml",
    ]


def test_a_median_that_was_edited_by_hand_is_noticed():
    case = a_baseline_case(ODD)
    edited = replace(case, time=replace(case.time, median=case.time.median * 1.001))

    assert problems(a_baseline(cases={"s128": edited})) == [
        "key `cases.s128.time.median`: does not follow from the values beside it"
    ]


def test_a_baseline_names_the_kernels_that_ran_each_once_and_reads_back_the_same():
    names = ("void f<4>(int*)", "g", "g")
    timeline = CaseTimeline(1, tuple(TracedKernel(name, 1, 9, 9.0, (1, 1, 1), (1, 1, 1)) for name in names))
    (made,) = make_baselines(a_run(a_measurement(timeline=timeline)), [], None, "run.json")

    assert made.cases["s128"].kernels == ("void f<4>(int*)", "g")
    assert load_baseline(dump_baseline(made), "b.json") == made
    assert '"kernels"' not in dump_baseline(a_baseline())
