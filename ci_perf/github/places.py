"""The source line at which each kernel is launched, for annotations."""

import ast
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ci_perf.github.publish import Place
from ci_perf.values.kernel import KernelSpec


def query_places(specs: Iterable[KernelSpec], root: Path, prefix: str) -> dict[str, Place]:
    """Return the place of each kernel: `launch` in its entry file, or, for a program, its kernel.toml.

    `prefix` is the path from the top of the repository to `root`. For a file that cannot be read it is line 1.
    """
    places = {}
    for spec in specs:
        path, line = f"{spec.folder}/{spec.entry or 'kernel.toml'}", 1
        if spec.entry:
            with suppress(OSError, UnicodeDecodeError):
                line = launch_line((root / path).read_text(encoding="utf-8"))
        places[spec.name] = Place(f"{prefix}{path}", line)
    return places


def launch_line(source: str) -> int:
    r"""Return the line on which a kernel.py binds `launch`, or 1 if it does not.

    >>> launch_line("import torch\n\n@torch.no_grad()\ndef launch(x):\n    return x\n")
    4
    >>> launch_line("from fast import launch")
    1
    """
    try:
        statements = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        found = re.search(r"^def launch\b", source, re.MULTILINE)
        return source.count("\n", 0, found.start()) + 1 if found else 1
    return next((s.lineno for s in statements if "launch" in _names(s)), 1)


def _names(statement: ast.stmt) -> set[str]:
    """Return the names that a statement of a module binds."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {alias.asname or alias.name for alias in names}
        case ast.Assign(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case _:
            return set()
