"""`--against`: a real git repository, base and head in turns on the CPU, with kernels that use a simulated clock."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from ci_perf.cli import program
from ci_perf.measure import setup, turns
from ci_perf.measure.git import query_changed
from ci_perf.measure.git_base import query_claimed, resolve_base
from ci_perf.values.errors import MachineError

pytestmark = pytest.mark.slow

TOML = """
entry = "kernel.py"
devices = ["cpu"]
[cases.one]
microseconds = {microseconds}
"""
NAP = """
import os, random, time
from ci_perf.userside import core_clock

now, noise = 0.0, random.Random(os.getpid())

def perf_counter():
    return now

time.perf_counter = perf_counter  # a clock that only launches move: a busy machine changes no verdict
core_clock.waited = lambda: 0.0  # nor does the time for which it waits for a core

def make_inputs(rng, device, microseconds):
    return microseconds / 1e6

def launch(inputs):
    global now
    seconds = inputs[0] if isinstance(inputs, tuple) else inputs
    now += seconds * {factor} * noise.uniform(0.999, 1.001)
    return 1.0

def reference(seconds):
    return 1.0
"""
FRESH = "def make_inputs(rng, device, **case):\n    return 1\n\n\nlaunch = reference = float\n"


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A git repository with one kernel, which tests copy."""
    folder = tmp_path_factory.mktemp("template")
    with contextlib.chdir(folder):
        git("init", "--quiet", "--initial-branch=main")
        git("config", "user.name", "a developer")
        git("config", "user.email", "developer@users.noreply.github.com")
        write("nap")
        commit("base")
    return folder


@pytest.fixture(autouse=True)
def repository(tmp_path, tmp_path_factory, monkeypatch, bare_python, template):
    """A git repository with one kernel, whose duration a commit can change; the current folder."""
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    for name in ("WARM_UP_S", "STILL_WARM_S"):  # the kernels have a clock of their own, which needs none
        monkeypatch.setattr(turns, name, {"cpu": 0.0})
    monkeypatch.setenv("CI_PERF_PYTHON", str(bare_python))
    monkeypatch.setenv("CI_PERF_CACHE", str(tmp_path_factory.mktemp("kept-bases")))
    for name in [n for n in os.environ if n.startswith("GITHUB_") or n == "CI"]:
        monkeypatch.delenv(name)
    return tmp_path


def git(*arguments):
    ran = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def commit(message):
    git("add", "--all")
    git("commit", "--quiet", "--message", message)
    return git("rev-parse", "HEAD")


def write(kernel, factor=1.0, microseconds=2500):
    folder = Path("kernels") / kernel
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.toml").write_text(TOML.format(microseconds=microseconds))
    (folder / "kernel.py").write_text(NAP.format(factor=factor))


def run(*arguments):
    ran = CliRunner().invoke(program, ["run", "--output", "out", "--json", *arguments])
    report = json.loads(ran.stdout) if ran.stdout.startswith("{") else None
    return ran, {case["kernel"]: case for case in report["cases"]} if report else None


def test_a_slower_commit_is_a_regression_and_its_parent_is_named(repository):
    base = git("rev-parse", "HEAD")
    write("nap", factor=1.2)
    commit("slower")

    ran, cases = run("--against", "HEAD~1")

    assert ran.exit_code == 1, ran.output
    assert cases["nap"]["verdict"] == "REGRESSION"
    assert cases["nap"]["change"]["ratio"] == pytest.approx(1.2, rel=0.002)
    against = json.loads((repository / "out/run.json").read_text())["against"]
    assert (against["ref"], against["commit"], against["control_case"]) == ("HEAD~1", base, "nap/one")
    assert len(against["control"]) >= 5
    assert git("worktree", "list").count("\n") == 0


def test_an_unchanged_commit_has_no_change():
    ran, cases = run("--against", "main")

    assert ran.exit_code == 0
    assert cases["nap"]["verdict"] == "UNCHANGED"


def test_added_removed_and_renamed_kernels_each_have_a_verdict():
    write("doomed")
    Path("kernels/doomed/kernel.py").write_text(FRESH.replace("float", "int"))
    base = commit("one more")
    git("mv", "kernels/nap", "kernels/doze")
    git("rm", "-r", "--quiet", "kernels/doomed")
    write("fresh")
    Path("kernels/fresh/kernel.py").write_text("# nothing like the others\n" * 9 + FRESH)
    commit("rename, remove, add")

    ran, cases = run("--against", base)

    verdicts = {name: case["verdict"] for name, case in cases.items()}
    assert verdicts == {"doze": "UNCHANGED", "doomed": "MISSING", "fresh": "NEW"}, ran.output
    assert ran.exit_code == 1


