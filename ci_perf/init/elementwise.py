"""The formula of a CUDA kernel that computes each element by itself, in torch. Pure."""

import ast
import re
from collections.abc import Mapping

from ci_perf.init.cuda_kernels import CudaKernel

_FUNCTIONS: Mapping[str, str] = {
    name: f"torch.{name}"
    for name in ("exp", "log", "sqrt", "rsqrt", "sin", "cos", "tan", "tanh", "erf", "abs", "floor", "ceil")
} | {"fabs": "torch.abs"}
"""Of C and its variants (`expf`, `__expf`), with one argument."""
_LIMITS = {"fmax": "min", "fmin": "max"}
"""Of two arguments, the second one a number: which limit of torch.clamp it is."""
_COOPERATES = re.compile(r"__shared__|__syncthreads|atomic|\bfor\b|\bwhile\b|__shfl|\?")


def formula_of(kernel: CudaKernel) -> str | None:
    """Return what the one output of a kernel is, if each element depends on the same element of the inputs alone.

    >>> from ci_perf.init.cuda_kernels import kernel_of
    >>> source = "__global__ void f(float a, const float* x, float* y, int n) { int i = 0; y[i] = a * expf(x[i]); }"
    >>> formula_of(kernel_of(source, "f"))
    'a * torch.exp(x)'
    """
    stores = re.findall(r"\b(\w+)\[\s*(\w+)\s*\]\s*=(?!=)\s*([^;]+);", kernel.body)
    if _COOPERATES.search(kernel.body) or [one.name for one in kernel.writes] != [name for name, _, _ in stores]:
        return None
    if len(stores) != 1:
        return None
    _, index, expression = stores[0]
    inputs = [one.name for one in kernel.reads]
    for name in inputs:
        expression = re.sub(rf"\b{name}\[\s*{index}\s*\]", name, expression)
    expression = re.sub(r"(?<=[\d.])[fF]\b", "", expression)
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        written = ast.unparse(
            _Translator({*inputs, *(one.name for one in kernel.of_kind("float", "double"))}).visit(tree)
        )
    except (SyntaxError, ValueError):
        return None
    return written if any(re.search(rf"\b{name}\b", written) for name in inputs) else None


class _Translator(ast.NodeTransformer):
    """Replaces functions of C by those of torch; ValueError for all that is not arithmetic on known names."""

    def __init__(self, known: set[str]) -> None:
        self._known = known

    def generic_visit(self, node: ast.AST) -> ast.AST:
        arithmetic = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Constant, ast.operator, ast.unaryop, ast.expr_context)
        if not isinstance(node, arithmetic):
            raise ValueError(f"{type(node).__name__} is no arithmetic")  # noqa: TRY004 # of the text, not of a type
        return super().generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Accept the names of inputs and numbers."""
        if node.id not in self._known:
            raise ValueError(f"{node.id} is not known")
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Translate a function of C."""
        name = ast.unparse(node.func).removeprefix("__")
        name = name if name in (*_FUNCTIONS, *_LIMITS) else name.removesuffix("f")
        arguments = [self.visit(one) for one in node.args]
        if name in _FUNCTIONS and len(arguments) == 1:
            return ast.parse(f"{_FUNCTIONS[name]}({ast.unparse(arguments[0])})", mode="eval").body
        if name in _LIMITS and len(arguments) == 2 and isinstance(arguments[1], ast.Constant):
            limited = f"torch.clamp({ast.unparse(arguments[0])}, {_LIMITS[name]}={arguments[1].value!r})"
            return ast.parse(limited, mode="eval").body
        raise ValueError(f"{name} is not known")
