"""What torch offers for the usual names of kernels: the expected output, and which inputs they take. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

Shape = tuple[str, ...]
"""Names of parameters of the case, such as ("rows", "columns")."""


@dataclass(frozen=True, slots=True)
class Equivalent:
    """What torch computes for a kernel of some name."""

    names: str
    """Pattern of the names, in lower case and without what `bare` removes."""
    shapes: tuple[Shape, ...]
    """Of its tensors, in their order; a kernel with another number of tensors is not meant."""
    formulas: tuple[str, ...]
    """Of the expected output. {0}, {1} are the tensors, {n0} the first number, {eps} the value of `eps`."""
    sums: bool = False
    """Whether each element is a sum over many: its rounding error is larger."""

    @property
    def keeps_shape(self) -> bool:
        """Whether the output has the shape of the inputs."""
        return len(set(self.shapes)) == 1 and not self.sums and not re.search(r"amax|\.T", self.formulas[0])


ROWS: Shape = ("rows", "columns")
COLUMNS: Shape = ("columns",)
VECTOR: Shape = ("n",)
HEADS: Shape = ("batch", "heads", "seq", "dim")
_RMS = "{0} * torch.rsqrt({0}.square().mean(-1, keepdim=True) + {eps})"
_F = "torch.nn.functional"


def _of_each(names: str, *formulas: str, tensors: int = 1) -> Equivalent:
    return Equivalent(names, (VECTOR,) * tensors, formulas)


def _of_rows(names: str, *formulas: str, sums: bool = False) -> Equivalent:
    return Equivalent(names, (ROWS,), formulas, sums)


EQUIVALENTS = (
    _of_rows("softmax", "torch.softmax({0}, dim=-1)"),
    _of_rows("log_?softmax", "torch.log_softmax({0}, dim=-1)"),
    _of_rows("(reduce_)?(sum|reduce|reduction)", "{0}.sum(-1)", "{0}.sum()", "{0}.sum().reshape(1)", sums=True),
    _of_rows("(reduce_)?mean", "{0}.mean(-1)", "{0}.mean()", sums=True),
    _of_rows("(reduce_)?(max|amax)", "{0}.amax(-1)", "{0}.amax()"),
    _of_rows("(cumsum|scan|prefix_sum)", "{0}.cumsum(-1)", sums=True),
    _of_rows("transpose", "{0}.T.contiguous()"),
    _of_rows("(l2_?)?normali[sz]e|l2_?norm", f"{_F}.normalize({{0}}, dim=-1)"),
    _of_each("relu", "torch.relu({0})"),
    _of_each("gelu(_tanh)?|new_gelu", f'{_F}.gelu({{0}}, approximate="tanh")', f"{_F}.gelu({{0}})"),
    _of_each("silu|swish", f"{_F}.silu({{0}})"),
    _of_each("(sigmoid|tanh|exp|abs|sin|cos|neg)", "torch.{name}({0})"),
    _of_each("square", "{0} * {0}"),
    _of_each("(copy|clone|identity|memcpy)", "{0}.clone()"),
    _of_each("(scale|mul_scalar|scalar_mul)", "{0} * {n0}"),
    _of_each("(vec(tor)?_?)?(add|sum)(_vec(tors?)?)?|add_?vec", "{0} + {1}", tensors=2),
    _of_each("(vec(tor)?_?)?(sub|subtract|diff)", "{0} - {1}", tensors=2),
    _of_each("(vec(tor)?_?)?(mul|multiply|hadamard|prod(uct)?)", "{0} * {1}", tensors=2),
    _of_each("(vec(tor)?_?)?(div|divide)", "{0} / {1}", tensors=2),
    _of_each("d?s?axpy", "{n0} * {0} + {1}", tensors=2),
    _of_each("(swiglu|silu_(and_)?mul)", f"{_F}.silu({{0}}) * {{1}}", tensors=2),
    _of_each("geglu", f'{_F}.gelu({{0}}, approximate="tanh") * {{1}}', f"{_F}.gelu({{0}}) * {{1}}", tensors=2),
    Equivalent("dot", (VECTOR, VECTOR), ("({0} * {1}).sum()", "({0} * {1}).sum().reshape(1)"), sums=True),
    Equivalent("(mat_?mul|mm|s?gemm|h?gemm)", (("m", "k"), ("k", "n")), ("{0} @ {1}", "{0} @ {1}.T"), sums=True),
    Equivalent("(bmm|batched?_mat_?mul|batched?_gemm)", (("b", "m", "k"), ("b", "k", "n")), ("{0} @ {1}",), sums=True),
    Equivalent("(matvec|gemv|mv)", (ROWS, COLUMNS), ("{0} @ {1}",), sums=True),
    Equivalent("linear", (("m", "k"), ("n", "k")), ("{0} @ {1}.T",), sums=True),
    Equivalent("linear", (("m", "k"), ("n", "k"), ("n",)), ("{0} @ {1}.T + {2}",), sums=True),
    Equivalent("layer_?norm", (ROWS,), (f"{_F}.layer_norm({{0}}, {{0}}.shape[-1:], eps={{eps}})",)),
    Equivalent(
        "layer_?norm",
        (ROWS, COLUMNS, COLUMNS),
        (f"{_F}.layer_norm({{0}}, {{0}}.shape[-1:], {{1}}, {{2}}, {{eps}})",),
    ),
    Equivalent("rms_?norm", (ROWS,), (_RMS,)),
    Equivalent("rms_?norm", (ROWS, COLUMNS), (f"{_RMS} * {{1}}", f"{_RMS} * (1 + {{1}})")),
    Equivalent(
        "(flash_?)?(attention|attn|mha)(_v?\\d)?|sdpa|scaled_dot_product_attention",
        (HEADS,) * 3,
        tuple(f"{_F}.scaled_dot_product_attention({{0}}, {{1}}, {{2}}{more})" for more in ("", ", is_causal=True")),
        sums=True,
    ),
)

_MADE = re.compile(
    r"(^|_)(triton|fused|fast|my|custom|cuda|gpu|torch|naive|optimi[sz]ed|kernel|forward|fwd|row|f32|fp32|f16|fp16)(?=_|$)"
)


def bare(name: str) -> str:
    """Return the name of a function without what only says how it is made.

    >>> bare("triton_softmax_kernel"), bare("fusedRMSNorm"), bare("vector_add")
    ('softmax', 'rms_norm', 'vector_add')
    """
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return re.sub("_+", "_", _MADE.sub("", snake)).strip("_")


def equivalents_of(name: str, tensors: int, numbers: Sequence[str] = ()) -> list[Equivalent]:
    """Return what torch may compute for a function with so many tensors; `numbers` are its other arguments."""
    short = bare(name)
    return [
        one
        for one in EQUIVALENTS
        if re.fullmatch(one.names, short) and len(one.shapes) == tensors and ("{n0}" not in one.formulas[0] or numbers)
    ]


def written(formula: str, name: str, tensors: Sequence[str], numbers: Sequence[str], eps: str) -> str:
    """Return a formula with the names of the arguments.

    >>> written("{n0} * {0} + {1}", "saxpy", ["x", "y"], ["a"], "1e-5")
    'a * x + y'
    """
    return formula.format(*tensors, n0=numbers[0] if numbers else "", eps=eps, name=bare(name))
