"""`ci-perf publish`: what a run does on GitHub, decided purely and done at a GitHub of our own."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace

import pytest
from click.testing import CliRunner

from ci_perf.cli import program
from ci_perf.github import client as edge
from ci_perf.github.event import Event
from ci_perf.github.patch import apply_command, baseline_patch
from ci_perf.github.publish import MOST_ANNOTATIONS, Action, Level, Place, Thread, annotations, decide, overall
from ci_perf.github.workflow_commands import render_annotation
from ci_perf.judge.report import build_report
from ci_perf.render.markdown import LARGEST_COMMENT, LARGEST_SUMMARY, Frame, render_comment
from ci_perf.values.codec import dump_baseline, dump_run
from ci_perf.values.comment import MOST_OPEN, CommentStatus, OpenCase, State, marker, read_marker
from ci_perf.values.kernel import Gate
from ci_perf.values.measurement import Failure
from ci_perf.values.reasons import Verdict
from ci_perf.values.run import Against, Note, Policy
from ci_perf.values.settings import SETTINGS, variable
from tests.builders import (
    PARAMS,
    STEADY,
    a_baseline,
    a_baseline_case,
    a_cpu,
    a_device,
    a_measurement,
    a_provenance,
    a_run,
    a_spec,
    a_toolchain,
    counters,
    times,
)
from tests.fake_github import Account, FakeGitHub, Fault
from tests.fleet.test_shards import pairs
from tests.github.test_github import QUICK, SHA, TOKEN
from tests.render.test_render import tables

HERE = Place("kernels/sdpa/kernel.py", 12)
EVENT = Event("pull_request", "octo/kernels", SHA, run_id="42", pull_request=7)


def slower(**changes):
    return a_run(a_measurement(times(1.2), times(1.2)), baselines=(a_baseline(),), **changes)


def steady(**changes):
    return a_run(a_measurement(STEADY), baselines=(a_baseline(),), **changes)


def on_device(device):
    measured = a_measurement(STEADY, device=device.kind)
    return a_run(measured, devices=(device,), baselines=(a_baseline(device=device),))


def of_kernel(name, **changes):
    measured = a_measurement(STEADY, kernel=name)
    return a_run(measured, kernels=(a_spec(name),), baselines=(a_baseline(kernel=name),), **changes)


def missing():
    found = a_measurement(STEADY, kernel="gemm")
    return a_run(found, kernels=(a_spec("gemm"),), baselines=(a_baseline(kernel="gemm"), a_baseline()))


def faster():
    return a_run(a_measurement(times(0.5), times(0.5)), baselines=(a_baseline(),))


def failed():
    return a_run(a_measurement(replicates=(), failure=Failure("verify", "raised", "ValueError")))


def gate_broken():
    spec = a_spec(gates=(Gate("sm_throughput_pct", ">=", 85.0),))
    measured = a_measurement(STEADY, counters=counters(sm_throughput_pct=70.0))
    return a_run(measured, kernels=(spec,), baselines=(a_baseline(),))


def gate_unmeasured(*fail_on):
    spec = a_spec(gates=(Gate("sm_throughput_pct", ">=", 85.0),))
    return steady(kernels=(spec,), policy=replace(Policy(), fail_on=fail_on or Policy().fail_on))


def noisy():
    wild = (30e-6, 70e-6, 40e-6, 60e-6, 50e-6, 55e-6)
    return a_run(a_measurement(wild), baselines=(a_baseline(),))


def said(state):
    """Return what a comment in a state says of the case that every run here has."""
    open_case = OpenCase.of(a_device().slug, "sdpa/s128", "c")
    return CommentStatus(state, frozenset({open_case}) if state in (State.FLAGGED, State.PENDING) else frozenset())


def decided(run, policy="on-change", before=None, event=EVENT, **thread):
    return decide(build_report(run), event, policy, Thread(before and said(before), **thread), {"sdpa": HERE})


@pytest.mark.parametrize("change", [slower, faster, failed, gate_broken])
def test_the_first_change_makes_a_comment(change):
    effects = decided(change())

    assert (effects.action, effects.status.state) == (Action.CREATE, State.FLAGGED)


def test_a_job_that_turns_red_for_want_of_a_comparison_makes_a_comment():
    """Without a row that is flagged: the base could not be run."""
    run = a_run(a_measurement(unpaired="it crashed", replicates=()), against=Against("base", "b" * 40))

    assert build_report(run).exit_status == 1
    assert decided(run).action is Action.CREATE


@pytest.mark.parametrize("quiet", [steady, noisy, a_run, lambda: steady(finished=False)])
def test_without_a_change_nothing_is_said(quiet):
    assert decided(quiet()).action is Action.LEAVE


@pytest.mark.parametrize(
    ("run", "before", "state"),
    [
        (slower, State.FLAGGED, State.FLAGGED),
        (steady, State.FLAGGED, State.RESOLVED),
        (steady, State.PENDING, State.RESOLVED),
        (steady, State.RESOLVED, State.RESOLVED),
        (slower, State.RESOLVED, State.FLAGGED),
        (noisy, State.FLAGGED, State.PENDING),
        (lambda: steady(finished=False), State.FLAGGED, State.PENDING),
        (a_run, State.FLAGGED, State.PENDING),
        (gate_unmeasured, State.FLAGGED, State.PENDING),
        (lambda: gate_unmeasured("gate-not-measured"), State.RESOLVED, State.FLAGGED),
        (steady, State.CLEAN, State.CLEAN),
    ],
)
def test_a_comment_that_is_there_follows_every_push(run, before, state):
    """Only a finished comparison of everything resolves: what was not measured or not told apart is not fine."""
    effects = decided(run(), before=before)

    assert (effects.action, effects.status.state) == (Action.UPDATE, state)


def test_always_comments_on_a_quiet_run_too_and_never_does_not():
    assert decided(steady(), "always").action is Action.CREATE
    assert decided(slower(), "never").action is Action.LEAVE
    assert decided(slower(), "never", before=State.FLAGGED).action is Action.LEAVE


def test_without_a_pull_request_there_is_no_comment_and_everything_else():
    for name in ("push", "schedule", "merge_group", "workflow_dispatch"):
        effects = decided(slower(), event=replace(EVENT, name=name, pull_request=None))

        assert effects.action is Action.LEAVE
        assert f"`{name}` belongs to no pull request" in effects.reason
        assert effects.annotations
        assert effects.outputs["regressions"] == "1"


def test_a_job_that_waited_does_not_overwrite_what_a_later_push_said():
    effects = decided(slower(), before=State.RESOLVED, head_sha="d" * 40)

    assert effects.action is Action.LEAVE
    assert "moved on to dddd" in effects.reason


@pytest.mark.parametrize(
    ("earlier", "later", "state"),
    [
        (slower, lambda: on_device(a_cpu()), State.PENDING),
        (slower, lambda: on_device(a_device(name="NVIDIA L4")), State.PENDING),
        (slower, lambda: of_kernel("gemm", selection=("gemm",)), State.PENDING),
        (slower, lambda: of_kernel("gemm"), State.PENDING),
        (slower, lambda: a_run(a_measurement(STEADY)), State.PENDING),
        (slower, steady, State.RESOLVED),
        (failed, lambda: a_run(a_measurement(STEADY)), State.RESOLVED),
        (failed, lambda: on_device(a_cpu()), State.PENDING),
        (failed, lambda: of_kernel("gemm"), State.PENDING),
        (failed, lambda: of_kernel("gemm", selection=("gemm",)), State.PENDING),
        (gate_broken, steady, State.RESOLVED),
        (gate_broken, gate_unmeasured, State.PENDING),
        (missing, steady, State.RESOLVED),
        (missing, lambda: of_kernel("gemm"), State.RESOLVED),
        (missing, lambda: of_kernel("gemm", selection=("gemm",)), State.PENDING),
    ],
)
def test_only_the_flagged_cases_measured_again_on_their_device_resolve_a_comment(earlier, later, state):
    flagged = decide(build_report(earlier()), EVENT, "on-change", Thread(), {}).status
    after = read_marker(marker("default", flagged), "default")

    status = decide(build_report(later()), EVENT, "on-change", Thread(after), {}).status

    assert (flagged.state, status.state) == (State.FLAGGED, state)
    assert bool(status.open) == (state is State.PENDING)


def test_a_case_that_stays_open_does_so_until_it_is_measured_again():
    status = decide(build_report(slower()), EVENT, "on-change", Thread(), {}).status
    for run, state in (
        (of_kernel("gemm"), State.PENDING),
        (on_device(a_cpu()), State.PENDING),
        (steady(), State.RESOLVED),
    ):
        status = decide(build_report(run), EVENT, "on-change", Thread(status), {}).status

        assert status.state is state


@pytest.mark.parametrize("state", State)
def test_a_marker_reads_back(state):
    status = CommentStatus(state, frozenset({OpenCase.of("h100", "sdpa/s128", "c"), OpenCase.of("l4", "gemm/n", "f")}))

    assert read_marker(f"{marker('h100 & l4', status)}\n\n### ci-perf", "h100 & l4") == status
    assert read_marker(f"**Known (a maintainer)**\r\n\r\n{marker('h100', status)}\r\n", "h100") == status
    assert read_marker(f"{marker('h100', status)}\n", "h10") is None
    assert read_marker(f"> {marker('h100', status)}\n", "h100") is None


def test_the_marker_of_many_cases_leaves_room_for_the_comment():
    cases = frozenset(OpenCase.of("h100", f"k/n{n}", "c") for n in range(MOST_OPEN + 1))

    text = marker("default", CommentStatus(State.FLAGGED, cases))

    assert len(text) < LARGEST_COMMENT / 2
    assert len(read_marker(text, "default").open) == MOST_OPEN


@pytest.mark.parametrize(
    ("run", "verdict"),
    [
        (slower, "REGRESSION"),
        (faster, "SPEEDUP"),
        (failed, "FAILED"),
        (gate_broken, "BROKEN_GATE"),
        (noisy, "INCONCLUSIVE"),
        (steady, "UNCHANGED"),
        (gate_unmeasured, "UNCHANGED"),
        (lambda: gate_unmeasured("gate-not-measured"), "GATE_NOT_MEASURED"),
        (a_run, "NEW"),
        (lambda: steady(finished=False), "INCOMPLETE"),
    ],
)
def test_one_word_sums_a_run_up(run, verdict):
    assert overall(build_report(run())) == verdict


def test_annotations_stand_where_the_kernel_is_launched():
    (error,) = decided(slower()).annotations
    (notice,) = decided(faster()).annotations
    (gate,) = decided(gate_broken()).annotations
    (unmeasured,) = decided(gate_unmeasured("gate-not-measured")).annotations

    assert (error.level, error.place, error.title) == (Level.ERROR, HERE, "REGRESSION sdpa/s128")
    assert "20.0 % slower" in error.message
    assert notice.level is Level.NOTICE
    assert (gate.level, "sm_throughput_pct >= 85 is broken" in gate.message) == (Level.ERROR, True)
    assert (unmeasured.level, unmeasured.message.split("; ")[-1]) == (
        Level.ERROR,
        "sm_throughput_pct >= 85 was not measured",
    )


def test_what_does_not_fail_the_run_only_warns():
    run = slower()
    (annotation,) = decided(replace(run, policy=replace(run.policy, fail_on=()))).annotations

    assert annotation.level is Level.WARNING


def test_annotations_stay_within_githubs_limits_and_say_how_many_more():
    names = [f"c{i}" for i in range(25)]
    failing = [a_measurement(case=name, replicates=(), failure=Failure("time", "crashed", "SIGSEGV")) for name in names]
    report = build_report(a_run(*failing, kernels=(a_spec(cases=dict.fromkeys(names, PARAMS)),)))
    found = annotations(report, {"sdpa": HERE})

    assert len(found) == MOST_ANNOTATIONS
    assert found[-1].title == "ci-perf: 16 more"


def test_no_message_ends_an_annotation_or_begins_another():
    nasty = "x\n::error file=/etc/passwd::gotcha\r\n%0A::stop-commands::t"
    run = a_run(a_measurement(replicates=(), failure=Failure("verify", "raised", nasty)))
    (line,) = [render_annotation(a) for a in annotations(build_report(run), {"sdpa": Place("a,b:c.py", 1)})]

    assert line.startswith("::error file=a%2Cb%3Ac.py,line=1,title=FAILED sdpa/s128::")
    assert len(line.splitlines()) == 1
    assert "%250A" in line


# The comment


def many(count, name="case-{:04}", **changes):
    names = [name.format(i) for i in range(count)]
    spec = a_spec(cases=dict.fromkeys(names, PARAMS))
    baseline = a_baseline(cases=dict.fromkeys(names, a_baseline_case()))
    measured = [a_measurement(STEADY, case=n, **changes) for n in names]
    return a_run(*measured, kernels=(spec,), baselines=(baseline,))


NASTY = "<" * 150 + "{:04}"
CRASH = {"replicates": (), "failure": Failure("time", "crashed", "@&<>" * 200, "\u6f22" * 2000)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "shown"),
    [
        (lambda: many(5000), "5000 unchanged"),
        (lambda: many(5000, **CRASH), "5000 failed kernels"),
        (lambda: many(5000, NASTY, **CRASH), "5000 failed kernels"),
        (lambda: replace(many(1), notes=(Note("odd", "@" * 400, "<" * 400),) * 1000), "1 unchanged"),
        (
            lambda: replace(many(1), toolchain=a_toolchain(packages={f"@{i}": "<" * 9 for i in range(5000)})),
            "1 not comparable",
        ),
    ],
    ids=["unchanged", "failed", "hostile", "notes", "packages"],
)
def test_a_comment_fits_github_at_5000_cases(run, shown):
    """Counted in bytes, which are never fewer than characters."""
    report = build_report(run())
    frame = Frame(run_url="https://github.com/octo/kernels/actions/runs/42")
    comment = render_comment(report, replace(frame, limit=LARGEST_COMMENT))
    summary = render_comment(report, replace(frame, limit=LARGEST_SUMMARY))

    assert len(comment.encode()) <= LARGEST_COMMENT < 65_536
    assert len(summary.encode()) <= LARGEST_SUMMARY < 1 << 20
    assert shown in comment.splitlines()[2]
    assert f"The full report is `report.md` in the artifact of the [workflow run]({frame.run_url})" in comment
    assert comment.count("<details>") == comment.count("</details>")
    assert comment.count("```") % 2 == 0


def test_a_comment_is_shortened_no_more_than_it_must_be():
    run = many(60)
    slow = [replace(m, replicates=a_measurement(times(2.0), times(2.0)).replicates) for m in run.measurements[:3]]
    report = build_report(replace(run, measurements=(*slow, *run.measurements[3:])))
    whole = render_comment(report)
    lengths = [len(whole.encode()) * part // 100 for part in (100, 60, 40, 20, 12)]
    shown = [render_comment(report, Frame(limit=length)) for length in lengths]

    assert shown[0] == whole
    for text, length in zip(shown, lengths, strict=True):
        assert len(text.encode()) <= length
        assert text.count("**REGRESSION**") == 3
    assert "Unchanged" not in shown[-1].replace("Omitted because of the size limit: Unchanged", "")
    assert "All numbers" not in shown[-1].replace("All numbers. The full", "")


def test_flagged_rows_beyond_a_count_are_counted():
    report = build_report(many(300, NASTY, **CRASH))
    comment = render_comment(report, Frame(limit=LARGEST_COMMENT))
    rows = comment.count("**FAILED**")

    assert 0 < rows < 300
    shown, folded = map(len, tables(comment)[:2])
    left = [int(number) for number in re.findall(r"^and (\d+) more$", comment, re.MULTILINE)]
    assert 0 < shown - 1 <= 10
    assert "290 more flagged rows" in comment
    assert shown - 1 + folded - 1 == rows == 300 - sum(left[:2])
    assert all(set(shape) == {shape[0]} for shape in tables(comment))


def test_at_most_ten_flagged_rows_are_not_folded_and_the_worst_come_first():
    cases = {f"c{number}": PARAMS for number in range(12)}
    found = [a_measurement(times(1.2 + 0.1 * n), times(1.2 + 0.1 * n), case=case) for n, case in enumerate(cases)]
    base = a_baseline(cases=dict.fromkeys(cases, a_baseline_case()))
    comment = render_comment(build_report(a_run(*found, kernels=(a_spec(cases=cases),), baselines=(base,))))
    shown, folded = comment.split("<details><summary>2 more flagged rows</summary>")
    named = [re.findall(r"^\| `sdpa/(c\d+)` +\| ▲ \*\*REG", part, re.MULTILINE) for part in (shown, folded)]

    assert named == [[f"c{number}" for number in range(11, 1, -1)], ["c1", "c0"]]


def test_a_base_that_took_turns_is_in_the_command_to_paste_unless_a_fork_names_it():
    """Git fetches any commit of any fork by its hash, and ci-perf runs it."""
    report = build_report(slower(against=Against("base", "b" * 40)))

    assert f"ci-perf run --against {'b' * 40}\n" in render_comment(report)
    assert "ci-perf run --against merge-base:origin/HEAD\n" in render_comment(report, Frame(foreign=True))


def test_a_run_in_turns_says_how_to_make_the_baseline_that_it_is_not():
    slow = a_run(a_measurement(replicates=(), pairs=pairs(1.2)), against=Against("base", "b" * 40))
    comment = render_comment(build_report(slow))

    assert baseline_patch(slow, build_report(slow), "baselines") == ""
    assert "\nci-perf run sdpa &&\n  ci-perf baseline accept ci-perf-run sdpa\n" in comment
    assert "baseline accept" not in render_comment(build_report(slow), Frame(foreign=True))


def test_the_comment_says_what_it_is_about(golden):
    provenance = a_provenance(commit="b" * 40, repository="octo/kernels", head=SHA)
    run = replace(slower(), gpu_seconds=184.0, provenance=provenance)
    report = build_report(run)
    frame = Frame(
        key="h100",
        status=CommentStatus(State.FLAGGED),
        run_url="https://github.com/octo/kernels/actions/runs/42",
        patch_command="gh run download 42 &&\n  git apply x/baseline.patch",
        cost_per_hour=2.5,
    )

    golden("comment-regression.md", render_comment(report, frame))
    golden("comment-fork.md", render_comment(report, Frame(foreign=True)))
    golden(
        "comment-resolved.md",
        render_comment(build_report(steady()), replace(frame, status=CommentStatus(State.RESOLVED), patch_command="")),
    )


# The patch


def repository_with(baseline, root):
    """Make a git repository that holds this baseline."""
    root.mkdir()
    path = root / "baselines/h100-80gb-hbm3/sdpa.json"
    if baseline:
        path.parent.mkdir(parents=True)
        path.write_text(dump_baseline(baseline), encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return path


@pytest.mark.parametrize("before", [None, a_baseline()], ids=["first", "changed"])
def test_the_patch_makes_what_accept_would_make(tmp_path, before):
    run = replace(slower(), baselines=(before,) if before else ())
    path = repository_with(before, tmp_path / "patched")
    accepted = repository_with(before, tmp_path / "accepted")
    (tmp_path / "run.json").write_text(dump_run(run), encoding="utf-8")
    (tmp_path / "baseline.patch").write_text(baseline_patch(run, build_report(run), "baselines"), encoding="utf-8")

    subprocess.run(["git", "apply", "../baseline.patch"], cwd=path.parents[2], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(accepted.parents[2])
        ci_perf("baseline", "accept", "../run.json")

    made, expected = (json.loads(p.read_text(encoding="utf-8")) for p in (path, accepted))
    assert made["cases"] == expected["cases"]
    assert made["provenance"] == {**expected["provenance"], "accepted_by": None}


def test_the_command_to_paste_applies_the_patch_from_any_folder_of_the_repository(tmp_path):
    """Git itself would pass over what lies outside of the folder, and call that a success."""
    run = replace(slower(), baselines=())
    path = repository_with(None, tmp_path / "clone")
    folder = tmp_path / "clone/kernels/sdpa"
    folder.mkdir(parents=True)
    (tmp_path / "baseline.patch").write_text(baseline_patch(run, build_report(run), "baselines"), encoding="utf-8")
    gh = tmp_path / "bin/gh"
    gh.parent.mkdir()
    gh.write_text(f'#!/bin/sh\nfor last; do :; done\nmkdir "$last" && cp {tmp_path}/baseline.patch "$last"\n')
    gh.chmod(0o755)

    command = apply_command(EVENT, "ci-perf-run-1")
    subprocess.run(["sh", "-c", command], cwd=folder, env={"PATH": f"{gh.parent}:{os.environ['PATH']}"}, check=True)

    assert path.is_file()


def test_there_is_no_patch_without_something_to_accept():
    for run in (steady(), noisy(), failed(), slower(planted=0.05), slower(finished=False)):
        assert baseline_patch(run, build_report(run), "baselines") == ""


# The command


def ci_perf(*arguments):
    return CliRunner().invoke(program, [str(argument) for argument in arguments])


@pytest.fixture
def github(monkeypatch):
    monkeypatch.setattr(edge.Repository.__init__, "__defaults__", (QUICK,))
    with FakeGitHub() as server:
        server.open_pull(7, SHA)
        yield server


@pytest.fixture
def job(tmp_path, monkeypatch, github):
    """A step of a job that a pull request started; `job(run)` publishes a run."""
    head = {"sha": SHA, "repo": {"full_name": "octo/kernels"}}
    event = {"pull_request": {"number": 7, "head": head}}
    (tmp_path / "event.json").write_text(json.dumps(event))
    (tmp_path / "kernels/sdpa").mkdir(parents=True)
    (tmp_path / "kernels/sdpa/kernel.py").write_text("import torch\n\n\ndef launch(x):\n    return x\n")
    settle(monkeypatch, tmp_path, github)

    def publish(run, *arguments):
        folder = tmp_path / "ci-perf-run"
        folder.mkdir(exist_ok=True)
        (folder / "run.json").write_text(dump_run(run), encoding="utf-8")
        (folder / "report.md").write_text(render_comment(build_report(run)), encoding="utf-8")
        return ci_perf("publish", "ci-perf-run", *arguments)

    return publish


def settle(monkeypatch, root, github, name="pull_request"):
    for setting in SETTINGS:
        monkeypatch.delenv(variable(setting.name), raising=False)
    variables = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_EVENT_NAME": name,
        "GITHUB_EVENT_PATH": str(root / "event.json"),
        "GITHUB_REPOSITORY": "octo/kernels",
        "GITHUB_SHA": "b" * 40,
        "GITHUB_RUN_ID": "42",
        "GITHUB_RUN_ATTEMPT": "1",
        "GITHUB_ACTOR": "ada",
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_API_URL": github.url,
        "GITHUB_STEP_SUMMARY": str(root / "summary.md"),
        "GITHUB_OUTPUT": str(root / "output.txt"),
        "GITHUB_TOKEN": TOKEN,
    }
    for key, value in variables.items():
        monkeypatch.setenv(key, value)
    monkeypatch.chdir(root)


def outputs(root):
    """Read GITHUB_OUTPUT as the runner does, and empty it."""
    text = (root / "output.txt").read_text(encoding="utf-8")
    (root / "output.txt").unlink()
    return {name: value for name, _, value in re.findall(r"^([\w-]+)<<(\S+)\n(.*)\n\2\n", text, re.MULTILINE)}


def test_a_pull_request_from_its_first_slowdown_to_its_end(job, github, tmp_path):
    assert job(steady()).exit_code == 0
    assert github.bodies(7) == []

    slow = job(slower())
    found = outputs(tmp_path)
    assert slow.exit_code == 0, slow.output
    assert "### ci-perf: 1 regression" in github.bodies(7)[0]
    assert "::error file=kernels/sdpa/kernel.py,line=4,title=REGRESSION sdpa/s128::20.0 %25 slower" in slow.output

    job(steady())
    (body,) = github.bodies(7)
    assert "### ci-perf: resolved, now 1 unchanged" in body
    assert outputs(tmp_path)["comment-id"] == found["comment-id"]

    job(slower())
    assert len(github.bodies(7)) == 1
    assert "### ci-perf: 1 regression" in github.bodies(7)[0]


def test_outputs_summary_and_patch_of_a_step(job, github, tmp_path):
    job(slower())
    found, comment = outputs(tmp_path), next(iter(github.comments.values()))[2]

    assert found == {
        "verdict": "REGRESSION",
        "regressions": "1",
        "speedups": "0",
        "inconclusive": "0",
        "failed": "0",
        "report-path": "ci-perf-run/report.md",
        "run-path": "ci-perf-run/run.json",
        "comment-id": str(comment["id"]),
        "comment-url": comment["html_url"],
        "baseline-patch-path": "ci-perf-run/baseline.patch",
    }
    assert (tmp_path / "summary.md").read_text(encoding="utf-8") == comment["body"]
    assert "new file" not in (tmp_path / "ci-perf-run/baseline.patch").read_text(encoding="utf-8")
    assert "gh run download 42 --repo octo/kernels --name ci-perf-run --dir ci-perf-run-42 &&" in comment["body"]


def test_a_dry_run_prints_what_it_would_do_and_writes_nothing(job, github, tmp_path):
    shown = json.loads(job(slower(), "--dry-run").stdout)

    assert (shown["comment"]["action"], shown["comment"]["pull_request"]) == ("create", 7)
    assert shown["outputs"]["regressions"] == "1"
    assert shown["annotations"][0]["place"] == {"file": "kernels/sdpa/kernel.py", "line": 4}
    assert {method for method, path in github.requests if not path.endswith("graphql")} <= {"GET"}
    assert {p.name for p in tmp_path.iterdir()} == {"event.json", "kernels", "ci-perf-run"}
    assert {p.name for p in (tmp_path / "ci-perf-run").iterdir()} == {"run.json", "report.md"}


def test_two_keys_make_two_comments(job, github):
    job(slower(), "--comment-key", "h100")
    job(slower(), "--comment-key", "l4")
    job(steady(), "--comment-key", "h100")

    resolved, flagged = github.bodies(7)
    assert read_marker(resolved, "h100").state is State.RESOLVED
    assert read_marker(flagged, "l4").state is State.FLAGGED


def test_a_zip_and_a_file_are_published_as_the_folder_is(job, github, tmp_path):
    job(slower())
    shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path / "ci-perf-run")
    before = github.bodies(7)

    for given in ("packed.zip", "ci-perf-run/run.json"):
        assert ci_perf("publish", given).exit_code == 0
        assert github.bodies(7) == before


def test_a_token_that_may_not_write_is_an_error_with_the_permissions_to_paste(job, github, tmp_path):
    github.accounts[TOKEN] = Account(writes=False)
    done = job(slower())

    assert done.exit_code == 3
    assert "permissions:\n  contents: read\n  pull-requests: write" in done.output
    assert outputs(tmp_path)["regressions"] == "1"
    assert (tmp_path / "summary.md").is_file()


def test_on_a_fork_the_same_is_a_notice(job, github, tmp_path):
    github.accounts[TOKEN] = Account(writes=False)
    event = {"pull_request": {"number": 7, "head": {"sha": SHA, "repo": {"full_name": "mallory/kernels"}}}}
    (tmp_path / "event.json").write_text(json.dumps(event))
    done = job(slower())

    assert done.exit_code == 0
    assert "::notice title=ci-perf%3A no comment::the pull request comes from the fork mallory/kernels" in done.output


def test_a_github_that_fails_costs_neither_summary_nor_annotations_nor_outputs(job, github, tmp_path):
    github.faults.append(Fault("GET", 502, times=99))
    done = job(slower())

    assert done.exit_code == 3
    assert "::error file=" in done.output
    assert outputs(tmp_path)["verdict"] == "REGRESSION"
    assert "1 regression" in (tmp_path / "summary.md").read_text(encoding="utf-8")


def test_without_a_token_the_step_says_how_to_give_one(job, monkeypatch):
    monkeypatch.delenv("GITHUB_TOKEN")
    done = job(slower())

    assert done.exit_code == 0
    assert "no comment: GITHUB_TOKEN is not set: `env: GITHUB_TOKEN: ${{ github.token }}`" in done.output


def test_without_an_artifact_the_comment_leads_to_the_summary(job, github):
    job(replace(slower(), baselines=()), "--comment", "always", "--no-artifact")
    [comment] = github.bodies(7)

    assert "The report is in the summary of the [workflow run]" in comment
    assert "artifact" not in comment
    assert "baseline.patch" not in comment


def test_a_push_has_no_comment(job, github, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_EVENT_NAME", "push")
    done = job(slower())

    assert (done.exit_code, github.requests) == (0, [])
    assert outputs(tmp_path)["comment-id"] == ""


def test_the_token_is_nowhere(job, github, tmp_path):
    github.faults.append(Fault("GET", 404, message=TOKEN))
    done = job(slower())

    assert TOKEN not in done.output
    assert not any(TOKEN in p.read_text(encoding="utf-8") for p in tmp_path.rglob("*") if p.is_file())


def test_a_rule_that_comes_too_late_is_refused(job):
    done = job(slower(), "--regression-threshold", "50%")

    assert done.exit_code == 2
    assert "flag --regression-threshold: a run is judged by the rules that it was measured under" in done.output


def test_a_run_on_a_machine_of_ones_own_is_published_nowhere(tmp_path, monkeypatch):
    monkeypatch.delenv("GITHUB_EVENT_NAME", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.json").write_text(dump_run(slower()), encoding="utf-8")
    shown = json.loads(ci_perf("publish", "run.json", "--dry-run").stdout)

    assert shown["comment"]["action"] == "leave"
    assert shown["outputs"]["verdict"] == Verdict.REGRESSION


COMMENT = {"issue": {"number": 7, "pull_request": {"url": "x"}}, "comment": {"body": "/bench"}}
MIRROR = {"GITHUB_REF": "refs/heads/pull-request/7"}


def measured_at(commit):
    return replace(slower(), provenance=a_provenance(commit=commit))


@pytest.mark.parametrize(
    ("name", "document", "variables", "flags"),
    [
        ("issue_comment", COMMENT, {}, ()),
        ("push", {}, MIRROR, ()),
        ("workflow_dispatch", {"inputs": {}}, {}, ("--pull-request", "7")),
        ("workflow_dispatch", {"inputs": {}}, {"CI_PERF_PULL_REQUEST": "7"}, ()),
    ],
)
@pytest.mark.parametrize(("commit", "count"), [(SHA, 1), ("d" * 40, 0)])
def test_events_that_concern_a_pull_request_comment_if_its_head_was_measured(
    job, github, tmp_path, monkeypatch, name, document, variables, flags, commit, count
):
    (tmp_path / "event.json").write_text(json.dumps(document))
    for key, value in {"GITHUB_EVENT_NAME": name, **variables}.items():
        monkeypatch.setenv(key, value)

    done = job(measured_at(commit), *flags)

    assert done.exit_code == 0, done.output
    assert len(github.bodies(7)) == count
    assert count or f"{commit} was measured, the head of #7 is {SHA}" in done.output


def test_a_comment_on_an_issue_belongs_to_no_pull_request(job, github, tmp_path, monkeypatch):
    (tmp_path / "event.json").write_text(json.dumps({"issue": {"number": 7}}))
    monkeypatch.setenv("GITHUB_EVENT_NAME", "issue_comment")

    assert "belongs to no pull request" in job(slower()).output
    assert github.requests == []


def test_a_number_that_contradicts_the_event_is_refused(job):
    done = job(slower(), "--pull-request", "8")

    assert done.exit_code == 2
    assert "--pull-request 8: the event `pull_request` belongs to #7" in done.output


@pytest.mark.parametrize("status", [2, 3, 70, 130])
def test_a_job_that_could_not_measure_says_so_and_its_comment_turns_pending(job, github, tmp_path, status):
    job(slower())
    outputs(tmp_path)
    before = read_marker(github.bodies(7)[0], "default")
    done = ci_perf("publish", "nowhere", "--measure-status", str(status))

    assert done.exit_code == 0, done.output
    assert "::error title=ci-perf%3A nothing was measured::" in done.output
    [body] = github.bodies(7)
    assert read_marker(body, "default") == replace(before, state=State.PENDING)
    assert outputs(tmp_path)["verdict"] == "NOT_MEASURED"
    assert "nothing was measured" in (tmp_path / "summary.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ({}, [("a", "a setting or a file is wrong"), ("b", "a setting or a file is wrong")]),
        ({"b": "entry = 3"}, [("b", "kernels/b/kernel.toml: ")]),
    ],
    ids=["each kernel", "the wrong file"],
)
@pytest.mark.usefixtures("job", "github")
def test_the_annotation_of_a_job_that_could_not_measure_is_at_kernel_toml(tmp_path, broken, expected):
    for name in "ab":
        folder = tmp_path / "kernels" / name
        folder.mkdir(parents=True)
        (folder / "kernel.py").touch()
        (folder / "kernel.toml").write_text(broken.get(name, 'entry = "kernel.py"\n[cases.s]\n'))
    done = ci_perf("publish", "nowhere", "--measure-status", "2")
    found = [line for line in done.output.splitlines() if line.startswith("::error")]

    assert len(found) == len(expected)
    for line, (name, why) in zip(found, expected, strict=True):
        assert line.startswith(
            f"::error file=kernels/{name}/kernel.toml,line=1,title=ci-perf%3A nothing was measured::"
        )
        assert f"::Nothing was measured: {why}" in line


@pytest.mark.usefixtures("job")
def test_a_job_that_could_not_measure_makes_no_comment(github, tmp_path):
    done = ci_perf("publish", "nowhere", "--measure-status", "3")

    assert (done.exit_code, github.bodies(7)) == (0, [])
    assert outputs(tmp_path)["verdict"] == "NOT_MEASURED"
