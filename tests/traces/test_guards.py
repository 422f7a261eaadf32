"""What the readers leave out, refuse and tell of files that are damaged or strange."""

import csv
import gzip
import json
import subprocess
import sys

import pytest

from ci_perf.cli import inspection
from ci_perf.traces import chrome, ncu
from ci_perf.traces.benchmarks import reader as benchmarks
from ci_perf.values.errors import ProfileError
from tests.corpus import CAPTURES

REPORT = CAPTURES / "h200-ncu-2025.3.1-min.ncu-rep"
EPOCH_US = 1_790_857_026_123_456


def kernel(ts=10, dur=40, name="gemm", stream=7, correlation=1, **args):
    args = {"device": 0, "context": 1, "stream": stream, "correlation": correlation, **args}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur, "args": args}


def call(ts=1, dur=4, correlation=1, tid=77, name="cudaLaunchKernel"):
    args = {"correlation": correlation}
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 5, "tid": tid, "ts": ts, "dur": dur, "args": args}


def written(tmp_path, *events, **keys):
    file = tmp_path / "a.trace.json"
    file.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events, **keys}))
    return file


def chrome_timeline(tmp_path, *events):
    return chrome.read_trace(written(tmp_path, *events)).timeline


def test_a_report_of_ncu_with_an_emptied_or_lost_part_is_refused_or_read_the_same(tmp_path):
    whole, file = REPORT.read_bytes(), tmp_path / "a.ncu-rep"
    expected = ncu.read(REPORT)
    refused = 0
    for place in range(0, len(whole), len(whole) // 15):
        for damaged in (
            whole[:place],
            whole[:place] + bytes(len(whole) - place),
            whole[:place] + bytes(2000) + whole[place + 2000 :],
            whole[:place] + whole[place + 100 :],
            whole + whole[: place + 1],
        ):
            file.write_bytes(damaged)
            try:
                found = ncu.read(file)
            except ProfileError:
                refused += 1
            else:  # what was emptied is machine code or a text, not one of the numbers
                assert found == expected
    assert refused > 50


PAGES = [CAPTURES / "h200-ncu-2025.3.1-min-raw.csv", CAPTURES / "h200-ncu-2025.3.1-full-details.csv"]


@pytest.mark.parametrize("page", PAGES, ids=["raw", "details"])
def test_a_lost_heading_never_gives_a_value_the_name_of_its_neighbour(page):
    lines = page.read_text().splitlines(keepends=True)
    at = next(place for place, line in enumerate(lines) if line.startswith('"ID"'))
    headings = next(csv.reader([lines[at]]))
    expected = ncu.parse("".join(lines))
    for lost in range(0, len(headings), 1 + len(headings) // 40):
        left = ",".join(f'"{name}"' for name in [*headings[:lost], *headings[lost + 1 :]])
        try:
            found = ncu.parse("".join([*lines[:at], f"{left}\n", *lines[at + 1 :]]))
        except ProfileError:
            continue
        assert [launch.metrics for launch in found.launches] == [launch.metrics for launch in expected.launches]
        assert "Rule" in headings[lost] or "Speedup" in headings[lost]


RAW = '"ID","Kernel Name","a.sum","b"\n"","","byte","%"\n"0","k","10","1.5"\n"1","k","20","2.5"\n"2","k","30","3.5"\n'


@pytest.mark.parametrize(
    ("old", "new", "launches", "warning"),
    [
        ('"20","2.5"', '"20","2.5"', 3, None),
        ('"20","2.5"', '"2.5"', 2, "1 rows of ncu's table have fewer cells than it has columns and were left out"),
        ('"30","3.5"\n', '"3.5"\n', 2, "1 rows of ncu's table have fewer cells than it has columns and were left out"),
        ('"30","3.5"\n', '"30"', 3, "ncu's table is cut off: the last row is not whole"),
        ('"20"', '"2x"', 3, "1 values in columns of numbers are text, among them '2x'"),
        ('"20","2.5"', '"n/a","nan"', 3, None),
        ('"20","2.5"', '"20","2.5","9"', "a row of ncu's table has 5 cells under 4 headings", None),
        ('"byte","%"', '"byte"', "the row of units has 3 cells under 4 headings", None),
        ('"byte","%"', '"byte","%",""', "a row of ncu's table has 5 cells under 4 headings", None),
    ],
)
def test_a_row_that_does_not_fit_its_headings_is_never_shifted(old, new, launches, warning):
    text = RAW.replace(old, new)
    if isinstance(launches, str):
        with pytest.raises(ProfileError, match=launches):
            ncu.parse(text)
        return
    counters = ncu.parse(text)

    assert len(counters.launches) == launches
    assert counters.warnings == ((warning,) if warning else ())


SUMMARY = '"Process ID","Kernel Name","Invocations","Metric Name","Metric Unit","Minimum","Maximum","Average"\n'


@pytest.mark.parametrize("before", ["", "==PROF== Connected to process 4711 (app)\n"])
def test_a_summary_over_launches_is_refused_as_what_it_is(tmp_path, before):
    file = tmp_path / "a.csv"
    file.write_text(before + SUMMARY + '"4711","axpy","14","Duration","us","21.18","23.07","21.60"\n')

    with pytest.raises(ProfileError, match="summary over launches") as caught:
        inspection.read(file, {})
    assert "without --print-summary" in caught.value.hint


# --- torch -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("second", "count", "total_ns", "warning"),
    [
        (kernel(60, 0.001), 2, 40_001, None),
        (kernel(60, 0), 1, 40_000, "1 of 2 kernels have no time in the trace and were left out"),
        (kernel(0, 0), 1, 40_000, "1 of 2 kernels have no time in the trace and were left out"),
        (kernel(60, -1070), 1, 40_000, "1 kernels have no end in the trace and were left out"),
        (kernel(60, float("inf")), 1, 40_000, "1 of 2 kernels have no time in the trace and were left out"),
        (kernel(10**400, 1), 1, 40_000, "1 of 2 kernels have no time in the trace and were left out"),
        (kernel("60", 1), 1, 40_000, "1 of 2 kernels have no time in the trace and were left out"),
        (kernel(50, 5), 2, 45_000, None),
        (kernel(45, 5), 1, 40_000, "1 of 2 kernels lie inside another kernel of their stream and were left out"),
        (kernel(10, 40), 1, 40_000, "1 of 2 kernels lie inside another kernel of their stream and were left out"),
        (kernel(45, 6), 2, 46_000, "1 of 2 kernels begin before the kernel in front of them in their stream ends"),
        (kernel(45, 5, stream=8), 2, 45_000, None),
        (kernel(45, 5, **{"graph node id": 3}), 2, 45_000, None),
        (kernel(45, 5, correlation=9), 2, 45_000, None),  # of a graph, whose branches run side by side
    ],
)
def test_a_kernel_of_torch_without_a_sound_time_is_left_out_and_counted(tmp_path, second, count, total_ns, warning):
    graph = call(correlation=9, name="cudaGraphLaunch")
    found = chrome_timeline(tmp_path, kernel(), second, graph)

    assert (found.kernel_count, found.kernel_total_ns) == (count, total_ns)
    assert [text[: len(warning or "")] for text in found.warnings] == ([warning] if warning else [])


@pytest.mark.parametrize("event", [kernel(0, 0), kernel(10, -5)])
def test_a_trace_of_which_all_was_left_out_does_not_say_that_nothing_ran(tmp_path, event):
    with pytest.raises(ProfileError, match=r"nothing in it was measured: 1 .*kernels have no \w+ in the trace"):
        inspection.read(written(tmp_path, event), {})
    (warning,) = chrome_timeline(tmp_path, event, call()).warnings

    assert "left out" in warning


def test_times_since_1970_keep_their_nanoseconds(tmp_path):
    file = tmp_path / "a.json"
    event = json.dumps(kernel()).replace('"ts": 10', f'"ts": {EPOCH_US}.789').replace('"dur": 40', '"dur": 0.001')
    later = json.dumps(kernel()).replace('"ts": 10', f'"ts": {EPOCH_US}.791').replace('"dur": 40', '"dur": 0.002')
    file.write_text(f'{{"traceEvents": [{event}, {later}]}}')
    found = chrome.read_trace(file)

    assert (found.timeline.kernel_total_ns, found.whole["longest_gap_ns"].value) == (3, 1.0)


def test_kernels_that_another_thread_launched_are_told(tmp_path):
    place = {"ph": "X", "cat": "user_annotation", "name": "step", "pid": 5, "tid": 77, "ts": 0, "dur": 50}
    found = chrome_timeline(
        tmp_path, place, call(), kernel(), call(2, correlation=2, tid=78), kernel(60, correlation=2)
    )

    assert sum(k.count for k in found.inside(["step"])) == 2
    assert found.warnings == (
        "1 of 2 kernels were launched by another thread than that of the range that they are counted in",
    )


def test_a_trace_of_torch_1_8_is_read(tmp_path):
    old = {"kernel": "Kernel", "cuda_runtime": "Runtime"}
    events = [{**event, "cat": old[event["cat"]], "tid": "stream 7"} for event in (call(), kernel())]
    found = chrome_timeline(tmp_path, *events)

    assert (found.kernel_count, found.kernel_total_ns, found.call_count) == (1, 40_000, 1)


NAME = "<string>(1): a"


@pytest.mark.parametrize(
    ("raw", "hint"),
    [
        (b"\t", None),
        (b"\xff\xfe", None),
        (b"\\", "names are not escaped"),
        (b'"b"', "names are not escaped"),
    ],
)
def test_a_name_that_is_not_escaped_is_not_taken_for_a_file_that_was_cut_off(tmp_path, raw, hint):
    file = tmp_path / "a.json"
    text = json.dumps({"traceEvents": [kernel(name=NAME), kernel(60, name="gemm")]}).encode()
    file.write_bytes(text.replace(NAME.encode(), NAME.encode() + raw + b"c"))

    if hint is None:
        assert chrome.read_trace(file).timeline.kernel_count == 2
    else:
        with pytest.raises(ProfileError) as caught:
            chrome.read_trace(file)
        assert hint in caught.value.hint


@pytest.mark.parametrize(("before", "after"), [("]}", ",]}"), ('"traceEvents": [', '"traceEvents": [,')])
def test_a_comma_too_many_is_not_taken_for_a_name_that_is_not_escaped(tmp_path, before, after):
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"traceEvents": [kernel()]}).replace(before, after))

    with pytest.raises(ProfileError) as caught:
        chrome.read_trace(file)

    assert caught.value.hint == "was the file changed after it was written?"


