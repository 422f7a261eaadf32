"""Reports in, counters out: published ones of many versions, our own, and small ones written here."""

import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path, PurePath
from typing import Any

import pytest

from ci_perf.traces import ncu
from ci_perf.traces.ncu import printed, units
from ci_perf.traces.ncu.code import difference, opcodes
from ci_perf.traces.ncu.code_reader import read_codes
from ci_perf.traces.ncu.counters import Counters, Launch
from ci_perf.traces.ncu.printed import Evidence
from ci_perf.values.errors import ProfileError
from ci_perf.values.trace import Reading
from tests import corpus

TIME = "gpu__time_duration.sum"
SM_THROUGHPUT = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
REPORT = corpus.CAPTURES / "h200-ncu-2025.3.1-min.ncu-rep"


def details(*rows: tuple[str, str, str], launch: int = 0, name: str = "k(int)") -> str:
    """Return a details page with a row (metric, unit, value) for each metric of one launch."""
    lines = [cells(launch, 77, name, "(128, 1, 1)", "(132, 1, 1)", "Section", *row) for row in rows]
    columns = cells("ID", "Process ID", "Kernel Name", "Block Size", "Grid Size", "Section Name")
    return "\n".join([f'{columns},"Metric Name","Metric Unit","Metric Value"', *lines])


def raw(metrics: dict[str, tuple[str, ...]], unit_row: dict[str, str] | None) -> str:
    """Return a raw page with the values of each metric, one per launch."""
    lines = [cells("ID", "Kernel Name", *metrics)]
    lines += [cells("", "", *(unit_row.get(name, "") for name in metrics))] if unit_row is not None else []
    lines += [cells(launch, "k", *values) for launch, values in enumerate(zip(*metrics.values(), strict=True))]
    return "\n".join(lines)


def cells(*values: object) -> str:
    return ",".join(f'"{value}"' for value in values)


def only(counters: Counters) -> Launch:
    (launch,) = counters.launches
    return launch


def time_of(launch: Launch) -> Reading | None:
    return launch.metrics.get(TIME) or launch.metrics.get("Duration")


def seen(counters: Counters) -> dict[str, Any]:
    """Say of counters what the corpus says of a file."""
    times = [reading for reading in map(time_of, counters.launches) if reading]
    return {
        "launches": len(counters.launches),
        "actions": len(counters.launches),
        "kernel_names": len({launch.name for launch in counters.launches}),
        "first_kernel_name": counters.launches[0].name[:120],
        "total_duration_ns": sum(reading.value for reading in times if reading.value is not None),
        "total_duration_ns_excluding_nan": sum(reading.value for reading in times if reading.value is not None),
        "nan_durations": sum(reading.reason == "nan" for reading in times),
        "per_name_launches": dict(Counter(launch.name[:70] for launch in counters.launches)),
    }


REFUSED = {
    "a30-postprocessed-not-ncu-schema.csv": "no column ID and Kernel Name, but Benchmark Type",
    "b200-app-error1-nocsv.csv": "the profiled program ended with code 1",
    "b200-many-children-app-error1.csv": "the profiled program ended with code 1",
    "b200-many-children-nocsv-truncated.csv": "ncu's output has no table, it ends with '==PROF== Disconnected",
}


@pytest.mark.parametrize(("path", "expected"), corpus.files("ncu-csv"))
def test_published_tables(path, expected):
    if path.name in REFUSED:
        with pytest.raises(ProfileError, match=REFUSED[path.name]) as refused:
            ncu.read(path)
        assert refused.value.hint
        return
    counters = ncu.read(path)

    known = {key: value for key, value in expected.items() if key in seen(counters)}
    assert {key: seen(counters)[key] for key in known} == known
    assert len(known) >= 2
    first = counters.launches[0].metrics
    if wide := expected.get(TIME):
        assert first[TIME] == Reading(float(wide["first"]), wide["unit"])
        assert sum(launch.metrics[TIME].value for launch in counters.launches) == wide["total"]
        registers, unit = expected["launch__registers_per_thread first"].split()
        assert first["launch__registers_per_thread"] == Reading(float(registers), unit)
    else:
        _, metric, value, unit = expected["first_sm_throughput"]
        assert first[metric] == Reading(float(value.partition("=")[2].rstrip(")") or value), unit)


