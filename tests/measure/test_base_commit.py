"""Which commit `--against` compares with: names, pull requests and other events, shallow clones."""

import json
import os
from pathlib import Path

import pytest

from ci_perf.measure.git_base import query_claimed, resolve_base
from ci_perf.values.errors import MachineError
from tests.measure.nap_repository import commit, git, run, write

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("repository")]


@pytest.mark.parametrize(
    ("ref", "says"),
    [
        ("no-such-branch", "git knows no commit `no-such-branch`"),
        ("merge-base:nowhere", "git knows no commit `nowhere`"),
        ("--upload-pack=x", "git knows no commit"),
        ("base", "this is no pull request event"),
    ],
)
def test_a_base_that_does_not_exist_is_an_error(ref, says):
    ran, _ = run(f"--against={ref}")

    assert ran.exit_code in {2, 3}
    assert says in ran.stderr


def test_the_base_of_a_pull_request_is_the_merge_base(repository, monkeypatch):
    fork_point = git("rev-parse", "HEAD")
    git("checkout", "--quiet", "-b", "topic")
    write("nap", factor=1.001)
    commit("on the topic")
    git("checkout", "--quiet", "main")
    write("other")
    tip = commit("main moved on")
    git("checkout", "--quiet", "topic")
    event = repository / "event.json"
    event.write_text(json.dumps({"pull_request": {"base": {"sha": tip}}}))
    monkeypatch.setenv("GITHUB_EVENT_PATH", str(event))

    ran, _ = run("--against", "base")

    assert json.loads((repository / "out/run.json").read_text())["against"]["commit"] == fork_point, ran.output


@pytest.mark.parametrize("depth", ["full", "shallow"])
def test_the_base_of_a_merge_commit_is_what_it_was_merged_into(repository, monkeypatch, tmp_path_factory, depth):
    """The event names an older base: commits that were merged since then do not belong to the pull request."""
    stale = git("rev-parse", "HEAD")
    git("checkout", "--quiet", "-b", "topic")
    write("other")
    head = commit("on the topic")
    git("checkout", "--quiet", "main")
    write("nap", factor=1.3)
    tip = commit("main got slower")
    git("merge", "--quiet", "--no-ff", "--message", "as GitHub merges", "topic")
    if depth == "shallow":
        clone = tmp_path_factory.mktemp("clone")
        git("config", "uploadpack.allowReachableSHA1InWant", "true")
        git("clone", "--quiet", "--depth=1", f"file://{repository}", str(clone))
        monkeypatch.chdir(clone)
    event = Path("event.json")
    event.write_text(json.dumps({"pull_request": {"base": {"sha": stale}, "head": {"sha": head}}}))
    monkeypatch.setenv("GITHUB_EVENT_PATH", str(event.resolve()))

    ran, cases = run("--against", "auto", "nap")

    assert cases["nap"]["verdict"] == "UNCHANGED", ran.output
    assert json.loads(Path("out/run.json").read_text())["against"]["commit"] == tip


@pytest.fixture
def pull_request(repository, monkeypatch, tmp_path_factory):
    """A clone at the head of #7, whose base branch has moved on; origin keeps its merge commit as GitHub does."""
    fork_point = git("rev-parse", "HEAD")
    git("checkout", "--quiet", "-b", "topic")
    write("nap", factor=1.001)
    head = commit("on the topic")
    git("checkout", "--quiet", "main")
    write("other")
    commit("main moved on")
    git("checkout", "--quiet", "--detach", "main")
    git("merge", "--quiet", "--no-ff", "--message", "as GitHub merges", "topic")
    git("update-ref", "refs/pull/7/merge", "HEAD")
    git("checkout", "--quiet", "main")
    clone = tmp_path_factory.mktemp("clone")
    git("clone", "--quiet", f"file://{repository}", str(clone))
    monkeypatch.chdir(clone)
    git("checkout", "--quiet", "--detach", head)
    return fork_point


EVENTS = [
    ({"GITHUB_EVENT_NAME": "issue_comment"}, {"issue": {"number": 7, "pull_request": {"url": "x"}}}),
    ({"GITHUB_EVENT_NAME": "push", "GITHUB_REF": "refs/heads/pull-request/7"}, {}),
    ({"GITHUB_EVENT_NAME": "workflow_dispatch", "CI_PERF_PULL_REQUEST": "7"}, {}),
]


@pytest.mark.parametrize(("variables", "document"), EVENTS)
def test_the_base_of_a_pull_request_that_another_event_names_needs_no_token(
    pull_request, monkeypatch, variables, document
):
    Path("event.json").write_text(json.dumps(document))
    for key, value in {"GITHUB_EVENT_PATH": str(Path("event.json").resolve()), **variables}.items():
        monkeypatch.setenv(key, value)

    assert query_claimed(os.environ) == 7
    assert resolve_base(Path.cwd(), "base", os.environ) == pull_request


