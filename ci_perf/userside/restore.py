"""Kernels that work in place: their inputs are restored before each timed launch, outside of the time."""

from __future__ import annotations

import sys
from typing import Any

from ci_perf.userside.case import Case
from ci_perf.userside.outputs import leaves

Saved = list[tuple[Any, Any]]
"""Tensors or arrays, and a copy of each."""


def saved(inputs: Any) -> Saved | None:
    """Return copies of the tensors and arrays among inputs; None where memory does not suffice."""
    try:
        return [(leaf, copied(leaf)) for leaf in leaves(inputs) if is_array(leaf)]
    except (MemoryError, RuntimeError):
        return None


def unsaved(inputs: Any) -> list[Any]:
    """Return the inputs that are not copied: numbers, texts, and objects of other classes."""
    return [leaf for leaf in leaves(inputs) if not is_array(leaf)]


def are_known(inputs: Any, before: list[Any]) -> bool:
    """Return whether the inputs that are not copied are plain values, and what they were before a launch."""
    now = unsaved(inputs)
    plain = all(leaf is None or isinstance(leaf, (bool, int, float, complex, str)) for leaf in now)
    return plain and repr(now) == repr(before)


def is_array(leaf: Any) -> bool:
    """Return whether a leaf is a dense tensor or an array of plain numbers, with elements."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(leaf, torch.Tensor):
        return leaf.layout is torch.strided and leaf.numel() > 0
    return numpy is not None and type(leaf) is numpy.ndarray and leaf.size > 0 and leaf.dtype.kind in "biufc"


def copied(leaf: Any) -> Any:
    """Return a copy without gradient history."""
    return leaf.detach().clone() if hasattr(leaf, "detach") else leaf.copy()


def restore(pairs: Saved) -> None:
    """Write the copies back; on a GPU the copies are queued on the current stream."""
    for leaf, copy in pairs:
        if hasattr(leaf, "detach"):
            leaf.detach().copy_(copy)
        else:
            leaf[...] = copy


def same(leaf: Any, copy: Any) -> bool:
    """Return whether both have the same bytes, so that NaN equals itself."""
    if hasattr(leaf, "detach"):
        import torch

        flat = (x.detach().contiguous().reshape(-1).view(torch.uint8) for x in (leaf, copy))
        return bool(torch.equal(*flat))
    return bool(leaf.tobytes() == copy.tobytes())


def changed(pairs: Saved) -> Saved:
    """Return those that no longer have the bytes of their copies."""
    return [(leaf, copy) for leaf, copy in pairs if not same(leaf, copy)]


def worked_on(case: Case, before: Saved) -> Saved:
    """Return the inputs that `launch` changes and reads, with their values from before the first launch.

    The case was launched once. An input that `launch` only writes to, such as memory for its output, need not be
    restored: it has the same content after a launch whatever was there before, the result of the launch before or one
    value in all elements.
    """
    pairs = changed(before)
    after = [(leaf, copied(leaf)) for leaf, _ in pairs]
    for fill in (False, True) if pairs else ():
        for leaf, copy in pairs if fill else ():
            (leaf.detach() if hasattr(leaf, "detach") else leaf)[...] = copy.reshape(-1)[0]
        case.launch()
        case.synchronize()
        if changed(after):
            restore(pairs)
            return pairs
    return []
