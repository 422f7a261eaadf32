"""`ci-perf explain` over recorded files of both sides."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from ci_perf.cli import program

DATA = Path(__file__).parents[1] / "data"
BASE, HEAD = DATA / "explain/h200-base.csv", DATA / "explain/h200-head.csv"
TRACE = DATA / "captures/h200-nsys-2025.3.2-torch.sqlite"
REPORT = DATA / "captures/h200-ncu-2025.3.1-min.ncu-rep"


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
    assert found.output.splitlines()[0].endswith("1 times as long, which is no change to explain")


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((REPORT, TRACE), "cannot be compared: they are an ncu report and a trace"),
        ((BASE,), "one file of a profiler"),
        ((BASE, "absent.csv"), "absent.csv: no such file"),
        ((DATA / "runs/h100-unchanged",), "no case of this run is explained"),
        ((DATA / "runs/h100-unchanged", "nothing"), "no case matches `nothing`, and there is no such file"),
    ],
)
def test_what_cannot_be_explained_is_refused(arguments, message):
    found = ci_perf(*arguments)

    assert found.exit_code == 2
    assert message in found.output.replace("\n", " ")


def test_a_case_without_a_base_says_how_to_get_one():
    found = ci_perf(DATA / "runs/h200-turns-planted-8-percent", "sdpa/*")

    assert found.exit_code == 0
    assert "REGRESSION" in found.output
    assert "not explained: both sides are profiled in a run against a base" in found.output


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
