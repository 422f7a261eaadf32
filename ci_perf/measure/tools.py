"""Finds the programs that ci-perf starts: nsys, ncu, and the Python that runs the kernels."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ci_perf.values.errors import ConfigError, MachineError
from ci_perf.values.tool import Importer, Python, Tool

OLDEST_PYTHON = (3, 9)
"""What `worker.py` is written for."""
# The first start from a cold network folder can take seconds; a tool that needs more hangs.
_PROBE_TIMEOUT_S = 20.0

_NSYS_PLACES = (
    "opt/nvidia/nsight-systems*/*/bin/nsys",
    "usr/local/cuda*/bin/nsys",
    # Nsight Compute ships an nsys of its own, for its system timeline.
    "opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
)
_NCU_PLACES = ("opt/nvidia/nsight-compute/*/ncu", "usr/local/cuda*/bin/ncu")
_SANITIZER_PLACES = ("usr/local/cuda*/bin/compute-sanitizer", "usr/local/cuda*/compute-sanitizer/compute-sanitizer")

# The folder of the current file is not where the worker looks, and a folder `torch` without __init__ is not torch.
_PYTHON_PROBE = """
import sys
print("ci-perf: %d.%d.%d" % sys.version_info[:3])
import importlib.util
sys.path = [folder for folder in sys.path if folder]
spec = importlib.util.find_spec("torch")
print("ci-perf: %s" % bool(spec and spec.origin))
"""


def find_nsys(environ: Mapping[str, str], root: Path = Path("/")) -> tuple[Tool, ...]:
    """Return every nsys of this machine in the order of preference; `root` is where the well-known folders begin."""
    return tuple(_nsys(path, environ, source) for path, source in _candidates("nsys", _NSYS_PLACES, environ, root))


def find_ncu(environ: Mapping[str, str], root: Path = Path("/")) -> tuple[Tool, ...]:
    """Return every ncu of this machine in the order of preference; `root` is where the well-known folders begin."""
    return tuple(_tool(path, environ, source) for path, source in _candidates("ncu", _NCU_PLACES, environ, root))


def find_sanitizer(environ: Mapping[str, str], root: Path = Path("/")) -> tuple[Tool, ...]:
    """Return every compute-sanitizer of this machine in the order of preference; `root` as above."""
    found = _candidates("compute-sanitizer", _SANITIZER_PLACES, environ, root)
    return tuple(_tool(path, environ, source) for path, source in found)


def find_python(requested: str | None, environ: Mapping[str, str]) -> Python:
    """Return the interpreter for the kernels: the requested one, else the first that has torch, else the first."""
    if requested is not None:
        return _requested_python(requested, environ)
    first: Python | None = None
    for path in _python_candidates(environ):
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


def probe(command: Sequence[str], environ: Mapping[str, str], timeout_s: float = _PROBE_TIMEOUT_S) -> tuple[bool, str]:
    """Run a short command; return whether it ended well, and what it printed or why it did not start."""
    try:
        done = subprocess.run(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False, f"gave no answer within {timeout_s:g} s"
    except OSError as error:
        return False, (error.strerror or str(error)).lower()
    return done.returncode == 0, done.stdout.decode(errors="replace").strip()


def _candidates(name: str, places: Iterable[str], environ: Mapping[str, str], root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the paths where a tool may be and what led there, each file once."""
    seen: set[Path] = set()
    for path, source in _all_candidates(name, places, environ, root):
        if (real := path.resolve()) not in seen:
            seen.add(real)
            yield path, source


def _all_candidates(
    name: str, places: Iterable[str], environ: Mapping[str, str], root: Path
) -> Iterator[tuple[Path, str]]:
    variable = f"CI_PERF_{name.upper().replace('-', '_')}"
    if pinned := environ.get(variable):
        yield Path(pinned), variable
    for path in _on_path(name, environ):
        yield path, "PATH"
    for place in places:
        for path in sorted(root.glob(place), key=_by_version, reverse=True):
            yield path, "/" + place.partition("*")[0]


def _by_version(path: Path) -> list[int]:
    """Order `.../2025.10.1/ncu` after `.../2025.9.0/ncu`."""
    return [int(digits) for digits in re.findall(r"\d+", str(path))]


def _on_path(name: str, environ: Mapping[str, str]) -> Iterator[Path]:
    for folder in environ.get("PATH", "").split(os.pathsep):
        if folder and (found := shutil.which(name, path=folder)):
            yield Path(found)


def _tool(path: Path, environ: Mapping[str, str], source: str) -> Tool:
    well, output = probe([str(path), "--version"], environ)
    version = re.search(r"version\s+(\d{4}(?:\.\d+)+)", output, re.IGNORECASE)
    if not well or version is None:
        return Tool(str(path), None, source, problem=_last_line(output) or "does not answer --version")
    return Tool(str(path), version[1], source)


def _nsys(path: Path, environ: Mapping[str, str], source: str) -> Tool:
    tool = _tool(path, environ, source)
    return tool if tool.version is None else replace(tool, importer=_importer(path.resolve(), environ))


def _importer(nsys: Path, environ: Mapping[str, str]) -> Importer | None:
    """Look for what turns an nsys recording into a report; None for a wrapper script, which alone knows its way."""
    if not nsys.parent.name.startswith("target-linux-"):
        return None
    base = nsys.parent.parent
    expected = base / nsys.parent.name.replace("target-linux-", "host-linux-")
    program = next(
        (
            folder / "QdstrmImporter"
            for folder in (expected, *sorted(base.iterdir()))
            if (folder / "QdstrmImporter").is_file()
        ),
        None,
    )
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


def _python_candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield each interpreter once. Links stay links: a virtual environment is found by the path of its own link."""
    environment = environ.get("VIRTUAL_ENV")
    paths = [Path(environment, "bin", "python")] if environment else []
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
