"""What a program's time is made of: which kernel, and which range, made it slower."""

import json
from dataclasses import replace

import pytest

from ci_perf.judge.baseline import make_baselines
from ci_perf.judge.parts import MOST, cause_of, compare_parts, parts_of
from ci_perf.judge.report import build_report
from ci_perf.judge.verdict import judge
from ci_perf.render.folder import render_timeline
from ci_perf.render.json_text import render_json
from ci_perf.render.markdown import render_comment
from ci_perf.values.codec import dump_baseline, dump_run, load_baseline, load_run
from ci_perf.values.kernel import Program
from ci_perf.values.measurement import Pair, Part
from ci_perf.values.reasons import Verdict
from ci_perf.values.run import Against
from ci_perf.values.trace import CaseTimeline
from tests.builders import STEADY, a_baseline, a_baseline_case, a_measurement, a_run, a_spec, replicates, times


def kernels(**microseconds):
    return tuple(Part("kernel", name, 1, us / 1e6) for name, us in microseconds.items())


def ranges(**microseconds):
    return tuple(Part("range", name, 1, us / 1e6) for name, us in microseconds.items())


BEFORE = (*ranges(load=10, step=40), *kernels(gemm=30, copy=10, triton_poi_fused_add_0=10))
AFTER = (*ranges(load=10, step=45), *kernels(gemm=30, copy=10, triton_poi_fused_add_1=15))
CAUSE = "NVTX range `step`: 40 us -> 45 us, GPU kernel `triton_poi_fused_add_1`: 10 us -> 15 us"


def a_slower_run(base_parts=BEFORE):
    """Return a run that is 10 % slower than its baseline."""
    measurement = a_measurement(times(1.1), times(1.1), parts=AFTER)
    return a_run(measurement, baselines=(a_baseline(cases={"s128": a_baseline_case(parts=base_parts)}),))


def test_the_time_of_a_part_is_the_median_over_the_runs_and_none_in_a_run_without_it():
    runs = [{("kernel", "f"): (2, 1000), ("kernel", "g"): (1, 1)}, {("kernel", "f"): (2, 3000)}]
    runs += [{("kernel", "f"): (3, 1200), ("range", "r"): (1, 900)}] * 2

    assert parts_of(runs) == (
        Part("range", "r", 1, 450e-9),
        Part("kernel", "f", 3, 1200e-9),
        Part("kernel", "g", 1, 0.0),
    )
    assert parts_of(runs, 1.5)[1].seconds == 1800e-9
    assert parts_of([]) == ()


def test_of_very_many_parts_the_longest_are_kept():
    parts = parts_of([{("kernel", f"k{i}"): (1, i) for i in range(3 * MOST)}])

    assert [part.name for part in parts] == [f"k{i}" for i in reversed(range(2 * MOST, 3 * MOST))]


def test_a_regression_names_the_range_and_the_kernel_that_made_it():
    (finding,) = judge(a_slower_run())

    assert finding.verdict is Verdict.REGRESSION
    assert finding.sentence.endswith(f"; {CAUSE}")
    assert next((p.names, p.before) for p in finding.parts if p.kind == "kernel") == (
        ("triton_poi_fused_add_1",),
        ("triton_poi_fused_add_0",),
    )


def test_the_report_lists_every_part_and_so_does_its_json():
    report = build_report(a_slower_run())
    (case,) = json.loads(render_json(report))["cases"]
    comment = render_comment(report)

    assert case["parts"][2] == {
        "kind": "kernel",
        "names": ["triton_poi_fused_add_1"],
        "base_names": ["triton_poi_fused_add_0"],
        "base_s": 10e-6,
        "head_s": 15e-6,
    }
    assert "Time by NVTX range and GPU kernel" in comment
    assert "| `sdpa/s128` | kernel | `triton_poi_fused_add_1` |" in comment
    assert "50.0\u00a0%" in comment


def test_the_timeline_in_words_lists_the_ranges():
    traced = a_measurement(timeline=CaseTimeline(1, ()), parts=AFTER)
    lines = render_timeline(build_report(a_run(traced))).splitlines()

    assert [" ".join(line.split()) for line in lines[-3:]] == ["count total NVTX range", "1 10 us load", "1 45 us step"]


def test_nothing_is_named_where_nothing_changed_and_a_baseline_without_parts_explains_nothing():
    same = a_run(a_measurement(parts=BEFORE), baselines=(a_baseline(cases={"s128": a_baseline_case(parts=BEFORE)}),))
    (unchanged,), (older,) = judge(same), judge(a_slower_run(base_parts=()))

    assert unchanged.verdict is Verdict.UNCHANGED
    assert "->" not in unchanged.sentence
    assert older.verdict is Verdict.REGRESSION
    assert "->" not in older.sentence
    assert {part.base for part in older.parts} == {None}
    lines = [line for line in render_comment(build_report(a_slower_run(()))).splitlines() if "| kernel |" in line]
    assert [line.split("|")[-2].strip() for line in lines] == ["-"] * 3


