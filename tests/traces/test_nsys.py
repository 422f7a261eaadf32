"""Traces in, timelines out: published ones of many versions, one of our own, and small ones written here."""

import random
import sqlite3
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import pytest

from ci_perf.traces import nsys
from ci_perf.traces.attribution import case_timeline
from ci_perf.traces.nsys import activity as nsys_activity
from ci_perf.traces.timeline import Gpu, Timeline
from ci_perf.values.errors import ProfileError
from tests import corpus

PROCESS = 7 << 24
THREAD, OTHER_THREAD = PROCESS + 1, PROCESS + 2
PUSH_POP, START_END, DOMAIN = 59, 60, 75


def write_trace(path: Path, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> Path:
    """Write an export that holds these rows; the first row of a table has all of its columns."""
    database = sqlite3.connect(path)
    for table, rows in tables.items():
        columns = list(rows[0])
        database.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
        values = [[row.get(column) for column in columns] for row in rows]
        database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", values)
    database.commit()
    database.close()
    return path


def kernel(start: int, end: int, launch: int = 0, **columns: Any) -> dict[str, Any]:
    return {"start": start, "end": end, "correlationId": launch, "globalPid": PROCESS, "deviceId": 0} | columns


def call(start: int, launch: int, name: str = "cudaLaunchKernel_v7000", thread: int = THREAD) -> dict[str, Any]:
    return {"start": start, "end": start + 1, "correlationId": launch, "globalTid": thread, "name": name}


def nvtx(text: str | None, start: int, end: int | None, kind: int = PUSH_POP, **columns: Any) -> dict[str, Any]:
    row = {"text": text, "textId": None, "start": start, "end": end, "eventType": kind, "globalTid": THREAD}
    return row | {"domainId": 0} | columns


@pytest.fixture
def read(tmp_path):
    """Return a function from the rows of a trace to its timeline."""

    def read_rows(kernels=(), calls=(), ranges=(), **tables) -> Timeline:
        known = {"KERNEL": kernels, "RUNTIME": calls}
        rows = {f"CUPTI_ACTIVITY_KIND_{name}": rows for name, rows in known.items() if rows} | tables
        rows |= {"NVTX_EVENTS": ranges} if ranges else {}
        return nsys.read_timeline(
            write_trace(tmp_path / "trace.sqlite", {"TARGET_INFO_GPU": [{"name": "GPU"}], **rows})
        )

    return read_rows


def seen(timeline: Timeline) -> dict[str, Any]:
    """Say of a timeline what the corpus says of a file."""
    by_short: dict[str, list[int]] = {}
    for k in timeline.kernels:
        total = by_short.setdefault(k.short_name, [0, 0])
        total[0] += k.count
        total[1] += k.total_ns
    short_names = sorted(by_short, key=lambda name: -by_short[name][1])
    return {
        "nsys_version": timeline.tool_version,
        "schema_version": timeline.schema_version,
        "gpus": dict(Counter(gpu.name for gpu in timeline.devices)),
        "kernel_rows": timeline.kernel_count,
        "kernel_total_ns": timeline.kernel_total_ns,
        "kernel_union_busy_ns_per_device": {str(device): busy for device, busy in timeline.kernel_busy_ns.items()},
        "min_ns": min((k.min_ns for k in timeline.kernels), default=0),
        "max_ns": max((k.max_ns for k in timeline.kernels), default=0),
        "distinct_short": len(by_short),
        "distinct_demangled": len({k.name for k in timeline.kernels}),
        "longest_demangled": max((len(k.name) for k in timeline.kernels), default=0),
        "top_short": [short_names[0], *by_short[short_names[0]]] if by_short else [],
        "rows_memcpy": timeline.memcpy_count,
        "rows_memset": timeline.memset_count,
        "rows_runtime": timeline.call_count,
        "rows_nvtx_events": timeline.nvtx_count,
        "rows_graph_trace": timeline.graph_count,
        "graph_trace_total_ns": timeline.graph_total_ns,
    }


def counts(timeline: Timeline) -> dict[str, int]:
    """Return how many kernels were launched inside the ranges of each name."""
    return {name: sum(kernel.count for kernel in timeline.inside([name])) for name in timeline.ranges}


@pytest.mark.parametrize(("path", "expected"), corpus.files("nsys-sqlite"))
def test_published_traces(path, expected):
    timeline = nsys.read_timeline(path)

    known = {key: value for key, value in expected.items() if key in seen(timeline) and value is not None}
    known |= {"gpus": {name.strip(): count for name, count in known["gpus"].items()}} if "gpus" in known else {}
    assert {key: seen(timeline)[key] for key in known} == known
    assert timeline.has_kernel_data == bool(expected.get("kernel_rows"))
    assert timeline.has_kernel_data or timeline.warnings
    assert sum(k.count for k in timeline.kernels) == timeline.kernel_count


def test_own_capture():
    timeline = nsys.read_timeline(corpus.CAPTURES / "h200-nsys-2025.3.2-torch.sqlite")

    assert timeline.devices == (Gpu(0, "NVIDIA H200", "9.0", 132),)
    assert (timeline.kernel_count, timeline.nvtx_count) == (10, 4)
    assert (timeline.call_count, timeline.memcpy_count) == (59, 2)
    inside = {name: timeline.inside([name]) for name in timeline.ranges}
    assert [
        (name, sum(k.count for k in kernels), sum(k.total_ns for k in kernels), [k.median_ns for k in kernels])
        for name, kernels in inside.items()
    ] == [
        ("sdpa_s512", 5, 231134, [46271.0]),
        ("h2d", 0, 0, []),
        ("h2d_pinned", 0, 0, []),
        ("matmul_4096", 5, 841533, [167392.0]),
    ]
    sdpa, matmul = inside["sdpa_s512"][0], inside["matmul_4096"][0]
    assert (sdpa.grid, sdpa.block, sdpa.registers_per_thread) == ((132, 1, 1), (384, 1, 1), 168)
    assert matmul.short_name == "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
    assert timeline.warnings == ()


def test_a_kernel_belongs_to_the_range_that_launched_it_not_to_the_one_it_ran_in(read):
    timeline = read(
        kernels=[kernel(90, 110, launch=1)],
        calls=[call(10, 1)],
        ranges=[nvtx("launching", 0, 20), nvtx("running", 80, 120)],
    )
    assert counts(timeline) == {"launching": 1, "running": 0}


def test_push_pop_ranges_hold_their_thread_and_start_end_ranges_their_process(read):
    timeline = read(
        kernels=[kernel(20, 30, 1), kernel(30, 40, 2), kernel(40, 50, 1, globalPid=8 << 24)],
        calls=[call(10, 1), call(11, 2, thread=OTHER_THREAD), call(12, 1, thread=(8 << 24) + 1)],
        ranges=[nvtx("mine", 0, 15), nvtx("ours", 0, 15, START_END)],
    )
    assert counts(timeline) == {"mine": 1, "ours": 2}


def test_ranges_of_one_name_are_one_even_when_nested_or_never_closed(read):
    timeline = read(
        kernels=[kernel(20, 30, 1), kernel(30, 36, 2)],
        calls=[call(10, 1), call(100, 2)],
        ranges=[nvtx("case", 0, 15), nvtx("case", 5, 12), nvtx("case", 90, None)],
    )
    (kernels,) = timeline.inside(["case"])
    assert (timeline.ranges, kernels.count, kernels.total_ns, kernels.median_ns) == ({"case": 3}, 2, 16, 8.0)


def test_a_kernel_in_ranges_of_two_names_is_in_each_and_once_inside_both(read):
    timeline = read(
        kernels=[kernel(20, 30, 1), kernel(30, 36, 2)],
        calls=[call(10, 1), call(14, 2)],
        ranges=[nvtx("outer", 0, 15), nvtx("inner", 5, 12)],
    )
    assert counts(timeline) == {"outer": 2, "inner": 1}
    assert [kernel.count for kernel in timeline.inside(["outer", "inner", "gone"])] == [2]


def test_range_names_are_registered_strings_and_have_domains(read):
    timeline = read(
        StringIds=[{"id": 5, "value": "registered"}],
        ranges=[nvtx(None, 0, 9, textId=5), nvtx("MPI", 0, None, DOMAIN, domainId=1), nvtx("Send", 1, 2, domainId=1)],
    )
    assert [*timeline.ranges] == ["registered", "MPI@Send"]


def test_all_kernels_of_a_graph_have_the_launch_of_the_graph(read):
    timeline = read(
        kernels=[kernel(20, 30, 1), kernel(30, 40, 1)],
        calls=[call(10, 1, "cudaGraphLaunch_v10000")],
        ranges=[nvtx("case", 0, 15)],
    )
    assert counts(timeline)["case"] == 2
    assert timeline.warnings == ()


def test_the_driver_call_below_a_runtime_call_is_no_second_launch(read):
    timeline = read(
        kernels=[kernel(20, 30, 1)],
        calls=[call(10, 1), call(11, 1, "cuLaunchKernel")],
        ranges=[nvtx("case", 0, 15)],
    )
    assert (counts(timeline)["case"], timeline.warnings) == (1, ())


def test_overlapping_kernels_count_twice_in_the_sum_and_once_in_the_busy_time(read):
    timeline = read(kernels=[kernel(0, 10), kernel(2, 4), kernel(5, 20), kernel(30, 40), kernel(0, 7, deviceId=1)])

    assert timeline.kernel_total_ns == 10 + 2 + 15 + 10 + 7
    assert timeline.kernel_busy_ns == {0: 30, 1: 7}


def test_kernels_are_told_apart_by_their_launch_parameters(read):
    names = [{"id": 1, "value": "void fwd<64>(int)"}, {"id": 2, "value": "fwd"}]
    columns = {"demangledName": 1, "shortName": 2, "gridX": 8, "gridY": 1, "gridZ": 1, "registersPerThread": 32}
    rows = [kernel(0, 10, **columns), kernel(0, 20, **columns), kernel(0, 30, **columns | {"gridX": 16})]
    timeline = read(kernels=rows, StringIds=names)

    assert [(k.name, k.short_name, k.count, k.median_ns, k.grid) for k in timeline.kernels] == [
        ("void fwd<64>(int)", "fwd", 2, 15.0, (8, 1, 1)),
        ("void fwd<64>(int)", "fwd", 1, 30.0, (16, 1, 1)),
    ]
    assert timeline.kernels[0].registers_per_thread == 32
    assert timeline.kernels[0].block is None, "no such column"


def test_a_kernel_has_whatever_name_the_trace_has(read):
    names = [{"id": 1, "value": "_Z3fwdv"}]
    timeline = read(kernels=[kernel(0, 9, mangledName=1, demangledName=None)], StringIds=names)

    assert timeline.kernels[0].name == "_Z3fwdv"


def test_a_newer_table_of_the_same_kind_is_found(read):
    assert read(CUPTI_ACTIVITY_KIND_KERNEL_V2=[kernel(0, 9)]).kernel_count == 1


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ({}, "no CUDA activity at all"),
        ({"calls": [call(0, 1, "cudaFree_v3020")]}, "launched no kernel"),
        ({"calls": [call(0, 1), call(0, 2)]}, "2 kernels were launched but none was traced"),
        ({"CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [{"start": 0, "end": 9}]}, "inside CUDA graphs"),
    ],
)
def test_a_trace_without_kernels_says_why(read, rows, reason):
    timeline = read(**rows)

    assert not timeline.has_kernel_data
    assert reason in timeline.warnings[0]


@pytest.mark.parametrize(
    ("row", "count", "total_ns", "warning"),
    [
        ({}, 2, 45, None),
        ({"start": 60, "end": 60}, 1, 40, "1 of 2 kernels have no time"),
        ({"start": 0, "end": 0}, 1, 40, "1 of 2 kernels have no time"),
        ({"start": 1.79e18, "end": 1.79e18 + 512}, 1, 40, "1 of 2 kernels have no time"),
        ({"start": "a"}, 1, 40, "1 of 2 kernels have no time"),
        ({"start": 60, "end": 55}, 1, 40, "1 kernels have no end"),
        ({"start": 45, "end": 50}, 1, 40, "1 of 2 kernels lie inside another kernel of their stream"),
        ({"start": 45, "end": 51}, 2, 46, "1 of 2 kernels begin before the kernel in front of them"),
        ({"start": 45, "end": 50, "streamId": 8}, 2, 45, None),
        ({"start": 45, "end": 50, "graphNodeId": 3}, 2, 45, None),
    ],
)
def test_a_kernel_without_a_sound_time_is_left_out_and_counted(read, row, count, total_ns, warning):
    first = kernel(10, 50, deviceId=0, contextId=1, streamId=7, graphNodeId=None)
    timeline = read(kernels=[first, {**first, "start": 100, "end": 105, **row}])

    assert (timeline.kernel_count, timeline.kernel_total_ns) == (count, total_ns)
    assert [text[: len(warning or "")] for text in timeline.warnings] == ([warning] if warning else [])


def test_a_trace_of_which_all_kernels_were_left_out_does_not_say_that_none_was_traced(read):
    timeline = read(kernels=[kernel(5, 0, 1)], calls=[call(0, 1)])

    assert timeline.warnings == ("1 kernels have no end in the trace and were left out",)
    assert not timeline.tells_kernel_time


def test_the_branches_of_a_graph_may_run_side_by_side_in_a_stream(read):
    rows = [kernel(20, 40, 1, streamId=7), kernel(25, 30, 1, streamId=7)]
    timeline = read(kernels=rows, calls=[call(10, 1, "cudaGraphLaunch_v10000")])

    assert (timeline.kernel_count, timeline.warnings) == (2, ())


def test_kernels_that_another_thread_launched_are_told(read):
    timeline = read(
        kernels=[kernel(20, 30, 1), kernel(30, 36, 2), kernel(40, 46, 3)],
        calls=[call(10, 1), call(11, 2, thread=PROCESS + 2), call(100, 3, thread=PROCESS + 2)],
        ranges=[nvtx("case", 0, 15)],
    )
    assert counts(timeline) == {"case": 1}
    assert timeline.warnings == (
        "1 of 3 kernels were launched by another thread while an NVTX range was open, and are in no range",
    )


def test_a_kernel_whose_name_is_not_in_the_trace_is_told(read):
    timeline = read(kernels=[kernel(0, 9, demangledName=34)], StringIds=[{"id": 1, "value": "fwd"}])

    assert timeline.warnings == ("1 of 1 kernels have no name in the trace, only the number of one",)


@pytest.mark.parametrize("damage", ["cut", "zeros", "noise"])
def test_a_database_with_damaged_pages_is_refused(tmp_path, damage):
    raw = bytearray((corpus.CAPTURES / "h200-nsys-2025.3.2-torch.sqlite").read_bytes())
    half = len(raw) // 8192 * 4096
    if damage == "cut":
        del raw[half:]
    else:
        raw[half:] = bytes(len(raw) - half) if damage == "zeros" else random.Random(3).randbytes(len(raw) - half)
    file = tmp_path / "a.sqlite"
    file.write_bytes(raw)

    with pytest.raises(ProfileError, match="a damaged file: "):
        nsys.read_timeline(file)


@pytest.mark.parametrize(
    ("rows", "warning"),
    [
        ({"calls": [call(0, 1), call(0, 2)]}, "1 of 2 kernel launches have no kernel"),
        ({"kernels": [kernel(0, 9, 1), kernel(5, 0, 2)]}, "1 kernels have no end"),
        ({"CUPTI_ACTIVITY_KIND_MEMCPY": [{"start": 5, "end": None, "bytes": 8}]}, "1 memory copies have no end"),
        ({"ranges": [nvtx("case", 0, 9)]}, "1 of 1 kernels have no launch call"),
        ({"CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [{"start": 0, "end": 9}]}, "1 CUDA graph launches were traced as a whole"),
        ({"META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": "4.0.1"}]}, "schema 4.0.1 is newer"),
        (
            {"DIAGNOSTIC_EVENT": [{"severity": 2, "text": "Some CUPTI events might be missing."}]},
            "diagnostic: Some CUPTI events might be missing.",
        ),
    ],
)
def test_doubtful_traces_warn(read, rows, warning):
    timeline = read(**{"kernels": [kernel(0, 9, 1)]} | rows)

    assert any(found.startswith(warning) for found in timeline.warnings), timeline.warnings


@pytest.mark.parametrize(
    ("rows", "said_again"),
    [
        ({"kernels": [kernel(0, 9, 1)], "calls": [call(0, 1)]}, False),
        ({"kernels": [kernel(0, 9, 1, globalPid=8 << 24)], "calls": [call(0, 1, thread=8 << 24), call(1, 2)]}, True),
        ({"calls": [call(0, 1)]}, True),
    ],
)
def test_that_profiling_did_not_start_is_said_again_where_kernels_may_be_missing(read, rows, said_again):
    said = "CUDA profiling might have not been started correctly."
    timeline = read(**rows, DIAGNOSTIC_EVENT=[{"severity": 2, "text": said}])

    assert (f"diagnostic: {said}" in timeline.warnings) == said_again


def test_numbers_may_be_as_large_as_they_get(read):
    epoch, hour, last_launch = 1_764_000_000_000_000_000, 3_600_000_000_000, (1 << 32) - 1
    far = (0xFFFF << 24) + (3 << 56)
    timeline = read(
        kernels=[
            kernel(epoch + 5, epoch + 5 + hour, 1, gridX=(1 << 31) - 1),
            kernel(epoch + 9 * hour, epoch + 9 * hour + 1, last_launch, globalPid=far, gridX=1),
        ],
        calls=[call(epoch, 1), call(epoch + 8 * hour, last_launch, thread=far + 0xFFFFFF)],
        ranges=[
            nvtx("a", epoch, epoch + 1),
            nvtx("b", epoch + 8 * hour, None, globalTid=far + 0xFFFFFF),
            nvtx("both", epoch - hour, epoch + 9 * hour),
            nvtx("both", epoch - hour, epoch + 9 * hour, START_END, globalTid=far),
        ],
    )
    assert {name: [k.median_ns for k in timeline.inside([name])] for name in timeline.ranges} == {
        "a": [hour],
        "b": [1],
        "both": [hour, 1],
    }
    assert timeline.kernel_busy_ns == {0: hour + 1}
    assert [k.grid and k.grid[0] for k in timeline.kernels] == [(1 << 31) - 1, 1]
    assert [(p.pid, p.launches, p.kernel_count) for p in timeline.processes] == [(7, 1, 1), (0xFFFF, 1, 1)]
    assert timeline.warnings == ()


def test_a_process_whose_kernels_are_missing_is_named(read):
    other = 8 << 24
    timeline = read(kernels=[kernel(0, 9, 1)], calls=[call(0, 1), call(0, 1, thread=other + 1)])

    assert [(p.pid, p.launches, p.kernel_count) for p in timeline.processes] == [(7, 1, 1), (8, 1, 0)]
    assert timeline.warnings[1] == "none of the 1 kernels that process 8 launched is in the trace"


def test_a_kernel_whose_process_is_unknown_has_no_launch(read):
    timeline = read(
        kernels=[kernel(0, 9, 1), kernel(20, 29, 2, globalPid=None)],
        calls=[call(0, 1), call(2, 2)],
        ranges=[nvtx("case", 0, 5)],
    )
    assert (timeline.kernel_count, counts(timeline)["case"]) == (2, 1)
    assert timeline.warnings[1].startswith("1 of 2 kernels have no launch call")


def test_calls_may_bear_their_names_themselves(read):
    timeline = read(calls=[call(0, 1, "cuLaunch'Kernel"), call(2, 2, "cudaFree"), call(4, 3, "cudaFree")])

    assert (timeline.call_count, timeline.launches) == (3, 1)
    assert timeline.warnings[0].startswith("1 kernels were launched")


def test_a_case_in_a_trace_of_whole_graphs_has_no_metric_to_compare(read, tmp_path):
    launched = {"kernels": [kernel(5, 9, 1)], "calls": [call(1, 1)], "ranges": [nvtx("case", 0, 2)]}
    node, graph = read(**launched), {"CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [{"start": 20, "end": 90}]}
    assert len(case_timeline(node, "case", [], 1).kernels) == 1

    (tmp_path / "trace.sqlite").unlink()
    whole = read(**launched, **graph)
    metrics, every = nsys_activity.read(tmp_path / "trace.sqlite", {"case"})
    case = case_timeline(whole, "case", [], 1, metrics["case"])
    assert case.kernels == ()
    assert case.metrics
    for reading in (*case.metrics.values(), *every.values()):
        assert (reading.value, reading.reason) == (None, "1 CUDA graphs were traced as a whole, so kernels are missing")


def test_reading_leaves_nothing_behind(read, tmp_path):
    read(kernels=[kernel(0, 9)])

    assert [path.name for path in tmp_path.iterdir()] == ["trace.sqlite"]


@pytest.mark.parametrize(
    ("content", "look"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "git-lfs pointer"),
        (b"<!DOCTYPE html><title>Sign in", "HTML page"),
        (b"NVIDIA Tegra Profiler Report 2025\0", "nsys report"),
        (b"NVR\0\2\0\0\0", "ncu report"),
        (b"SQLite format 3\0" + b"garbage" * 100, "not a database"),
        (b"Time(%),Total Time (ns)\n", "text"),
    ],
)
def test_other_files_are_refused_by_what_they_are(tmp_path, content, look):
    path = tmp_path / "file"
    path.write_bytes(content)

    with pytest.raises(ProfileError, match=look):
        nsys.read_timeline(path)


def test_a_cut_off_trace_is_refused(tmp_path):
    whole = (corpus.CAPTURES / "h200-nsys-2025.3.2-torch.sqlite").read_bytes()
    (tmp_path / "cut.sqlite").write_bytes(whole[: len(whole) // 2])

    with pytest.raises(ProfileError) as refused:
        nsys.read_timeline(tmp_path / "cut.sqlite")
    assert "export it again" in refused.value.hint


def test_other_databases_are_refused(tmp_path):
    with pytest.raises(ProfileError, match=r"no nsys export \(its tables: bookmarks\)"):
        nsys.read_timeline(write_trace(tmp_path / "other.sqlite", {"bookmarks": [{"url": ""}]}))
    with pytest.raises(ProfileError, match="CUPTI_ACTIVITY_KIND_KERNEL has no column end"):
        nsys.read_timeline(write_trace(tmp_path / "odd.sqlite", {"CUPTI_ACTIVITY_KIND_KERNEL": [{"start": 0}]}))
    with pytest.raises(ProfileError, match="no such file"):
        nsys.read_timeline(tmp_path / "none.sqlite")


def test_commands():
    traced = nsys.command("nsys", ["python", "a b.py"], report=PurePath("out/trace"))
    assert " ".join(traced) == (
        "nsys profile -t cuda,nvtx -s none --cpuctxsw=none --cuda-graph-trace=node --force-overwrite=true "
        "-o out/trace python a b.py"
    )
    assert traced[-1] == "a b.py"
    exported = nsys.export_command("nsys", PurePath("trace.nsys-rep"), PurePath("trace.sqlite"))
    assert " ".join(exported) == (
        "nsys export --type sqlite --force-overwrite true --output trace.sqlite trace.nsys-rep"
    )


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ("Generating '/tmp/nsys-1.qdstrm'\nFailed to import\nGenerated:\n    /out/trace.qdstrm\n", "importer-missing"),
        ("Generating '/tmp/nsys-1.qdstrm'\n[1/1] [==100%] trace.nsys-rep\nGenerated:\n    /out/trace.nsys-rep\n", None),
        ("SKIPPED: trace.sqlite does not contain CUDA kernel data.", "no-cuda-data"),
        ("Capture range ended.\nGenerated:\n", "nothing-recorded"),
        ("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED", "other-profiler"),
        ("unrecognised option '--cuda-graph-trace=node'", "bad-option"),
        ("The target application returned non-zero exit code 3", "target-failed"),
        ("all fine", None),
    ],
)
def test_diagnosis(output, code):
    found = nsys.diagnose(output)

    assert (found.code if found else None) == code


def slowly(kernels, calls, ranges) -> dict[str, Any]:
    """Say of a trace what the reader should, with loops over everything."""
    called: dict[tuple[int, int], dict[str, Any]] = {}
    for row in sorted(calls, key=lambda row: -row["start"]):
        called[row["globalTid"] >> 24 << 24, row["correlationId"]] = row
    members: dict[str, list[dict[str, Any]]] = {row["text"]: [] for row in ranges}
    busy: dict[int, set[int]] = {}
    for row in kernels:
        busy.setdefault(row["deviceId"], set()).update(range(row["start"], row["end"]))
        launch = called.get((row["globalPid"], row["correlationId"]))
        open_names = {
            found["text"]
            for found in ranges
            if launch
            and found["start"] <= launch["start"] <= (found["end"] or launch["start"])
            and (
                found["globalTid"] >> 24 == launch["globalTid"] >> 24
                if found["eventType"] == START_END
                else found["globalTid"] == launch["globalTid"]
            )
        }
        for name in open_names:
            members[name].append(row)
    return {
        "busy": {device: len(moments) for device, moments in sorted(busy.items())},
        "ranges": {name: tallied(rows) for name, rows in members.items()},
        "kernels": tallied(kernels),
    }


def tallied(kernels) -> dict[tuple[int, int], tuple[Any, ...]]:
    """Return count, total, median, least and greatest duration by device and grid."""
    durations: dict[tuple[int, int], list[int]] = {}
    for row in kernels:
        durations.setdefault((row["deviceId"], row["gridX"]), []).append(row["end"] - row["start"])
    return {key: (len(d), sum(d), statistics.median(d), min(d), max(d)) for key, d in durations.items()}


def stats(kernels) -> dict[tuple[int, int], tuple[Any, ...]]:
    return {(k.device, k.grid[0]): (k.count, k.total_ns, k.median_ns, k.min_ns, k.max_ns) for k in kernels}


@pytest.mark.parametrize("seed", range(12))
def test_a_trace_in_any_order_is_read_like_one_row_at_a_time(read, seed):
    draw = random.Random(seed)
    kernels, calls, count = [], [], 400
    for launch in range(1, count):
        process = draw.choice([PROCESS, 8 << 24])
        start = 5 * launch
        calls.append(call(start, launch, thread=process + draw.choice([1, 1, 1, 2])))
        begin = start + draw.choice([3, 3, 3, 60])
        sizes = {"deviceId": draw.choice([0, 0, 1]), "gridX": draw.choice([1, 2, 3]), "gridY": 1, "gridZ": 1}
        kernels.append(kernel(begin, begin + draw.randrange(1, 30), launch, globalPid=process, **sizes))
    if seed % 3:  # as nsys writes them: in order of their start
        kernels.sort(key=lambda row: row["start"])
    else:
        draw.shuffle(calls)
    del calls[seed * 5 :: 40]
    ranges = []
    for place in range(40):
        start = draw.randrange(5 * count)
        end = draw.choice([None, start + draw.randrange(300), start + draw.randrange(300)])
        thread = draw.choice([PROCESS, 8 << 24]) + draw.choice([1, 2])
        ranges.append(nvtx(f"r{place % 15}", start, end, draw.choice([PUSH_POP, START_END]), globalTid=thread))
    timeline, expected = read(kernels, calls, ranges), slowly(kernels, calls, ranges)

    assert timeline.kernel_busy_ns == expected["busy"]
    assert {name: stats(timeline.inside([name])) for name in timeline.ranges} == expected["ranges"]
    assert stats(timeline.kernels) == expected["kernels"]
    assert (timeline.kernel_count, timeline.kernel_total_ns) == (
        len(kernels),
        sum(row["end"] - row["start"] for row in kernels),
    )