def test_a_pull_request_without_merge_commit_or_checked_out_head_has_no_base(pull_request):
    del pull_request
    with pytest.raises(MachineError, match="origin has no merge commit of #8"):
        resolve_base(Path.cwd(), "base", {"CI_PERF_PULL_REQUEST": "8"})
    git("checkout", "--quiet", "--detach", "origin/main")
    with pytest.raises(MachineError, match="the checked-out commit is not the head of #7"):
        resolve_base(Path.cwd(), "base", {"CI_PERF_PULL_REQUEST": "7"})


def test_a_checkout_without_the_pull_request_is_refused(repository, monkeypatch):
    """As under `pull_request_target`, where the base would be compared with itself."""
    event = {"pull_request": {"base": {"sha": git("rev-parse", "HEAD")}, "head": {"sha": "a" * 40}}}
    (repository / "event.json").write_text(json.dumps(event))
    monkeypatch.setenv("GITHUB_EVENT_PATH", str(repository / "event.json"))

    ran, _ = run("--against", "auto")

    assert ran.exit_code == 2
    assert "nothing of the pull request is checked out" in ran.stderr


@pytest.mark.parametrize("event", ["pull_request", "merge_group", "push"])
def test_auto_is_the_base_of_the_event_where_it_has_one(repository, monkeypatch, event):
    base = git("rev-parse", "HEAD")
    write("nap", factor=1.001)
    commit("ahead")
    document = {
        "pull_request": {"pull_request": {"base": {"sha": base}}},
        "merge_group": {"merge_group": {"base_sha": base}},
    }
    (repository / "event.json").write_text(json.dumps(document.get(event, {"ref": "refs/heads/main"})))
    monkeypatch.setenv("GITHUB_EVENT_PATH", str(repository / "event.json"))

    ran, _ = run("--against", "auto", "--processes", "2")

    against = json.loads((repository / "out/run.json").read_text())["against"]
    assert (against or {}).get("commit") == (None if event == "push" else base), ran.output


@pytest.mark.parametrize("name", ["HEAD~2", "{short}"])
def test_a_shallow_clone_is_deepened_for_a_name_that_no_server_knows(repository, monkeypatch, tmp_path_factory, name):
    base = git("rev-parse", "HEAD")
    for factor in (1.2, 1.3):
        write("nap", factor=factor)
        commit("slower")
    clone = tmp_path_factory.mktemp("clone")
    git("clone", "--quiet", "--depth=1", f"file://{repository}", str(clone))
    monkeypatch.chdir(clone)

    ran, cases = run("--against", name.format(short=base[:9]))

    assert cases["nap"]["change"]["ratio"] == pytest.approx(1.3, rel=0.002), ran.output
    assert json.loads((clone / "out/run.json").read_text())["against"]["commit"] == base


@pytest.mark.parametrize(
    ("origin", "says"),
    [
        ("{here}", "origin does not have it"),
        ("file:///nowhere", "origin could not be asked: fatal: '/nowhere' does not"),
    ],
)
def test_the_error_for_an_unavailable_base_says_its_cause(repository, origin, says):
    git("remote", "add", "origin", origin.format(here=repository))
    ran, _ = run("--against", "gone")

    assert ran.exit_code == 3
    assert f"git knows no commit `gone` here, and {says}" in ran.stderr.replace("\n", " ")


@pytest.mark.usefixtures("repository")
def test_the_error_for_a_misspelt_base_without_a_remote_names_a_similar_branch():
    ran, _ = run("--against", "mian")

    assert ran.exit_code == 3
    assert "git knows no commit `mian` here, and there is no remote `origin`" in ran.stderr.replace("\n", " ")
    assert "did you mean main?" in ran.stderr


def test_a_folder_without_git_is_named_in_the_error(monkeypatch, tmp_path_factory):
    bare = tmp_path_factory.mktemp("bare")
    monkeypatch.chdir(bare)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(bare.parent))
    write("nap")

    ran, _ = run("--against", "HEAD")

    assert ran.exit_code == 3
    assert "is not in a git repository" in ran.stderr


def test_a_full_clone_is_not_made_shallow_by_a_base_in_origin(repository, tmp_path_factory, monkeypatch):
    git("checkout", "--quiet", "-b", "feature")
    git("checkout", "--quiet", "main")
    write("nap", factor=1.001)
    commit("one more")
    clone = tmp_path_factory.mktemp("clone") / "clone"
    git("clone", "--quiet", str(repository), str(clone))
    monkeypatch.chdir(clone)

    ran, _ = run("--against", "feature")

    assert ran.exit_code == 0, ran.output
    assert git("rev-parse", "--is-shallow-repository") == "false"
    assert len(git("log", "--format=%h").split()) == 2
