"""`ci-perf explain` over recorded files of both sides."""

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from ci_perf.cli import program
from ci_perf.cli.two_files import compare
from ci_perf.store import read_run, write_run
from ci_perf.values.measurement import Replicate
from ci_perf.values.trace import SideProfile
from tests import corpus
from tests.judge.test_recorded_runs import CAUSES

DATA = Path(__file__).parents[1] / "data"
BASE, HEAD = DATA / "explain/h200-base.csv", DATA / "explain/h200-head.csv"
TRACE = DATA / "captures/h200-nsys-2025.3.2-torch.sqlite"
REPORT = DATA / "captures/h200-ncu-2025.3.1-min.ncu-rep"
PAGE = DATA / "captures/h200-ncu-2025.3.1-min-raw.csv"


def ci_perf(*arguments):
    return CliRunner().invoke(program, ["explain", *map(str, arguments)], prog_name="ci-perf")


def test_two_ncu_reports_are_explained_range_by_range():
    found = ci_perf(BASE, HEAD)
    lines = found.output.splitlines()
    first = lines.index("reg_pressure: 2.05 times as long")

    assert found.exit_code == 0
    assert lines[first : first + 2] == [
        "reg_pressure: 2.05 times as long",
        "  1. registers 16 -> 76 a thread: occupancy 100 -> 37.5 % (achieved 82.5 -> 35 %); bytes unchanged;"
        " this can account for 100 % of the change",
    ]
    assert "neutral: 0.999 times as long, which is no change to explain" in lines
    assert any("1 -> 2 GPU kernels a launch" in line for line in lines)


def test_the_json_has_the_causes_and_the_counters_of_both_sides():
    (part,) = [part for part in json.loads(ci_perf(BASE, HEAD, "--json").output) if part["name"] == "bank_conflict"]

    assert (part["causes"][0]["mechanism"], part["causes"][0]["share"]) == ("bank-conflicts", 1.0)
    assert part["causes"][0]["counters"][0] == {
        "metric": "shared_bank_conflicts",
        "unit": "",
        "base": 34191.0,
        "head": 16376902.0,
    }


def test_a_report_beside_itself_has_no_change_to_explain():
    found = ci_perf(REPORT, REPORT)

    assert found.exit_code == 0
    assert found.output.splitlines()[-1].endswith("1 times as long, which is no change to explain")


def with_more_waiting(path):
    """Copy the trace; in the copy each launch of a kernel is followed by a call that waits for the GPU."""
    shutil.copy(TRACE, path)
    with closing(sqlite3.connect(path)) as database, database:
        (name,) = database.execute("SELECT MAX(id) + 1 FROM StringIds").fetchone()
        database.execute("INSERT INTO StringIds VALUES (?, 'cudaStreamSynchronize_v3020')", (name,))
        columns = [row[1] for row in database.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_RUNTIME)")]
        chosen = [{"start": "end + 1", "end": "end + 8000001", "nameId": str(name)}.get(c, c) for c in columns]
        chosen = ["NULL" if c == "correlationId" else c for c in chosen]
        launches = "nameId IN (SELECT id FROM StringIds WHERE value LIKE 'cuLaunchKernel%')"
        database.execute(
            f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME ({', '.join(columns)}) "
            f"SELECT {', '.join(chosen)} FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE {launches}"
        )
    return path


def test_two_traces_are_explained_by_what_the_host_did(tmp_path):
    found = ci_perf(TRACE, with_more_waiting(tmp_path / "head.sqlite"), "--json")
    (part,) = json.loads(found.output)

    assert part["name"] == "the whole file"
    assert part["causes"][0]["mechanism"] == "synchronisation", part


def test_two_traces_tell_how_the_kernels_are_launched(tmp_path):
    head = shutil.copy(TRACE, tmp_path / "head.sqlite")
    with closing(sqlite3.connect(head)) as database, database:
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET registersPerThread = 224, dynamicSharedMemory = 230000")
    sides = compare(TRACE, head, {})["the whole file"].sides
    names = ("registers_per_thread", "shared_bytes", "block_size")

    assert [[side.values[name] for name in names] for side in (sides.base, sides.head)] == [
        [168, 213_188, 384],
        [224, 230_000, 384],
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((REPORT, TRACE), "cannot be compared: they are an ncu report and a trace"),
        ((BASE,), "h200-base.csv: one file, and no run"),
        ((DATA / "hand-made-torch-2.11.trace.json",), "one file, and no run"),
        ((DATA / "runs/h200-explained", REPORT), "is a run, and"),
        (("absent", REPORT), "absent: no such file"),
        (
            (DATA / "runs/h200-turns-planted-8-percent", DATA / "runs/h200-explained"),
            "no case was profiled in both runs",
        ),
        ((BASE, "absent.csv"), "absent.csv: no such file"),
        ((DATA / "runs/h100-unchanged",), "no case of this run is explained"),
        ((DATA / "runs/h100-unchanged", "nothing"), "no case matches `nothing`, and there is no such file"),
    ],
)
def test_what_cannot_be_explained_is_refused(arguments, message):
    found = ci_perf(*arguments)

    assert found.exit_code == 2
    assert message in found.output.replace("\n", " ")


