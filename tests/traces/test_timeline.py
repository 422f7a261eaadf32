"""What the host cost a case: from calls and GPU work to metrics, gates and words, whoever traced them."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci_perf.judge.gates import judge_gate
from ci_perf.judge.report import build_report
from ci_perf.render.folder import render_index, render_smoke, render_timeline
from ci_perf.render.markdown import render_comment
from ci_perf.traces import activity, chrome
from ci_perf.traces.activity import Activity, Call, Work, measure, readings, union
from ci_perf.traces.attribution import case_timeline, launch_counters
from ci_perf.traces.nsys import activity as nsys_activity
from ci_perf.values.errors import ProfileError
from ci_perf.values.kernel import Gate
from ci_perf.values.occupancy import occupancy_pct
from ci_perf.values.reasons import GateState
from ci_perf.values.timeline_metrics import BY_NAME
from ci_perf.values.trace import CaseTimeline, Reading, TracedKernel
from tests.builders import a_measurement, a_run, a_spec
from tests.corpus import CAPTURES

CAPTURE = CAPTURES / "h200-nsys-2025.3.2-torch.sqlite"
TRACE = Path(__file__).parents[1] / "data/hand-made-torch-2.11.trace.json"
SPANS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)).map(lambda s: (s[0], s[0] + s[1])), max_size=8)


def values(found):
    return {name: reading.value for name, reading in found.items()}


@given(spans=SPANS)
def test_a_union_is_the_time_in_any_span(spans):
    assert union(spans)[0] == len({tick for start, end in spans for tick in range(start, end)})


def test_every_name_and_no_other_is_a_metric():
    assert set(readings(Activity())) < set(BY_NAME)


def test_the_program_that_spent_its_time_in_cudamalloc_is_named():
    calls = [
        Call("cudaMalloc_v3020", 0, 204, 1),
        Call("cuMemAlloc_v2", 10, 200, 1),  # of the runtime call around it: no time of its own
        Call("cudaLaunchKernel_v7000", 204, 216, 1, (0, 1)),
        Call("cudaStreamSynchronize_v3020", 216, 228, 1),
    ]
    found = values(readings(measure(0, 300, calls, [Work("kernel", 210, 225, (0, 1))])))

    assert found["alloc_share_pct"] == pytest.approx(100 * 204 / 228, abs=1e-3)
    assert (found["alloc_calls"], found["sync_calls"]) == (2.0, 1.0)
    assert (found["launch_overhead_pct"], found["sync_pct"], found["cuda_time_pct"]) == (4.0, 4.0, 5.0)


def test_copies_are_told_by_direction_and_memory():
    work = [
        Work("host-to-device", 0, 100, None, 1500, pageable=True),
        Work("host-to-device", 200, 300, None, 4500, pageable=False),
        Work("device-to-device", 400, 500, None, 9, pageable=False),
        Work("kernel", 400, 450),
    ]
    found = readings(measure(0, 1000, [], work))

    assert found["h2d_bytes_per_s"].value == 3e10
    assert found["d2h_bytes_per_s"] == Reading(None, "byte/s", "no such copy in the range")
    assert found["pageable_copies"].value == 1.0
    assert (found["idle_pct"].value, found["longest_gap_ns"].value) == (40.0, 100.0)


def test_a_copy_of_which_the_memory_is_unknown_makes_no_zero():
    found = readings(measure(0, 10, [], [Work("host-to-device", 0, 1, None, 8)]))

    assert found["pageable_copies"].value is None
    assert "does not say" in found["pageable_copies"].reason


def test_overlapping_kernels_keep_the_gpu_busy_once_and_threads_do_not_share_time():
    calls = [Call("cudaLaunchKernel", 0, 10, 1, (0, 1)), Call("cudaLaunchKernel", 5, 15, 2, (0, 2))]
    found = values(readings(measure(0, 100, calls, [Work("kernel", 20, 60), Work("kernel", 30, 70)])))

    assert (found["cuda_time_pct"], found["launch_overhead_pct"]) == (50.0, 20.0)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cudaLaunchKernelExC_v11060", "launch"),
        ("cuLaunchKernel", "launch"),
        ("cudaGraphLaunch_v10000", "launch"),
        ("cudaLaunchHostFunc_v10000", None),
        ("cudaMallocAsync_v11020", "allocation"),
        ("cudaFreeHost_v3020", "allocation"),
        ("cuMemCreate", "allocation"),
        ("cuMemAllocHost_v2", "allocation"),
        ("cudaMemGetInfo_v3020", None),
        ("cudaMemcpyAsync_v3020", None),
        ("cudaEventSynchronize_v3020", "wait"),
        ("cudaStreamWaitEvent_v3020", None),
    ],
)
def test_calls_are_told_by_their_name(name, kind):
    found = measure(0, 10, [Call(name, 0, 5, 1)], [])
    times = {"launch": found.launch_time, "allocation": found.allocation_time, "wait": found.wait_time}

    assert {k for k, time in times.items() if time} == ({kind} if kind else set())


# --- nsys ------------------------------------------------------------------------------------------------------------


def test_a_recorded_trace_tells_each_range_apart():
    ranges, whole = nsys_activity.read(CAPTURE, {"sdpa_s512", "h2d", "gone"})

    assert set(ranges) == {"sdpa_s512", "h2d"}
    assert ranges["sdpa_s512"]["cuda_time_pct"].value == pytest.approx(26.83, abs=0.01)
    assert ranges["sdpa_s512"]["pageable_copies"].value == 0.0
    assert ranges["h2d"]["pageable_copies"].value == 1.0
    assert ranges["h2d"]["h2d_bytes_per_s"].value == pytest.approx(16777216 / 2560215e-9, rel=1e-5)
    assert whole["pageable_copies"].value == 1.0


def test_a_range_of_all_threads_counts_calls_of_others(tmp_path):
    with closing(sqlite3.connect(tmp_path / "t.sqlite")) as database, database:
        database.executescript(
            """
            CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, globalTid INT);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT, name TEXT);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
                start INT, end INT, deviceId INT, correlationId INT, globalPid INT
            );
            INSERT INTO NVTX_EVENTS VALUES (0, 100, 60, 'all', 16777217), (0, 100, 59, 'one', 16777217);
            INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES
                (0, 4, 16777217, 1, 'cudaLaunchKernel'), (10, 14, 16777218, 2, 'cudaLaunchKernel');
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (20, 30, 0, 1, 16777216), (40, 70, 0, 2, 16777216);
            """
        )
    database.close()
    ranges, _ = nsys_activity.read(tmp_path / "t.sqlite", {"all", "one"})

    assert {name: found["cuda_time_pct"].value for name, found in ranges.items()} == {"all": 40.0, "one": 10.0}


def test_a_trace_of_too_many_events_is_not_looked_at_call_by_call(monkeypatch):
    monkeypatch.setattr(nsys_activity, "MOST", 10)
    ranges, whole = nsys_activity.read(CAPTURE, {"h2d"})

    assert {reading.value for reading in (*ranges["h2d"].values(), *whole.values())} == {None}


# --- torch -----------------------------------------------------------------------------------------------------------


def test_a_trace_of_torch_gives_the_timeline_of_its_case():
    found, _ = chrome.read(TRACE)
    timeline = case_timeline(found.timeline, "ci-perf:sdpa/s512", [], 2, found.metrics["ci-perf:sdpa/s512"], "torch")

    assert [(k.name, k.count, k.total_ns, k.grid, k.registers_per_thread) for k in timeline.kernels] == [
        ("flash_fwd_kernel", 2, 92_500, (132, 1, 1), 168),
        ("void at::native::fill(float*)", 2, 4_000, (8, 1, 1), 16),
    ]
    assert values(timeline.metrics) == {
        "cuda_time_pct": 48.25,
        "launch_overhead_pct": 10.0,
        "idle_pct": pytest.approx(100 * 25 / 122, abs=1e-3),
        "longest_gap_ns": 23_500.0,
        "alloc_share_pct": pytest.approx(100 * 10 / 70, abs=1e-3),
        "alloc_pct": 5.0,
        "alloc_calls": 1.0,
        "sync_pct": 20.0,
        "sync_calls": 1.0,
        "pageable_copies": 1.0,
        "h2d_bytes_per_s": 1.4e10,
        "d2h_bytes_per_s": None,
        "shared_bytes_per_block": 134144.0,
        "local_bytes_per_thread": None,
        "theoretical_occupancy_pct": 18.75,
        "range_ns": 200_000.0,
        "launch_calls": 4.0,
        "graph_launches": 0.0,
        "overlap_pct": 0.0,
        "copied_bytes": 7000.0,
    }


def test_what_a_loader_knows_of_local_memory_comes_into_the_trace():
    sizes = {"flash_fwd_kernel": 64, "void at::native::fill(float*)": 0}
    found, _ = chrome.read(TRACE, sizes)
    timeline = case_timeline(found.timeline, "ci-perf:sdpa/s512", ["flash"], 2)

    assert timeline.kernels[0].local_bytes == 64
    assert timeline.metrics["local_bytes_per_thread"].value == 64.0


def test_traces_are_merged_for_people_without_the_names_of_the_host():
    document = json.loads(TRACE.read_text())
    merged = chrome.merge([document, document])
    arrows = [event["id"] for event in merged["traceEvents"] if event["ph"] == "s"]

    assert len(merged["traceEvents"]) == 2 * len(document["traceEvents"])
    assert arrows == [11, 11 + (1 << 32)]
    assert "host_name" not in merged


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"traceEvents": [{"ph": "X", "cat": "kernel"}]}', '{"traceEvents": 3}']
)
def test_what_is_no_trace_of_torch_is_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text)

    with pytest.raises(ProfileError, match="no Chrome trace"):
        chrome.read(tmp_path / "a.json")


def test_launch_parameters_are_counters_that_need_no_counter():
    kernels = (
        TracedKernel("a", 10, 1, 1.0, (4, 2, 1), (128, 1, 1), 40),
        TracedKernel("b", 20, 1, 1.0, (3, 1, 1), (64, 2, 2), 20),
    )
    (found,) = launch_counters(CaseTimeline(10, kernels))
    (uneven,) = launch_counters(CaseTimeline(3, kernels))

    assert values(found) == {"registers_per_thread": 40.0, "block_size": 256.0, "grid_size": 14.0}
    assert uneven["grid_size"] == Reading(None, "block", "the launches differ")
    assert launch_counters(CaseTimeline(3, ())) == ()


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared", "expected"),
    [
        ("9.0", 1024, 64, 0, 50.0),
        ("9.0", 1024, 65, 0, 0.0),  # such a launch fails
        ("9.0", 256, 32, 0, 100.0),
        ("9.0", 32, 32, 0, 50.0),  # 32 blocks of one warp
        ("8.0", 128, 255, 0, 12.5),
        ("8.9", 128, 32, 48 << 10, 16.667),
        ("3.5", 128, 32, 0, None),
    ],
)
def test_occupancy_is_what_nvidias_calculator_says(capability, threads, registers, shared, expected):
    found = occupancy_pct(capability, threads, registers, shared)

    assert found == (expected if expected is None else pytest.approx(expected, abs=1e-3))


# --- gates and words -------------------------------------------------------------------------------------------------


def a_traced(**readings_of):
    metrics = {
        name: value if isinstance(value, Reading) else Reading(value, BY_NAME[name].unit)
        for name, value in readings_of.items()
    }
    kernel = TracedKernel("flash|fwd", 10, 500, 50.0, (1, 1, 1), (32, 1, 1))
    return a_measurement(timeline=CaseTimeline(10, (kernel,), "nsys", metrics))


@pytest.mark.parametrize(
    ("measurement", "state"),
    [
        (a_traced(cuda_time_pct=61.0), GateState.KEPT),
        (a_traced(cuda_time_pct=0.0), GateState.BROKEN),
        (a_traced(cuda_time_pct=Reading(None, "%", "no kernel ran in the range")), GateState.NOT_MEASURED),
        (a_traced(), GateState.NOT_MEASURED),
        (a_measurement(), GateState.NOT_MEASURED),
    ],
)
def test_a_gate_on_the_timeline_has_three_states(measurement, state):
    assert judge_gate(Gate("cuda_time_pct", ">=", 60.0), measurement).state is state


def test_a_broken_gate_on_the_timeline_is_in_the_comment():
    spec = a_spec(gates=(Gate("pageable_copies", "<=", 0.0),))
    comment = render_comment(build_report(a_run(a_traced(pageable_copies=3.0), kernels=(spec,))))

    assert "pageable&#95;copies is 3, limit &#60;= 0" in comment
    assert "<summary>Timeline</summary>" in comment


def test_the_timeline_in_words_says_what_was_not_measured():
    absent = Reading(None, "%", "no CUDA call was traced")
    report = build_report(a_run(a_traced(alloc_share_pct=89.0, sync_pct=absent), trace={"idle_pct": Reading(5.0, "%")}))
    text = render_timeline(report)

    assert "sdpa/s128: 10 launches, traced by nsys" in text
    assert re.search(r"alloc_share_pct +89 % +<= 10, not met +of the time", text)
    assert "not measured: no CUDA call was traced" in text
    assert "the whole trace" in text


def test_the_index_says_what_to_open_first_and_lists_what_is_there():
    report = build_report(a_run())
    index = render_index(report, {"report.md": 2048, "run.json": 10, "logs/nsys.log": 5, "strange.bin": 1})

    assert "Open [report.md](report.md) first." in index
    assert [line.split("|")[1].strip() for line in index.splitlines() if line.startswith("| [")] == [
        "[index.md](index.md)",
        "[report.md](report.md)",
        "[run.json](run.json)",
        "[logs/](logs/)",
    ]


def test_the_smoke_file_has_a_line_for_each_case():
    assert render_smoke(build_report(a_run())) == "NOT RUN  sdpa/s128 on cuda\n"


def test_nothing_known_is_nothing_zero():
    assert {reading.value for reading in readings(Activity()).values()} == {None}
    assert activity.not_analysed("why")["sync_pct"] == Reading(None, "%", "why")
