"""Programs with nvbench or google-benchmark: executables, and targets of CMake. Pure."""

import re
from typing import Literal

from ci_perf.init.candidates import Candidate

Library = Literal["google_benchmark", "nvbench"]
_COMMANDS = re.compile(
    r"^\s*(add_executable|target_link_libraries)\s*\(\s*([\w.+-]+)([^)]*)\)", re.MULTILINE | re.IGNORECASE
)
_COMMENTS = re.compile(r"#.*")
_LINKED: dict[Library, re.Pattern[str]] = {
    "nvbench": re.compile(r"\bnvbench(::|\b)"),
    "google_benchmark": re.compile(r"\bbenchmark(::benchmark|_main)?\b"),
}
_HELD: dict[Library, tuple[bytes, ...]] = {
    "nvbench": (b"--jsonbin",),
    "google_benchmark": (b"benchmark_list_tests", b"import google_benchmark"),
}
"""What an executable holds that was linked with a library: its flags. A script may import its Python package."""


def find_targets(text: str, path: str) -> list[Candidate]:
    """Return the executables of a CMakeLists.txt that are linked with a library of benchmarks."""
    commands = _COMMANDS.findall(_COMMENTS.sub("", text))
    built = {name for command, name, _ in commands if command.lower() == "add_executable"}
    found = []
    for command, name, libraries in commands:
        kind = next((kind for kind, pattern in _LINKED.items() if pattern.search(libraries)), None)
        if command.lower() == "target_link_libraries" and name in built and kind:
            found.append(Candidate(kind, path, name))
    return found


def library_of(content: bytes) -> Library | None:
    """Return the library of benchmarks that an executable was linked with, or that a script imports."""
    if not content.startswith((b"\x7fELF", b"#!")):
        return None
    return next((kind for kind, words in _HELD.items() if any(word in content for word in words)), None)


def listing_flag(kind: Library) -> str:
    """Return the flag with which a program lists its benchmarks."""
    return "--benchmark_list_tests=true" if kind == "google_benchmark" else "--list"


def listed(kind: Library, output: str) -> dict[str, dict[str, str | int]]:
    r"""Return the benchmarks that a program listed: for each case its parameters, `name` among them.

    A benchmark of nvbench is one case, with the first value of each axis.

    >>> listed("google_benchmark", "BM_copy/1024\nBM_copy/4096\n")
    {'bm_copy-1024': {'name': 'BM_copy/1024'}, 'bm_copy-4096': {'name': 'BM_copy/4096'}}
    >>> listed("nvbench", "## [0] `copy` (4 configurations)\n\n* `N` : [2^10, 2^12]\n* `T` : [I32, F32]\n")
    {'copy': {'name': 'copy', 'N': 1024, 'T': 'I32', 'device': 0}}
    """
    if kind == "google_benchmark":
        names = [line.strip() for line in output.splitlines() if re.fullmatch(r"[^\s*]+", line.strip())]
        return {_case_name(name): {"name": name} for name in names}
    cases: dict[str, dict[str, str | int]] = {}
    for part in re.split(r"^## \[\d+\] ", output, flags=re.MULTILINE)[1:]:
        name = part.split("`")[1]
        axes = re.findall(r"^\* `([^`]+)` : \[([^,\]]+)", part, re.MULTILINE)
        cases[_case_name(name)] = {"name": name, **{axis: _value(first) for axis, first in axes}, "device": 0}
    return cases


def _case_name(name: str) -> str:
    return re.sub(r"[^a-z0-9_.-]+", "-", name.lower()).strip("-.") or "all"


def _value(text: str) -> str | int:
    base, caret, exponent = text.strip().partition("^")
    if caret and base == "2" and exponent.isdecimal():
        return 1 << int(exponent)
    return int(base) if base.isdecimal() else text.strip()
