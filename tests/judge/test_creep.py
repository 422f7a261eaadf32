"""The ledger of merges: what a run records, and which small changes add up to creep."""

import itertools
import json
import math
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import NormalDist

import pytest
from click.testing import CliRunner

from ci_perf import store
from ci_perf.cli import program
from ci_perf.fleet.merge import merge_runs
from ci_perf.github.publish import annotations, overall
from ci_perf.judge import creep as judge_creep
from ci_perf.judge.creep import changes_of, creep, creep_notes, without_overlaps
from ci_perf.judge.report import build_report
from ci_perf.render.html import render_html
from ci_perf.render.json_text import render_json
from ci_perf.render.markdown import render_comment
from ci_perf.render.terminal import _lines
from ci_perf.values.errors import FormatError
from ci_perf.values.measurement import Pair
from ci_perf.values.merged import Creep, Merged, MergedChange
from ci_perf.values.run import Against, Policy
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
        ([1.02, 1.02], 0.018, 0.0404, 2),
        ([1.02, 1.02], 0.019, None, 0),  # less than 1.5 times its own error
        ([0.98] * 10, 0.002, None, 0),
    ],
)
def test_small_changes_that_add_up_to_the_threshold_are_creep(ratios, error, change, number):
    found = creep(merges(*ratios, error=error), 0.03, {})

    assert [(one.case, one.merges) for one in found] == ([("sdpa/s128", number)] if number else [])
    assert [one.change for one in found] == ([pytest.approx(change, abs=5e-4)] if number else [])


@pytest.mark.parametrize(
    ("ratio", "error", "change", "number"),
    [
        (1.05, 0.048, None, 0),  # established, so it was flagged by itself
        (1.05, 0.05, 0.1593, 6),
        (0.90, 0.6, 0.1041, 5),
        (1.02, 0.06, 0.1041, 5),
        (1.02, 0.059, 0.1262, 6),
    ],
)
def test_an_undecided_change_begins_no_new_sum_and_a_useless_one_does_not_count(ratio, error, change, number):
    series = merges(*[1.02] * 5, ratio)
    series[-1] = replace(series[-1], cases={"sdpa/s128": MergedChange(math.log(ratio), error)})
    found = creep(series, 0.03, {})

    assert [one.merges for one in found] == ([number] if number else [])
    assert [one.change for one in found] == ([pytest.approx(change, abs=5e-4)] if number else [])


@pytest.mark.parametrize(("errors", "share"), [(1.0, 0.025), (1.25, 0.004), (1.5, 0.001)])
def test_hardly_any_case_creeps_over_100_merges_that_change_nothing(errors, share, monkeypatch):
    """The largest of many sums is looked at: its error alone is not enough."""
    monkeypatch.setattr(judge_creep, "ERRORS", errors)
    chance, scatter = Random(1), 0.005
    half = NormalDist().inv_cdf(0.995) * scatter
    cases = [merges(*(math.exp(chance.gauss(0, scatter)) for _ in range(100)), error=half) for _ in range(2000)]

    assert sum(bool(creep(case, 0.03, {})) for case in cases) / 2000 == pytest.approx(share, abs=0.0005)


def test_a_kernel_with_a_threshold_of_its_own_creeps_at_that_one():
    ten = merges(*[1.04] * 10)

    assert creep(ten, 0.03, {}) == ()  # each was flagged by itself
    assert creep(ten, 0.03, {}, {"sdpa": 0.05})[0].merges == 10
    assert creep(merges(1.02, 1.02), 0.03, {}, {"sdpa": 0.05}) == ()
    assert creep(merges(1.02, 1.02), 0.03, {}, {"sdpa": 0.02}) == ()  # each was flagged by itself


def test_what_was_merged_before_a_baseline_was_accepted_is_agreed():
    ten = merges(*[1.02] * 10)

    assert creep(ten, 0.03, {("h200", "sdpa"): "2026-01-09T00:00:00Z"}) == ()
    assert creep(ten, 0.03, {("h200", "sdpa"): "2026-01-08T00:00:00Z"})[0].merges == 2
    assert creep(ten, 0.03, {("h100", "sdpa"): "2026-01-09T00:00:00Z"})[0].merges == 10


@pytest.mark.parametrize(
    ("lines", "parents", "counted"),
    [
        ("ab bc", "ab bc", "ab bc"),
        ("ab bc", "", "ab bc"),  # a shallow clone knows none
        ("ac bc", "ab bc", "bc"),  # of two commits: its change has that of the other
        ("ad bc", "ab bc cd", "bc"),
        ("ad bc", "", "ad bc"),
        ("ab ac", "", "ac"),  # as two branches leave them
        ("ab cd", "ab bc cd", "ab cd"),  # what was not measured is not known
    ],
)
def test_only_changes_that_do_not_overlap_are_added_up(lines, parents, counted):
    def of(text):
        return [(base * 40, head * 40) for base, head in text.split()]

    merges = [
        Merged("h200", *one, f"2026-01-{day:02d}T00:00:00Z", {"sdpa/s128": MergedChange(math.log(1.02), 0.002)})
        for day, one in enumerate(of(lines), 1)
    ]
    kept = without_overlaps(merges, {head: base for base, head in of(parents)})

    assert [(merged.base, merged.head) for merged in kept] == of(counted)