def test_a_trace_that_was_cut_off_anywhere_is_refused(tmp_path):
    file = tmp_path / "a.json"
    text = json.dumps({"schemaVersion": 1, "traceEvents": [call(), kernel()], "traceName": "a"})
    for end in range(1, len(text)):
        file.write_text(text[:end])
        with pytest.raises(ProfileError, match="no Chrome trace") as caught:
            chrome.read_trace(file)
        assert caught.value.hint == "was the program that wrote it cut off?"


@pytest.mark.parametrize("keep", [20, 0.5, -8])
def test_a_packed_trace_that_is_damaged_is_refused(tmp_path, keep):
    packed = gzip.compress(json.dumps({"traceEvents": [kernel(n * 100) for n in range(1, 500)]}).encode())
    end = int(len(packed) * keep) if keep == 0.5 else keep
    file = tmp_path / "a.json.gz"
    file.write_bytes(packed[:end] + b"\xff" * 4)

    with pytest.raises(ProfileError, match="no Chrome trace"):
        chrome.read_trace(file)


def test_a_trace_is_read_the_same_in_pieces_of_any_size(tmp_path, monkeypatch):
    file = written(tmp_path, *(event for n in range(1, 50) for event in (call(n * 50), kernel(n * 50))), traceName="x")
    whole = chrome.read_trace(file).timeline
    for size in (1, 7, 100):
        monkeypatch.setattr("ci_perf.traces.chrome_json._CHUNK", size)
        assert chrome.read_trace(file).timeline == whole


