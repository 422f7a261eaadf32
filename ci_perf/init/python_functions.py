"""Functions of Python files that ci-perf can measure: wrappers of Triton kernels, and functions of torch. Pure.

A file is parsed and never imported.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ci_perf.init.candidates import Candidate

Role = Literal["tensor", "indices", "integer", "number", "flag"]
_HELPERS = re.compile(r"_|test|bench|main$|make_|load_|save_|get_|set_|parse_|plot_|print_|check_|run_|reference$")
"""Names of functions that are no kernels."""
_TENSOR = re.compile(r"\bTensor\b")
_INDICES = re.compile(r"(^|_)(idx|index|indices|indexes|ids|labels?|targets?)$")
_INTEGERS = re.compile(
    r"^(n|m|k|[a-z_]*(size|dim|num|axis|count|len|length|rows|cols|columns|block|steps|iters)[a-z_]*)$"
)
_NUMBERS = re.compile(r"^(a|alpha|beta_?|scale|scalar|factor|eps|epsilon|p|slope|temperature|[a-z_]*_scale)$")


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a function that a caller must give."""

    name: str
    role: Role


def find_functions(text: str, path: str) -> list[Candidate]:
    """Return the functions of a file that can be measured; none for a file that is not valid Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return []
    imported = {name.partition(".")[0] for name in _imported(tree)}
    if not imported & {"torch", "triton"}:
        return []
    found, launching = [], _launching(tree)
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or _HELPERS.match(node.name) or not arguments_of(node):
            continue
        if node.name in launching:
            found.append(Candidate("triton", path, node.name, node.lineno))
        elif "torch" in imported and _computes(node):
            found.append(Candidate("torch", path, node.name, node.lineno))
    return found


def function_of(text: str, name: str) -> ast.FunctionDef | None:
    """Return the definition of a function at the top of a file."""
    return next((n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name == name), None)


def arguments_of(function: ast.FunctionDef) -> tuple[Argument, ...]:
    """Return what a caller must give; empty if it takes no tensor, or something that cannot be made up."""
    given = function.args
    if given.vararg or given.posonlyargs:
        return ()
    needed = given.args[: len(given.args) - len(given.defaults)]
    needed += [one for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value is None]
    roles = [(one.arg, _role(one)) for one in needed]
    if any(role is None for _, role in roles) or not any(role == "tensor" for _, role in roles):
        return ()
    return tuple(Argument(name, role) for name, role in roles if role)


def _role(argument: ast.arg) -> Role | None:
    """Return what an argument is by its annotation, else by its name; None for another type."""
    written = ast.unparse(argument.annotation) if argument.annotation else ""
    if written in ("int", "float", "bool"):
        roles: dict[str, Role] = {"int": "integer", "float": "number", "bool": "flag"}
        return roles[written]
    if written and not _TENSOR.search(written):
        return None
    if _INDICES.search(argument.arg.lower()):
        return "indices"
    if not written and _INTEGERS.match(argument.arg):
        return "integer"
    if not written and _NUMBERS.match(argument.arg):
        return "number"
    return None if argument.arg in ("self", "cls", "ctx") else "tensor"


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _launching(tree: ast.Module) -> set[str]:
    """Return the functions and classes that start a Triton kernel, `kernel[grid](...)`, or use one that does."""
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    found: set[str] = set()
    while more := {name for name, node in defined.items() if name not in found and _launches(node, found)}:
        found |= more
    return found


def _launches(definition: ast.AST, known: set[str]) -> bool:
    nodes = list(ast.walk(definition))
    starts = any(isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript) for node in nodes)
    return starts or any(isinstance(node, ast.Name) and node.id in known for node in nodes)


def _computes(function: ast.FunctionDef) -> bool:
    """Return whether it may compute a tensor: it returns a value, and is no kernel of Triton."""
    decorators = {ast.unparse(one).partition("(")[0] for one in function.decorator_list}
    if any(name.endswith(("jit", "autotune", "heuristics")) and "torch" not in name for name in decorators):
        return False
    returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    return any(
        value is not None and not isinstance(value, ast.Constant | ast.JoinedStr | ast.Dict) for value in returned
    )


def module_of(path: str, packages: set[str]) -> tuple[str, str]:
    """Return the folder from which a file is imported, and the name of its module.

    `packages` are the folders with an `__init__.py`.

    >>> module_of("src/ops/norm.py", {"src/ops"}), module_of("softmax.py", set())
    (('src', 'ops.norm'), ('', 'softmax'))
    """
    folder, _, file = path.rpartition("/")
    names = [] if file == "__init__.py" else [file.removesuffix(".py")]
    while folder in packages:
        folder, _, name = folder.rpartition("/")
        names.insert(0, name)
    return folder, ".".join(names)