def test_a_change_that_many_kernels_share_is_blamed_on_none():
    before, now = (kernels(**{f"k{i}": us for i in range(20)}) for us in (1.0, 1.1))

    assert cause_of(compare_parts(before, now)) == ""
    assert cause_of(compare_parts(kernels(f=1), kernels(f=2))) == "", "a single kernel is the row itself"


def test_a_kernel_that_came_or_went_is_named_as_such():
    assert cause_of(compare_parts(kernels(f=5), kernels(f=5, copy=3))) == "GPU kernel `copy`: new -> 3 us"
    assert cause_of(compare_parts(kernels(f=5, copy=3), kernels(f=5))) == "GPU kernel `copy`: 3 us -> gone"


def test_kernels_that_cannot_be_told_apart_are_summed_and_said_to_be_several():
    before = kernels(gemm=9, triton_red_fused_sum_0=1, triton_red_fused_sum_1=2)
    now = kernels(gemm=9, triton_red_fused_sum_1=4, triton_red_fused_sum_2=2)
    first, second = compare_parts(before, now)

    assert (first.base, first.head) == (pytest.approx(3e-6), pytest.approx(6e-6))
    assert str(first) == "GPU kernel `triton_red_fused_sum_1` and 1 like it: 3 us -> 6 us"
    assert second.names == ("gemm",)


def test_kernels_that_differ_in_a_template_argument_a_lambda_or_a_type_are_never_summed():
    names = ["gemm<64>(int*)", "gemm<128>(int*)", "k<{lambda()#1}>()", "k<{lambda()#2}>()", "f(int*)", "f(long*)"]
    before = [Part("kernel", name, 1, 1e-6) for name in names]
    now = [Part("kernel", f"void {n.replace('<64>', '<(int)64>')}", 1, 2e-6 if "128" in n else 1e-6) for n in names]
    changes = compare_parts(before, now)

    assert [len(change.names) for change in changes] == [1] * 6
    assert str(changes[0]) == "GPU kernel `void gemm<128>(int*)`: 1 us -> 2 us"


def test_the_parts_of_a_base_that_took_turns_are_those_that_count():
    pair = Pair((50e-6,) * 10, (55e-6,) * 10, 1, "nsys-kernel-sum")
    pairs = tuple(replace(pair, head=tuple(55e-6 * (1 + i / 1e4) for _ in range(10))) for i in range(6))
    measurement = replace(a_measurement(), replicates=(), pairs=pairs, parts=AFTER, base_parts=BEFORE)
    run = a_run(measurement, against=Against("main", "0" * 40), finished=True)
    (finding,) = judge(run)

    assert finding.verdict is Verdict.REGRESSION
    assert finding.sentence.endswith(CAUSE)


def test_runs_and_baselines_hold_the_parts_and_those_of_older_versions_are_read():
    spec = a_spec("sdpa", program=Program("command", ("./app",)), entry="")
    measurement = replace(a_measurement(parts=AFTER, base_parts=BEFORE), replicates=replicates(STEADY))
    run = a_run(measurement, kernels=(spec,), finished=True)
    (baseline,) = make_baselines(run, (), None, "run.json")

    assert load_run(dump_run(run), "run.json") == run
    assert load_baseline(dump_baseline(baseline), "b.json").cases["s128"].parts == AFTER
    for text in (dump_run(a_run(a_measurement())), dump_baseline(a_baseline())):
        assert "parts" not in text


@pytest.mark.parametrize(
    ("name", "shown"), [("k" * 60, "k" * 60), ("k" * 61, "k" * 57 + "..."), ("k" * 99, "k" * 57 + "...")]
)
def test_a_long_name_is_cut(name, shown):
    (change,) = compare_parts([], [Part("kernel", name, 1, 1e-6)])

    assert str(change) == f"GPU kernel `{shown}`: new -> 1 us"


def test_ranges_are_compared_by_their_names_alone():
    gone, new = sorted(compare_parts(ranges(step_0=1), ranges(step_1=2)), key=lambda change: change.difference)

    assert (gone.before, gone.head, new.before, new.base) == (("step_0",), None, (), None)


@pytest.mark.parametrize(("part", "named"), [(10.1, True), (9.9, False)])
def test_a_part_that_makes_a_tenth_of_a_change_is_named(part, named):
    many = {f"k{i}": 1 for i in range(50)}
    now = {**dict.fromkeys(many, 1 + (100 - part) / 50), "f": part}

    assert bool(cause_of(compare_parts(kernels(**many), kernels(**now)))) is named