@pytest.mark.parametrize(("path", "expected"), corpus.files("ncu-rep"))
def test_published_reports(path, expected):
    if not expected["actions"]:
        with pytest.raises(ProfileError, match="binary data"):
            ncu.read(path)
        return
    counters = ncu.read(path)

    known = {key: value for key, value in expected.items() if key in seen(counters)}
    assert {key: seen(counters)[key] for key in known} == known
    first, wanted = counters.launches[0], expected["first"]
    assert first.name.startswith(wanted["demangled"])
    assert first.metrics[TIME] == Reading(wanted["duration_ns"], wanted["unit"])
    assert len(first.metrics) == wanted["n_metrics"]
    assert first.metrics.get(SM_THROUGHPUT) == (
        None if wanted["sm_throughput"] is None else Reading(wanted["sm_throughput"], "%")
    )
    assert len(counters.warnings) == expected["nan_durations"]


def test_own_report():
    counters = ncu.read(REPORT)

    assert counters.warnings == ()
    assert [launch.ranges for launch in counters.launches] == [("sdpa_s512",)] * 5 + [("matmul_4096",)] * 5
    launch = counters.launches[5]
    assert (launch.index, launch.metrics["launch__grid_dim_y"].value) == (5, 66.0)
    assert launch.metrics[TIME] == Reading(175744.0, "ns")
    assert launch.metrics[SM_THROUGHPUT].value == pytest.approx(90.598, abs=1e-3)
    assert launch.metrics["lts__t_sector_hit_rate.pct"].value == pytest.approx(85.272, abs=1e-3)
    assert launch.metrics["launch__cluster_scheduling_policy"] == Reading(None, "", "text: PolicySpread")


@pytest.mark.parametrize("page", ["min-raw.csv", "full-raw.csv.gz", "full-details.csv"])
def test_own_tables(tmp_path, page):
    content = (corpus.CAPTURES / f"h200-ncu-2025.3.1-{page}").read_bytes()
    path = tmp_path / "page.csv"
    path.write_bytes(gzip.decompress(content) if page.endswith(".gz") else content)
    counters = ncu.read(path)

    assert [launch.ranges for launch in counters.launches] == [("sdpa_s512",)] * 5 + [("matmul_4096",)] * 5
    assert all(46_000 < time_of(launch).value < 200_000 for launch in counters.launches)
    passes = counters.launches[0].metrics.get("profiler__replayer_passes")
    assert passes == {"min-raw.csv": Reading(10.0, "pass"), "full-raw.csv.gz": Reading(38.0, "pass")}.get(page)


@pytest.mark.parametrize(
    ("text", "unit", "reading"),
    [
        ("1.5", "us", Reading(1500.0, "ns")),
        ("549.98", "usecond", Reading(549980.0, "ns")),
        ("2", "second", Reading(2e9, "ns")),
        ("3200", "nsecond", Reading(3200.0, "ns")),
        ("1.76", "Ghz", Reading(1.76e9, "hz")),
        ("645000000", "cycle/second", Reading(645e6, "hz")),
        ("6.21", "cycle/nsecond", Reading(6.21e9, "hz")),
        ("64", "Kbyte/block", Reading(64000.0, "byte/block")),
        ("3.35", "Tbyte/s", Reading(3.35e12, "byte/s")),
        ("2", "sector/us", Reading(2e6, "sector/s")),
        ("3", "%/Kbyte", Reading(0.003, "%/byte")),
        ("1.5", "Minst", Reading(1.5e6, "inst")),
        ("7", "branches", Reading(7.0, "branch")),
        ("0.5", "inst/cycle", Reading(0.5, "inst/cycle")),
        ("0", "byte", Reading(0.0, "byte")),
        ("128", "", Reading(128.0, "")),
        ("n/a", "%", Reading(None, "%", "n/a")),
        ("nan", "us", Reading(None, "ns", "nan")),
        ("(!) nan", "", Reading(None, "", "nan")),
        ("-inf", "", Reading(None, "", "-inf")),
        ("1e999", "", Reading(None, "", "1e999 is not finite")),
        ("1e999", "us", Reading(None, "ns", "1e999 is not finite")),
        ("1e999999999", "us", Reading(None, "ns", "text: 1e999999999")),  # would take all memory
        ("", "%", Reading(None, "%", "empty")),
        ("0x3", "", Reading(None, "", "text: 0x3")),
        ("CachePreferNone", "", Reading(None, "", "text: CachePreferNone")),
        ("12 (3; 4; 5)", "inst", Reading(12.0, "inst")),
    ],
)
def test_a_reading_is_a_value_in_base_units_or_says_why_there_is_none(text, unit, reading):
    assert only(ncu.parse(details(("m", unit, text)))).metrics["m"] == reading


