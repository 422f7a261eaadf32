"""What a report says of a run: next step, exit status, warnings, roofline; both sides of each boundary."""

import math
from dataclasses import replace

import pytest

from ci_perf.judge.comment import next_status
from ci_perf.judge.report import build_report
from ci_perf.judge.roofline import peak_bandwidth, peak_compute, roofline
from ci_perf.judge.stats import upper_bound
from ci_perf.judge.stored import confirming_processes
from ci_perf.values.comment import CommentStatus, State
from ci_perf.values.kernel import Gate
from ci_perf.values.measurement import Cost, Failure, Pair, Replicate, Verification
from ci_perf.values.reasons import Verdict
from ci_perf.values.run import Against, Fuzzed, Note, Policy
from tests.builders import (
    a_baseline,
    a_baseline_case,
    a_cpu,
    a_device,
    a_measurement,
    a_provenance,
    a_run,
    a_spec,
    counters,
    times,
)

FAILED = a_measurement(failure=Failure("verify", "wrong-output", "off by 2"))
TAKEN = a_measurement(case="s1", failure=Failure("verify", "device-taken", "exclusive"))
SLOWER = a_measurement(times(1.1), times(1.1))
FASTER = a_measurement(times(0.5), times(0.5))
GATED = {"kernels": (a_spec(gates=(Gate("sm_throughput_pct", ">=", 85.0),)),)}
AGREED = {"baselines": (a_baseline(),)}
BOTH = a_baseline(cases={"s128": a_baseline_case(), "s1": a_baseline_case()})


REFERENCE = a_run(
    a_measurement(device="cpu", target="reference"),
    devices=(a_cpu(),),
    baselines=(a_baseline(device=a_cpu(), cases={"s128": a_baseline_case(target="reference")}),),
)


@pytest.mark.parametrize(
    ("run", "step", "exit_status"),
    [
        (a_run(**AGREED), "Nothing to do.", 0),
        (a_run(), "Nothing was compared: `ci-perf baseline accept ci-perf-run`", 0),
        (replace(a_run(), measurements=()), "No case ran", 3),
        (REFERENCE, "Run on a GPU", 0),
        (replace(REFERENCE, notes=(Note("gpu-expected", "no usable GPU"),)), "Make the GPU usable", 3),
        (a_run(SLOWER, **AGREED, notes=(Note("gpu-expected", "no usable GPU"),)), "Make the GPU usable", 1),
        (a_run(FAILED, **AGREED), "Fix the failed kernels first", 1),
        (a_run(SLOWER, **AGREED), "Fix the regression, or accept it", 1),
        (a_run(SLOWER, replace(SLOWER, case="s1"), baselines=(BOTH,)), "Fix the regressions, or accept them", 1),
        (a_run(TAKEN, **AGREED), "Stop the process that uses the GPU", 1),
        (a_run(TAKEN, FAILED, **AGREED), "Fix the failed kernels first", 1),
        (a_run(a_measurement(times(0.0)), a_measurement(case="s1"), **AGREED), "A time is missing or", 0),
        (a_run(SLOWER, FAILED, **AGREED), "Fix the failed kernels first", 1),
        (a_run(FASTER, **AGREED), "Keep it: `ci-perf baseline accept ci-perf-run`", 0),
        (a_run(a_measurement(counters=counters(sm_throughput_pct=80.0)), **GATED, **AGREED), "A counter broke", 1),
        (a_run(**GATED, **AGREED), "Some gates were not measured", 0),
        (a_run(**GATED, **AGREED, policy=Policy(fail_on=("gate-not-measured",))), "Some gates were not measured", 1),
        (a_run(FASTER, **GATED, **AGREED), "Keep it", 0),
        (a_run(baselines=(a_baseline(cases={"s1": a_baseline_case()}),)), "A case with a baseline is gone", 1),
        (a_run(a_measurement(times(1.1)), **AGREED), "Some cases are too noisy", 0),
        (a_run(**AGREED, finished=False), "This run was cut short: run it again.", 3),
        (a_run(SLOWER, **AGREED, finished=False), "This run was cut short: run it again.", 1),
    ],
)
def test_the_next_step_is_that_of_the_most_urgent_reason(run, step, exit_status):
    report = build_report(run)

    assert report.next_step.startswith(step)
    assert report.exit_status == exit_status


def process(*seconds, **changes):
    return replace(Replicate(seconds, 100, "cuda-graph"), **changes)


@pytest.mark.parametrize(
    ("measured", "warning"),
    [
        (process(1.0, 1.1, 1.25), ""),
        (process(1.0, 1.1, 1.267), ""),  # 12.02 %, printed as 12.0 %
        (process(1.0, 1.1, 1.30), "CV 13.5 %: the samples scatter by more than 12 %"),
        (process(1.0, temperature_c=80.0), ""),
        (process(1.0, temperature_c=81.0), "81 C: above 80 C the GPU may slow itself down"),
        (process(1.0, method="cuda-events"), "timed by events, launch gaps included"),
        (process(1.0, method="cuda-events-cold"), ""),
    ],
)
def test_a_row_warns_of_scatter_heat_and_gaps(measured, warning):
    (row,) = build_report(a_run(a_measurement(replicates=(measured,)))).rows

    assert len(row.warnings) == bool(warning)
    assert "".join(row.warnings).startswith(warning)


