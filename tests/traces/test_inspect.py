"""`ci-perf inspect`: any file in, what it holds or what it looks like out; never a traceback."""

import contextlib
import gzip
import json
import os
import random
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

from ci_perf.cli import inspection
from ci_perf.cli.program import program
from ci_perf.traces.document import describe
from ci_perf.values.errors import CiPerfError
from tests import corpus
from tests.traces.test_nsys import call, write_trace

TRACE = corpus.CAPTURES / "h200-nsys-2025.3.2-torch.sqlite"
REPORT = corpus.CAPTURES / "h200-ncu-2025.3.1-min.ncu-rep"
PAGE = corpus.CAPTURES / "h200-ncu-2025.3.1-min-raw.csv"


NOTHING_COUNTED = b"""ID,Kernel Name,dram__bytes.sum
,,byte
0,"scale(float *)",n/a
1,"scale(float *)",n/a
"""
NOTHING_RAN = b"""{"context": {}, "benchmarks": [
    {"name": "BM_a", "run_type": "iteration", "error_occurred": true, "error_message": "no device", "real_time": 0}
]}"""


def inspect(*arguments: object):
    return CliRunner().invoke(program, ["inspect", *map(str, arguments)])


def document(path: Path):
    result = inspect(path, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_trace_as_json():
    found = document(TRACE)

    kernels, devices = found.pop("kernels"), found.pop("devices")
    assert found == {
        "kind": "nsys",
        "tool_version": "2025.3.2.0",
        "schema_version": "3.20.3",
        "kernel_count": 10,
        "kernel_total_ns": 1072667,
        "kernel_busy_ns": {"0": 1072667},
        "graph_count": 0,
        "graph_total_ns": 0,
        "memcpy_count": 2,
        "nvtx_count": 4,
        "processes": [{"pid": 508, "launches": 10, "kernel_count": 10}],
        "warnings": [],
    }
    assert devices == [{"index": 0, "name": "NVIDIA H200", "compute_capability": "9.0", "sm_count": 132}]
    assert [(kernel["count"], kernel["total_ns"]) for kernel in kernels] == [(5, 841533), (5, 231134)]


@pytest.mark.parametrize("path", [REPORT, PAGE])
def test_counters_as_json(path):
    found = document(path)

    assert list(found) == ["kind", "launches", "warnings"]
    assert (found["kind"], len(found["launches"])) == ("ncu", 10)
    metrics = found["launches"][5]["metrics"]
    assert metrics["gpu__time_duration.sum"]["unit"] == "ns"
    assert metrics["launch__shared_mem_per_block_static"] == {"value": 0.0, "unit": "byte/block", "state": "zero"}
    assert {metric["state"] for metric in metrics.values()} == {"value", "zero", "not available"}
    assert all(metric.get("reason") for metric in metrics.values() if metric["state"] == "not available")


@pytest.mark.parametrize(("path", "words"), [(TRACE, "time %    count    total ns"), (PAGE, "gpu__time_duration.sum")])
def test_tables_for_people(path, words):
    result = inspect(path)

    assert result.exit_code == 0
    assert words in result.stdout


def test_the_median_of_an_even_number_of_samples_lies_in_the_middle(tmp_path):
    path = tmp_path / "p.json"
    path.write_text('{"machine_info": {}, "benchmarks": [{"name": "t", "stats": {"data": [4, 8]}}]}')

    assert inspect(path).stdout.splitlines()[-1].split() == ["t", "time", "6", "s", "lower", "2"]


@pytest.mark.parametrize(
    ("name", "content", "look"),
    [
        ("t.sqlite", b"", "the file is empty"),
        ("t.nsys-rep", b"NVIDIA Tegra Profiler Report 2025@5@1\0", "an nsys report, which only nsys can open"),
        ("t.txt", b"Processing [t.sqlite] with [cuda_gpu_kern_sum.py]...\n", "what `nsys stats` prints"),
        ("t.txt", b" Section: GPU Speed Of Light Throughput\n", "the pages that ncu prints for people"),
        ("t.csv", b"Start (ns),Duration (ns),CorrId\n1,2,3\n", "what `nsys stats` prints"),
        ("t.csv", b"PID,TID,DevId,Count,KAvg (ns)\n1,2,0,3,4\n", "what `nsys stats` prints"),
        ("t.txt", b"\xef\xbb\xbfNVIDIA (R) Nsight Compute Command Line Profiler\n", "says of its version"),
        ("t.csv", b'"ID";"Process ID";"Kernel Name"\n"0";"7";"k"\n', "ncu's table after a program for spreadsheets"),
        ("t.csv", b"ID,Kernel Name,a.sum,a.sum\n0,k,1,2\n", "two columns a.sum that say '1' and '2'"),
        ("t.md", b"# Devices\n\n## [0] `GPU`\n", "what nvbench prints"),
        ("t.txt", b"Benchmark      Time       CPU   Iterations\nBM_a  5 ns  5 ns  9\n", "what google-benchmark prints"),
        ("t.txt", b"---- benchmark: 1 tests ----\n", "what pytest-benchmark prints"),
        ("t.log", b"==ERROR== ERR_NVGPUCTRPERM", "may not read the GPU's performance counters"),
        ("t.ncu-rep", b"NVR\0", "cut off"),
        ("t.html", b"<!doctype html><title>Sign in", "HTML"),
        ("t.bin", bytes(range(256)), "binary data"),
        ("t.bin", bytes(99), "binary data"),
        ("t.sqlite", b"\x1f\x8b\x08\0", "a gzip-compressed file"),
        ("results.json", b"BZh91AY&SY", "a bzip2-compressed file"),
        ("a.out", b"\x7fELF\2\1\1\0", "a program"),
        ("t.json", b'{"traceEvents": [{"ph": "X", "cat": "cpu_op"}]}', "a Chrome trace, but holds no kernel"),
        ("t.jsonl", b'{"type": 48}\n{"type": 79}\n', "several JSON documents one after another: {"),
        ("t.json", b"{}", "JSON that holds nothing"),
        ("t.parquet", b"PAR1\0", "a Parquet table"),
        ("t.txt", b"========= COMPUTE-SANITIZER\n", "what compute-sanitizer prints"),
        ("t.csv", b"==7== NVPROF is profiling process 7\n", "what nvprof prints"),
        ("sales.csv", b"Year,Revenue\n2020,100.5\n", "a table of numbers without any sign that Triton wrote it"),
        ("t.csv", b"N,Triton\n256.0,nan\n", "no result in it has a value; the first, Triton [N=256] value: the file"),
        ("n.csv", NOTHING_COUNTED, "none of its 2 launches has a value: n/a"),
        ("g.json", NOTHING_RAN, "no result in it has a value; the first, BM_a real_time: no device"),
        ("x" * 300, None, "file name too long"),
    ],
)
def test_what_cannot_be_read_is_refused_by_what_it_looks_like(tmp_path, monkeypatch, name, content, look):
    monkeypatch.setattr(inspection.tools, "find", lambda _name, _environ: ())
    if content is not None:
        (tmp_path / name).write_bytes(content)
    result = inspect(tmp_path / name)

    assert result.exit_code == 2, result.output
    assert look in result.stderr


def test_names_that_are_not_utf_8_are_shown_with_a_mark_and_break_nothing(tmp_path):
    path = tmp_path / "t.sqlite"
    path.write_bytes(TRACE.read_bytes())
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute(
            "UPDATE StringIds SET value = CAST(x'66ff6e' AS TEXT) "
            "WHERE id = (SELECT demangledName FROM CUPTI_ACTIVITY_KIND_KERNEL)"
        )
        database.execute("UPDATE NVTX_EVENTS SET text = CAST(x'6369ff' AS TEXT)")
        database.commit()

    before, after = document(TRACE), document(path)
    assert {"f\ufffdn"} == {k["name"] for k in after["kernels"]} - {k["name"] for k in before["kernels"]}
    assert [k["total_ns"] for k in after["kernels"]] == [k["total_ns"] for k in before["kernels"]]


def test_a_pipe_is_refused_before_it_is_waited_for(tmp_path):
    os.mkfifo(tmp_path / "t.sqlite")

    for path, look in ((tmp_path / "t.sqlite", "a pipe or device"), (tmp_path, "a directory")):
        result = inspect(path)
        assert (result.exit_code, look in result.stderr) == (2, True), result.output


def test_a_database_that_another_program_is_not_done_with_is_refused(tmp_path):
    path = tmp_path / "t.sqlite"
    path.write_bytes(TRACE.read_bytes())
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")
        database.commit()
        for result in (inspect(path), CliRunner().invoke(program, ["scrub", str(path)])):
            assert (result.exit_code, "t.sqlite-wal holds changes" in result.stderr) == (2, True), result.output

    assert document(path)["kernel_count"] == 0


def test_a_view_in_place_of_a_table_is_read(tmp_path):
    path = tmp_path / "t.sqlite"
    path.write_bytes(TRACE.read_bytes())
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO mine")
        database.execute("CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT * FROM mine")

    assert document(path) == document(TRACE)


def test_an_export_that_holds_nothing_is_refused(tmp_path):
    path = write_trace(
        tmp_path / "t.sqlite", {"META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": "3.20"}]}
    )
    result = inspect(path)

    assert result.exit_code == 2
    assert "an nsys export, but holds no kernel" in result.stderr