# --- benchmarks ------------------------------------------------------------------------------------------------------


def google(*indices, time=1.5):
    entries = [
        {"name": "BM_a", "run_name": "BM_a", "run_type": "iteration", "repetition_index": index, "iterations": 9}
        | {"real_time": time, "cpu_time": 1.0, "time_unit": "us"}
        for index in indices
    ]
    return json.dumps({"context": {}, "benchmarks": entries})


def test_repetitions_are_samples_but_two_benchmarks_of_one_name_are_not():
    (real, _) = benchmarks.parse(google(0, 1), "g.json").cases
    (twice,) = benchmarks.parse(google(0, 1, 0, 1), "g.json").cases

    assert (len(real.values), real.skipped) == (2, "")
    assert (twice.values, twice.skipped) == ((), "several benchmarks have this name: give each its own")


TRITON = "N,Triton\n128.000000,1.500000\n256.000000,3.500000\n"


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (TRITON, None),
        (TRITON.replace("256", "128"), "1 results occur more than once, among them Triton [N=128] value"),
        (TRITON[:-4], "the last row has no line break behind it: it may be cut off"),
        (google(0), None),
        (google(0, time=-1.5), "1 results have a time below zero, among them BM_a real_time"),
    ],
)
def test_doubtful_results_of_a_benchmark_are_told(text, warning):
    found = benchmarks.parse(text, "results", declared="triton_csv" if text[0] == "N" else "")

    assert found.warnings == ((warning,) if warning else ())


