"""Which package a kernel uses, and from where; its variables. Real interpreters, and packages installed as pip does."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from ci_perf.cli import program
from ci_perf.measure.tools import find_python
from ci_perf.userside.package import why_foreign
from tests.measure.nap_repository import commit, git, run, write

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("repository")]

PACKAGE = "factor = {factor}\n"
PATH = '[package]\npath = ["../../src"]\n'
IMPORTS = '[package]\nimports = ["my_package"]\n'


def write_package(factor, folder="src"):
    package = Path(folder) / "my_package"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text(PACKAGE.format(factor=factor))


def use_package(toml=""):
    """Let the kernel take its duration from the package."""
    write("nap")
    kernel, spec = Path("kernels/nap/kernel.py"), Path("kernels/nap/kernel.toml")
    kernel.write_text("import my_package\n" + kernel.read_text().replace("* 1.0 *", "* my_package.factor *"))
    spec.write_text(spec.read_text() + toml)


def two_commits(toml=""):
    """Commit a package and a kernel that uses it, then a package that is slower."""
    use_package(toml)
    write_package(1.0)
    commit("a package")
    write_package(1.2)
    commit("a slower package")


@pytest.fixture
def environment(tmp_path_factory, monkeypatch):
    """A virtual environment for the kernels; return its folder of packages."""
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    monkeypatch.setenv("CI_PERF_PYTHON", str(home / "bin/python"))
    return next(home.glob("lib/python3*/site-packages"))


def test_each_side_takes_the_package_from_its_own_tree():
    two_commits(PATH + 'imports = ["my_package"]\n')

    ran, cases = run("--against", "HEAD~1")

    assert cases["nap"]["verdict"] == "REGRESSION", ran.output
    assert cases["nap"]["change"]["ratio"] == pytest.approx(1.2, rel=0.002)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("keep", ["always", "never"])
def test_each_side_runs_what_setup_built_in_its_tree(keep):
    """A package with compiled code, which is not in the repository."""
    use_package(PATH + 'imports = ["my_package"]\n')
    write_package("ctypes.c_double.in_dll(ctypes.CDLL(__file__.replace('__init__.py', 'lib.so')), 'factor').value")
    module = Path("src/my_package/__init__.py")
    module.write_text("import ctypes\n" + module.read_text())
    Path(".gitignore").write_text("*.so\nout/\n")
    Path("factor.c").write_text("double factor = 1.0;\n")
    commit("compiled code")
    Path("factor.c").write_text("double factor = 1.2;\n")
    commit("slower compiled code")
    build = "cc -shared -fPIC -o src/my_package/lib.so factor.c"

    ran, cases = run("--against", "HEAD~1", "--setup", build, "--keep-base", keep)

    assert cases["nap"]["verdict"] == "REGRESSION", ran.output
    assert cases["nap"]["change"]["ratio"] == pytest.approx(1.2, rel=0.002)


@pytest.mark.parametrize("editable", [True, False], ids=["editable", "plain"])
@pytest.mark.parametrize("folder", ["src", "sources/here"])
def test_a_package_that_is_installed_for_both_sides_is_not_compared(environment, editable, folder):
    """The commonest silent error: the base imports what the head installed."""
    use_package()
    Path("pyproject.toml").write_text('[project]\nname = "my-package"\n')
    write_package(1.0, folder)
    commit("a package")
    write_package(1.2, folder)
    commit("a slower package")
    if editable:
        (environment / "my_package.pth").write_text(f"{Path(folder).absolute()}\n")
    else:
        write_package(1.2, environment)

    ran, cases = run("--against", "HEAD~1")

    assert (cases["nap"]["verdict"], cases["nap"]["code"]) == ("NOT_COMPARABLE", "same-code"), ran.output
    assert ran.exit_code == 1


@pytest.mark.parametrize(
    ("editable", "verdict"), [(True, "NOT_COMPARABLE"), (False, "FAILED")], ids=["editable", "plain"]
)
def test_a_package_that_must_lie_in_the_tree_is_refused_from_elsewhere(environment, editable, verdict):
    """An editable install is the head's own tree, which only the base must not import."""
    two_commits(IMPORTS)
    if editable:
        (environment / "my_package.pth").write_text(f"{Path('src').absolute()}\n")
    else:
        write_package(1.2, environment)

    ran, cases = run("--against", "HEAD~1")

    assert (cases["nap"]["verdict"], cases["nap"]["code"]) == (verdict, "other-package"), ran.output
    assert "`my_package` was imported from /" in cases["nap"]["sentence"]
    assert "not from the tree that is measured" in cases["nap"]["sentence"]


