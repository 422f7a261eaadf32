"""What the repository says of itself is true: the map, the README, the workflow files' promises."""

import re
import tomllib
from pathlib import Path

import ci_perf
from ci_perf.core.timeline import TIMELINE
from ci_perf.render.folder import FILES

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "ci_perf"


def modules():
    """Every module and folder of the package as the map names it, e.g. `core`, `core.spec`."""
    files = (f.relative_to(PACKAGE).with_suffix("") for f in PACKAGE.rglob("*.py"))
    names = {".".join(f.parts).removesuffix(".__init__") for f in files}
    return names - {"__init__", "__main__"}


def mapped():
    room, names = "", set()
    for line in ci_perf.__doc__.splitlines():
        if match := re.match(r"(  )?(\w+) {2,}\S", line):
            room, name = (room, f"{room}.{match[2]}") if match[1] else (match[2], match[2])
            names.add(name)
    return names


def test_the_map_names_every_module_and_nothing_else():
    assert mapped() == modules()


def test_the_version_is_written_once_for_people_and_once_for_packaging():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert project["version"] == ci_perf.__version__
    assert f"## {ci_perf.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_ci_runs_the_tests_and_nothing_else():
    lines = [line for line in (ROOT / ".ci/run").read_text().splitlines() if not line.startswith(("#", "set "))]

    assert lines == ['exec "$(dirname "$0")/../scripts/test" "$@"']


def test_the_readme_lists_every_file_of_the_artifact_folder_and_every_metric_of_the_timeline():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    for name, meaning in FILES.items():
        assert f"| `{name}` | {meaning} |\n" in readme
    for metric in TIMELINE:
        assert f"| `{metric.name}` | {metric.meaning} |" in readme