def test_kernels_that_were_launched_and_not_traced_took_no_measured_time(tmp_path):
    path = write_trace(tmp_path / "t.sqlite", {"CUPTI_ACTIVITY_KIND_RUNTIME": [call(0, 1), call(0, 2)]})
    found = document(path)

    assert (found["kernel_count"], found["kernel_total_ns"]) == (0, None)
    assert "2 kernels were launched but none was traced" in found["warnings"][0]
    assert "kernels: 0, their time is not available" in inspect(path).stdout


@pytest.mark.parametrize(
    ("tables", "total"),
    [
        ({}, None),
        ({"CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [{"start": 0, "end": 9}]}, None),
        ({"CUPTI_ACTIVITY_KIND_RUNTIME": [call(0, 1, "cudaMalloc")]}, 0),
        (
            {
                "CUPTI_ACTIVITY_KIND_RUNTIME": [call(0, 1, "cudaMalloc")],
                "DIAGNOSTIC_EVENT": [{"severity": 2, "text": "Some CUPTI events might be missing"}],
            },
            None,
        ),
    ],
)
def test_no_kernel_is_a_measured_zero_only_where_the_calls_were_traced_and_launched_none(tmp_path, tables, total):
    found = document(write_trace(tmp_path / "t.sqlite", {"TARGET_INFO_GPU": [{"name": "GPU"}], **tables}))

    assert (found["kernel_count"], found["kernel_total_ns"]) == (0, total)


@pytest.mark.parametrize("pack", [False, True])
def test_a_trace_of_torchs_profiler_is_a_trace(tmp_path, pack):
    path = tmp_path / ("t.pt.trace.json.gz" if pack else "trace.json")
    content = (corpus.CAPTURES.parent / "hand-made-torch-2.11.trace.json").read_bytes()
    path.write_bytes(gzip.compress(content) if pack else content)
    found = document(path)

    assert (found["kind"], found["kernel_count"], found["kernel_total_ns"]) == ("torch-profiler", 5, 142500)
    assert (found["kernel_busy_ns"], found["memcpy_count"], found["nvtx_count"]) == ({"0": 142500}, 1, 1)
    assert found.keys() == document(TRACE).keys()
    assert "trace of torch's profiler, schema 1" in inspect(path).stdout


def test_a_report_of_nsys_is_exported_where_there_is_an_nsys(tmp_path, monkeypatch):
    nsys = tmp_path / "nsys"
    nsys.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo "NVIDIA Nsight Systems version 2025.3.2.474-253235"; exit; fi\n'
        f'cp "{TRACE}" "$7"\n'
    )
    nsys.chmod(0o755)
    monkeypatch.setenv("CI_PERF_NSYS", str(nsys))
    (tmp_path / "t.nsys-rep").write_bytes(b"NVIDIA Tegra Profiler Report 2025@5@1\0")

    assert document(tmp_path / "t.nsys-rep")["kernel_count"] == 10
    assert sorted(path.name for path in tmp_path.iterdir()) == ["nsys", "t.nsys-rep"]


@pytest.mark.parametrize("source", [TRACE, REPORT, PAGE])
def test_damaged_files_are_read_or_refused_but_never_a_bug(tmp_path, source):
    draw = random.Random(source.name)
    whole = source.read_bytes()
    path = tmp_path / f"damaged{source.suffix}"
    for _ in range(25):
        content = bytearray(whole)
        for place in draw.choices(range(len(content)), k=draw.choice([1, 10, 50])):
            content[place : place + draw.choice([0, 1, 8])] = draw.randbytes(draw.choice([0, 1, 8]))
        path.write_bytes(content)
        with contextlib.suppress(CiPerfError):
            json.dumps(describe(inspection.read(path, {})), allow_nan=False)


@pytest.mark.parametrize("value", [None, -1, 1 << 62, "text", b"\xff\0", 3.7, float("inf")])
@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("CUPTI_ACTIVITY_KIND_KERNEL", "end"),
        ("CUPTI_ACTIVITY_KIND_KERNEL", "correlationId"),
        ("CUPTI_ACTIVITY_KIND_KERNEL", "demangledName"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "start"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid"),
        ("CUPTI_ACTIVITY_KIND_MEMCPY", "copyKind"),
        ("NVTX_EVENTS", "end"),
        ("StringIds", "value"),
        ("META_DATA_EXPORT", "value"),
    ],
)
def test_values_that_nsys_does_not_write(tmp_path, table, column, value):
    path = tmp_path / "odd.sqlite"
    path.write_bytes(TRACE.read_bytes())
    database = sqlite3.connect(path)
    database.executescript(f"""
        CREATE TABLE loose AS SELECT * FROM "{table}"; DROP TABLE "{table}"; ALTER TABLE loose RENAME TO "{table}";
    """)
    database.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid % 2', (value,))
    database.commit()
    database.close()
    with contextlib.suppress(CiPerfError):
        json.dumps(describe(inspection.read(path, {})), allow_nan=False)
