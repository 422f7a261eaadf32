"""Which inputs a function may take: shapes of its tensors, and sizes of cases. Pure."""

import re
from collections.abc import Iterator, Sequence

from ci_perf.init.equivalents import COLUMNS, HEADS, ROWS, VECTOR, Shape
from ci_perf.init.python_functions import Argument

_WEIGHTS = re.compile(r"^(w|b|g|(\w+_)?(weight|bias|gamma|beta|scale|gain))s?$")

_SIZES: dict[str, tuple[int, int, int]] = {
    "rows": (16, 512, 8192),
    "columns": (256, 1024, 4096),
    "n": (4096, 1 << 20, 1 << 25),
    "m": (128, 512, 4096),
    "k": (128, 512, 4096),
    "b": (2, 8, 32),
    "batch": (1, 1, 4),
    "heads": (2, 4, 16),
    "seq": (128, 256, 2048),
    "dim": (64, 64, 64),
}
"""Of each parameter: for a trial in Triton's interpreter, of the case `small`, of the case `large`."""
CASES = ("trial", "small", "large")


def guesses(arguments: Sequence[Argument]) -> Iterator[tuple[Shape, ...]]:
    """Yield shapes that the tensors of a function may have, the most likely ones first."""
    names = [one.name for one in arguments if one.role == "tensor"]
    count = len(names)
    all_rows, first_rows = (ROWS,) * count, (ROWS, *[COLUMNS] * (count - 1))
    yield tuple(COLUMNS if _WEIGHTS.match(name.lower()) else ROWS for name in names)
    yield from (all_rows, first_rows)
    yield (VECTOR,) * count
    if count == 2:
        yield ("m", "k"), ("k", "n")
    if count == 3:
        yield ("m", "k"), ("k", "n"), ("n",)
        yield ("m", "k"), ("n", "k"), ("n",)
    yield (HEADS,) * count


def sizes(shapes: Sequence[Shape], case: str) -> dict[str, int]:
    """Return the sizes of a case, in the order in which the shapes name them.

    >>> sizes([("m", "k"), ("k", "n")], "small")
    {'m': 512, 'k': 512, 'n': 512}
    """
    names = dict.fromkeys(name for shape in shapes for name in shape)
    of_matrices = {"n": _SIZES["m"]} if len(names) > 1 else {}
    return {name: {**_SIZES, **of_matrices}[name][CASES.index(case)] for name in names}