def test_a_note_names_the_cases_that_creep_the_worst_first():
    found = creep([*merges(1.02, 1.02), *merges(*[1.02] * 10, case="gemm/n1")], 0.03, {})
    (note,) = creep_notes(found)

    assert note.code == "creep"
    assert note.message.endswith(
        "gemm/n1 on h200: +21.9 % [+21.1, +22.7] in 10 merges since 00000000; "
        "sdpa/s128 on h200: +4.0 % [+3.7, +4.3] in 2 merges since 00000000"
    )
    assert creep_notes(()) == ()


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


@pytest.mark.parametrize("control", [(), (1.0,) * 3, (1.1, 1.101, 1.1, 1.099)], ids=["none", "too few", "moved"])
def test_a_session_that_is_not_reliable_says_nothing_of_a_merge(control):
    run = merged_run(1.05)
    pairs = tuple(Pair((50e-6,) * 4, (50e-6 * ratio,) * 4, 100, "cuda-graph") for ratio in control)

    assert changes_of(run)
    assert changes_of(replace(run, against=replace(run.against, control=pairs))) == ()


def test_the_time_of_a_reference_says_nothing_of_a_merge():
    run = merged_run(1.0)

    assert changes_of(run)
    assert changes_of(replace(run, measurements=(replace(run.measurements[0], target="reference"),))) == ()


@pytest.fixture
def commits(tmp_path, monkeypatch):
    """The commits of a repository, the oldest first; the test runs in its folder."""
    monkeypatch.chdir(tmp_path)
    who = ("-c", "user.name=n", "-c", "user.email=n@example.org")
    for command in ("init -q", *["commit -q --allow-empty -m more"] * 4):
        subprocess.run(["git", *who, *command.split()], check=True)
    found = subprocess.run(["git", "rev-list", "--reverse", "HEAD"], capture_output=True, text=True, check=True)
    return found.stdout.split()


def record(*more, base, head, ratio=1.02, day=1):
    run = merged_run(ratio, base, head)
    store.write_run(replace(run, provenance=replace(run.provenance, date=f"2026-01-{day:02d}T00:00:00Z")), Path.cwd())
    return CliRunner().invoke(program, ["baseline", "record", "run.json", *more])


def ledger_of():
    (ledger,) = Path.cwd().glob("baselines/*/merged.jsonl")
    return ledger


def test_record_adds_a_line_once_and_history_shows_the_creep(commits):
    for day, (base, head) in enumerate(itertools.pairwise(commits[:3]), 1):
        for said in ("recorded 1 case in baselines/", "is recorded already for"):
            ran = record(base=base, head=head, day=day)
            assert (ran.exit_code, said in ran.output) == (0, True), ran.output
    ledger = ledger_of()
    lines = ledger.read_text().splitlines()
    assert len(lines) == 2

    ledger.write_text("\n".join([*reversed(lines), lines[0], ""]))  # as a merge of two branches may leave them
    assert [m.head for m in store.read_merged(Path("baselines"))] == commits[1:3]
    assert creep(store.read_merged(Path("baselines")), 0.03, {})[0].merges == 2

    shown = CliRunner().invoke(program, ["history", "sdpa", "--runs", "."]).output
    of = rf"\+4.0 % \[\S+ \S+\] in 2 merges since {commits[1][:8]}"
    assert re.search(rf"creep of merges: sdpa/s128 on \S+: {of}", shown), shown

    ledger.write_text(json.dumps({**json.loads(lines[0]), "cases": {}}) + "\n")
    with pytest.raises(FormatError, match=r"merged\.jsonl:1: key `cases`"):
        store.read_merged(Path("baselines"))


def test_history_adds_up_to_the_threshold_of_the_kernel(commits):
    for day, (base, head) in enumerate(itertools.pairwise(commits[:3]), 1):
        record(base=base, head=head, day=day)
    kernel = Path("kernels/sdpa")
    kernel.mkdir(parents=True)
    for threshold, creeps in (("", True), ("regression = 0.03", True), ("regression = 0.05", False)):
        (kernel / "kernel.toml").write_text(f'entry = "kernel.py"\n[cases.s128]\n[policy]\n{threshold}\n')
        (kernel / "kernel.py").touch()
        shown = CliRunner().invoke(program, ["history", "sdpa", "--runs", "."]).output
        assert ("creep of merges: sdpa/s128" in shown) == creeps, shown


def test_record_refuses_a_base_that_is_not_the_parent_of_the_head(commits):
    first, _, third, _ = commits
    ran = record(base=first, head=third)

    assert ran.exit_code == 2
    assert f"the base is {first[:8]}, but the parent of commit {third[:8]} is {commits[1][:8]}" in ran.output
    assert "measure the merged commit: ci-perf run --against HEAD~1" in ran.output

    unknown = record(base=first, head="a" * 40)
    assert unknown.exit_code == 2
    assert "the parent of commit aaaaaaaa is not known in this clone: fetch the commit" in unknown.output
    assert not list(Path.cwd().glob("baselines/*/merged.jsonl"))