def test_a_changed_kernel_toml_is_measured_with_the_heads_cases_on_both_sides():
    write("nap", microseconds=4000)
    commit("larger case")

    ran, cases = run("--against", "HEAD~1")

    assert cases["nap"]["verdict"] == "UNCHANGED", ran.output
    assert cases["nap"]["base_s"] == pytest.approx(4e-3, rel=0.002)


def test_inputs_of_another_shape_are_not_a_regression():
    change_inputs("2 * microseconds / 1e6, 0.0")

    ran, cases = run("--against", "HEAD~1")

    assert (cases["nap"]["verdict"], cases["nap"]["code"]) == ("NOT_COMPARABLE", "other-inputs"), ran.output
    assert cases["nap"]["sentence"].startswith("the inputs differ in shape or type; measured +100.")
    assert ran.exit_code == 1, "nothing was compared"


def test_a_case_with_other_inputs_beside_one_that_is_compared_is_not_red():
    write("steady")
    commit("another kernel")
    change_inputs("2 * microseconds / 1e6, 0.0")

    ran, cases = run("--against", "HEAD~1")

    assert {name: case["verdict"] for name, case in cases.items()} == {"nap": "NOT_COMPARABLE", "steady": "UNCHANGED"}
    assert ran.exit_code == 0


def test_inputs_with_other_values_are_compared_with_a_warning():
    change_inputs("(microseconds + os.getpid() / 1e9) / 1e6")

    ran, cases = run("--against", "HEAD~1")

    assert cases["nap"]["verdict"] == "UNCHANGED", ran.output
    assert cases["nap"]["warnings"] == ["base and head made other inputs: their times may be of other work"]


def change_inputs(made):
    file = Path("kernels/nap/kernel.py")
    file.write_text(file.read_text().replace("return microseconds / 1e6", f"return {made}"))
    commit("other inputs")


def test_several_devices_in_one_session_are_refused():
    ran, _ = run("--against", "main", "--device", "cpu,cuda")

    assert ran.exit_code == 2
    assert "flag --device: `cpu,cuda` in one session, whose control is of one device" in ran.stderr


def test_a_case_with_a_parameter_unknown_to_the_base_is_new_and_the_others_are_compared(repository):
    folder = repository / "kernels/nap"
    (folder / "kernel.toml").write_text(
        (folder / "kernel.toml").read_text() + "[cases.two]\nmicroseconds = 1\nscale = 2\n"
    )
    source = (folder / "kernel.py").read_text()
    (folder / "kernel.py").write_text(source.replace("device, microseconds)", "device, microseconds, scale=1)"))
    commit("a parameter more")

    ran, _ = run("--against", "HEAD~1")

    found = {case["case"]: (case["verdict"], case["code"]) for case in json.loads(ran.stdout)["cases"]}
    assert found == {"one": ("UNCHANGED", "within-noise"), "two": ("NEW", "not-in-base")}, ran.output


def test_a_renamed_parameter_does_not_make_a_case_new(repository):
    for file in ("kernel.toml", "kernel.py"):
        path = repository / "kernels/nap" / file
        path.write_text(path.read_text().replace("microseconds", "duration"))
    commit("another name")

    ran, cases = run("--against", "HEAD~1")

    assert (cases["nap"]["verdict"], cases["nap"]["code"]) == ("NOT_COMPARABLE", "base-failed")
    assert ran.exit_code == 1


def test_a_base_that_fails_is_reported_and_is_not_a_pass(repository):
    (repository / "kernels/nap/kernel.py").write_text("raise RuntimeError('half written')")
    commit("broken")
    write("nap")
    commit("mended")

    ran, cases = run("--against", "HEAD~1")

    assert (cases["nap"]["verdict"], cases["nap"]["code"]) == ("NOT_COMPARABLE", "base-failed")
    assert "half written" in cases["nap"]["sentence"]
    assert ran.exit_code == 1, "nothing was compared"


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


