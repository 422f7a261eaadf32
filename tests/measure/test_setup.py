"""The setup command in both trees, and the built trees of base commits that later runs use."""

import fcntl
import os
import shutil
from pathlib import Path

import pytest

from ci_perf.measure import setup
from ci_perf.measure.git import query_changed
from ci_perf.measure.kept_base import built_tree
from tests.measure.nap_repository import NAP, commit, git, run, write

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("repository")]


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


def test_runs_at_the_same_time_use_one_built_base(repository, monkeypatch, tmp_path_factory):
    lock, builds = fcntl.flock, []
    monkeypatch.setattr(fcntl, "flock", lambda file, how: lock(file, how | fcntl.LOCK_NB))  # an error, no waiting
    environ = {"CI_PERF_CACHE": str(tmp_path_factory.mktemp("cache"))}
    base = git("rev-parse", "HEAD")
    trees = [
        built_tree(repository, base, (), environ, lambda tree, _: builds.append(tree), lambda: "same") for _ in "ab"
    ]

    with trees[0] as first, trees[1] as second:
        assert [first] == [second] == builds


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
    assert "ended with exit status 1 in the tree of the base, /" in failed.stderr
    assert cases["nap"]["verdict"] == "UNCHANGED", mended.output