def test_record_writes_through_no_link(commits, tmp_path):
    target = tmp_path / "elsewhere"
    record(base=commits[0], head=commits[1])
    ledger = ledger_of()
    ledger.unlink()
    ledger.symlink_to(target)

    ran = record(base=commits[1], head=commits[2])

    assert (ran.exit_code, "merged.jsonl: is a link, expected a file" in ran.output) == (2, True), ran.output
    assert not target.exists()


def test_a_line_of_several_merges_does_not_count_and_check_names_it(commits):
    for day, (base, head) in enumerate(itertools.pairwise(commits), 1):
        record(base=base, head=head, ratio=1.012, day=day)
    ledger, kernel = ledger_of(), Path("kernels/sdpa")
    line = json.loads(ledger.read_text().splitlines()[0])
    wide = {**line, "base": commits[0], "head": commits[3], "date": "2999-01-01T00:00:00Z"}
    kernel.mkdir(parents=True)
    (kernel / "kernel.toml").write_text('entry = "kernel.py"\n[cases.s128]\n')
    (kernel / "kernel.py").touch()

    assert "in 3 merges" in CliRunner().invoke(program, ["history", "sdpa", "--runs", "."]).output
    ledger.write_text("\n".join([*ledger.read_text().splitlines()[:2], json.dumps(wide)]))

    assert "in 2 merges" not in CliRunner().invoke(program, ["history", "sdpa", "--runs", "."]).output
    checked = CliRunner().invoke(program, ["baseline", "check"])
    assert checked.exit_code == 2
    bases = f"key `base` is {commits[0][:8]}, not {commits[2][:8]}, the parent of {commits[3][:8]}"
    assert f"merged.jsonl:3: {bases}: the line does not count" in checked.output


def test_a_commit_counts_once_though_it_was_measured_against_several_others(commits):
    """As a ledger of an earlier version, or one that was edited, may have it."""
    record(base=commits[0], head=commits[1])
    ledger = ledger_of()
    line = json.loads(ledger.read_text())
    later = {**line, "base": "0" * 40, "date": "2999-01-01T00:00:00Z"}
    for lines in ([line, later], [later, line]):
        ledger.write_text("".join(f"{json.dumps(one)}\n" for one in lines))
        assert [m.base for m in store.read_merged(Path("baselines"))] == ["0" * 40]


def test_check_names_each_line_of_a_ledger_that_is_none(commits):
    record(base=commits[0], head=commits[1])
    ledger = ledger_of()
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


def test_a_run_that_compared_no_case_is_no_error_where_that_is_allowed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store.write_run(replace(merged_run(1.02), measurements=()), tmp_path)

    ran = CliRunner().invoke(program, ["baseline", "record", "run.json", "--allow-empty"])

    assert (ran.exit_code, ran.output) == (0, "nothing to record: no case was compared in a reliable session\n")


def crept_run(**changes):
    crept = (Creep("sdpa/s128", "h100-80gb-hbm3", 0.219, 0.211, 0.227, 10, "a" * 40),)
    run = merged_run(1.0)
    return replace(run, against=replace(run.against, creep=crept), **changes)


@pytest.mark.parametrize(("fail_on", "status", "verdict"), [((), 0, "UNCHANGED"), (("creep",), 1, "CREEP")])
def test_creep_is_shown_above_the_verdicts_and_fails_the_run_only_where_that_is_asked(fail_on, status, verdict):
    report = build_report(crept_run(policy=Policy(fail_on=(*Policy().fail_on, *fail_on))))
    comment = re.sub("[ \N{NO-BREAK SPACE}]+", " ", render_comment(report))

    assert (report.exit_status, overall(report)) == (status, verdict)
    assert report.headline == "1 unchanged, creep in 1 case"
    row = "| `sdpa/s128` | `h100-80gb-hbm3` | +21.9 % [+21.1, +22.7] | 10 | `aaaaaaaa` |"
    assert row in comment
    assert comment.index("#### Creep: slower by several merges before this change") < comment.index("<details>")
    assert report.next_step.startswith("Find what made the case slower")
    raised = [annotation.title for annotation in annotations(report, {})]
    assert raised == (["creep sdpa/s128"] if fail_on else [])
    assert "+21.9 % [+21.1, +22.7] in 10 merges" in "".join(text for text, _ in _lines(report))
    assert json.loads(render_json(report))["creep"][0]["change"] == 0.219
    assert "+21.9 % [+21.1, +22.7]" in render_html(report)


def test_the_creep_of_all_shards_is_in_the_merged_run():
    one, other = crept_run(), crept_run()
    other = replace(other, against=replace(other.against, creep=(replace(other.against.creep[0], case="gemm/n1"),)))
    shards = {"1": one, "2": replace(other, measurements=()), "3": replace(one, measurements=())}

    assert [found.case for found in merge_runs(shards).against.creep] == ["gemm/n1", "sdpa/s128"]


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