@pytest.mark.parametrize("wrong", [["--against=no-such-branch"], ["--against=main", "--setup=sh -c 'make"]])
def test_a_wrong_base_or_setup_command_leaves_the_last_run_as_it_is(repository, wrong):
    run("--against", "main")
    before = {path: path.stat().st_mtime_ns for path in (repository / "out").rglob("*")}

    assert run(*wrong)[0].exit_code in {2, 3}
    assert {path: path.stat().st_mtime_ns for path in (repository / "out").rglob("*")} == before != {}


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


def test_setup_runs_in_both_trees_and_its_failure_stops_the_run(repository):
    ran, _ = run("--against", "main", "--setup", "sh -c 'pwd; exit 7'")

    assert ran.exit_code == 3
    assert "exit status 7" in ran.stderr
    assert str(repository) in (repository / "out/logs/setup-head.log").read_text()


@pytest.mark.parametrize(
    ("command", "status", "says"),
    [
        ("sh -c 'make", 2, "--setup `sh -c 'make`: No closing quotation"),
        ("no-such-program --all", 3, "cannot start `no-such-program`"),
    ],
)
def test_a_setup_command_that_does_not_exist_is_an_error(command, status, says):
    ran, _ = run("--against", "main", "--setup", command)

    assert ran.exit_code == status
    assert says in ran.stderr


def test_setup_runs_without_a_base_too(repository):
    built, _ = run("--processes", "2", "--setup", "sh -c 'pwd; touch built'")
    failed, _ = run("--setup", "sh -c 'exit 7'")

    assert built.exit_code == 0, built.output
    assert (repository / "built").exists()
    assert (failed.exit_code, "exit status 7" in failed.stderr) == (3, True)
    assert run("--setup", "sh -c 'make")[0].exit_code == 2


def test_a_blank_setup_command_is_no_command():
    assert run("--against", "main", "--setup", " ")[0].exit_code == 0


def test_a_setup_timeout_is_named_in_the_error(monkeypatch):
    monkeypatch.setattr(setup, "TIMEOUT_S", 0.2)

    ran, _ = run("--against", "main", "--setup", "sleep 60")

    assert ran.exit_code == 3
    assert "took longer than 0.2 s" in ran.stderr


def test_comparing_a_commit_with_itself_is_noted(repository):
    def notes():
        return {note["code"] for note in json.loads((repository / "out/run.json").read_text())["notes"]}

    run("--against", "main")
    of_itself = notes()
    write("nap", factor=1.001)
    run("--against", "main")

    assert "base-is-head" in of_itself
    assert "base-is-head" not in notes(), "what is not committed is compared"


def test_a_planted_slowdown_is_detected():
    ran, cases = run("--against", "main", "--plant-slowdown", "10%")

    assert cases["nap"]["verdict"] == "REGRESSION", ran.output
    assert cases["nap"]["change"]["ratio"] == pytest.approx(1.1, rel=0.002)


def test_the_base_side_imports_the_packages_of_the_base_commit(repository, monkeypatch, tmp_path_factory):
    package = repository / "mypkg"
    package.mkdir()
    (repository / "kernels/nap/kernel.py").write_text("from mypkg import *\n")
    (package / "__init__.py").write_text(NAP.format(factor=1.0))
    commit("a package")
    (package / "__init__.py").write_text(NAP.format(factor=1.3))
    commit("a slower package")
    link = tmp_path_factory.mktemp("links") / "link"
    link.symlink_to(repository)
    monkeypatch.setenv("PYTHONPATH", str(link))

    _, cases = run("--against", "HEAD~1")

    assert cases["nap"]["verdict"] == "REGRESSION", cases


def test_the_same_tree_on_both_sides_is_an_error(repository):
    package = repository / "lib" / "mypkg.py"
    package.parent.mkdir()
    package.write_text(NAP.format(factor=1.0))
    (repository / "kernels/nap/kernel.py").write_text(
        f"import sys\nsys.path.insert(0, {str(package.parent)!r})\nfrom mypkg import *\n"
    )
    commit("a path that names one tree")

    _, cases = run("--against", "HEAD")

    assert (cases["nap"]["verdict"], cases["nap"]["code"]) == ("NOT_COMPARABLE", "same-code")
    assert "lib/mypkg.py of the head" in cases["nap"]["sentence"]


def test_a_repository_may_hold_the_kernels_in_a_subfolder(repository, monkeypatch):
    git("mv", "kernels", "inner")
    (repository / "sub").mkdir()
    git("mv", "inner", "sub/kernels")
    commit("moved down")
    monkeypatch.chdir(repository / "sub")

    _, cases = run("--against", "HEAD")

    assert cases["nap"]["verdict"] == "UNCHANGED"


