"""The command line of a program: `{name}` in kernel.toml, filled for a case. No shell is involved."""

import re
from collections.abc import Iterable, Mapping

from ci_perf.values.kernel import Params, Program, Scalar

BENCHMARKS = ("nvbench", "google_benchmark", "pytest_benchmark", "triton_csv")
"""The kinds of program that measure themselves and write a file."""
KINDS = ("command", *BENCHMARKS)
PLACES: Mapping[str, str] = {
    "output": "the file or folder that a benchmark writes",
    "folder": "the kernel's folder",
    "python": "the interpreter of the user's kernels",
}
"""Names in braces that are not parameters of the case."""

_BRACES = re.compile(r"\{\{(\w+)\}\}|\{(\w+)\}")


def placeholders(text: str) -> tuple[str, ...]:
    """Return the names in braces; double braces, and braces around anything but a name, are text.

    >>> placeholders('--n={n} --json={"a": 1} {{not}} {output}')
    ('n', 'output')
    """
    return tuple(found[2] for found in _BRACES.finditer(text) if found[2])


def fill(text: str, values: Mapping[str, Scalar]) -> str:
    """Replace each name in braces by its value, written as in TOML; KeyError for an unknown name.

    >>> fill("--n={n} --fast={fast} {{n}}", {"n": 4, "fast": True})
    '--n=4 --fast=true {n}'
    """
    return _BRACES.sub(lambda found: f"{{{found[1]}}}" if found[1] else _written(values[found[2]]), text)


def command_line(program: Program, params: Params, places: Mapping[str, str]) -> tuple[str, ...]:
    """Return the arguments of the process for a case."""
    return tuple(fill(word, {**params, **places}) for word in program.argv)


def unfilled(words: Iterable[str], params: Params, places: Iterable[str]) -> tuple[str, ...]:
    """Return the names in braces that are neither parameters nor places."""
    known = {*params, *places}
    return tuple(name for word in words for name in placeholders(word) if name not in known)


def _written(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
