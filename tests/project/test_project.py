"""The files of the repository agree: the maps of modules, the README, the version, and the hooks of pre-commit."""

import ast
import functools
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import ci_perf
from ci_perf.values.artifact import FILES
from ci_perf.values.timeline_metrics import TIMELINE

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "ci_perf"


def documented(package):
    """The names that the docstring of a package lists."""
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    lists = re.findall(r"^(\w+(?:, \w+)*)/? {2,}\S", docstring, re.MULTILINE)
    return {name for names in lists for name in names.split(", ")}


def contained(package):
    files = {file.stem for file in package.glob("*.py")} - {"__init__", "__main__"}
    return files | {folder.name for folder in package.iterdir() if (folder / "__init__.py").is_file()}


@pytest.mark.parametrize("package", sorted(file.parent for file in PACKAGE.rglob("__init__.py")), ids=str)
def test_the_docstring_of_a_package_names_all_of_its_modules(package):
    assert contained(package) <= documented(package)


def test_the_version_is_written_once_for_people_and_once_for_packaging():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert project["version"] == ci_perf.__version__
    assert f"## {ci_perf.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_ci_runs_the_tests_and_nothing_else():
    lines = [line for line in (ROOT / ".ci/run").read_text().splitlines() if not line.startswith(("#", "set "))]

    assert lines == ['exec "$(dirname "$0")/../scripts/test" "$@"']


def test_the_docs_list_every_file_of_the_artifact_folder_and_every_metric_of_the_timeline():
    page = (ROOT / ".github/docs/files.md").read_text(encoding="utf-8")

    for name, meaning in FILES.items():
        assert f"| `{name}` | {meaning} |\n" in page
    for metric in TIMELINE:
        unit = f"{metric.unit} " if metric.unit in {"%", "byte/s"} else ""  # the sentence goes on after the number
        assert f"| `{metric.name}` | {unit}{metric.meaning} |" in page


@functools.cache
def tracked():
    """The files of the repository."""
    command = ("git", "ls-files", "--cached", "--others", "--exclude-standard")
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()


def hook_commands():
    """Each hook of pre-commit: its command, and the files of the repository that it gets where it names them."""
    config = YAML(typ="safe").load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    for hook in (hook for repo in config["repos"] for hook in repo["hooks"]):
        named = "files" in hook and hook.get("pass_filenames", True)
        files = {file for file in tracked() if re.search(hook["files"], file)} if named else set()
        yield hook["entry"].removeprefix(".venv/bin/"), frozenset(files)


def static_steps():
    """Each static step of scripts/test: its command, and the files of the repository that its arguments name."""
    for line in (ROOT / "scripts/test").read_text(encoding="utf-8").splitlines():
        words = line.removeprefix("step ").partition(" $(")[0].split()
        if not line.startswith("step ") or words[0] in {"ci-perf", "pre-commit", "python", "scripts/generate-schemas"}:
            continue
        named = [word for word in words[1:] if "*" in word or (ROOT / word).exists()]
        found = {path.relative_to(ROOT) for word in named for path in ROOT.glob(word)}
        suffix = ".py" if words[0] == "vermin" else ".yml"
        files = {file for file in tracked() for path in found if file == str(path) or inside(file, path, suffix)}
        yield " ".join(word for word in words if word not in named), frozenset(files)


def inside(file, folder, suffix):
    return file.startswith(f"{folder}/") and file.endswith(suffix)


def test_the_hooks_of_pre_commit_are_the_static_steps_of_the_tests():
    """With the same options, on the same files; a hook formats, where the test only checks the format."""
    steps = {command.replace("ruff format --check", "ruff format"): files for command, files in static_steps()}

    assert dict(hook_commands()) == steps