def test_unknown_units_are_refused_by_name():
    with pytest.raises(ProfileError, match="unknown unit 'furlong'"):
        ncu.parse(details(("m", "furlong", "3")))
    assert units.parse_unscaled("furlong").base == "furlong"


def mark_of(numbers):
    evidence = Evidence()
    for number in numbers:
        evidence.add(number)
    return evidence.mark()


@pytest.mark.parametrize(
    ("numbers", "mark"),
    [
        (["1,234.5"], "."),
        (["1.234,5"], ","),
        (["27.595.520"], ","),
        (["9,589,248"], "."),
        (["117.344", "65,77"], ","),
        (["0.123"], "."),
        (["1234.567"], "."),
        (["12 345,6"], ","),
        (["1.234", "567890"], "."),  # a host that does not group
        (["12", "7"], "."),
        (["1,17,344"], "."),  # India
    ],
)
def test_the_decimal_mark_follows_from_the_whole_file(numbers, mark):
    assert mark_of(numbers) == mark


@pytest.mark.parametrize(
    "numbers", [["117.344"], ["1,234", "5.678"], ["65,77", "65.77"], ["65.77", "117.344", "0,123"]]
)
def test_an_undecidable_decimal_mark_is_refused(numbers):
    with pytest.raises(ProfileError, match="cannot tell whether") as refused:
        mark_of(numbers)
    assert "LC_ALL=C" in refused.value.hint


@pytest.mark.parametrize(
    ("text", "mark", "value"),
    [("1,234.5", ".", 1234.5), ("1.234,5", ",", 1234.5), ("1 234", ",", 1234), ("1,17,344.5", ".", 117344.5)],
)
def test_numbers(text, mark, value):
    assert printed.parse(text, mark) == Decimal(str(value))
    assert printed.parse("12,34,5", ".") is None


def test_whole_counts_tell_the_locale():
    launch = only(ncu.parse(details((TIME, "ns", "117.344"), ("sm__throughput.avg", "%", "65,77"))))
    assert (launch.metrics[TIME].value, launch.metrics["sm__throughput.avg"].value) == (117344, 65.77)
    assert only(ncu.parse(details((TIME, "ns", "117,344")))).metrics[TIME].value == 117344


def test_a_table_is_found_in_the_output_of_the_program_around_and_inside_it():
    header, first, second = details((TIME, "ns", "5000"), ("m", "%", "0.5")).split("\n")
    output = [
        "loss: 1,2,3",
        "==PROF== Connected to process 77 (/usr/bin/python3)",
        f"no newline here -> {header}",
        first,
        "step 2, done",
        '0,77,"looks like a row"',
        second,
        "==PROF== Disconnected from process 77",
        "==WARNING== Launching the workload is taking more time than expected.",
        "bye",
    ]
    counters = ncu.parse("\n".join(output))

    assert only(counters).metrics == {TIME: Reading(5000.0, "ns"), "m": Reading(0.5, "%")}
    assert counters.warnings == (
        "ncu: Launching the workload is taking more time than expected.",
        "3 lines inside ncu's table are not ncu's and were ignored",
    )


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
def test_powershell_may_choose_the_encoding_and_the_line_ends(tmp_path, encoding):
    path = tmp_path / "page.csv"
    path.write_bytes(details((TIME, "ns", "5000")).replace("\n", "\r\n").encode(encoding))

    assert only(ncu.read(path)).metrics == {TIME: Reading(5000.0, "ns")}