def test_a_kernel_has_its_own_variables_from_the_start_of_its_process():
    checks = """
        import os, sys
        assert (os.environ["MINE"], "YOURS" in os.environ) == (os.path.dirname(__file__) + "/cache", False)
        assert sys.flags.hash_randomization == {random}
    """
    for name, start, random in (("nap", "", 1), ("doze", 'PYTHONHASHSEED = "0"\n', 0)):
        write(name)
        kernel, spec = (Path("kernels") / name / file for file in ("kernel.py", "kernel.toml"))
        kernel.write_text(textwrap.dedent(checks.format(random=random)) + kernel.read_text())
        spec.write_text(spec.read_text() + '[env]\nMINE = "{folder}/cache"\n' + start)
    write("other")
    other = Path("kernels/other/kernel.py")
    other.write_text("import os\nassert 'MINE' not in os.environ\n" + other.read_text())
    toml = Path("kernels/other/kernel.toml")
    toml.write_text(toml.read_text() + '[env]\nYOURS = "1"\n')
    commit("variables")

    ran, cases = run("--against", "HEAD")

    assert {name: case["verdict"] for name, case in cases.items()} == dict.fromkeys(
        ("doze", "nap", "other"), "UNCHANGED"
    ), ran.output


def test_a_program_gets_variables_and_the_path_of_its_package():
    code = "import os, my_package; assert os.environ['MINE'] == '1' and 'src' in my_package.__file__"
    folder = Path("kernels/app")
    folder.mkdir()
    toml = f'command = ["{{python}}", "-c", "{code}"]\ndevices = ["cpu"]\n'
    (folder / "kernel.toml").write_text(toml + PATH + '[env]\nMINE = "1"\n[cases.a]\n')
    write_package(1.0)
    git("rm", "-r", "--quiet", "kernels/nap")

    ran, cases = run("--processes", "2")

    assert cases["app"]["verdict"] == "NEW", ran.output
    assert "MINE" not in os.environ


def test_a_base_that_was_not_built_hints_at_the_setup_command():
    use_package(PATH)
    commit("a kernel without what a build makes")
    write_package(1.0)
    commit("with it")

    ran, cases = run("--against", "HEAD~1")
    built, _ = run("--against", "HEAD~1", "--setup", "true")

    assert (cases["nap"]["verdict"], cases["nap"]["code"]) == ("NOT_COMPARABLE", "not-built"), ran.output
    assert "No module named 'my_package'" in cases["nap"]["sentence"]
    assert "`--setup`" in json.loads(ran.stdout)["next_step"]
    assert [case["code"] for case in json.loads(built.stdout)["cases"]] == ["base-failed"]


def test_a_program_that_the_base_does_not_have_built_hints_at_the_setup_command():
    write_program("#!/bin/sh\n")
    commit("a program")
    Path("bench").rename("bench-2")
    toml = Path("kernels/app/kernel.toml")
    toml.write_text(toml.read_text().replace("./bench", "./bench-2"))
    commit("another name")

    ran, cases = run("app", "--against", "HEAD~1")

    assert cases["app"]["code"] == "not-built", ran.output


def write_program(text):
    folder = Path("kernels/app")
    folder.mkdir()
    (folder / "kernel.toml").write_text('command = ["./bench"]\ndevices = ["cpu"]\n[cases.a]\n')
    Path("bench").write_text(text)
    Path("bench").chmod(0o755)


@pytest.mark.parametrize(
    ("toml", "editable", "says"),
    [
        ("", True, "`my-package` from the tree of the head, where it is installed editable"),
        ("", False, "`my-package` as it is installed"),
        (PATH, True, None),
    ],
    ids=["editable", "plain", "with a path"],
)
def test_programs_that_may_import_one_installation_are_noted(repository, environment, toml, editable, says):
    folder = Path("kernels/app")
    folder.mkdir()
    program = 'command = ["{python}", "-c", "import my_package"]\ndevices = ["cpu"]\n'
    (folder / "kernel.toml").write_text(f"{program}{toml}[cases.a]\n")
    write_package(1.0)
    Path("pyproject.toml").write_text('[project]\nname = "my-package"\n')
    commit("a program of a package")
    installed = environment / "my_package-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1\n")
    if editable:
        origin = {"url": f"file://{repository}", "dir_info": {"editable": True}}
        (installed / "direct_url.json").write_text(json.dumps(origin))
        (environment / "my_package.pth").write_text(f"{repository / 'src'}\n")
    else:
        write_package(1.0, environment)

    ran, _ = run("app", "--against", "HEAD", "--budget", "1")
    notes = [n["message"] for n in json.loads((repository / "out/run.json").read_text())["notes"]]

    said = f"app: programs of base and head may import {says}: then nothing is compared"
    assert [note for note in notes if "may import" in note] == ([said] if says else []), ran.output


