"""The ledger of merges: what a run records, and which small changes add up to creep."""

import itertools
import json
import math
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from ci_perf import store
from ci_perf.cli import program
from ci_perf.judge.creep import changes_of, creep, creep_notes
from ci_perf.values.errors import FormatError
from ci_perf.values.measurement import Pair
from ci_perf.values.merged import Merged, MergedChange
from ci_perf.values.run import Against
from tests.builders import a_measurement, a_run


def merges(*ratios, error=0.002, case="sdpa/s128", device="h200"):
    """Return a merge for each ratio of head / base, of a day each."""
    return [
        Merged(
            device,
            f"{n:040x}",
            f"{n + 1:040x}",
            f"2026-01-{n + 1:02d}T00:00:00Z",
            {case: MergedChange(math.log(r), error)},
        )
        for n, r in enumerate(ratios)
    ]


@pytest.mark.parametrize(
    ("ratios", "error", "change", "number"),
    [
        ([1.02] * 10, 0.002, 0.219, 10),
        ([1.02, 1.02], 0.002, 0.0404, 2),
        ([1.0149, 1.0149], 0.002, 0.0300, 2),
        ([1.0148, 1.0148], 0.002, None, 0),
        ([1.02], 0.002, None, 0),
        ([1.02, 0.97, 1.02], 0.002, None, 0),
        ([1.0, 0.99, *[1.01] * 4], 0.002, 0.0406, 4),
        ([1.02, 1.02, 1.031], 0.002, None, 0),  # flagged by itself
        ([1.02, 1.05, 1.02, 1.02], 0.002, 0.0404, 2),
        ([1.02, 1.02], 0.027, 0.0404, 2),
        ([1.02, 1.02], 0.029, None, 0),  # less than its own error
        ([0.98] * 10, 0.002, None, 0),
    ],
)
def test_small_changes_that_add_up_to_the_threshold_are_creep(ratios, error, change, number):
    found = creep(merges(*ratios, error=error), 0.03, {})

    assert [(one.case, one.merges) for one in found] == ([("sdpa/s128", number)] if number else [])
    assert [one.change for one in found] == ([pytest.approx(change, abs=5e-4)] if number else [])


def test_what_was_merged_before_a_baseline_was_accepted_is_agreed():
    ten = merges(*[1.02] * 10)

    assert creep(ten, 0.03, {("h200", "sdpa"): "2026-01-09T00:00:00Z"}) == ()
    assert creep(ten, 0.03, {("h200", "sdpa"): "2026-01-08T00:00:00Z"})[0].merges == 2
    assert creep(ten, 0.03, {("h100", "sdpa"): "2026-01-09T00:00:00Z"})[0].merges == 10


def test_a_note_names_the_cases_that_creep_the_worst_first():
    found = creep([*merges(1.02, 1.02), *merges(*[1.02] * 10, case="gemm/n1")], 0.03, {})
    (note,) = creep_notes(found, 0.03)

    assert note.code == "creep"
    assert note.message.endswith(
        "gemm/n1 on h200: +21.9 % in 10 merges since 00000000; sdpa/s128 on h200: +4.0 % in 2 merges since 00000000"
    )
    assert creep_notes((), 0.03) == ()


def merged_run(ratio, base="b" * 40, head="a" * 40):
    pairs = tuple(
        Pair((50e-6,) * 4, (50e-6 * r,) * 4, 100, "cuda-graph") for r in (ratio, ratio * 1.001, ratio * 0.999)
    )
    control = tuple(Pair((50e-6,) * 4, (50e-6 * r,) * 4, 100, "cuda-graph") for r in (1.0, 1.001, 0.999, 1.0))
    run = a_run(
        a_measurement(pairs=pairs, replicates=()),
        against=Against("HEAD~1", base, control_case="sdpa/s128", control=control),
    )
    return replace(run, provenance=replace(run.provenance, commit=head))


def test_a_run_of_a_merged_commit_says_what_changed_with_its_error():
    (merged,) = changes_of(merged_run(1.02))

    assert (merged.base, merged.head) == ("b" * 40, "a" * 40)
    assert merged.cases["sdpa/s128"].change == pytest.approx(math.log(1.02), abs=1e-6)
    assert 0.001 < merged.cases["sdpa/s128"].error < 0.02
    assert changes_of(replace(merged_run(1.02), against=None)) == ()


