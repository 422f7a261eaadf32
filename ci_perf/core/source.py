"""Where a kernel's launch stands in its source."""

import ast
import re


def launch_line(source: str) -> int:
    r"""Return the line on which a kernel.py says what `launch` is, or 1 where it does not say.

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
