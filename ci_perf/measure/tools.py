"""Finds the programs that ci-perf starts: nsys, ncu, and the Python that runs the kernels."""

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ci_perf.guard.guard import rules_of
from ci_perf.measure import git, proc
from ci_perf.values.device import Importer, Python, Tool
from ci_perf.values.errors import ConfigError, MachineError
from ci_perf.values.settings import Settings

OLDEST_PYTHON = (3, 9)
"""What `worker.py` is written for."""
# The first start from a cold network folder can take seconds; a tool that needs more hangs.
_PROBE_TIMEOUT_S = 20.0

_PLACES = {
    "nsys": (
        "opt/nvidia/nsight-systems*/*/bin/nsys",
        "usr/local/cuda*/bin/nsys",
        # Nsight Compute ships its own nsys, for its system timeline.
        "opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
    ),
    "ncu": ("opt/nvidia/nsight-compute/*/ncu", "usr/local/cuda*/bin/ncu"),
    "compute-sanitizer": (
        "usr/local/cuda*/bin/compute-sanitizer",
        "usr/local/cuda*/compute-sanitizer/compute-sanitizer",
    ),
}
"""Where tools are installed, beside the PATH."""

# The folder of the current file is not where the worker looks, and a folder `torch` without __init__ is not torch.
_PYTHON_PROBE = """
import sys
print("ci-perf: %d.%d.%d" % sys.version_info[:3])
import importlib.util
sys.path = [folder for folder in sys.path if folder]
spec = importlib.util.find_spec("torch")
print("ci-perf: %s" % bool(spec and spec.origin))
"""


def find_python(requested: str | None, environ: Mapping[str, str], root: Path | None = None) -> Python:
    """Return the interpreter for the kernels: the requested one, else the first that has torch, else the first.

    That of the active virtual environment comes first, then that of `.venv` in `root`, then those on the PATH.
    """
    if requested is not None:
        return _requested_python(requested, environ)
    first: Python | None = None
    for path in _python_candidates(environ, root):
        python, _ = _probe_python(path, environ)
        if python and python.has_torch:
            return python
        first = first or python
    if first is None:
        raise MachineError(
            f"no Python {_dotted(OLDEST_PYTHON)} or newer found to run the kernels",
            hint="name one with --python /path/to/python",
        )
    return first


def kernels_env(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that kernels and the setup command get: without secrets, outside of a git hook."""
    return git.outside_hooks(rules_of(settings).for_workers(environ))


def kernels_python(settings: Settings, root: Path) -> str:
    """Return the path of the interpreter that the settings choose for the kernels below `root`; MachineError."""
    return str(find_python(settings["python"] or None, kernels_env(settings, os.environ), root).path)


def probe(command: Sequence[str], environ: Mapping[str, str], timeout_s: float = _PROBE_TIMEOUT_S) -> tuple[bool, str]:
    """Run a short command; return whether it ended well, and what it printed or why it did not start."""
    try:
        done = proc.run(command, timeout_s=timeout_s, env=environ)
    except MachineError as error:
        return False, str(error).rpartition(": ")[2].lower()
    if done.timed_out:
        return False, f"gave no answer within {timeout_s:g} s"
    return done.status == 0, done.output.strip()


def find(name: str, environ: Mapping[str, str], root: Path = Path("/")) -> tuple[Tool, ...]:
    """Return every nsys, ncu or compute-sanitizer of this machine, with its version or complaint.

    They are in order of preference, each file once; `root` is the parent of `opt` and `usr`.
    """
    variable = f"CI_PERF_{name.upper().replace('-', '_')}"
    candidates = [(Path(environ[variable]), variable)] if environ.get(variable) else []
    on_path = (shutil.which(name, path=folder) for folder in environ.get("PATH", "").split(os.pathsep) if folder)
    candidates += [(Path(found), "PATH") for found in on_path if found]
    for place in _PLACES[name]:
        paths = sorted(root.glob(place), key=_by_version, reverse=True)
        candidates += [(path, "/" + place.partition("*")[0]) for path in paths]
    once: dict[Path, tuple[Path, str]] = {}
    for path, source in candidates:
        once.setdefault(path.resolve(), (path, source))
    return tuple(_tool(name, path, environ, source) for path, source in once.values())


def _by_version(path: Path) -> list[int]:
    """Order `.../2025.10.1/ncu` after `.../2025.9.0/ncu`."""
    return [int(digits) for digits in re.findall(r"\d+", str(path))]


def _tool(name: str, path: Path, environ: Mapping[str, str], source: str) -> Tool:
    well, output = probe([str(path), "--version"], environ)
    version = re.search(r"version\s+(\d{4}(?:\.\d+)+)", output, re.IGNORECASE)
    if not well or version is None:
        return Tool(str(path), None, source, problem=_last_line(output) or "does not answer --version")
    importer = _importer(path.resolve(), environ) if name == "nsys" else None
    return Tool(str(path), version[1], source, importer=importer)


def _importer(nsys: Path, environ: Mapping[str, str]) -> Importer | None:
    """Find what turns an nsys recording into a report; None for a wrapper script, which alone knows its way."""
    if not nsys.parent.name.startswith("target-linux-"):
        return None
    base = nsys.parent.parent
    expected = base / nsys.parent.name.replace("target-linux-", "host-linux-")
    programs = (folder / "QdstrmImporter" for folder in (expected, *sorted(base.iterdir())))
    program = next((program for program in programs if program.is_file()), None)
    if program is None:
        return Importer(str(expected), None)
    _, output = probe([str(program), "--version"], environ)
    missing = re.search(r"lib[\w.+-]+(?=: cannot open shared object)", output)
    return Importer(str(expected), str(program.parent), missing[0] if missing else None)


def _requested_python(requested: str, environ: Mapping[str, str]) -> Python:
    found = shutil.which(requested, path=environ.get("PATH", ""))
    if found is None:
        raise ConfigError(
            f"--python {requested}: there is no such program", hint="give the path of the Python that has torch"
        )
    python, problem = _probe_python(Path(found), environ)
    if python is None:
        raise ConfigError(
            f"--python {requested}: {problem}",
            hint=f"kernels need Python {_dotted(OLDEST_PYTHON)} or newer; check `{found} --version`",
        )
    return python


def _python_candidates(environ: Mapping[str, str], root: Path | None) -> Iterator[Path]:
    """Yield each interpreter once. Links stay links: a virtual environment is found by the path of its link."""
    environment = environ.get("VIRTUAL_ENV")
    paths = [Path(environment, "bin", "python")] if environment else []
    if root is not None and (own := root / ".venv/bin/python").exists():
        paths.append(own)
    on_path = (shutil.which(name, path=environ.get("PATH", "")) for name in ("python3", "python"))
    paths.extend(Path(found) for found in on_path if found)
    paths.append(Path(sys.executable))
    yield from dict.fromkeys(paths)


def _probe_python(path: Path, environ: Mapping[str, str]) -> tuple[Python | None, str]:
    """Ask an interpreter what it is, without an import of torch, which takes seconds."""
    _, output = probe([str(path), "-c", _PYTHON_PROBE], environ)
    answers = re.findall(r"^ci-perf: (.+)$", output, re.MULTILINE)
    if not answers:
        return None, f"does not run: {_last_line(output) or 'it printed nothing'}"
    version = tuple(int(part) for part in answers[0].split("."))
    if version < OLDEST_PYTHON:
        return None, f"is Python {answers[0]}"
    return Python(str(path.absolute()), answers[0], has_torch=answers[-1] == "True"), ""


def _last_line(text: str) -> str:
    return text.splitlines()[-1].strip() if text else ""


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
