"""Runs recorded on real GPUs, judged again: the same report byte for byte, anywhere."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from ci_perf.cli import program
from ci_perf.values.schema import check

RUNS = sorted((Path(__file__).parents[1] / "data/runs").iterdir())
NAMES = [run.name for run in RUNS]


def ci_perf(*arguments):
    return CliRunner().invoke(program, [str(a) for a in arguments])


@pytest.mark.parametrize("run", RUNS, ids=NAMES)
@pytest.mark.parametrize(("form", "suffix"), [("text", "txt"), ("markdown", "md"), ("csv", "csv"), ("json", "json")])
def test_a_recorded_run_gives_the_same_report_again(run, form, suffix, golden, monkeypatch):
    monkeypatch.chdir(RUNS[0].parent)
    replayed = ci_perf("replay", run, f"--{form}")

    golden(f"{run.name}.{suffix}", replayed.stdout)


def test_unchanged_code_right_after_its_baseline_has_no_change():
    replayed = ci_perf("replay", Path(__file__).parents[1] / "data/runs/h100-unchanged", "--csv")

    assert replayed.exit_code == 0
    assert "REGRESSION" not in replayed.stdout
    assert "SPEEDUP" not in replayed.stdout


def test_a_planted_slowdown_of_5_percent_is_not_told_from_another_session_by_a_baseline_of_one():
    replayed = ci_perf("replay", Path(__file__).parents[1] / "data/runs/h100-planted-5-percent", "--csv")

    verdicts = [line.split(",")[3] for line in replayed.stdout.splitlines()[1:]]
    assert replayed.exit_code == 0
    assert verdicts == ["INCONCLUSIVE"] * 12


def test_a_slowdown_planted_in_turns_is_measured_to_a_tenth_of_it():
    replayed = ci_perf("replay", Path(__file__).parents[1] / "data/runs/h200-turns-planted-8-percent", "--json")

    rows = json.loads(replayed.stdout)["cases"]
    assert replayed.exit_code == 1
    assert [row["verdict"] for row in rows] == ["REGRESSION"] * 2
    assert [row["change"]["ratio"] for row in rows] == pytest.approx([1.08] * 2, abs=0.008)


def test_a_product_runs_at_the_power_limit_launch_after_launch_and_faster_before_it_acts():
    """kernels/README.md says so, where it misses a goal."""
    run = json.loads((Path(__file__).parents[1] / "data/runs/h100-power-limit/run.json").read_text())
    replayed = ci_perf("replay", Path(__file__).parents[1] / "data/runs/h100-power-limit", "--json")

    (row,) = (row for row in json.loads(replayed.stdout)["cases"] if row["case"] == "n8192-6")
    (traced,) = (m["timeline"]["kernels"] for m in run["measurements"] if m["case"] == "n8192-6")
    assert (row["at_power_limit"], row["sm_clock_hz"]) == (True, 1.47e9)
    assert row["flop_per_s"] == pytest.approx(442e12, rel=0.002)
    assert 2 * 8192**3 / 16 / (traced[0]["median_ns"] * 1e-9) == pytest.approx(468e12, rel=0.002)


def test_kernels_that_are_hard_to_time_are_timed_each_by_a_way_that_can():
    """Beside 90 GiB, of which no two fit; with a cold L2; with a copy to the host in each launch; else by a graph.

    The rest allocate, add atomically in any order, or run on two streams. They lie beside the run.
    """
    run = json.loads((Path(__file__).parents[1] / "data/runs/h200-hard-to-time/run.json").read_text())
    ways = {m["kernel"]: {pair["method"] for pair in m["pairs"]} for m in run["measurements"]}
    replayed = ci_perf("replay", Path(__file__).parents[1] / "data/runs/h200-hard-to-time", "--json")

    graphs = {name: {"cuda-graph"} for name in ("allocates", "atomics", "streams")}
    assert ways == {**graphs, "big": {"cuda-graph/alternating"}, "cold": {"cupti-cold"}, "syncs": {"cupti"}}
    assert {row["verdict"] for row in json.loads(replayed.stdout)["cases"]} == {"UNCHANGED"}


def test_a_program_that_wakes_beside_a_run_leaves_no_verdict_and_is_named():
    """It had been idle when the run began, and multiplied matrices from then on: all took twice as long."""
    replayed = ci_perf("replay", Path(__file__).parents[1] / "data/runs/h200-other-program-woke", "--json")

    rows = json.loads(replayed.stdout)["cases"]
    assert replayed.exit_code == 0
    assert [(row["verdict"], row["code"]) for row in rows] == [("INCONCLUSIVE", "disturbed")] * 2
    assert all(row["sentence"] == "every pair was disturbed: python3 (649), which had been idle" for row in rows)


CAUSES = {
    "alloc_command": "allocation",
    "bank_conflict": "bank-conflicts",
    "extra_pass": "extra-traffic",
    "fp64_slip": "fp64",
    "neutral": "",
    "pageable_bench": "pageable-copies",
    "python_sync": "synchronisation",
    "reg_pressure": "register-pressure",
    "shared_occupancy": "shared-memory-occupancy",
    "split_kernel": "split-kernels",
    "sync_command": "synchronisation",
    "tail": "tail",
    "tf32_lost": "tensor-cores",
    "uncoalesced": "uncoalesced",
}
"""The fault that was put into each kernel between the two commits of a run on an H200; `neutral` looks different."""


WORDS = {
    "allocation": "allocat",
    "bank-conflicts": "bank conflict",
    "extra-traffic": "extra pass",
    "fp64": "fp64",
    "pageable-copies": "pageable",
    "register-pressure": "registers .*occupancy",
    "shared-memory-occupancy": "shared memory .*occupancy",
    "split-kernels": "split into several",
    "synchronisation": "synchronisation",
    "tail": "tail effect.*waves",
    "tensor-cores": "tensor cores",
    "uncoalesced": "uncoalesced",
}
"""What names each mechanism in a sentence."""


def test_the_sentence_of_each_row_of_the_json_names_its_first_cause():
    replayed = ci_perf("replay", Path(__file__).parents[1] / "data/runs/h200-explained", "--json")
    document = json.loads(replayed.stdout)

    assert {"cases", "notes"} <= document.keys()
    for row in document["cases"]:
        assert {
            "sentence",
            "warnings",
            "gates",
            "causes",
            "counters_changed",
            "kernels_changed",
            "change",
        } <= row.keys()
        if mechanism := CAUSES[row["kernel"]]:
            assert re.search(WORDS[mechanism], row["sentence"]), row["sentence"]
            assert row["causes"][0]["sentence"].removesuffix(".") in row["sentence"]
        else:
            assert (row["causes"], row["explanation"], row["compared"]) == ([], None, [])


def test_the_first_cause_of_each_kernel_is_the_fault_that_was_put_into_it():
    replayed = ci_perf("replay", Path(__file__).parents[1] / "data/runs/h200-explained", "--json")

    found = {row["kernel"]: row["causes"] for row in json.loads(replayed.stdout)["cases"]}
    assert {kernel: causes[0]["mechanism"] if causes else "" for kernel, causes in found.items()} == CAUSES


@pytest.mark.parametrize("run", RUNS, ids=NAMES)
def test_the_json_of_a_report_fits_its_schema(run):
    check(json.loads(ci_perf("replay", run, "--json").stdout), "report", run.name)


def test_the_json_of_each_explained_case_has_its_causes_and_the_counters_and_timelines_of_both_sides():
    replayed = ci_perf("replay", Path(__file__).parents[1] / "data/runs/h200-explained", "--json")

    changed = [row for row in json.loads(replayed.stdout)["cases"] if row["code"] in {"slower", "faster"}]
    assert len(changed) == 10
    for row in changed:
        sides = [row[what][side] for what in ("counters", "timeline") for side in ("base", "head")]
        assert row["causes"], row["kernel"]
        assert all(len(values) > 15 for values in sides), row["kernel"]
        shown = {name: counter for counter in row["compared"] if (name := counter["metric"]) in row["counters"]["head"]}
        assert shown
        for name, counter in shown.items():
            for side in ("base", "head"):
                assert counter[side] == pytest.approx(row["counters"][side][name]), name
