"""Finds a package that programs of both sides would import from one place: an installation serves one tree only.

What a Python kernel imported is known (`turns`); what a program imports is not, so this looks at what is installed.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from ci_perf.measure import tools
from ci_perf.values.kernel import KernelSpec, placeholders
from ci_perf.values.reasons import Reason
from ci_perf.values.run import Note

_PROBE = """
import importlib.metadata, json, sys, urllib.parse
sys.path = [folder for folder in sys.path if folder]
found = []
for dist in importlib.metadata.distributions():
    try:
        origin = json.loads(dist.read_text("direct_url.json") or "{}")
        editable = origin.get("dir_info", {}).get("editable", False)
        found.append([dist.metadata["Name"], urllib.parse.unquote(origin.get("url", "")) if editable else ""])
    except Exception:
        pass
print("ci-perf: " + json.dumps(found))
"""


def note_one_install(root: Path, specs: Sequence[KernelSpec], python: str, env: Mapping[str, str]) -> tuple[Note, ...]:
    """Return a note where programs that run under `python`, on both sides, import the project from one place.

    That is the head's tree if the project is installed editable, and a copy if it is installed and lies in `src`, where
    the current folder does not take precedence. A program whose kernel.toml has a `path` finds its own tree.
    """
    programs = [spec.name for spec in specs if _runs_python(spec) and not spec.package.path]
    if not programs:
        return ()
    where = next(_places(root, python, env), "")
    if not where:
        return ()
    message = f"{', '.join(programs)}: programs of base and head may import {where}: then nothing is compared"
    hint = 'give each side its own tree: [package] path = ["../../src"] in kernel.toml, or --base-python'
    return (Note(Reason.SAME_CODE, message, hint),)


def _runs_python(spec: KernelSpec) -> bool:
    return spec.program is not None and any("python" in placeholders(word) for word in spec.program.argv)


def _places(root: Path, python: str, env: Mapping[str, str]) -> Iterator[str]:
    well, output = tools.probe([python, "-c", _PROBE], env)
    lines = [line.removeprefix("ci-perf: ") for line in output.splitlines() if line.startswith("ci-perf: ")]
    project = project_of(root)
    for name, url in json.loads(lines[-1]) if well and lines else ():
        if Path(url.removeprefix("file://")).is_relative_to(root.resolve()):
            yield f"`{name}` from the tree of the head, where it is installed editable"
        elif project and module_name(name) == project and (root / "src" / project).is_dir():
            yield f"`{name}` as it is installed"


def module_name(project: str) -> str:
    """Return the name under which a project is usually imported.

    >>> module_name("My-Package")
    'my_package'
    """
    return re.sub(r"[-.]+", "_", project).lower()


@cache
def project_of(root: Path) -> str:
    """Return the name of the project in a tree's pyproject.toml, as it is usually imported; empty without one."""
    try:
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8")).get("project", {})
    except (OSError, ValueError):
        return ""
    return module_name(str(project.get("name", ""))) if isinstance(project, dict) else ""
