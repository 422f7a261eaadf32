"""Benchmark files: those that other people published, and small ones that show one thing each."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci_perf.measure.program_run import Chosen, ProgramFailed, choose
from ci_perf.traces.benchmarks.reader import parse, read
from ci_perf.traces.benchmarks.results import MAIN_METRIC, BenchmarkCase, BenchmarkFile, select
from ci_perf.values.errors import ProfileError
from ci_perf.values.kernel import Program
from tests import corpus

# What the notes of the corpus's MANIFEST.json say: kind, benchmarks, of which skipped, first value of the main metric.
FACTS = {
    "ref.json": ("nvbench-json", 126, 38, 0.0010034715849794225),
    "cmp.json": ("nvbench-json", 126, 38, 0.0010034006580799991),
    "array-add-rtx3060laptop.csv": ("nvbench-csv", 26, 0, 4.6967764129401634e-06),
    "test1-run1.json": ("google-benchmark", 14, 0, 10e-9),
    "test1-run2.json": ("google-benchmark", 14, 0, 10e-9),
    "test3-run1-aggregates.json": ("google-benchmark", 4, 0, 9e-9),
    "nvfuser-a100-header-lines.csv": ("google-benchmark-csv", 12, 0, 1465.29e-6),
    "0001.json": ("pytest-benchmark", 1, 0, 2.2016643907464864e-07),
    "0002.json": ("pytest-benchmark", 1, 0, 2.1981029975705031e-07),
    "perf-report-softmax.csv": ("triton-csv", 196, 0, 127.170496),
    "perf-report-softmax2.csv": ("triton-csv", 294, 0, 682.7),
    "perf-report-vector-add.csv": ("triton-csv", 196, 0, 137.911701),
    "pretuned-bench.json": "it looks like a list of objects with the keys kernel, pretuned_hardware, helion_wins",
}


@pytest.mark.parametrize(("path", "expected"), corpus.files("bench"))
def test_published_files_give_what_their_manifest_says_or_are_refused(path, expected):
    del expected  # null for all of them: the facts are in their notes
    facts = FACTS[path.name]
    if isinstance(facts, str):
        with pytest.raises(ProfileError, match=facts):
            read(path)
        return
    found = read(path)
    main = [case for case in found.cases if case.metric == MAIN_METRIC[found.kind]]

    assert (found.kind, len(main), sum(bool(case.skipped) for case in main)) == facts[:3]
    assert main[0].values == pytest.approx((facts[3],), rel=1e-12)
    assert all(bool(case.values) != bool(case.skipped) for case in found.cases)


def nvbench(*states, **benchmark):
    document = {
        "meta": {"version": {"json": {"major": 1, "string": "1.0.0"}}},
        "devices": [],
        "benchmarks": [{"name": "copy", "states": states, **benchmark}],
    }
    return json.dumps(document)


def summary(tag, value):
    return {"tag": tag, "name": "any", "data": [{"name": "value", "type": "float64", "value": value}]}


def test_an_nvbench_state_is_a_case_of_each_metric_that_it_has_looked_up_by_tag():
    state = {
        "device": 0,
        "axis_values": [
            {"name": "Elements", "type": "int64", "value": "1024"},
            {"name": "T", "type": "string", "value": "F16"},
        ],
        "summaries": [
            summary("nv/cold/sample_size", "99"),
            summary("nv/cold/bw/global/bytes_per_second", "2.5e12"),
            summary("nv/cold/time/gpu/mean", "1e-3"),
            summary("nv/cold/walltime", "0.5"),
        ],
        "is_skipped": False,
    }
    params = {"Elements": 1024, "T": "F16", "device": 0}

    assert parse(nvbench(state), "n.json").cases == (
        BenchmarkCase("copy", params, "gpu_time", "s", "lower", (1e-3,)),
        BenchmarkCase("copy", params, "bandwidth", "byte/s", "higher", (2.5e12,)),
    )


def test_a_skipped_nvbench_state_is_said_and_never_a_zero():
    skipped = {"device": 0, "axis_values": None, "summaries": None, "is_skipped": True, "skip_reason": "no FP8"}
    hollow = {"device": 1, "axis_values": None, "summaries": [], "is_skipped": False}
    first, second = parse(nvbench(skipped, hollow), "n.json").cases

    assert (first.values, first.skipped) == ((), "no FP8")
    assert (second.values, second.skipped) == ((), "the state has no summary of a time or a rate")


def test_the_first_layout_of_nvbench_names_its_summaries():
    value = {"hint": {"type": "string", "value": "duration"}, "short_name": {"type": "string", "value": "GPU Time"}}
    value["value"] = {"type": "float64", "value": "2e-3"}
    text = json.dumps(
        {
            "benchmarks": {
                "copy": {"states": {"Device=0": {"device": 0, "summaries": {"Average GPU Time (Cold)": value}}}}
            }
        }
    )
    found = parse(text, "n.json")

    assert [(case.metric, case.values) for case in found.cases] == [("gpu_time", (2e-3,))]
    assert found.warnings == ("the file does not say which version of nvbench's layout it has",)


def a_jsonbin(folder, samples=(1e-3, 2e-3, 4e-3), size=3, sampled="nv/cold/sample_times"):
    """Write what `nvbench --jsonbin FOLDER/n.json` does, which knows the folder by its whole path."""
    file = {"name": "filename", "type": "string", "value": f"/ci/run/{folder.name}/n.json-bin/0.bin"}
    samples_summary = {
        "tag": f"nv/json/bin:{sampled}",
        "hint": "file/sample_times",
        "data": [file, {"name": "size", "type": "int64", "value": str(size)}],
    }
    means = [summary("nv/cold/time/cpu/mean", "5e-3"), summary("nv/cold/time/gpu/mean", "3e-3")]
    (folder / "n.json").write_text(nvbench({"summaries": [*means, samples_summary]}))
    (folder / "n.json-bin").mkdir()
    (folder / "n.json-bin/0.bin").write_bytes(struct.pack(f"<{len(samples)}f", *samples))
    return folder / "n.json"


def values_of(file):
    """Return the values by metric; float32 has seven digits of them."""
    return {case.metric: tuple(float(f"{value:.6g}") for value in case.values) for case in file.cases}


def test_samples_that_nvbench_wrote_beside_its_json_stand_in_place_of_the_mean(tmp_path):
    path = a_jsonbin(tmp_path)

    assert values_of(read(path)) == {"gpu_time": (1e-3, 2e-3, 4e-3), "cpu_time": (5e-3,)}
    for name in ("n.json", "n.json-bin"):  # renamed together, as a run keeps them
        (tmp_path / name).rename(tmp_path / name.replace("n", "m", 1))
    assert values_of(read(tmp_path / "m.json"))["gpu_time"] == (1e-3, 2e-3, 4e-3)


def test_samples_of_a_cpu_benchmark_are_times_of_the_cpu(tmp_path):
    path = a_jsonbin(tmp_path, sampled="nv/cpu_only/sample_times")

    assert values_of(read(path)) == {"gpu_time": (3e-3,), "cpu_time": (1e-3, 2e-3, 4e-3)}


def test_without_the_samples_the_mean_is_used_and_a_warning_says_what_to_copy(tmp_path):
    path = a_jsonbin(tmp_path)
    (tmp_path / "n.json-bin/0.bin").unlink()
    found = read(path)

    assert values_of(found)["gpu_time"] == (3e-3,)
    assert found.warnings[0].startswith("the samples are not next to the file (n.json-bin/0.bin), so the means")


def test_samples_that_nvbench_could_not_write_are_a_warning():
    failed = {"tag": "nv/json/bin:nv/cold/sample_times", "data": []}
    found = parse(nvbench({"summaries": [summary("nv/cold/time/gpu/mean", "2e-5"), failed]}), "n.json")

    assert [case.values for case in found.cases] == [(2e-5,)]
    assert found.warnings == ("nvbench could not write all samples, so means are used: its own output says why",)


def test_samples_that_were_cut_off_are_refused(tmp_path):
    with pytest.raises(ProfileError, match="8 bytes, but the JSON names 3 samples of 4 bytes each"):
        read(a_jsonbin(tmp_path, samples=(1e-3, 2e-3)))


def test_of_many_samples_a_run_takes_every_so_many_th():
    values = tuple(float(i) for i in range(1, 2501))
    found = BenchmarkFile("nvbench-json", (BenchmarkCase("copy", {}, "gpu_time", "s", "lower", values),))

    assert choose(found, Program("nvbench", ("x",)), {}) == Chosen(values[::3], "nvbench-json/samples", "s", "lower")


def test_a_newer_nvbench_layout_is_read_with_a_warning():
    text = nvbench({"summaries": [summary("nv/cold/time/gpu/mean", "1e-3")]}).replace('"major": 1', '"major": 2')

    assert "newer than any" in parse(text, "n.json").warnings[0]


def test_two_columns_of_one_name_in_an_nvbench_csv_are_told_apart_by_their_place():
    text = (
        "Benchmark,Device,Device Name,N (pow2),N,Skipped,Samples,CPU Time (sec),Noise,GPU Time (sec),Noise,Samples\n"
        'copy,0,"NVIDIA L4, PCIe",2^4,16,No,9,1e-3,0.5,5e-4,0.1,7\n'
        "copy,0,NVIDIA L4,2^5,32,Yes,,,,,,\n"
    )
    found = parse(text, "n.csv")

    assert [(c.metric, c.params, c.values, c.skipped) for c in found.cases] == [
        ("gpu_time", {"N": 16, "device": 0}, (5e-4,), ""),
        ("cpu_time", {"N": 16, "device": 0}, (1e-3,), ""),
        ("gpu_time", {"N": 32, "device": 0}, (), "skipped"),
    ]


def google(*entries):
    return json.dumps({"context": {"date": "2026-11-27"}, "benchmarks": entries})


def entry(name="BM_copy/64", real=10.0, **more):
    return {"name": name, "iterations": 10, "real_time": real, "cpu_time": real, "time_unit": "us", **more}


def main_of(text):
    found = parse(text, "b.json")
    return [case for case in found.cases if case.metric == MAIN_METRIC[found.kind]]


def test_repetitions_are_samples_and_their_aggregates_are_left_out():
    (case,) = main_of(
        google(
            entry(real=10.0, run_type="iteration", run_name="BM_copy/64", repetition_index=0),
            entry(real=12.0, run_type="iteration", run_name="BM_copy/64", repetition_index=1),
            entry("BM_copy/64_mean", 11.0, run_type="aggregate", run_name="BM_copy/64", aggregate_name="mean"),
            entry("BM_copy/64_cv", 0.1, run_type="aggregate", run_name="BM_copy/64", aggregate_name="cv"),
        )
    )

    assert (case.name, case.params, case.values) == ("BM_copy/64", {"arg0": 64}, (10e-6, 12e-6))


def test_a_file_of_aggregates_alone_gives_the_median_else_the_mean():
    aggregates = {
        name: entry(f"BM_{name}", value, run_type="aggregate", run_name="BM", aggregate_name=name)
        for name, value in (("mean", 11.0), ("median", 10.0), ("stddev", 1.0))
    }

    assert main_of(google(*aggregates.values()))[0].values == (10e-6,)
    assert main_of(google(aggregates["mean"], aggregates["stddev"]))[0].values == (11e-6,)


def test_a_file_with_only_a_statistic_of_the_author_says_which():
    own = entry("BM_max", 22.0, run_type="aggregate", run_name="BM", aggregate_name="max")

    assert [(case.values, case.skipped) for case in parse(google(own), "b.json").cases] == [
        ((), "the file holds only the statistic `max` of it: no repetition, no median and no mean")
    ]


def test_literals_of_google_benchmark_that_json_has_not_are_read():
    text = google(entry(ratio="R", label="nan"), {"name": "BM_RMS", "rms": "P"})
    found = parse(text.replace('"R"', "-inf").replace('"P"', "12%"), "b.json")

    assert {case.metric: (case.values, case.skipped) for case in found.cases} == {
        "real_time": ((1e-5,), ""),
        "cpu_time": ((1e-5,), ""),
        "ratio": ((), "the file says -inf"),
    }
    assert found.warnings == ("left out, as a complexity fit has no time: 1 row",)


def test_rates_are_better_higher_and_what_the_author_counts_is_for_kernel_toml_to_say():
    found = parse(google(entry(bytes_per_second=2e9, tokens=7.0, label="x")), "b.json")

    assert [(c.metric, c.unit, c.better, c.values) for c in found.cases[2:]] == [
        ("bytes_per_second", "byte/s", "higher", (2e9,)),
        ("tokens", "", None, (7.0,)),
    ]


@pytest.mark.parametrize(
    "error", [{"error_occurred": True, "error_message": "no GPU"}, {"skipped": True, "skip_message": "no GPU"}]
)
def test_a_google_benchmark_with_an_error_is_skipped_with_its_reason(error):
    (case,) = main_of(google({"name": "BM", "iterations": 0, "real_time": 0.0, "time_unit": "ns", **error}))

    assert (case.values, case.skipped) == ((), "no GPU")


def test_the_first_versions_of_google_benchmark_told_aggregates_by_their_names_alone():
    entries = [
        {"name": name, "iterations": 3, "real_time": time, "cpu_time": time, "time_unit": "ns"}
        for name, time in (
            ("BM_a", 4),
            ("BM_a", 8),
            ("BM_a_mean", 6),
            ("BM_a_median", 6),
            ("BM_a_stddev", 2),
            ("BM_b_mean", 5),
        )
    ]
    fit = {"name": "BM_a_BigO", "cpu_coefficient": 2.0, "real_coefficient": 2.0, "big_o": "N"}
    found = parse(json.dumps({"context": {}, "benchmarks": [fit, *entries]}), "old.json")

    times = {case.name: case.values for case in found.cases if case.metric == "real_time"}
    assert times == {"BM_a": (4e-9, 8e-9), "BM_b": (5e-9,)}


@pytest.mark.parametrize(
    "document",
    [
        {"context": {}, "benchmarks": [{"name": "BM", "iterations": 0, "real_time": 0, "cpu_time": 0}]},
        {"machine_info": {}, "benchmarks": [{"name": "t", "stats": {"rounds": 0, "median": 0, "mean": 0}}]},
        {"machine_info": {}, "benchmarks": [{"name": "t", "has_error": True, "stats": {"median": 0, "mean": 0}}]},
    ],
)
def test_what_never_ran_is_skipped_and_no_zero(document):
    (case,) = parse(json.dumps(document), "x.json").cases

    assert (case.values, "no" in case.skipped) == ((), True)


def test_powershell_writes_utf_16(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("N,Triton\n256.000000,1.500000\n", encoding="utf-16")

    assert [case.values for case in read(path).cases] == [(1.5,)]


def test_the_csv_of_google_benchmark_begins_where_its_headings_are():
    text = (
        "2026-11-27T12:00:00\nRunning ./bench\n***WARNING*** CPU scaling is enabled, times are noisy\n"
        "name,iterations,real_time,cpu_time,time_unit,bytes_per_second,error_occurred,error_message\n"
        '"BM_copy/64",10,1.5,1.6,ms,2e9,,\n"BM_copy/65",,,,,,true,"no GPU"\n'
    )
    found = parse(text, "b.csv")

    assert [(c.metric, c.values, c.skipped) for c in found.cases] == [
        ("real_time", (1.5e-3,), ""),
        ("cpu_time", (1.6e-3,), ""),
        ("bytes_per_second", (2e9,), ""),
        ("real_time", (), "no GPU"),
    ]


def pytest_file(**stats):
    entries = [{"fullname": "t.py::test[8]", "name": "test[8]", "params": {"n": 8, "fn": [1]}, "stats": stats}]
    return json.dumps({"machine_info": {}, "version": "5.0", "benchmarks": entries})


@pytest.mark.parametrize(
    ("stats", "values"),
    [
        ({"data": [1.0, 3.0], "median": 2.0, "mean": 2.0, "ops": 0.5}, (1.0, 3.0)),
        ({"median": 2.0, "mean": 2.5}, (2.0,)),
        ({"mean": 2.5}, (2.5,)),
    ],
)
def test_pytest_benchmark_gives_its_rounds_or_else_a_summary(stats, values):
    (case,) = main_of(pytest_file(**stats))

    assert (case.name, case.params, case.values) == ("t.py::test[8]", {"n": 8}, values)


def test_a_pytest_benchmark_without_numbers_is_no_zero():
    assert main_of(pytest_file(min=1.0))[0].skipped == "the file holds no value"


def test_a_table_of_triton_says_neither_unit_nor_direction():
    first, _, third, _ = parse("M,N,Triton,Torch\n64,64.0,1.5,2.5\n128,64,nan,\n", "t.csv").cases

    assert first == BenchmarkCase("Triton", {"M": 64, "N": 64}, "value", "", None, (1.5,))
    assert (third.name, third.values) == ("Torch", (2.5,))


def test_whole_numbers_under_a_name_that_is_no_variable_are_measurements():
    found = parse("N,Triton,torch,naive\n64,1,2,3.5\n128,4,5,6.5\n", "t.csv")

    assert [(c.name, c.values[0]) for c in found.cases[::2]] == [("Triton", 1.0), ("torch", 2.0), ("naive", 3.5)]
    assert parse("M,N,Triton\n1,2,3\n4,5,6\n", "t.csv").warnings == (
        "these columns are taken for parameters, not for measurements: N",
    )


def test_a_provider_of_triton_that_failed_is_skipped():
    _, not_a_number, _, empty = parse("N,Triton,Torch\n64,1.5,2.5\n128,nan,\n", "t.csv").cases

    assert (not_a_number.skipped, empty.skipped) == ("the file says nan", "the file holds no value")


def test_a_damaged_row_of_triton_is_left_out_and_counted():
    found = parse("N,Triton\n64.0,1.5\n128.0,NaNbad\n256.0,2.5\n", "t.csv")

    assert [case.params["N"] for case in found.cases] == [64, 256]
    assert found.warnings == ("left out, as a cell is no number: 1 row, first 128.0,NaNbad",)


def test_newer_triton_writes_the_unit_behind_the_provider():
    (case,) = parse(",N,Triton (GB/s)\n0,64,1.5\n", "t.csv").cases

    assert (case.name, case.params, case.unit, case.values) == ("Triton", {"N": 64}, "byte/s", (1.5e9,))


def test_text_parameters_of_triton_select_a_case_as_others_do():
    text = "model,M,top_k,Time_(ms),TFLOPS\nmixtral-7B,4096.000000,2.000000,3.214500,598.750000\n"
    text += "mixtral-22B,4096.000000,2.000000,5.871200,561.200000\n"
    first, second, rate, _ = parse(text, "t.csv").cases

    assert first == BenchmarkCase(
        "Time_", {"model": "mixtral-7B", "M": 4096, "top_k": 2}, "value", "s", None, (0.0032145,)
    )
    assert (second.params["model"], rate.name, rate.unit, rate.values) == ("mixtral-22B", "TFLOPS", "", (598.75,))


def perf_report(folder, **benchmark):
    """Let the installed Triton write its files."""
    testing = pytest.importorskip("triton.testing")
    line = {"line_arg": "provider", "line_vals": ["a", "b"], "line_names": ["Triton", "Torch"], "args": {}}
    table = testing.Benchmark(**line, plot_name="", **benchmark)  # without a name it draws no plot
    rate = {"a": 1.5, "b": 2.5}
    testing.perf_report(table)(lambda provider, **_: (rate[provider], 1.0, 9.0)).run(save_path=str(folder))
    return read(folder / ".csv")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("benchmark", "params", "unit", "value"),
    [
        ({"x_names": ["N"], "x_vals": [64, 128]}, {"N": 64}, "", 1.5),
        ({"x_names": ["N", "share"], "x_vals": [(64, 0.5)], "ylabel": "ms"}, {"N": 64, "share": 0.5}, "s", 1.5e-3),
        (
            {"x_names": ["N", "kind", "causal"], "x_vals": [(64, "fp16", True), (64, "bf16", False)], "ylabel": "GB/s"},
            {"N": 64, "kind": "fp16", "causal": "True"},
            "byte/s",
            1.5e9,
        ),
        ({"x_names": ["N"], "x_vals": [64], "ylabel": "Bandwidth (GB/s)"}, {"N": 64}, "byte/s", 1.5e9),
    ],
    ids=["no-label", "a-unit", "text", "a-label-with-a-unit"],
)
def test_what_the_installed_triton_writes_is_read(tmp_path, benchmark, params, unit, value):
    found = perf_report(tmp_path, **benchmark).cases

    assert found[0] == BenchmarkCase("Triton", params, "value", unit, None, (value,))
    assert {case.name for case in found} == {"Triton", "Torch"}
    assert len(select(found, {"causal": True, **params}, lambda name: name == "Torch", "value")) == 1


@pytest.mark.parametrize(
    ("text", "signed"),
    [
        pytest.param("N,mine\n256.000000,1.500000\n512.000000,2.250000\n", True, id="six-digits"),
        pytest.param("N,mine\n256.0,1.5\n512.0,2.2\n", True, id="one-digit"),
        pytest.param("N,mine\n256.0,1.5\n512.0,\n", True, id="a-provider-that-failed"),
        pytest.param("N,Triton (mine)\n256,1.25\n", True, id="its-name"),
        pytest.param("N,mine (TFLOPS)\n256,1.25\n512,2\n", True, id="unit-behind-the-provider"),
        pytest.param("Year,Revenue\n2020,100.5\n2021,200.25\n", False, id="mixed-digits"),
        pytest.param("Year,Revenue\n2020,1.5\n2021,2.5\n", False, id="whole-numbers-beside-fractions"),
        pytest.param("Year,Revenue\n2020,100\n2021,200\n", False, id="whole-numbers-alone"),
        pytest.param("lat,lon\n52.1,13.4\n48.9,2.4\n", False, id="a-first-column-that-is-no-size"),
        pytest.param("t,U (V)\n1,1.5\n2,2.25\n", False, id="a-unit-that-no-benchmark-has"),
        pytest.param("dtype,N,Triton\nfp16,64,1.5\n", True, id="its-name-beside-text"),
        pytest.param("dtype,N,mine (GB/s),x\nfp16,64,1.50,2.50\nbf16,64,1.50,2.50\n", True, id="a-unit-beside-text"),
        pytest.param("dtype,N,mine,x\nfp16,64,1.50,2.50\n", False, id="text-without-a-unit"),
        pytest.param("city,rank,km (GB/s),x\nUlm,1.5,1.25,2.5\n", False, id="text-and-no-size"),
    ],
)
def test_a_table_of_numbers_is_tritons_where_it_shows_or_kernel_toml_says_so(text, signed):
    assert parse(text, "t.csv", declared="triton_csv").kind == "triton-csv"
    if signed:
        assert parse(text, "t.csv").kind == "triton-csv"
    else:
        with pytest.raises(ProfileError, match="a table of numbers without any sign that Triton wrote it"):
            parse(text, "t.csv")


def test_a_unit_of_time_that_is_not_known_is_said_and_not_taken_for_nanoseconds():
    (case,) = main_of(google(entry(time_unit="fortnight")))

    assert (case.values, case.skipped) == ((), "the unit of its times is not known: fortnight")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("\ufeff \n", "the file is empty"),
        ('{"benchmarks": [', "not JSON"),
        ('{"benchmarks": ' + "[" * 100_000, "nested too deeply"),
        ('{"benchmarks": ' + "1" * 5_000 + "}", "not JSON that can be read"),
        ("dtype,N,name\nfp16,64,x\n", "it looks like CSV with the columns dtype, N, name"),
        ("dtype,N,name (ms)\nfp16,64,x\n", "it looks like CSV with the columns dtype, N, name (ms)"),
        ('{"a": 1, "b": 2}', "it looks like JSON with the keys a, b"),
        ('{"benchmarks": [1, 2]}', "it looks like JSON with the keys benchmarks"),
        ('{"benchmarks": {"a": {"stats": {}}}}', "it looks like JSON with the keys benchmarks"),
        ("[]", "it looks like a list of values in JSON"),
        (google(), "a file of google-benchmark without a benchmark"),
        ('{"machine_info": {}, "benchmarks": []}', "a file of pytest-benchmark without a benchmark"),
        ('{"meta": {}, "benchmarks": []}', "a file of nvbench-json without a benchmark"),
        (nvbench(), "a file of nvbench-json without a benchmark"),
        ("hello\nworld\n", "it looks like text"),
        ("ID,Kernel Name\n0,flash\n", "it looks like CSV with the columns ID, Kernel Name"),
        ("N,Triton\n", "it looks like CSV with the columns N, Triton"),
        ("N,Triton\n1,2\n3\n", "a row has 1 cells under 2 headings: 3"),
        ("version https://git-lfs.github.com/spec/v1\n", "a git-lfs pointer"),
    ],
)
def test_what_is_no_benchmark_file_is_refused_in_one_sentence(text, message):
    with pytest.raises(ProfileError) as error:
        parse(text, "x")

    assert str(error.value).startswith("x: ")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('{"benchmarks": [', "the file ends in the middle: run the benchmark to its end"),
        ('{"benchmarks": ["BM_co', "the file ends in the middle: run the benchmark to its end"),
        ('{"benchmarks": [1 2]}', "the text there: 2]}"),
        ("N,Triton\n1,2\n3\n", "it is the last row: run the benchmark to its end"),
        ("N,Triton\n1,2,5\n3,4\n", "a cell with a comma needs quotes"),
    ],
)
def test_the_hint_says_what_is_seen_in_a_damaged_file(text, hint):
    with pytest.raises(ProfileError) as error:
        parse(text, "x")

    assert error.value.hint == hint


def test_a_file_that_is_not_there_or_is_binary_is_refused(tmp_path):
    (tmp_path / "a.out").write_bytes(b"\x7fELF\xff\xfe\x00")
    for name, message in (("gone.json", "no such file"), ("a.out", "it looks like a program")):
        with pytest.raises(ProfileError, match=message):
            read(tmp_path / name)


def is_read_or_refused(text, declared=""):
    try:
        return bool(parse(text, "x", declared=declared).cases)
    except ProfileError as error:
        return str(error).startswith("x: ")


@given(st.text() | st.text(alphabet='{}[]",:0123456789.benchmarkstatus\n'))
def test_any_text_is_read_or_refused(text):
    assert is_read_or_refused(text)


CELLS = (
    "",
    " ",
    "1",
    "64.000000",
    "nan",
    "1e999",
    "fp16",
    "True",
    "N",
    "Triton",
    "Triton (GB/s)",
    "x ()",
    ")",
    "(",
    "a (b (ms))",
)


@given(st.lists(st.lists(st.sampled_from(CELLS), min_size=2, max_size=4), min_size=2, max_size=4))
def test_any_table_is_read_or_refused_whether_it_is_declared_or_not(rows):
    text = "\n".join(",".join(row) for row in rows)
    assert all(is_read_or_refused(text, declared) for declared in ("", "triton_csv"))


WHOLE = tuple(
    json.loads(text)
    for text in (
        nvbench({"device": 0, "axis_values": [{"name": "N", "value": "1"}], "summaries": [summary("a", "1")]}),
        google(entry(run_type="aggregate", aggregate_name="mean", run_name="BM", bytes_per_second=1.0)),
        pytest_file(data=[1.0], median=1.0),
    )
)
ODD = (None, True, 0, -1.5, "", "x", "1e999", [], [[]], [1], {}, {"value": []}, {"a": {}}, float("nan"))


def places(node):
    """Yield every object or array inside a document with each of its keys."""
    for key in list(node) if isinstance(node, dict) else range(len(node)):
        yield node, key
        if isinstance(node[key], dict | list):
            yield from places(node[key])


@pytest.mark.parametrize("document", WHOLE, ids=["nvbench", "google", "pytest"])
def test_a_file_with_anything_in_place_of_one_of_its_parts_is_read_or_refused(document):
    for place, key in places(document):
        kept = place[key]
        for odd in ODD:
            place[key] = odd
            assert is_read_or_refused(json.dumps(document))
        place[key] = kept


CASES = tuple(
    BenchmarkCase(name, {"N": n, "dtype": dtype}, metric, "s", "lower", (1.0,))
    for name in ("copy", "scale")
    for n, dtype in ((256, "F16"), (256, "F32"), (512, "F16"))
    for metric in ("gpu_time", "cpu_time")
)


@pytest.mark.parametrize(
    ("params", "name", "count"),
    [
        ({"N": 256, "dtype": "F32"}, "copy", 1),
        ({"N": 256.0, "dtype": "F16", "other": 1}, "copy", 1),
        ({"N": "512"}, "copy", 1),
        ({"N": 256, "dtype": "torch.F32"}, "copy", 1),
        ({"N": 256}, "copy", 2),
        ({}, "scale", 3),
        ({"N": 7}, "copy", 0),
    ],
)
def test_a_case_is_chosen_by_name_metric_and_the_parameters_that_both_sides_have(params, name, count):
    assert len(select(CASES, params, lambda found: found == name, "gpu_time")) == count


def a_program(kind, **keys):
    return Program(kind, ("./bench", "{output}"), **keys)


ENTRY = google(entry(real=10.0, bytes_per_second=2e9, tokens=7.0))


@pytest.mark.parametrize(
    ("keys", "chosen"),
    [
        ({}, Chosen((10e-6,), "google-benchmark", "s", "lower")),
        ({"unit": "ms", "better": "lower"}, Chosen((10e-6,), "google-benchmark", "s", "lower")),
        (
            {"metric": "bytes_per_second"},
            Chosen((2e9,), "google-benchmark/bytes_per_second", "byte/s", "higher"),
        ),
        (
            {"metric": "tokens", "unit": "kitems/s", "better": "higher"},
            Chosen((7e3,), "google-benchmark/tokens", "item/s", "higher"),
        ),
    ],
)
def test_unit_and_direction_come_from_the_file_else_from_kernel_toml(keys, chosen):
    assert choose(parse(ENTRY, "b.json"), a_program("google_benchmark", **keys), {}) == chosen


@pytest.mark.parametrize(
    ("text", "program", "code", "message"),
    [
        (ENTRY, a_program("nvbench"), "wrong-format", "kernel.toml says `nvbench`, but the program wrote google"),
        (ENTRY, a_program("google_benchmark", metric="tokens"), "wrong-format", "does not say the unit of BM_copy/64"),
        (ENTRY, a_program("google_benchmark", better="higher"), "wrong-format", "says higher, the file says lower"),
        (google(entry(real=-1.0)), a_program("google_benchmark"), "wrong-format", "negative or not finite"),
        (
            google(entry(), entry("BM_set/64")),
            a_program("google_benchmark"),
            "no-benchmark",
            "2 benchmarks of the file",
        ),
        (ENTRY, a_program("google_benchmark", benchmark="BM_set*"), "no-benchmark", "no `real_time` of a benchmark"),
    ],
)
def test_what_is_not_one_number_is_an_error_with_the_code_of_a_failure(text, program, code, message):
    with pytest.raises(ProgramFailed, match=message) as error:
        choose(parse(text, "b.json"), program, {})

    assert error.value.code == code
