"""What a fork hands in: every attack ends in a refusal or in harmless text, never in a comment elsewhere."""

import json
import re
import shutil
import stat
import zipfile
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ci_perf.github import client as edge
from ci_perf.values.codec import dump_baseline, dump_run
from ci_perf.values.comment import State, read_marker
from ci_perf.values.measurement import Failure
from ci_perf.values.run import Note
from tests.builders import STEADY, a_baseline, a_measurement, a_provenance, a_run, a_spec, times
from tests.fake_github import FakeGitHub
from tests.github.test_github import QUICK
from tests.github.test_publish import ci_perf, outputs, settle, slower, steady
from tests.render.test_render import NASTY, headings, tables, tags

HEAD = "e" * 40
OURS = a_provenance(commit="b" * 40, repository="octo/kernels", head=HEAD)


def workflow_run(**changes):
    of = {"full_name": "octo/kernels"}
    run = {"event": "pull_request", "head_sha": HEAD, "head_branch": "feature", "repository": of}
    head = {"id": 41, "run_attempt": 1, "head_repository": {"full_name": "mallory/kernels"}, "pull_requests": []}
    return {"workflow_run": {**run, **head, **changes}}


@pytest.fixture
def github(monkeypatch):
    monkeypatch.setattr(edge.Repository.__init__, "__defaults__", (QUICK,))
    with FakeGitHub() as server:
        server.open_pull(7, "a" * 40)
        server.open_pull(8, HEAD, head="mallory/kernels")
        yield server


@pytest.fixture
def root(tmp_path, monkeypatch, github):
    """A `workflow_run` job of the base repository, whose default branch is checked out: it has a baseline."""
    settle(monkeypatch, tmp_path, github, "workflow_run")
    (tmp_path / "event.json").write_text(json.dumps(workflow_run()))
    path = tmp_path / "baselines/h100-80gb-hbm3/sdpa.json"
    path.parent.mkdir(parents=True)
    path.write_text(dump_baseline(a_baseline()), encoding="utf-8")
    return tmp_path


def foreign(run, **changes):
    return replace(run, provenance=OURS, **changes)


def publish(root, run, *arguments):
    """Publish a run, or the text of a run.json, out of a zip as GitHub makes it."""
    text = run if isinstance(run, str) else dump_run(run)
    with zipfile.ZipFile(root / "artifact.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("run.json", text)
    return ci_perf("publish", "artifact.zip", "--from-workflow-run", *arguments)


def refused(done, github, message):
    assert done.exit_code == 2, done.output
    assert re.search(message, done.output), done.output
    assert github.comments == {}


def test_a_forks_run_is_commented_on_the_pull_request_of_its_commit(root, github):
    done = publish(root, foreign(slower()))

    assert done.exit_code == 0, done.output
    assert github.bodies(7) == []
    (body,) = github.bodies(8)
    assert "ran the pull request's code, so its author controls them" in body
    assert "baseline.patch" not in body
    assert "[workflow run](https://github.com/octo/kernels/actions/runs/41)" in body
    assert "::error" not in done.output
    assert outputs(root)["baseline-patch-path"] == ""


@pytest.mark.parametrize(("kernel", "status"), [("other", 0), ("sdpa", 2)])
def test_a_wrong_kernel_toml_matters_only_for_a_kernel_of_the_run(root, github, kernel, status):
    (root / "kernels" / kernel).mkdir(parents=True)
    (root / "kernels" / kernel / "kernel.toml").write_text("entry = ")

    assert publish(root, foreign(slower())).exit_code == status
    assert len(github.bodies(8)) == (status == 0)


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_an_artifact_may_be_unpacked_already(root, github, kind):
    folder = root / "artifact"
    folder.mkdir()
    (folder / "run.json").write_text(dump_run(foreign(slower())), encoding="utf-8")
    given = "artifact" if kind == "folder" else "artifact/run.json"

    assert ci_perf("publish", given, "--from-workflow-run").exit_code == 0
    assert len(github.bodies(8)) == 1


# Which pull request


def test_no_number_in_the_artifact_chooses_the_pull_request(root, github):
    """Notes, selection, command and file names say 7; the commit of the event says 8."""
    provenance = replace(OURS, command="ci-perf run --pull-request 7")
    run = replace(slower(), provenance=provenance, notes=(Note("pr", "7"),), selection=("7",))
    with zipfile.ZipFile(root / "artifact.zip", "w") as archive:
        archive.writestr("run.json", dump_run(run))
        for name in ("NR", "pr_number", "pull-request.txt"):
            archive.writestr(name, "7")

    assert ci_perf("publish", "artifact.zip", "--from-workflow-run").exit_code == 0
    assert (len(github.bodies(7)), len(github.bodies(8))) == (0, 1)


def test_a_number_in_the_event_of_the_run_is_not_believed_either(root, github):
    (root / "event.json").write_text(json.dumps(workflow_run(pull_requests=[{"number": 7}])))
    publish(root, foreign(slower()))

    assert (len(github.bodies(7)), len(github.bodies(8))) == (0, 1)


def test_an_unknown_key_with_a_number_is_not_believed_either(root, github):
    document = {**json.loads(dump_run(foreign(slower()))), "pull_request": 7}
    publish(root, json.dumps(document))

    assert (len(github.bodies(7)), len(github.bodies(8))) == (0, 1)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"head_branch": "other"}, "no open pull request has e+ of mallory/kernels as its head"),
        ({"head_repository": {"full_name": "eve/kernels"}}, "no open pull request has"),
        ({"head_repository": None}, "the repository of the pull request's head is gone"),
        ({"event": "push"}, "was started by `push`, not by a pull request"),
    ],
)
def test_without_the_one_pull_request_there_is_a_summary_and_no_comment(root, github, changes, reason):
    (root / "event.json").write_text(json.dumps(workflow_run(**changes)))
    done = publish(root, foreign(slower()))

    assert done.exit_code == 0
    assert re.search(f"no comment: .*{reason}", done.output)
    assert github.comments == {}
    assert "1 regression" in (root / "summary.md").read_text(encoding="utf-8")