REPORTS = {path.values[0].name: path.values[0] for path in corpus.files("ncu-rep")}


@pytest.mark.skipif(not REPORTS, reason="the corpus is not beside the repository")
@pytest.mark.parametrize(
    ("base", "head", "said"),
    [
        (
            "gh200-triton-2025-1.ncu-rep",
            "h100pcie-matmul-2023-2.ncu-rep",
            [
                "note: the base was measured on NVIDIA GH200 480GB, the head on NVIDIA H100 PCIe",
                "note: the files have no GPU kernel in common: silu_kernel_non_strided, ",
            ],
        ),
        (
            "rtx3070-vectoradd-2022-3.ncu-rep",
            "rtx3070-vectoradd2-2022-3.ncu-rep",
            ["note: 35 of the 53 counters that causes are read from are not known of both sides"],
        ),
        (
            "a10g-failed-launch-nan.ncu-rep",
            "a10g-failed-launch-nan.ncu-rep",
            ["const float *, const float *, float *): the time is not known of both"],
        ),
    ],
)
def test_what_makes_a_comparison_of_two_reports_doubtful_is_said(base, head, said):
    found = ci_perf(REPORTS[base], REPORTS[head])

    assert found.exit_code == 0
    assert [line for line in said if line not in found.output] == []


def test_a_kernel_that_was_profiled_more_often_on_one_side_is_no_slower(tmp_path):
    """The report has five launches of each of two kernels."""
    rows = PAGE.read_text().splitlines(keepends=True)
    fewer = "".join(row for row in rows if not row.startswith(tuple(f'"{launch}",' for launch in range(1, 5))))
    (tmp_path / "head.csv").write_text(fewer)
    found = ci_perf(PAGE, tmp_path / "head.csv")

    assert found.output.count("which is no change to explain") == 2, found.output


def of_the_base(run):
    """Return a run that measured the base of this run as its head."""

    def swapped(m):
        base = m.base_profile or SideProfile()
        times = tuple(Replicate(p.base, p.launches, p.method, unit=p.unit, better=p.better) for p in m.pairs)
        return replace(
            m,
            pairs=(),
            replicates=times,
            timeline=base.timeline,
            base_profile=None,
            head_profile=replace(base, timeline=None),
        )

    return replace(run, against=None, measurements=tuple(map(swapped, run.measurements)))


def test_two_runs_are_explained_like_a_run_against_its_base(tmp_path):
    head = DATA / "runs/h200-explained"
    write_run(of_the_base(read_run(head)), tmp_path)
    found, of_run = (json.loads(ci_perf(*sides, "--json").output) for sides in ((tmp_path, head), (head,)))
    first = {part["name"].partition("/")[0]: part["causes"][0]["mechanism"] for part in found if part["causes"]}
    lines, of_run_lines = ({part["name"]: part["line"] for part in parts if part["line"]} for parts in (found, of_run))

    assert first == {kernel: cause for kernel, cause in CAUSES.items() if cause}
    assert lines == of_run_lines != {}


def test_a_case_without_a_base_says_how_to_get_one():
    found = ci_perf(DATA / "runs/h100-unchanged", "sdpa/*")

    assert found.exit_code == 0
    assert "not explained: both sides are profiled in a run against a base" in found.output


def test_a_change_against_a_base_without_a_profile_says_what_profiles_it():
    found = ci_perf(DATA / "runs/h200-turns-planted-8-percent", "sdpa/*")

    assert found.exit_code == 0
    assert "REGRESSION" in found.output
    assert "not explained: causes need profiles of both sides" in found.output
    assert "--against REF" not in found.output


def test_an_unchanged_case_of_a_run_against_a_base_has_nothing_to_explain():
    found = ci_perf(DATA / "runs/h200-explained", "neutral")

    assert found.exit_code == 0
    assert "not explained: no change of its time or its host's work" in found.output


def test_a_wait_of_the_host_is_within_the_time_of_the_wall_clock():
    found = ci_perf(DATA / "runs/h200-explained", "python_sync")

    assert "the wall clock timed both sides; synchronisation: 1 -> 11 calls" in found.output
    assert "outside of the time" not in found.output


def test_no_line_of_a_gpu_kernel_is_named_for_a_change_of_the_host():
    of_host, on_gpu = (ci_perf(DATA / "runs/h200-explained", name).output for name in ("pageable_bench", "tail"))

    assert "source line" in on_gpu
    assert "source line" not in of_host
