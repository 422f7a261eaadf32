"""kernel.toml of a program with nvbench or google-benchmark, and the command that builds it. Pure."""

import json
import posixpath
import re
from collections.abc import Mapping

from ci_perf.init.candidates import Candidate, Draft
from ci_perf.init.programs import Library

_FLAGS: Mapping[Library, tuple[str, ...]] = {
    "google_benchmark": (
        "--benchmark_filter=^{name}$",
        "--benchmark_min_time=0.05s",
        "--benchmark_out_format=json",
        "--benchmark_out={output}",
    ),
    "nvbench": ("--benchmark", "{name}", "--devices", "{device}", "--jsonbin", "{output}"),
}
MOST_CASES = 8
"""That are written; a person names the others."""


def program_path(candidate: Candidate) -> str:
    """Return where the executable lies; a target of CMake is built there by `build_command`."""
    return f"build/bin/{candidate.name}" if _is_target(candidate) else candidate.path


def build_command(candidate: Candidate, *, top: bool) -> str:
    """Return the setup command that builds a target of CMake; empty for an executable, of which nothing is known.

    `top` says whether the root of the repository has a CMakeLists.txt.
    """
    if not _is_target(candidate):
        return ""
    folder = "." if top else candidate.path.rpartition("/")[0] or "."
    configure = (
        f'cmake -S {folder} -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_RUNTIME_OUTPUT_DIRECTORY="$PWD/build/bin"'
    )
    return f"sh -c '{configure} && cmake --build build --target {candidate.name} --parallel'"


def _is_target(candidate: Candidate) -> bool:
    return posixpath.basename(candidate.path) == "CMakeLists.txt"


def draft_program(candidate: Candidate, kind: Library, cases: Mapping[str, Mapping[str, str | int]]) -> Draft:
    """Return the kernel.toml of a program with these benchmarks; at most MOST_CASES are written."""
    chosen = dict(list(cases.items())[:MOST_CASES])
    axes = [name for params in chosen.values() for name in params if name not in ("name", "device")]
    flags = list(_FLAGS[kind])
    # One command line serves all cases, so each of them must have the axes that it names.
    common = [name for name in dict.fromkeys(axes) if all(name in params for params in chosen.values())]
    flags[2:2] = [word for name in common for word in ("--axis", f"{name}={{{name}}}")] if kind == "nvbench" else []
    lines = [
        f"# Written by `ci-perf init` for {candidate.place}; change it as you like.",
        f"{kind} = [",
        *(f"  {json.dumps(word)}," for word in (f"./{program_path(candidate)}", *flags)),
        "]",
        'benchmark = "{name}"            # the name of the benchmark in the file that the program writes',
    ]
    if kind == "nvbench":
        lines.append('devices = ["cuda"]')
    if len(cases) > len(chosen):
        lines.append(f"# The program has {len(cases)} benchmarks; these are the first {len(chosen)}.")
    for name, params in chosen.items():
        lines += ["", f"[cases.{_key(name)}]", *(f"{_key(k)} = {json.dumps(v)}" for k, v in params.items())]
    return Draft({"kernel.toml": "\n".join([*lines, ""])})


def _key(name: str) -> str:
    """Return a key of TOML, in quotes where it needs them."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