# --- interpreters and git --------------------------------------------------------------------------------------------


def test_without_torch_kernels_that_import_it_are_an_error_of_the_setup():
    run("--processes", "2")
    kernel = Path("kernels/nap/kernel.py")
    kernel.write_text("import torch\n" + kernel.read_text())

    ran, _ = run()

    assert ran.exit_code == 3
    assert "has no torch, which kernels/nap/kernel.py imports" in ran.stderr
    assert "--python PATH" in ran.stderr


def test_the_virtual_environment_of_the_repository_is_found(repository, monkeypatch):
    monkeypatch.delenv("CI_PERF_PYTHON")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", ".venv"], check=True)
    (next(Path(".venv/lib").glob("python3*")) / "site-packages/torch.py").write_text("")

    assert Path(find_python(None, os.environ, repository).path) == repository / ".venv/bin/python"


def refusing_git(folder):
    """Return a PATH with a git that refuses the repository of another user, as git 2.35 and later do."""
    (folder / "git").write_text(
        "#!/bin/sh\n"
        f"echo \"fatal: detected dubious ownership in repository at '{Path.cwd()}'\" >&2\n"
        f"echo 'git config --global --add safe.directory {Path.cwd()}' >&2\n"
        "exit 128\n"
    )
    (folder / "git").chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("refuses", "says", "hint"),
    [
        (True, "detected dubious ownership", "git config --global --add safe.directory "),
        (False, "cannot start `git`", "install git"),
    ],
    ids=["another user's", "no git"],
)
def test_git_that_cannot_be_used_is_not_called_no_repository(
    repository, tmp_path_factory, monkeypatch, refuses, says, hint
):
    path = tmp_path_factory.mktemp("path")
    monkeypatch.setenv("PATH", str(refusing_git(path) if refuses else path))

    against, _ = run("--against", "HEAD")
    alone, _ = run("--processes", "2")
    (note,) = (n for n in json.loads((repository / "out/run.json").read_text())["notes"] if n["code"] == "no-git")

    assert against.exit_code == 3
    for text in (against.stderr, f"{note['message']} {note['hint']}"):
        assert says in text
        assert hint in text
    assert alone.exit_code == 0


@pytest.mark.parametrize(
    ("damage", "says", "hint"),
    [
        (
            "echo 'gitdir: /nowhere/worktrees/x' > .git",
            "/.git: not a git repository: /nowhere/worktrees/x",
            "mount that",
        ),
        (
            "git init -q && echo garbage > .git/HEAD",
            "/.git: not a git repository",
            "is damaged",
        ),
        ("git init -q", " has no commit yet", "commit the kernels first"),
    ],
    ids=["a worktree without its repository", "a damaged repository", "an empty repository"],
)
def test_a_repository_that_git_cannot_use_is_not_called_no_repository(repository, damage, says, hint):
    subprocess.run(f"rm -rf .git && {damage}", shell=True, check=True, cwd=repository)

    ran, _ = run("--against", "HEAD")

    assert ran.exit_code == 3
    assert says in ran.stderr
    assert hint in ran.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give the repository to another user")
def test_the_repository_of_another_user_names_the_remedy_of_git(repository):
    subprocess.run(["chown", "-R", "1234", str(repository)], check=True)

    ran, _ = run("--against", "HEAD")

    assert ran.exit_code == 3
    assert "detected dubious ownership" in ran.stderr
    assert f"git config --global --add safe.directory {repository}" in ran.stderr
    assert "no git repository" not in ran.stderr
    assert "safe.directory" in CliRunner().invoke(program, ["history", "nap"]).stderr


@pytest.mark.parametrize("name", ["opz", "json.opz"])
def test_a_misspelt_package_of_imports_names_the_key_and_the_file(name):
    said = why_foreign({"imports": [name], "root": "/"})

    assert said.startswith(
        f"`{name}`, which [package] of kernel.toml names in `imports`, is not there: No module named"
    )


def test_a_package_that_lacks_one_of_its_own_imports_raises_its_error(tmp_path, monkeypatch):
    (tmp_path / "package_that_imports.py").write_text("import opz")
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(ModuleNotFoundError, match="No module named 'opz'"):
        why_foreign({"imports": ["package_that_imports"], "root": str(tmp_path)})
