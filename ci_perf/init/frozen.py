"""The source of a function of torch with all that it uses: its reference, which later commits do not change. Pure."""

import ast
import builtins
from collections.abc import Collection, Iterable, Iterator

_LIBRARIES = frozenset({"torch", "math", "typing", "collections", "functools", "itertools", "numpy", "dataclasses"})
"""Modules that a copy of a function may import."""


def freeze(text: str, name: str, taken: Collection[str] = ()) -> str | None:
    """Return the source of a function, its helpers and its imports.

    None if it uses more than torch and its own file, or if a helper has one of the names `taken`.
    """
    tree = ast.parse(text)
    found: dict[int, ast.stmt] = {}
    if not _collect(tree, name, found) or any(_defined(node) & set(taken) for node in found.values()):
        return None
    kept = [_plain(found[line]) for line in sorted(found)]
    imports = [ast.unparse(node) for node in kept if isinstance(node, ast.Import | ast.ImportFrom)]
    rest = [_segment(text, node) for node in kept if not isinstance(node, ast.Import | ast.ImportFrom)]
    imports = [line for line in imports if line != "import torch"]
    return "\n\n\n".join(filter(None, ("\n".join(imports), *rest)))


def _collect(tree: ast.Module, name: str, found: dict[int, ast.stmt]) -> bool:
    """Add the statement that defines a name, and those of all names that it uses; False if one cannot be copied."""
    node = next((node for node in reversed(tree.body) if name in _defined(node)), None)
    if node is None:
        return hasattr(builtins, name)
    if node.lineno in found:
        return True
    found[node.lineno] = node
    if isinstance(node, ast.Import | ast.ImportFrom):
        modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
        relative = isinstance(node, ast.ImportFrom) and node.level > 0
        return not relative and all(module.partition(".")[0] in _LIBRARIES for module in modules)
    if isinstance(node, ast.FunctionDef | ast.Assign | ast.AnnAssign):
        return all(_collect(tree, used, found) for used in sorted(_used(_plain(node))))
    return False


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets: Iterable[ast.expr] = ()
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = (node.target,)
    return {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}


def _used(node: ast.stmt) -> set[str]:
    """Return the names that a statement takes from its module."""
    names = [one for one in ast.walk(node) if isinstance(one, ast.Name)]
    shared = {name for one in ast.walk(node) if isinstance(one, ast.Global) for name in one.names}
    own = {one.id for one in names if not isinstance(one.ctx, ast.Load)} | set(_arguments(node))
    return {one.id for one in names if isinstance(one.ctx, ast.Load)} - own | shared


def _arguments(node: ast.stmt) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.arg):
            yield one.arg
        elif isinstance(one, ast.FunctionDef):
            yield one.name


def _plain(node: ast.stmt) -> ast.stmt:
    """Return a statement without what changes how it runs and not what it computes: decorators of a function."""
    if isinstance(node, ast.FunctionDef):
        node.decorator_list = []
    return node


def _segment(text: str, node: ast.stmt) -> str:
    """Return the source of a statement, comments included; decorators are above its first line."""
    return ast.get_source_segment(text, node) or ast.unparse(node)