@pytest.mark.parametrize(
    ("factor", "checked", "doubted"), [(0.49, "status", 1), (0.51, "status", 0), (0.49, "launch", 0)]
)
def test_half_of_the_time_of_a_program_that_nobody_checks_is_doubted(factor, checked, doubted):
    measurement = a_measurement(times(factor), times(factor), verification=Verification(0.0, 0.01, checked))
    (row,) = build_report(a_run(measurement, **AGREED)).rows

    assert sum("its output is not checked" in warning for warning in row.warnings) == doubted


@pytest.mark.parametrize(
    ("run", "before", "state"),
    [
        (a_run(**AGREED), None, State.CLEAN),
        (a_run(**AGREED), State.CLEAN, State.CLEAN),
        (a_run(**AGREED), State.FLAGGED, State.RESOLVED),
        (a_run(SLOWER, **AGREED), None, State.FLAGGED),
        (a_run(FASTER, **AGREED), State.CLEAN, State.FLAGGED),
        (a_run(**AGREED, finished=False), State.FLAGGED, State.PENDING),
        (a_run(), State.FLAGGED, State.PENDING),
        (a_run(**GATED, **AGREED), State.FLAGGED, State.PENDING),
        (a_run(a_measurement(times(1.1)), **AGREED), State.FLAGGED, State.PENDING),
    ],
)
def test_a_comment_is_resolved_where_everything_is_known_and_fine(run, before, state):
    assert next_status(build_report(run), before and CommentStatus(before)).state is state


PAIRED = a_measurement(replicates=(), pairs=(Pair((1.0,) * 4, (1.0,) * 4, 1, "cuda-graph"),) * 5)
BASE = Against("main", "0123456789abcdef", (), "sdpa/s128", PAIRED.pairs)
FAR = replace(PAIRED, pairs=tuple(replace(pair, shapes=("a", "b"), other_inputs=True) for pair in PAIRED.pairs))


@pytest.mark.parametrize(
    ("run", "headline"),
    [
        (a_run(**AGREED), "1 unchanged"),
        (a_run(SLOWER, **AGREED), "1 regression"),
        (a_run(FAILED, FAILED, **AGREED), "2 failed kernels"),
        (a_run(a_measurement(times(1.1)), **AGREED), "1 inconclusive"),
        (a_run(FAR, against=BASE), "1 not comparable"),
        (a_run(**GATED), "1 new case, 1 gate not measured"),
        (
            a_run(a_measurement(counters=counters(sm_throughput_pct=80.0)), SLOWER, FAR, **GATED, **AGREED),
            "1 regression, 1 broken gate, 1 inconclusive, 1 unchanged, 2 gates not measured",
        ),
        (replace(a_run(), measurements=()), "no case ran"),
        (
            replace(a_run(), measurements=(), fuzzed=(Fuzzed("sdpa", "cuda", "launch", 7, 1),)),
            "1 random case passed (seed 7)",
        ),
    ],
)
def test_the_headline_counts_verdicts_gates_and_checks(run, headline):
    assert build_report(run).headline == headline


@pytest.mark.parametrize(
    ("run", "agreed"),
    [
        (a_run(), ()),
        (a_run(**AGREED), ("the baseline of 2026-11-27 at commit 0fd4e2e",)),
        (
            a_run(baselines=(a_baseline(provenance=a_provenance(commit="0123456789")),)),
            ("the baseline of 2026-11-27 at commit 01234567",),
        ),
        (
            a_run(baselines=(a_baseline(provenance=a_provenance(commit=None)),)),
            ("the baseline of 2026-11-27 at commit unknown",),
        ),
        (a_run(baselines=(a_baseline(kernel="gemm"),), selection=("sdpa",)), ()),
        (
            a_run(PAIRED, against=BASE),
            ("main at commit 01234567, measured in turns; the base against itself 0.0 % in 5 pairs",),
        ),
        (
            a_run(PAIRED, against=Against("main", "0123456789")),
            ("main at commit 01234567, measured in turns; the base against itself was not measured",),
        ),
    ],
)
def test_a_report_says_what_the_run_was_compared_with(run, agreed):
    assert build_report(run).agreed == agreed


@pytest.mark.parametrize(
    ("run", "exit_status"),
    [
        (a_run(FAR, against=BASE), 1),
        (a_run(FAR, against=BASE, policy=Policy(fail_on=())), 0),
        (a_run(FAR, replace(PAIRED, case="s256"), against=BASE), 0),
        (a_run(a_measurement(replicates=(), unpaired="not-in-base"), against=BASE), 0),
        (a_run(baselines=(a_baseline(device=a_device(driver="1")),)), 0),
    ],
)
def test_a_base_with_which_nothing_could_be_compared_is_no_pass(run, exit_status):
    assert build_report(run).exit_status == exit_status