def test_a_program_may_print_what_is_no_text(tmp_path):
    path = tmp_path / "ncu.log"
    path.write_bytes(b"\x1f\x8b\0\xff\n" + details((TIME, "ns", "5000")).encode())

    assert only(ncu.read(path)).metrics == {TIME: Reading(5000.0, "ns")}


def test_the_blank_of_a_windows_code_page_groups_like_any_other(tmp_path):
    path = tmp_path / "page.csv"
    path.write_bytes(details((TIME, "ns", "117\u00a0344"), ("sm__throughput.avg", "%", "65,7")).encode("cp1252"))

    assert [reading.value for reading in only(ncu.read(path)).metrics.values()] == [117344, 65.7]


def test_the_row_of_units_is_no_launch_and_may_be_missing():
    metrics = {TIME: ("1.5", "2.5"), SM_THROUGHPUT: ("90", "91")}
    with_units = ncu.parse(raw(metrics, {TIME: "us", SM_THROUGHPUT: "%"}))
    without = ncu.parse(raw(metrics, None))

    assert [launch.metrics[TIME] for launch in with_units.launches] == [Reading(1500.0, "ns"), Reading(2500.0, "ns")]
    assert [launch.metrics[TIME] for launch in without.launches] == [Reading(1.5), Reading(2.5)]
    assert "no row of units" in without.warnings[0]


def test_a_cut_off_table_keeps_what_is_whole():
    page = raw({"a": ("11", "12"), "b": ("21", "22")}, {})
    counters = ncu.parse(page[:-2])

    assert counters.launches[1].metrics == {"a": Reading(12.0), "b": Reading(None, "", "cut off")}
    assert counters.warnings == ("ncu's table is cut off: the last row is not whole",)


def test_ragged_rows_rules_and_line_breaks_are_no_metrics():
    page = details((TIME, "ns", "5000")).split("\n")
    page[0] += ',"Rule Name","Rule Description"'
    page[1] += ","  # what ncu writes where a metric has no rule
    page.append(cells(0, 77, "k(int)", "(128, 1, 1)", "(132, 1, 1)", "Section", "", "", "", "Rule", "first\nsecond"))
    counters = ncu.parse("\n".join(page))

    assert only(counters).metrics == {TIME: Reading(5000.0, "ns")}
    assert counters.warnings == ()


def test_one_name_with_two_meanings_is_ambiguous_and_each_meaning_has_its_own_key():
    page = details(("Memory Throughput", "%", "27.5"), ("Memory Throughput", "Gbyte/s", "1.5"), ("Same", "", "1"))
    page = (
        page.replace('"Section","Memory Throughput","G', '"Memory","Memory Throughput","G') + page[page.rindex("\n") :]
    )
    metrics = only(ncu.parse(page)).metrics

    assert metrics["Memory Throughput"].value is None
    assert "Memory Throughput [Section] or" in metrics["Memory Throughput"].reason
    assert metrics["Memory Throughput [Section]"] == Reading(27.5, "%")
    assert metrics["Memory Throughput [Memory]"] == Reading(1.5e9, "byte/s")
    assert metrics["Same"] == Reading(1.0)


def test_a_launch_of_a_raw_page_is_read_whenever_someone_looks():
    launch = only(ncu.parse(raw({"a.sum": ("1,234",), "b": ("0.5",)}, {"a.sum": "Kbyte", "b": "%"})))

    assert launch.metrics == {"a.sum": Reading(1234000.0, "byte"), "b": Reading(0.5, "%")}
    assert (list(launch.metrics.values()), len(launch.metrics)) == ([launch.metrics["a.sum"], launch.metrics["b"]], 2)
    assert ("b" in launch.metrics, launch.metrics.get("c")) == (True, None)
    assert "c" not in launch.metrics