def test_two_pull_requests_with_one_head_get_no_comment(root, github):
    github.open_pull(9, HEAD, head="mallory/kernels")
    done = publish(root, foreign(slower()))

    assert "2 open pull requests have" in done.output
    assert github.comments == {}


def test_a_pull_request_that_was_pushed_to_meanwhile_gets_no_comment(root, github):
    github.open_pull(8, "f" * 40, head="mallory/kernels")

    assert "no open pull request has" in publish(root, foreign(slower())).output
    assert github.comments == {}


def test_a_run_that_left_no_numbers_turns_the_comment_pending(root, github):
    publish(root, foreign(slower()))
    done = ci_perf("publish", "nowhere", "--from-workflow-run", "--measure-status", "130")

    assert done.exit_code == 0, done.output
    (body,) = github.bodies(8)
    assert read_marker(body, "default").state is State.PENDING
    assert "Nothing was measured: the job was stopped" in body


def test_a_clean_comment_says_that_nothing_was_measured_and_the_next_run_makes_it_clean_again(root, github):
    publish(root, foreign(steady()), "--comment", "always")
    ci_perf("publish", "nowhere", "--from-workflow-run", "--measure-status", "3")
    (unmeasured,) = github.bodies(8)
    publish(root, foreign(steady()), "--comment", "always")
    (measured,) = github.bodies(8)

    assert "### ci-perf: nothing was measured" in unmeasured
    assert read_marker(unmeasured, "default").state is State.CLEAN
    assert read_marker(measured, "default").state is State.CLEAN
    assert "nothing was measured" not in measured


@pytest.mark.parametrize(
    ("provenance", "message"),
    [
        (
            replace(OURS, repository="mallory/kernels"),
            "key `provenance.repository`: measured for mallory/kernels, this is",
        ),
        (replace(OURS, repository=None), "measured for no repository that it names"),
        (replace(OURS, head="d" * 40), "key `provenance.head`: measured for commit d+"),
        (replace(OURS, head=None), "measured for commit unknown"),
    ],
)
def test_a_run_of_another_repository_or_commit_is_refused(root, github, provenance, message):
    refused(publish(root, replace(slower(), provenance=provenance)), github, message)


def test_an_event_of_another_repository_is_refused(root, github):
    (root / "event.json").write_text(json.dumps(workflow_run(repository={"full_name": "mallory/kernels"})))

    refused(publish(root, foreign(slower())), github, "a run of `mallory/kernels`, this is `octo/kernels`")


def test_any_other_event_is_refused(root, github, monkeypatch):
    monkeypatch.setenv("GITHUB_EVENT_NAME", "push")

    refused(publish(root, foreign(slower())), github, "the event is `push`, not `workflow_run`")


# Whose rules


def test_thresholds_gates_and_baselines_are_the_base_repositorys(root):
    """The fork says that 20 % is nothing and that the old time was longer; the base repository knows better."""
    run = slower()
    lenient = replace(run.policy, regression=0.5, fail_on=())
    forged = a_baseline(times(1.2))
    run = foreign(run, policy=lenient, baselines=(forged,), kernels=(a_spec(regression=0.9),))
    assert regressions(root, run) == "1"

    kernel = root / "kernels/sdpa"
    kernel.mkdir(parents=True)
    toml = 'entry = "kernel.py"\n[cases.s128]\nseq = 128\ndtype = "float16"\n[policy]\nregression = "50%"\n'
    (kernel / "kernel.toml").write_text(toml)
    (kernel / "kernel.py").write_text("def launch(x):\n    return x\n")
    assert regressions(root, run) == "0"


