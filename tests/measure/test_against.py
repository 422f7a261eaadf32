"""`--against`: a real git repository, base and head in turns on the CPU, with kernels that use a simulated clock."""

import itertools
import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from ci_perf import store
from ci_perf.cli import program
from ci_perf.values.device import Device
from ci_perf.values.merged import Merged, MergedChange
from tests.measure.nap_repository import NAP, commit, git, run, write

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("repository")]


FRESH = "def make_inputs(rng, device, **case):\n    return 1\n\n\nlaunch = reference = float\n"


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


def test_a_finished_run_whose_case_is_undecided_goes_on_with_its_pairs(repository):
    write("nap", factor=1.1)
    commit("slower")
    _, cases = run("--against", "HEAD~1", "--case-budget", "0.001")
    (first,) = store.read_run(repository / "out").measurements
    assert (cases["nap"]["code"], len(first.pairs)) == ("budget-spent", 1)

    ran, cases = run("--against", "HEAD~1", "--resume", "out/run.json")  # the file is as good as its folder

    assert (ran.exit_code, cases["nap"]["verdict"]) == (1, "REGRESSION"), ran.output
    (second,) = store.read_run(repository / "out").measurements
    assert (second.pairs[:1], second.looked) == (first.pairs, (1,))
    # the workers of a resumed run are new ones: none of their starts is the 0 of the first run
    assert [pair.start for pair in second.pairs] == [0, 1, 2, 3, 4]


def test_an_undecided_case_gets_more_pairs_in_the_next_attempt_of_a_job_and_a_decided_one_none(
    repository, tmp_path_factory, monkeypatch
):
    base = git("rev-parse", "HEAD")
    write("nap", factor=1.1)
    kept = tmp_path_factory.mktemp("artifacts")
    (kept / "event.json").write_text("{}")
    job = {
        "EVENT_NAME": "push",
        "REPOSITORY": "octo/kernels",
        "SHA": commit("slower"),
        "EVENT_PATH": kept / "event.json",
    }
    for name, value in job.items():
        monkeypatch.setenv(f"GITHUB_{name}", str(value))
    runs, codes = [], []
    for attempt, more in enumerate(
        [("--case-budget", "0.001"), ("--earlier", kept / "1"), ("--earlier", kept / "2")], 1
    ):
        ran, cases = run("--against", base, *map(str, more))
        assert cases, ran.output
        runs.append(store.read_run(repository / "out"))
        codes.append((ran.exit_code, cases["nap"]["code"]))
        (kept / f"{attempt}").mkdir()
        shutil.copy(repository / "out/run.json", kept / f"{attempt}")

    first, second, third = (found.measurements[0] for found in runs)
    assert codes == [(0, "budget-spent"), (1, "slower"), (1, "slower")]
    assert (second.pairs[:1], second.looked) == (first.pairs, (1,))
    assert replace(third, spent={}) == replace(second, spent={})
    assert runs[2].against == runs[1].against
    assert [note.message for note in runs[2].notes if note.code == "attempt-continued"] == [
        "1 case of 2 kept",
    ]


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


def test_sources_that_are_not_committed_are_named_before_anything_is_measured():
    write("fresh")
    Path("kernels/fresh/results.bin").touch()

    only_tracked, _ = run("--against", "HEAD", "nap")
    ran, cases = run("--against", "HEAD")

    assert "does not track" not in only_tracked.stderr
    files = "kernels/fresh/kernel.py, kernels/fresh/kernel.toml"
    said = f"warning: git does not track these files, so the base does not have them: {files}; commit them"
    assert ran.stderr.startswith(said), ran.stderr
    assert cases["fresh"]["verdict"] == "NEW"
    assert "untracked" in [note["code"] for note in json.loads(Path("out/run.json").read_text())["notes"]]


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
    assert re.match(r"the inputs differ in shape or type; measured \+(99|100)\.\d %", cases["nap"]["sentence"])
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


@pytest.mark.parametrize("wrong", [["--against=no-such-branch"], ["--against=main", "--setup=sh -c 'make"]])
def test_a_wrong_base_or_setup_command_leaves_the_last_run_as_it_is(repository, wrong):
    run("--against", "main")
    before = {path: path.stat().st_mtime_ns for path in (repository / "out").rglob("*")}

    assert run(*wrong)[0].exit_code in {2, 3}
    assert {path: path.stat().st_mtime_ns for path in (repository / "out").rglob("*")} == before != {}


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


