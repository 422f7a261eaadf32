"""A hash of the rule that judges pairs: it tells sessions by which the rule may have been chosen from later ones.

A rule can be made to fit any past, so its error rates are those of sessions that were recorded after it.
"""

import ast
import hashlib
from functools import cache
from importlib.resources import files

MODULES = ("clocks", "control", "looks", "outcome", "pairs", "ratios", "scatter", "stats", "witness")
"""The modules of `ci_perf.judge` that decide on pairs."""
_DIGITS = 12


@cache
def rule_hash() -> str:
    """Return the hash of today's rule: 12 hexadecimal digits."""
    folder = files("ci_perf.judge")
    texts = [meaning(folder.joinpath(f"{name}.py").read_text(encoding="utf-8")) for name in MODULES]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:_DIGITS]


def meaning(source: str) -> str:
    r"""Return a Python source without its comments, layout, imports and texts: docstrings, and what it says to users.

    >>> meaning('def f(x):\n    "Double it."\n    return 2*x  # fast\n') == meaning("def f(x):\n  return 2 * x")
    True
    """
    return ast.unparse(_WithoutTexts().visit(ast.parse(source)))


class _WithoutTexts(ast.NodeTransformer):
    """Removes imports and statements that are a text alone, and empties all other texts."""

    def visit_Import(self, node: ast.Import) -> None:
        """Remove it."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Remove it."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Remove a docstring."""
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Empty a text."""
        return ast.Constant("") if isinstance(node.value, str) else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """Empty a text."""
        del node
        return ast.Constant("")