def test_record_adds_a_line_once_and_history_shows_the_creep(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commits = ["0" * 40, "1" * 40, "2" * 40]
    for base, head in itertools.pairwise(commits):
        store.write_run(merged_run(1.02, base, head), tmp_path)
        for said in ("recorded 1 case in baselines/", "is recorded already for"):
            ran = CliRunner().invoke(program, ["baseline", "record", "run.json"])
            assert (ran.exit_code, said in ran.output) == (0, True), ran.output
    (ledger,) = tmp_path.glob("baselines/*/merged.jsonl")
    lines = ledger.read_text().splitlines()
    assert len(lines) == 2

    ledger.write_text("\n".join([*reversed(lines), lines[0], ""]))  # as a merge of two branches may leave them
    assert [m.head[0] for m in store.read_merged(tmp_path / "baselines")] == ["1", "2"]
    assert creep(store.read_merged(tmp_path / "baselines"), 0.03, {})[0].merges == 2

    for command in ("init -q", "-c user.name=n -c user.email=n@example.org commit -q --allow-empty -m first"):
        subprocess.run(["git", *command.split()], check=True)
    shown = CliRunner().invoke(program, ["history", "sdpa", "--runs", "."]).output
    assert re.search(r"creep of merges: sdpa/s128 on \S+: \+4.0 % in 2 merges since 11111111", shown), shown

    ledger.write_text(json.dumps({**json.loads(lines[0]), "cases": {}}) + "\n")
    with pytest.raises(FormatError, match=r"merged\.jsonl:1: key `cases`"):
        store.read_merged(tmp_path / "baselines")


def test_a_commit_counts_once_though_it_was_measured_against_several_others(tmp_path, monkeypatch):
    """Their changes overlap: the sum would count a part of them twice."""
    monkeypatch.chdir(tmp_path)
    said = []
    for base in ("0" * 40, "1" * 40):
        store.write_run(merged_run(1.02, base, "2" * 40), tmp_path)
        said.append(CliRunner().invoke(program, ["baseline", "record", "run.json"]).output)
    assert said[0].startswith("recorded 1 case")
    assert "22222222 is recorded already" in said[1]
    assert ", against 00000000" in said[1]

    (ledger,) = tmp_path.glob("baselines/*/merged.jsonl")
    line = json.loads(ledger.read_text())
    later = {**line, "base": "1" * 40, "date": "2999-01-01T00:00:00Z"}
    for lines in ([line, later], [later, line]):
        ledger.write_text("".join(f"{json.dumps(one)}\n" for one in lines))
        assert [m.base[0] for m in store.read_merged(tmp_path / "baselines")] == ["1"]


def test_check_names_each_line_of_a_ledger_that_is_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store.write_run(merged_run(1.02), tmp_path)
    CliRunner().invoke(program, ["baseline", "record", "run.json"])
    (ledger,) = tmp_path.glob("baselines/*/merged.jsonl")
    line = ledger.read_text()
    folder = Path("kernels/sdpa")
    folder.mkdir(parents=True)
    (folder / "kernel.toml").write_text('entry = "kernel.py"\n[cases.s128]\n')
    (folder / "kernel.py").touch()

    sound = CliRunner().invoke(program, ["baseline", "check"])
    assert (sound.exit_code, sound.output) == (0, "0 baseline files, 0 problems\n")

    elsewhere = json.dumps({**json.loads(line), "device": "other"})
    ledger.write_text(f"{line[:30]}\n{line}{elsewhere}\n[]\n")
    found = CliRunner().invoke(program, ["baseline", "check"])
    assert found.exit_code == 2
    problems = re.findall(r"merged\.jsonl:(\d+): ", found.output)
    assert (problems, found.output.splitlines()[-1]) == (["1", "3", "4"], "0 baseline files, 3 problems")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"against": None}, "the run has no base that took turns with it"),
        ({"finished": False}, "the run was cut short"),
        ({"planted": 0.05}, "a slowdown was planted on purpose"),
        ({"measurements": ()}, "no case was compared"),
    ],
)
def test_a_run_that_says_nothing_of_a_merge_is_not_recorded(change, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store.write_run(replace(merged_run(1.02), **change), tmp_path)

    ran = CliRunner().invoke(program, ["baseline", "record", "run.json"])

    assert (ran.exit_code, message in ran.output) == (2, True), ran.output
    assert not list(tmp_path.glob("baselines/*/merged.jsonl"))