def test_a_commit_that_is_measured_in_a_hook_keeps_its_changes(repository):
    """Git passes the index that is being committed to a hook; a checkout must not write to it."""
    hook = repository / ".git/hooks/pre-commit"
    hook.write_text(f"#!/bin/sh\n{sys.executable} -m ci_perf run --output out --against HEAD > out.txt 2>&1\ntrue\n")
    hook.chmod(0o755)
    (repository / ".gitignore").write_text("out*\n")
    git("add", ".gitignore")
    write("nap", factor=1.2)
    git("commit", "--quiet", "--all", "--message", "slower")

    assert "REGRESSION" in (repository / "out.txt").read_text()
    assert git("show", "--name-only", "--format=").split() == [".gitignore", "kernels/nap/kernel.py"]
    assert git("status", "--short") == ""


def test_hooks_of_the_repository_do_not_run_for_the_base(repository):
    hook = repository / ".git/hooks/post-checkout"
    hook.write_text("#!/bin/sh\necho 'raise SystemExit' > kernels/nap/kernel.py\nexit 1\n")
    hook.chmod(0o755)

    ran, cases = run("--against", "HEAD")

    assert cases["nap"]["verdict"] == "UNCHANGED", ran.output
    assert git("worktree", "list").count("\n") == 0


@pytest.mark.parametrize("folder", [".", "sub folder"])
def test_the_base_has_the_submodules_that_the_head_has(repository, monkeypatch, tmp_path_factory, folder):
    for number, value in enumerate(("1", "protocol.file.allow", "always")):
        monkeypatch.setenv(("GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_0", "GIT_CONFIG_VALUE_0")[number], value)
    other = tmp_path_factory.mktemp("other")
    git("init", "--quiet", str(other))
    (other / "nap.py").write_text(NAP.format(factor=1.0))
    git("-C", str(other), "add", "--all")
    git("-C", str(other), "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message", "theirs")
    git("submodule", "--quiet", "add", str(other), "third party/naps of others")
    (repository / folder).mkdir(exist_ok=True)
    if folder != ".":
        git("mv", "kernels", folder)
    monkeypatch.chdir(repository / folder)
    Path("kernels/nap/kernel.py").write_text(
        "import pathlib, sys\n"
        "top = next(p for p in pathlib.Path(__file__).resolve().parents if (p / '.gitmodules').exists())\n"
        "sys.path.insert(0, str(top / 'third party/naps of others'))\nfrom nap import *\n"
    )
    commit("a submodule")

    ran, cases = run("--against", "HEAD")

    assert cases["nap"]["verdict"] == "UNCHANGED", ran.output


def test_a_kept_base_gets_submodules_that_were_added_later(repository, monkeypatch, tmp_path_factory):
    monkeypatch.setenv("CI_PERF_CACHE", str(tmp_path_factory.mktemp("cache")))
    for number, value in enumerate(("1", "protocol.file.allow", "always")):
        monkeypatch.setenv(("GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_0", "GIT_CONFIG_VALUE_0")[number], value)
    git("submodule", "--quiet", "add", str(repository), "third")
    commit("a submodule")
    git("submodule", "--quiet", "deinit", "third")
    setup = "sh -c 'ls third > ../listed.txt'"

    run("--against", "HEAD", "--setup", setup)
    git("submodule", "--quiet", "update", "--init")
    run("--against", "HEAD", "--setup", setup)

    listed = [file.read_text() for file in Path(os.environ["CI_PERF_CACHE"]).glob("trees/*/listed.txt")]
    assert sorted(listed) == ["", "kernels\n"]


def test_a_renamed_entry_is_found_whatever_its_name(repository):
    Path("kernels/nap/kernel.py").rename("kernels/nap/k\u00e9rnel 2.py")
    toml = repository / "kernels/nap/kernel.toml"
    toml.write_text(toml.read_text().replace("kernel.py", "k\u00e9rnel 2.py"))
    commit("a name of our own")
    git("mv", "kernels/nap", "kernels/doze")
    commit("another kernel")

    ran, cases = run("--against", "HEAD~1")

    assert {name: case["verdict"] for name, case in cases.items()} == {"doze": "UNCHANGED"}, ran.output