def test_nvtx_ranges_are_named_from_the_outside_in():
    column = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
    rest = "none:none:none:none:none:none"
    ranges = f'77  ""<default domain>:outer: a:{rest}"" ""<default domain>:inner:{rest}"" ""nccl:send:{rest}"" '
    page = "\n".join([cells("ID", "Kernel Name", column, "m"), cells("", "", "", ""), cells(0, "k", ranges, 1)])

    assert only(ncu.parse(page)).ranges == ("outer: a", "inner", "nccl@send")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("==PROF== Connected\n==ERROR== The application returned an error code (3).", "ended with code 3"),
        ("==WARNING== No kernels were profiled.", "ncu profiled no kernel"),
        ("==PROF== Connected to process 1", "has no table, it ends with '==PROF== Connected"),
        ("Kernel,Time,Grid\nk,1,2", "no column ID and Kernel Name, but Kernel, Time, Grid"),
        (details(), "no launch"),
        (f'{details()}\n"kernel","12"\n"other"\n', "no launch: 2 lines below its header are no rows of its columns"),
        (details(("", "", "")), "1 launches but not one metric"),
        ('"ID","Kernel Name","Metric Name"\n', "no column Metric Unit"),
        ("hello", "neither an ncu report nor its CSV"),
    ],
)
def test_output_without_counters_is_refused_with_the_reason(text, message):
    with pytest.raises(ProfileError, match=message.replace("(", r"\(")):
        ncu.parse(text)


@pytest.mark.parametrize(
    ("name", "content", "look"),
    [
        ("r.ncu-rep", b"", "is empty"),
        ("r.ncu-rep", b"version https://git-lfs.github.com/spec/v1\n", "git-lfs pointer"),
        ("r.csv", b"version https://git-lfs.github.com/spec/v1\n", "git-lfs pointer"),
        ("r.csv", b"\r\n<html>Sign in", "HTML page"),
        ("r.ncu-rep", b"ID,Kernel Name", "text"),
        ("r.csv", b"\x1f\x8b\x08\0\0\0", "gzip"),
        ("r.ncu-rep", b"SQLite format 3\0", "SQLite database"),
        ("r.ncu-rep", b"NVR\0", "cut off"),
    ],
)
def test_other_files_are_refused_by_what_they_are(tmp_path, name, content, look):
    (tmp_path / name).write_bytes(content)

    with pytest.raises(ProfileError, match=look):
        ncu.read(tmp_path / name)


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.9, 0.9999])
def test_a_cut_off_report_is_refused(tmp_path, share):
    whole = REPORT.read_bytes()
    (tmp_path / "cut.ncu-rep").write_bytes(whole[: int(len(whole) * share)])

    with pytest.raises(ProfileError, match="cut off"):
        ncu.read(tmp_path / "cut.ncu-rep")


def test_without_nvidias_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ncu_report", None)

    with pytest.raises(ProfileError) as refused:
        ncu.read(REPORT)
    assert "pip install ncu-report" in refused.value.hint


def test_command():
    argv = ncu.command("ncu", ["python", "a b.py"], metrics=[TIME, "m"], report=PurePath("out/r.ncu-rep"))

    assert " ".join(argv) == (
        "ncu --target-processes all --clock-control none --nvtx --force-overwrite "
        f"--export out/r.ncu-rep --metrics {TIME},m --profile-from-start off python a b.py"
    )
    assert argv[-1] == "a b.py"
    with pytest.raises(ValueError, match="default set"):
        ncu.command("ncu", ["a.out"], metrics=[], report=PurePath("r"))


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "no-permission"),
        ("==ERROR== a driver resource was unavailable. Ensure that no other tool (like DCGM) is", "counters-busy"),
        ("==ERROR== Cannot lock GPU clock frequencies on MIG", "mig-clocks"),
        (
            "==ERROR== Cuda driver is not compatible with Nsight Compute.\n==ERROR== … error code (11).",
            "driver-incompatible",
        ),
        ("==ERROR== Unknown Error on device 0.", "driver-incompatible"),
        ("==ERROR== unrecognised option '-d'. Use --help for further details.", "bad-option"),
        ("==ERROR== Failed to find metric sm__nothing.sum", "unknown-metric"),
        ("==WARNING== No metrics to collect found in sections.", "no-metrics"),
        ('==ERROR== Failed to profile "k" in process 7\n==ERROR== … returned an error code (15).', "kernel-failed"),
        ("==ERROR== Target application terminated before first instrumented API call.", "target-crashed"),
        ("==ERROR== The application returned an error code (139).", "target-crashed"),
        ("==ERROR== The application returned an error code (1).\n==WARNING== No kernels were", "application-error"),
        ("==WARNING== No kernels were profiled.", "no-kernels"),
        ("==ERROR== Something new", "other"),
        ("==PROF== Disconnected from process 7\n==WARNING== Note: Running with unmodified GPU clocks.", None),
    ],
)
def test_diagnosis(output, code):
    found = ncu.diagnose(output)

    assert (found.code if found else None) == code
    assert found is None or (found.message and found.hint)