def test_a_baseline_that_a_fork_brings_never_stands_in_for_one_that_is_not_there(root):
    shutil.rmtree(root / "baselines")

    assert regressions(root, foreign(slower())) == "0"


def regressions(root, run):
    assert publish(root, run).exit_code == 0
    return outputs(root)["regressions"]


# Archives


def pack(root, *entries):
    with zipfile.ZipFile(root / "artifact.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, content in entries:
            archive.writestr(entry, content)
    return ci_perf("publish", "artifact.zip", "--from-workflow-run")


@pytest.mark.parametrize("name", ["../run.json", "/etc/run.json", "a/../../run.json", "..\\run.json", "c:\\run.json"])
def test_an_archive_that_leaves_its_folder_is_refused(root, github, name):
    done = pack(root, (name, dump_run(foreign(slower()))))

    refused(done, github, "leaves the archive's folder")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO])
def test_an_archive_with_a_link_or_a_device_is_refused(root, github, kind):
    entry = zipfile.ZipInfo("run.json")
    entry.external_attr = (kind | 0o777) << 16

    refused(pack(root, (entry, "/etc/passwd")), github, "is a link or a device")


@pytest.mark.parametrize("given", ["link", "folder"])
def test_a_link_in_a_folder_is_not_followed(root, github, given):
    (root / "real.json").write_text(dump_run(foreign(slower())), encoding="utf-8")
    (root / "folder").mkdir()
    (root / "folder/run.json").symlink_to(root / "real.json")
    (root / "link").symlink_to(root / "folder/run.json")

    refused(ci_perf("publish", given, "--from-workflow-run"), github, "is a link or a device")


@pytest.mark.slow
def test_a_bomb_of_one_gigabyte_is_not_unpacked(root, github):
    file = root / "artifact.zip"
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("run.json", "w", force_zip64=True) as member,
    ):
        for _ in range(64):
            member.write(bytes(16 << 20))
    assert file.stat().st_size < 8 << 20

    refused(ci_perf("publish", "artifact.zip", "--from-workflow-run"), github, "larger than 64 MiB")


def test_a_small_bomb_is_told_by_its_ratio(root, github):
    refused(pack(root, ("run.json", bytes(32 << 20))), github, "more than 200 times its size: a bomb")


def test_an_archive_that_lies_about_its_size_is_not_believed(root, github):
    """The directory says 1 KiB: what is unpacked is what counts."""
    pack(root, ("run.json", bytes(64 << 20)))
    content = (root / "artifact.zip").read_bytes()
    (root / "artifact.zip").write_bytes(content.replace((64 << 20).to_bytes(4, "little"), (1024).to_bytes(4, "little")))

    refused(ci_perf("publish", "artifact.zip", "--from-workflow-run"), github, "cannot be unpacked|a bomb")


def test_too_many_entries_and_too_large_archives_are_refused(root, github):
    done = pack(root, *((f"logs/{i}", "") for i in range(1001)))
    refused(done, github, "1001 entries, at most 1000")

    with (root / "artifact.zip").open("r+b") as file:
        file.truncate(40 << 20)
        file.seek(0, 2)
        file.write(empty_directory())
    refused(ci_perf("publish", "artifact.zip", "--from-workflow-run"), github, "40 MiB, at most 32")


def empty_directory():
    """Return the end of a zip without entries."""
    return b"PK\x05\x06" + bytes(18)


@pytest.mark.parametrize("entries", [[], [("run.json", "{}"), ("a/run.json", "{}")]])
def test_an_archive_holds_one_run(root, github, entries):
    refused(pack(root, *entries), github, f"holds {len(entries)} files called run.json")


# Numbers and text


@pytest.mark.parametrize(
    ("number", "message"),
    [
        ("NaN", "NaN is not a JSON number"),
        ("Infinity", "Infinity is not a JSON number"),
        ("1e999", "1e999 is too large a number"),
        ("1" + "0" * 5000, "too large a number|not JSON"),
        ("1e300", r"key `measurements\[0\]\.replicates\[0\]\.seconds\[0\]`: 1e\+300 cannot be a measurement"),
        ("1e-300", "1e-300 cannot be a measurement"),
        ("-1", "is less than"),
        ('"1"', "is not of type"),
    ],
)
def test_numbers_that_break_the_schema_or_the_arithmetic_are_refused(root, github, number, message):
    document = json.loads(dump_run(foreign(slower())))
    document["measurements"][0]["replicates"][0]["seconds"][0] = "HERE"

    refused(publish(root, json.dumps(document).replace('"HERE"', number)), github, message)