def test_results_with_a_lost_part_or_numbers_of_400_digits_are_refused_or_have_no_value():
    with pytest.raises(ProfileError, match="a part of the file is lost"):
        benchmarks.parse(TRITON.replace("1.5", "\0\0\0"), "results")
    text = google(0, time=0).replace('"real_time": 0', '"real_time": ' + "9" * 400)

    assert benchmarks.parse(text, "g.json").cases[0].skipped == "the file says inf"


# --- memory ----------------------------------------------------------------------------------------------------------

INSPECT = """
import sys
from ci_perf.cli import main
sys.argv[1:] = ["inspect", *sys.argv[1:]]
try:
    main()
finally:
    # ru_maxrss would count the memory of the process that started this one, from before exec.
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(int(peak.split()[1]) * 1024, file=sys.stderr)
"""


def memory_of_inspect(*argv):
    """Return the most bytes that the command had in memory."""
    argv = [sys.executable, "-c", INSPECT, *argv]
    done = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True)
    return int(done.stderr.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("option", [[], ["--json"]], ids=["table", "json"])
def test_a_page_of_20_000_launches_takes_three_times_its_size_in_memory(tmp_path, option):
    lines = PAGES[0].read_text().splitlines(keepends=True)
    at = next(place for place, line in enumerate(lines) if line.startswith('"0"'))
    file = tmp_path / "a.csv"
    with file.open("w") as page:
        page.writelines(lines[:at])
        page.writelines(f'"{n}"{lines[at][3:]}' for n in range(20_000))

    assert memory_of_inspect(*option, file) < 3 * file.stat().st_size + (150 << 20)


@pytest.mark.slow
def test_a_trace_of_torch_of_200_000_events_takes_600_bytes_for_each(tmp_path):
    file = tmp_path / "a.json"
    with file.open("w") as trace:
        trace.write('{"traceEvents": [')
        for n in range(100_000):
            events = call(50 * n, correlation=n), kernel(50 * n + 5, correlation=n)
            trace.write(f"{',' * bool(n)}{json.dumps(events)[1:-1]}")
        trace.write("]}")

    assert memory_of_inspect(file) < 600 * 200_000 + (150 << 20)