BENCHED_NCU = """#!/bin/sh
case $1 in --version) echo "Version 2025.3.1.0 (build 36398880)"; exit ;; esac
while [ "$1" != --export ]; do shift; done
report=$2
while [ "$1" != off ]; do [ "$1" = full ] && slow=3; shift; done
shift
"$@" && sleep "0.${slow:-0}" && cp "{report}" "$report"
"""


@pytest.mark.slow
def test_bench_ncu_times_the_program_alone_then_the_default_then_all_counters(tmp_path, bare_python):
    """On a machine without a GPU: torch is a stand-in, and ncu runs the program and plays a recorded report."""
    (tmp_path / "ncu").write_text(
        BENCHED_NCU.replace("{report}", str(corpus.CAPTURES / "h200-ncu-2025.3.1-min.ncu-rep"))
    )
    (tmp_path / "ncu").chmod(0o755)
    (tmp_path / "torch.py").write_text((corpus.CAPTURES.parent / "fakes/torch").read_text())
    kernel = tmp_path / "kernels/spin"
    kernel.mkdir(parents=True)
    (kernel / "kernel.toml").write_text(
        'entry = "kernel.py"\n' + "".join(f"[cases.c{i}]\nn = {i}\n" for i in range(12))
    )
    (kernel / "kernel.py").write_text(
        "def make_inputs(rng, device, n):\n    return n\n\ndef launch(n):\n    return n\n\nreference = launch\n"
    )
    named = {"CI_PERF_NCU": str(tmp_path / "ncu"), "CI_PERF_PYTHON": bare_python, "PYTHONPATH": str(tmp_path)}
    script = Path(__file__).parents[2] / "scripts/bench-ncu"

    def bench(*options):
        argv, env = [sys.executable, script, *options], {"PATH": os.environ["PATH"], **named}
        return subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    done = bench("--json", tmp_path / "n.json")
    assert done.returncode == 0, done.stderr
    alone, default, explaining, full = json.loads((tmp_path / "n.json").read_text())["rows"]

    assert done.stdout.startswith("12 cases, 2 launches each; ncu 2025.3.1")
    assert [row["launches"] for row in (alone, default, explaining, full)] == [0, 10, 10, 10]
    assert full["passes"] == 10
    assert "\na changed case costs " in done.stdout

    cost = json.loads((tmp_path / "n.json").read_text())["explained"]
    assert cost["start_s"] + 12 * cost["counting_s"] == pytest.approx(cost["all_cases_s"])
    assert cost["changed_case_s"] == 2 * (cost["counting_s"] + cost["reading_s"])
    (table,) = [bench("--explain", "spin/c1", "spin/c2").stdout]
    assert table.startswith("2 cases, one launch each; ncu 2025.3.1")
    assert "to explain a change" in table
    assert "--set full" not in table
    assert "name two or more" in bench("--explain", "spin/c1").stderr
    assert min(alone["seconds"], default["seconds"]) > 0
    assert full["seconds"] >= 0.3

    (tmp_path / "ncu").write_text(BENCHED_NCU.replace('"$@" &&', '"$@"; exit 9;'))
    without = bench()
    assert (without.returncode, "ncu ended with exit status 9 and wrote no report" in without.stderr) == (1, True)


def test_every_report_holds_the_machine_code_of_its_kernels():
    attention, product = read_codes(REPORT)

    assert (attention.ranges, len(attention.instructions)) == (("sdpa_s512",), 1064)
    assert attention.instructions[0].text == "LDC R1, c[0x0][0x28]"
    assert opcodes([product])["EXIT"] >= 1
    assert difference(attention, attention) == ""