def test_a_case_of_too_many_processes_is_refused(root, github):
    run = foreign(a_run(a_measurement(STEADY * 50)))

    refused(publish(root, run), github, r"key `measurements\[0\]`: 300 processes of at most 200")


def test_a_text_without_end_is_refused(root, github):
    run = foreign(slower(), notes=(Note("long", "x" * 100_001),))

    refused(publish(root, run), github, r"key `notes\[0\]\.message`: 100001 characters")


def test_nesting_without_end_is_refused(root, github):
    refused(publish(root, "[" * 100_000), github, "not JSON")


@pytest.mark.parametrize("text", NASTY)
def test_no_text_of_a_fork_is_markup(root, github, text):
    text = text.encode("utf-8", "replace").decode()
    comments = [comment_with(root, github, word) for word in ("plain", text)]

    assert tables(comments[1]) == tables(comments[0])
    assert headings(comments[1]) == headings(comments[0])
    assert tags(comments[1]) == tags(comments[0])
    assert comments[1].count("<!--") == 1


def comment_with(root, github, text):
    github.comments.clear()
    measured = a_measurement(case=text, replicates=(), failure=Failure("verify", "raised", text, text))
    spec = a_spec(cases={text: {}}, description=text)
    done = publish(root, foreign(a_run(measured, kernels=(spec,), notes=(Note("odd", text, text),))))
    assert done.exit_code == 0, done.output
    return github.bodies(8)[0]


# What GitHub's runner reads in the log


def commands(output, token):
    """Return the lines in which the runner finds a command, as it parses them: at the start, or `##[` anywhere."""
    begun = [line for line in output.splitlines() if line.lstrip().startswith("::") or "##[" in line]
    return [line for line in begun if line not in (f"::stop-commands::{token}", f"::{token}::")]


NASTY_LINES = st.lists(
    st.sampled_from([*"ab:#[]%=\n\r\t\x1b\x85\u2028\u202e", "::", "##[", "::set-output name=x::1", "::add-mask::"]),
    max_size=12,
).map("".join)


@given(
    text=NASTY_LINES,
    place=st.sampled_from(["key", "value", "nested", "repository", "head", "file", "kernel"]),
    dry=st.booleans(),
)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_text_of_a_fork_is_a_command_in_the_trusted_job(root, text, place, dry):
    document = json.loads(dump_run(foreign(slower())))
    match place:
        case "key":
            document[text] = 1
        case "value":
            document["schema"] = text
        case "nested":
            document["provenance"][text] = {}
        case "kernel":
            document["measurements"][0]["kernel"] = text
        case "file":
            document = None
        case _:
            document["provenance"][place] = text

    done = publish(root, text if document is None else json.dumps(document), *(["--dry-run"] if dry else []))

    first, *_ = done.stderr.splitlines()
    token = first.removeprefix("::stop-commands::")
    assert re.fullmatch("[0-9a-f]{32}", token)
    assert done.stderr.splitlines()[-1] == f"::{token}::"
    assert done.exit_code != 70, done.output
    assert commands(done.output, token) == []
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u202e]", done.output.replace("\n", ""))


def test_the_numbers_of_copy_pr_bots_push_are_commented_on_its_pull_request(root, github):
    github.open_pull(9, HEAD)
    own = {"full_name": "octo/kernels"}
    event = workflow_run(event="push", head_branch="pull-request/9", head_repository=own)
    (root / "event.json").write_text(json.dumps(event))

    assert publish(root, foreign(slower())).exit_code == 0
    assert (len(github.bodies(9)), len(github.bodies(8))) == (1, 0)


def test_a_forks_branch_of_that_name_is_no_push_of_copy_pr_bot(root, github):
    event = workflow_run(event="push", head_branch="pull-request/8")
    (root / "event.json").write_text(json.dumps(event))

    assert "name it with --pull-request" in publish(root, foreign(slower())).output
    assert github.comments == {}


@pytest.mark.parametrize(("head", "count"), [("b" * 40, 1), ("d" * 40, 0)])
def test_the_run_of_a_comment_is_published_on_the_pull_request_that_the_workflow_names(root, github, head, count):
    """The event's commit is the default branch; the measured one must be the head."""
    github.open_pull(9, head)
    (root / "event.json").write_text(json.dumps(workflow_run(event="issue_comment")))

    assert publish(root, foreign(slower()), "--pull-request", "9").exit_code == 0
    assert len(github.bodies(9)) == count