def test_the_next_run_removes_checkout_and_caches_of_a_killed_run(monkeypatch, tmp_path_factory):
    temporary = tmp_path_factory.mktemp("tmp")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    code = (
        "import os, pathlib, signal, sys, tempfile\nfrom ci_perf.measure import git_checkout, temporary\n"
        f"tempfile.tempdir = {str(temporary)!r}\n"
        "caches = temporary.temporary_folder('ci-perf-caches-')\n"
        "with caches, git_checkout.checked_out(pathlib.Path(), 'HEAD') as tree:\n"
        "    {}\n"
    )
    killed = subprocess.run([sys.executable, "-c", code.format("os.kill(os.getpid(), signal.SIGKILL)")], check=False)
    command = [sys.executable, "-c", code.format("print(tree, flush=True); sys.stdin.read()")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as alive:
        in_use = Path(alive.stdout.readline().strip())
        assert killed.returncode == -9
        assert list(temporary.glob("*/tree")) == [in_use]
        assert len(list(temporary.iterdir())) == 2

        run("--against", "HEAD")

        assert (in_use / "kernels").is_dir()
        assert git("worktree", "list").count("\n") == 1
        alive.communicate("")
    assert list(temporary.iterdir()) == []
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
    assert any(note["code"] == "base-baselines" and f": {file}: " in note["message"] for note in notes)


def test_creep_in_the_ledger_of_the_base_is_shown_and_fails_the_run_only_where_that_is_asked():
    run("--processes", "5")
    device = json.loads(Path("out/run.json").read_text())["devices"][0]
    slug = Device(device["kind"], device["name"], cpu_model=device.get("cpu_model")).slug
    commits = [commit_file(f"file-{number}") for number in range(3)]
    for base, head in itertools.pairwise(commits):
        change = {"nap/one": MergedChange(0.02, 0.002)}
        store.append_merged(
            Merged(slug, base, head, f"2026-01-0{commits.index(head)}T00:00:00Z", change), Path("baselines")
        )
    commit("the ledger")
    commit_file("more")

    ran, _ = run("--against", "HEAD~1")
    red, _ = run("--against", "HEAD~1", "--fail-on", "creep")

    (crept,) = json.loads(ran.stdout)["creep"]
    assert (crept["case"], crept["merges"], crept["first"]) == ("nap/one", 2, commits[1])
    assert (crept["low"], crept["change"], crept["high"]) == pytest.approx((0.0379, 0.0408, 0.0438), abs=2e-4)
    assert (ran.exit_code, red.exit_code) == (0, 1), red.output


def commit_file(name):
    Path(name).touch()
    return commit(name)


def test_a_ledger_of_the_base_that_cannot_be_read_is_noted_and_its_scatter_is_used():
    run("--processes", "5")
    CliRunner().invoke(program, ["baseline", "accept", "out", "--by", "the test"])
    (file,) = Path("baselines").glob("*/nap.json")
    (file.parent / "merged.jsonl").write_text("{")
    commit("a ledger that was cut off")
    Path("other").touch()
    commit("another file")

    ran, _ = run("--against", "HEAD~1")

    assert ran.exit_code == 0, ran.output
    known = json.loads(Path("out/run.json").read_text())
    (note,) = (note for note in known["notes"] if note["code"] == "base-baselines")
    assert "so creep is not noticed" in note["message"]
    assert f"creep is not noticed: {file.parent / 'merged.jsonl'}:1: " in note["message"]  # not the temporary checkout
    assert known["against"]["scatter"]


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
        ("", ("--no-confirm",), " % slower in each batch of fresh processes"),
    ],
    ids=["no commit", "dirty", "unknown", "not built", "no budget", "not wanted"],
)
def test_a_change_on_a_cpu_that_cannot_be_confirmed_is_not_established_and_says_why(repository, recorded, flags, says):
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

    found = ran.exit_code, cases["nap"]["verdict"], cases["nap"]["code"]
    assert found == (0, "INCONCLUSIVE", "slower-stored"), ran.output
    assert says in cases["nap"]["sentence"]