@pytest.mark.parametrize("setup", ["", "test -d kernels"])
def test_every_case_is_new_if_the_base_lacks_the_folder(repository, monkeypatch, tmp_path_factory, setup):
    monkeypatch.setenv("CI_PERF_CACHE", str(tmp_path_factory.mktemp("cache")))
    (repository / "sub").mkdir()
    git("mv", "kernels", "sub/kernels")
    commit("moved down")
    monkeypatch.chdir(repository / "sub")

    ran, cases = run("--against", "HEAD~1", "--setup", setup)

    assert cases["nap"]["verdict"] == "NEW", ran.output


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


def test_a_folder_without_git_is_named_in_the_error(monkeypatch, tmp_path_factory):
    bare = tmp_path_factory.mktemp("bare")
    monkeypatch.chdir(bare)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(bare.parent))
    write("nap")

    ran, _ = run("--against", "HEAD")

    assert ran.exit_code == 3
    assert "is not in a git repository" in ran.stderr


def test_the_next_run_removes_the_checkout_of_a_killed_run(monkeypatch, tmp_path_factory):
    temporary = tmp_path_factory.mktemp("tmp")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    code = (
        "import os, pathlib, signal, sys, tempfile\nfrom ci_perf.measure import git_checkout\n"
        f"tempfile.tempdir = {str(temporary)!r}\n"
        "with git_checkout.checked_out(pathlib.Path(), 'HEAD') as tree:\n"
        "    {}\n"
    )
    killed = subprocess.run([sys.executable, "-c", code.format("os.kill(os.getpid(), signal.SIGKILL)")], check=False)
    command = [sys.executable, "-c", code.format("print(tree, flush=True); sys.stdin.read()")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as alive:
        in_use = Path(alive.stdout.readline().strip())
        assert killed.returncode == -9
        assert list(temporary.glob("*/tree")) == [in_use]

        run("--against", "HEAD")

        assert (in_use / "kernels").is_dir()
        assert git("worktree", "list").count("\n") == 1
        alive.communicate("")
    assert list(temporary.glob("ci-perf-base-*")) == []
    assert git("worktree", "list").count("\n") == 0


def test_a_case_that_is_gone_is_missing(repository):
    toml = repository / "kernels/nap/kernel.toml"
    toml.write_text(toml.read_text() + "[cases.two]\nmicroseconds = 3000\n")
    commit("two cases")
    write("nap")
    commit("one case")

    ran, _ = run("--against", "HEAD~1")
    rows = {case["case"]: case["verdict"] for case in json.loads(ran.stdout)["cases"]}

    assert rows == {"one": "UNCHANGED", "two": "MISSING"}
    assert ran.exit_code == 1


@pytest.mark.parametrize(
    "command", ["pip install -e .", "pip install --force-reinstall .", "uv pip install ./sub[cuda]"]
)
def test_an_install_that_affects_both_sides_is_refused_and_the_last_run_is_kept(repository, command):
    run("--against", "HEAD")
    before = (repository / "out/run.json").read_text()

    ran, _ = run("--against", "HEAD", "--setup", command)

    assert ran.exit_code == 2
    assert "an install into the interpreter of both sides serves one tree only" in ran.stderr
    assert (repository / "out/run.json").read_text() == before


def test_the_base_is_built_once_for_each_content_command_and_commit(repository, monkeypatch, tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("CI_PERF_CACHE", str(cache))
    log = repository / "builds.txt"
    setup = f"sh -c 'pwd >> {log}'"

    def bases():
        run("--against", "HEAD", "--setup", setup)
        return [line for line in log.read_text().splitlines() if line != str(repository)]

    first, again = bases(), bases()
    git("commit", "--quiet", "--allow-empty", "--message", "the same content")
    same = bases()
    write("nap", factor=1.001)
    commit("other content")

    assert len(first) == 1
    assert again == same == first
    assert len(bases()) == 2
    assert Path(first[0]).is_relative_to(cache)
    assert git("worktree", "list").count("\n") == 0


@pytest.fixture
def installed(monkeypatch, tmp_path_factory):
    """Install a package for the kernels' interpreter as `pip` does: name, version and a list of files."""
    packages = tmp_path_factory.mktemp("packages")
    monkeypatch.setenv("PYTHONPATH", str(packages))

    def install(version, record="lib.so,sha256=aa,1"):
        folder = packages / "something.dist-info"
        folder.mkdir(exist_ok=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: something\nVersion: {version}\n")
        (folder / "RECORD").write_text(record)
        return folder

    return install


@pytest.mark.parametrize(
    "changed", ["version", "content", "variable", "compiler", "any variable", "a variable of the job"]
)
def test_the_base_is_built_again_if_its_build_environment_changed(
    repository, monkeypatch, tmp_path_factory, installed, changed
):
    monkeypatch.setenv("CI_PERF_CACHE", str(tmp_path_factory.mktemp("cache")))
    log = repository / "builds.txt"
    compiler = tmp_path_factory.mktemp("bin") / "cc"
    compiler.write_text("#!/bin/sh\necho version 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    installed("2.10.0")

    def bases():
        ran, cases = run("--against", "HEAD", "--setup", f"sh -c 'pwd >> {log}'", "--setup-env", "GITHUB_SHA")
        assert cases["nap"]["verdict"] == "UNCHANGED", ran.output
        return sum(line != str(repository) for line in log.read_text().splitlines())

    assert (bases(), bases()) == (1, 1)
    if changed == "version":
        installed("2.11.0")
    elif changed == "content":
        installed("2.10.0", "lib.so,sha256=bb,1")
    elif changed == "variable":
        monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a")
    elif changed == "any variable":
        monkeypatch.setenv("WITH_OUR_OWN_OPTION", "1")
    elif changed == "a variable of the job":
        monkeypatch.setenv("GITHUB_SHA", "a" * 40)
    else:
        compiler.write_text("#!/bin/sh\necho version 2\n")
    assert (bases(), bases()) == (2, 2)


def test_a_base_that_was_installed_over_is_built_again(repository, monkeypatch, tmp_path_factory, installed):
    """Two bases in turns, each installed into the interpreter that only bases share."""
    monkeypatch.setenv("CI_PERF_CACHE", str(tmp_path_factory.mktemp("cache")))
    record = installed("1") / "RECORD"
    setup = f"sh -c 'cat kernels/nap/kernel.py > {record}'"
    other = repository.parent / "other-python"
    other.symlink_to(os.environ["CI_PERF_PYTHON"])
    base = git("rev-parse", "HEAD")
    write("nap", factor=1.001)
    head = commit("another base")

    def installed_for(ref):
        ran, _ = run("--against", ref, "--setup", setup, "--base-python", str(other))
        assert ran.exit_code == 0, ran.output
        return record.read_text()

    first, second = installed_for(base), installed_for(head)

    assert first == NAP.format(factor=1.0)
    assert second == NAP.format(factor=1.001)
    assert installed_for(base) == first


def test_a_base_that_changes_the_interpreter_of_both_sides_is_refused(repository, installed):
    """An older list of requirements may install it."""
    record = installed("1") / "RECORD"
    (repository / "requirements.txt").write_text("torch==2.10.0")
    commit("older")
    (repository / "requirements.txt").write_text("torch==2.11.0")
    commit("newer")

    ran, _ = run("--against", "HEAD~1", "--setup", f"sh -c 'cat requirements.txt > {record}'")

    assert ran.exit_code == 2, ran.output
    assert "changed what is installed for both sides" in ran.stderr
    assert "--base-python" in ran.stderr


def test_the_setup_command_reads_no_variable_that_names_one_job_unless_asked(repository, monkeypatch):
    monkeypatch.setenv("GITHUB_SHA", "a" * 40)
    monkeypatch.setenv("GITHUB_ENV", "/file")
    show = ("--processes", "2", "--setup", "cp /proc/self/environ env.txt")

    run(*show)
    usual = (repository / "env.txt").read_text()
    run(*show, "--setup-env", "GITHUB_*")
    asked = (repository / "env.txt").read_text()

    assert "GITHUB_" not in usual
    assert f"PWD={repository}\0" in usual
    assert "GITHUB_SHA=aaaa" in asked
    assert "GITHUB_ENV" not in asked


PLANT = """

import glob
for planted in glob.glob({cache!r} + "/trees/*/tree/kernels/nap/kernel.py"):
    with open(planted, "a") as file:
        file.write("\\nopen({log!r}, 'a').write('planted code ran')\\n")
"""


@pytest.mark.parametrize(
    ("workflow", "flags", "kept"),
    [
        (True, (), 0),
        (False, ("--keep-base", "never"), 0),
        (True, ("--keep-base", "always"), 1),
        (False, (), 1),
    ],
    ids=["in a workflow", "never", "always", "on a machine of its own"],
)
def test_no_pull_request_changes_the_base_of_another(repository, monkeypatch, tmp_path_factory, workflow, flags, kept):
    """The code of the first one writes into every base that is kept; the second one has the same base."""
    cache, log = tmp_path_factory.mktemp("cache"), repository.parent / "planted.txt"
    monkeypatch.setenv("CI_PERF_CACHE", str(cache))
    if workflow:
        monkeypatch.setenv("GITHUB_ACTIONS", "true")
    against = ("--against", "main", "--setup", "true", *flags)
    git("checkout", "--quiet", "-b", "first")
    kernel = Path("kernels/nap/kernel.py")
    kernel.write_text(kernel.read_text() + PLANT.format(cache=str(cache), log=str(log)))
    commit("plant code")
    run(*against)
    log.unlink(missing_ok=True)  # within its own run, code can do anything to its base
    git("checkout", "--quiet", "main")
    git("checkout", "--quiet", "-b", "second")
    write("nap", factor=1.001)
    commit("another pull request")

    ran, cases = run(*against)

    assert cases["nap"]["verdict"] == "UNCHANGED", ran.output
    assert len(list(cache.glob("trees/*/tree"))) == kept
    assert not log.exists(), "the planted code ran"
    if kept:
        why = (repository / "out/logs/setup-base.log").read_text()
        assert why == "# built again: tracked files are not those of the commit: kernels/nap/kernel.py\n"


def test_changed_files_are_found_in_submodules_too(repository, monkeypatch, tmp_path_factory):
    for number, value in enumerate(("1", "protocol.file.allow", "always")):
        monkeypatch.setenv(("GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_0", "GIT_CONFIG_VALUE_0")[number], value)
    git("submodule", "--quiet", "add", str(repository), "third")
    head = commit("a submodule")
    copy = tmp_path_factory.mktemp("copy") / "tree"
    shutil.copytree(repository, copy, ignore=shutil.ignore_patterns(".git"))

    def changed():
        return query_changed(repository, head, copy)

    assert changed() == ()
    (copy / "built.so").touch()
    assert changed() == ()
    (copy / "kernels/nap/kernel.py").write_text("")
    (copy / "third/kernels/nap/kernel.py").unlink()
    assert changed() == ("kernels/nap/kernel.py", "third/kernels/nap/kernel.py")


def test_a_build_that_failed_is_tried_again(repository, monkeypatch, tmp_path_factory):
    monkeypatch.setenv("CI_PERF_CACHE", str(tmp_path_factory.mktemp("cache")))
    broken = repository.parent / "broken"
    broken.touch()
    setup = f"""sh -c 'test "$PWD" = {repository} || ! test -e {broken}'"""

    failed, _ = run("--against", "HEAD", "--setup", setup)
    broken.unlink()
    mended, cases = run("--against", "HEAD", "--setup", setup)

    assert failed.exit_code == 3, failed.output
    assert cases["nap"]["verdict"] == "UNCHANGED", mended.output


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


def test_a_worktree_whose_folder_is_missing_stays_registered(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("CI_PERF_CACHE", str(tmp_path_factory.mktemp("cache")))
    away = tmp_path_factory.mktemp("disk") / "tree"
    git("worktree", "add", "--quiet", "--detach", str(away))
    away.rename(away.with_name("unmounted"))

    run("--against", "HEAD", "--setup", "true")

    away.with_name("unmounted").rename(away)
    assert git("-C", str(away), "rev-parse", "HEAD") == git("rev-parse", "HEAD")


def test_the_scatter_of_a_case_comes_from_the_baselines_of_the_base_alone(repository):
    """A change that rewrites its baselines does not loosen its own verdict."""
    measured, _ = run("--processes", "5")
    assert measured.exit_code == 0, measured.output
    accepted = CliRunner().invoke(program, ["baseline", "accept", "out", "--by", "the test"])
    assert accepted.exit_code == 0, accepted.output
    (file,) = (repository / "baselines").glob("*/nap.json")
    document = json.loads(file.read_text())
    document["cases"]["one"]["time"]["replicates"] = [[value] for value in (0.002, 0.0025, 0.0025, 0.0025, 0.003)]
    document["cases"]["one"]["time"]["median"] = 0.0025
    file.write_text(json.dumps(document))
    commit("a baseline whose processes differ by 20 %")
    CliRunner().invoke(program, ["baseline", "accept", "out", "--by", "the test"])
    commit("a quiet baseline")

    ran, _ = run("--against", "HEAD~1")

    assert ran.exit_code == 0, ran.output
    known = json.loads((repository / "out/run.json").read_text())["against"]["scatter"]
    assert known["nap/one"]["degrees"] == 4
    assert known["nap/one"]["sd"] > 0.1


def test_baselines_of_the_base_that_cannot_be_read_are_noted():
    run("--processes", "5")
    CliRunner().invoke(program, ["baseline", "accept", "out", "--by", "the test"])
    (file,) = Path("baselines").glob("*/nap.json")
    good = file.read_text()
    file.write_text("{}")
    commit("a baseline that is broken")
    file.write_text(good)
    commit("a sound one")

    ran, cases = run("--against", "HEAD~1")

    assert ran.exit_code == 0, ran.output
    assert cases["nap"]["verdict"] == "UNCHANGED"
    notes = json.loads(Path("out/run.json").read_text())["notes"]
    assert any(note["code"] == "base-baselines" and "nap.json" in note["message"] for note in notes)


def accept_baseline():
    measured, _ = run("--processes", "6")
    assert measured.exit_code == 0, measured.output
    accepted = CliRunner().invoke(program, ["baseline", "accept", "out", "--by", "the test"])
    assert accepted.exit_code == 0, accepted.output
    git("add", "--all")  # not the commit of the kernels: the baseline is one commit later


@pytest.mark.parametrize(
    ("factor", "stored", "verdict", "code"),
    [(1.2, 1.0, "REGRESSION", "slower"), (1.0, 0.8, "UNCHANGED", "within-noise"), (0.5, 1.0, "SPEEDUP", "faster")],
    ids=["slower", "only the stored time differs", "faster"],
)
def test_a_change_against_a_baseline_is_confirmed_in_turns_with_its_commit(repository, factor, stored, verdict, code):
    accept_baseline()
    (file,) = (repository / "baselines").glob("*/nap.json")
    document = json.loads(file.read_text())
    time = document["cases"]["one"]["time"]
    time["median"] *= stored  # as on a day on which the machine was faster
    time["replicates"] = [[stored * value for value in values] for values in time["replicates"]]
    file.write_text(json.dumps(document))
    write("nap", factor=factor)
    commit("a change")

    ran, cases = run("--processes", "6")

    assert (cases["nap"]["verdict"], cases["nap"]["code"]) == (verdict, code), ran.output
    assert cases["nap"]["change"]["ratio"] == pytest.approx(factor, rel=0.003)
    assert "in turns with the commit of the baseline" in cases["nap"]["sentence"]
    (confirmation,) = json.loads((repository / "out/run.json").read_text())["confirmations"]
    assert confirmation["against"]["commit"] == git("rev-parse", "HEAD~1")
    assert confirmation["cases"] == ["nap/one"]
    assert git("worktree", "list").count("\n") == 0
    replayed = CliRunner().invoke(program, ["replay", "out"])
    assert (replayed.exit_code, verdict in replayed.output) == (ran.exit_code, True)


@pytest.mark.parametrize(
    ("recorded", "flags", "says"),
    [
        (None, (), "; not confirmed in turns: the baseline names no commit"),
        ("-dirty", (), "; not confirmed in turns: the baseline is of files that differed from commit"),
        ("0" * 40, (), "; not confirmed in turns: commit 00000000 cannot be measured: "),
        ("", ("--setup", "test ! -e slow"), "cannot be measured: setup `test ! -e slow` ended with exit status 1"),
        ("", ("--case-budget", "1e-9"), "after one pair, and the budget is spent"),
        ("", ("--no-confirm",), "20.0 % slower in each batch of fresh processes"),
    ],
    ids=["no commit", "dirty", "unknown", "not built", "no budget", "not wanted"],
)
def test_a_change_that_cannot_be_confirmed_stays_and_says_why(repository, recorded, flags, says):
    Path("slow").write_text("the setup command refuses this commit")
    commit("a commit that cannot be built")
    accept_baseline()
    (file,) = (repository / "baselines").glob("*/nap.json")
    document = json.loads(file.read_text())
    known = document["provenance"]["commit"]
    document["provenance"]["commit"] = (
        known + recorded if recorded == "-dirty" else known if recorded == "" else recorded
    )
    file.write_text(json.dumps(document))
    Path("slow").unlink()
    write("nap", factor=1.2)
    commit("slower")

    ran, cases = run("--processes", "6", *flags)

    assert (ran.exit_code, cases["nap"]["verdict"]) == (1, "REGRESSION"), ran.output
    assert says in cases["nap"]["sentence"]