def test_a_base_without_these_cases_leaves_nothing_to_compare():
    report = build_report(a_run(a_measurement(replicates=(), unpaired="not-in-base"), against=BASE))

    assert report.next_step.startswith("Nothing was compared: the base has none of these cases")


def test_a_report_keeps_what_the_run_says_of_itself():
    failed = replace(FAILED, case="s256")
    report = build_report(a_run(SLOWER, failed, **AGREED, planted=0.05, against=None))

    assert report.planted == 0.05
    assert (report.base, report.check_flags, report.compared) == ("", (), 1)
    assert [row.finding.code for row in report.of(Verdict.FAILED)] == ["wrong-output"]
    assert [row.measurement for row in report.rows] == [failed, SLOWER]
    assert build_report(a_run(PAIRED, against=BASE)).base == BASE.commit
    assert build_report(a_run(fuzzed=(Fuzzed("sdpa", "cuda", "launch", 7, 1),))).check_flags[0] == "--fuzz"


@pytest.mark.parametrize(("dtype", "share"), [({"dtype": "float16"}, 0.0625), ({}, 1.0)])
def test_a_row_has_the_summary_and_the_roofline_of_its_device(dtype, share):
    measured = replace(a_measurement(), params=dtype, cost=Cost(2.56e13, 1.0), replicates=(process(1.0),))
    capped = replace(measured.replicates[0], sm_clock_hz=5e8, throttle_reasons=("sw-power-cap",))
    (row,) = build_report(a_run(replace(measured, replicates=(capped,)), devices=(H100,))).rows

    assert row.roofline.share == pytest.approx(share)
    assert (row.summary.n, row.summary.sm_clock_hz, row.summary.at_power_limit) == (1, 5e8, True)


@pytest.mark.parametrize(("shapes", "warned"), [((), 1), (("a", "a"), 1), (("a", "b"), 0)])
def test_other_inputs_of_the_same_shape_are_a_warning(shapes, warned):
    taken = tuple(replace(pair, shapes=shapes, other_inputs=True) for pair in PAIRED.pairs)
    (row,) = build_report(a_run(replace(PAIRED, pairs=taken), against=BASE)).rows

    assert len(row.warnings) == warned


H100 = a_device(
    compute_capability="9.0", sm_count=100, sm_clock_max_hz=1e9, memory_clock_max_hz=2e9, memory_bus_bits=4000
)


def test_the_peaks_are_those_that_the_driver_reports():
    assert (peak_bandwidth(H100), peak_compute(H100, "float32")) == (2e12, 2.56e13)
    assert peak_compute(H100, "float8_e4m3fn") == 8.192e14
    for missing in ("memory_clock_max_hz", "memory_bus_bits"):
        assert peak_bandwidth(replace(H100, **{missing: None})) is None
    for missing in ("compute_capability", "sm_count", "sm_clock_max_hz"):
        assert peak_compute(replace(H100, **{missing: None}), "float32") is None


@pytest.mark.parametrize(
    ("flop", "moved", "share", "bound"),
    [
        (2.56e13, 1e12, 0.5, "compute"),
        (2.56e12, 2e12, 0.5, "memory"),
        (2.56e13, 2e12, 0.5, "memory"),
        (0.0, 1e12, 0.25, "memory"),
    ],
)
def test_the_roofline_is_the_lower_ceiling(flop, moved, share, bound):
    found = roofline(Cost(flop, moved), 2.0, H100, "float32")

    assert (found.share, found.bound) == (pytest.approx(share), bound)
    assert (found.flop_per_s, found.bytes_per_s) == (flop / 2, moved / 2)
    assert roofline(Cost(flop, moved), 0.0, H100, "float32") is None
    assert roofline(Cost(1.0, 1.0), 1.0, H100, "int3").share is None


@pytest.mark.parametrize(
    ("events", "trials", "bound"), [(0, 500, 0.00597), (1, 10, 0.39416), (9, 10, 0.99488), (10, 10, 1.0)]
)
def test_the_upper_bound_is_that_of_clopper_and_pearson(events, trials, bound):
    assert upper_bound(events, trials) == pytest.approx(bound, abs=1e-5)
    assert upper_bound(0, 100, 0.99) == pytest.approx(1 - math.exp(math.log(0.01) / 100))


@pytest.mark.parametrize(
    ("base", "measured", "comparisons", "needed"),
    [(6, 6, 12, 6), (6, 6, 92, 6), (6, 6, 93, 7), (6, 6, 1000, 14), (3, 6, 1000, 18), (6, 6, 0, 6)],
)
def test_a_confirming_batch_is_as_large_as_its_confidence_needs(base, measured, comparisons, needed):
    assert confirming_processes(base, measured, comparisons, 0.99, 6) == needed
