"""Which package a kernel uses, and from where; its variables. Real interpreters, and packages installed as pip does."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.measure.test_against import commit, git, run, write
from tests.measure.test_against import repository as repository  # noqa: PLC0414 # a fixture
from tests.measure.test_against import template as template  # noqa: PLC0414

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
