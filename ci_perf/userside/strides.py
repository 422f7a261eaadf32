"""The same inputs in another order of memory: views that are not contiguous, or not aligned.

A kernel that treats such a view as contiguous reads what lies between the elements: NaN, or the largest number of a
type without NaN. A tensor or array without dimensions is left as it is.
"""

from __future__ import annotations

import copy
import math
import random
import sys
from typing import Any, Callable

MISALIGNED = 1
"""Elements before the first one, which move it off the 16-byte boundary at which memory is allocated."""
PADDING = 16
"""Elements after each row: at least 16 bytes, so that rows keep their alignment."""


def rearranged(inputs: Any, kind: str, seed: int) -> Any:
    """Return inputs with the same values in another order of memory, also within tuples, lists and dictionaries.

    `kind` is a key of VIEWS, or `mixed`: a kind for each tensor, drawn with the seed. A tensor that occurs several
    times stays one tensor.
    """
    dice = random.Random(seed)
    done: dict[int, Any] = {}

    def arrange(value: Any) -> Any:
        if isinstance(value, dict):
            found = copy.copy(value)
            found.update((key, arrange(part)) for key, part in value.items())
            return found
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(arrange, value))
        if isinstance(value, (tuple, list)):
            return type(value)(map(arrange, value))
        library = library_of(value)
        if library is None:
            return value
        if id(value) not in done:
            chosen = dice.choice(sorted(VIEWS)) if kind == "mixed" else kind
            done[id(value)] = view_of(library, value, VIEWS[chosen])
        return done[id(value)]

    return inputs if kind == "contiguous" else arrange(inputs)


def library_of(value: Any) -> Any:
    """Return torch for a dense tensor, numpy for an array, None for what cannot be rearranged."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and type(value) is torch.Tensor:
        return torch if value.layout is torch.strided and value.dim() and value.numel() else None
    if numpy is not None and type(value) is numpy.ndarray:
        return numpy if value.ndim and value.size and value.dtype.kind in "biufc" else None
    return None


def view_of(library: Any, value: Any, view: Callable[[Blank, tuple[int, ...]], Any]) -> Any:
    """Copy a tensor into a view of larger memory; its dimensions keep their order in memory, except in `transposed`."""
    steps = value.stride() if library.__name__ == "torch" else value.strides
    order = sorted(range(len(steps)), key=lambda dim: -steps[dim])
    back = tuple(order.index(dim) for dim in range(len(order)))
    rows = permuted(value, tuple(order))

    def blank(shape: tuple[int, ...]) -> Any:
        if library.__name__ == "numpy":
            return library.full(shape, filler(library, value.dtype), value.dtype)
        return value.detach().new_full(shape, filler(library, value.dtype))

    into = view(blank, tuple(rows.shape))
    into[...] = rows.detach() if library.__name__ == "torch" else rows
    found = permuted(into, back)
    return found.requires_grad_() if getattr(value, "requires_grad", False) else found


def permuted(value: Any, order: tuple[int, ...]) -> Any:
    """Return a view with the dimensions in another order."""
    return value.permute(order) if hasattr(value, "permute") else value.transpose(order)


def filler(library: Any, dtype: Any) -> Any:
    """Return the value that lies between the elements."""
    kind = getattr(dtype, "kind", "")
    if kind in {"f", "c"} or getattr(dtype, "is_floating_point", False) or getattr(dtype, "is_complex", False):
        return math.nan
    return True if str(dtype).endswith("bool") else library.iinfo(dtype).max


Blank = Callable[[tuple[int, ...]], Any]


def offset(blank: Blank, shape: tuple[int, ...]) -> Any:
    """Begin off the 16-byte boundary."""
    return blank((MISALIGNED + math.prod(shape),))[MISALIGNED:].reshape(shape)


def padded(blank: Blank, shape: tuple[int, ...]) -> Any:
    """Leave PADDING elements after each row."""
    return blank((*shape[:-1], shape[-1] + PADDING))[..., : shape[-1]]


def stepped(blank: Blank, shape: tuple[int, ...]) -> Any:
    """Take every other element."""
    return blank((*shape[:-1], 2 * shape[-1]))[..., ::2]


def transposed(blank: Blank, shape: tuple[int, ...]) -> Any:
    """Make the first dimension the fastest in memory."""
    return permuted(blank(shape[::-1]), tuple(reversed(range(len(shape)))))


VIEWS = {
    "contiguous": lambda blank, shape: blank(shape),
    "offset": offset,
    "padded": padded,
    "stepped": stepped,
    "transposed": transposed,
}
