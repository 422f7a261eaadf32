"""Compares the output of a kernel with its reference."""

from __future__ import annotations

import copy
import sys
from typing import Any, Callable

from ci_perf.userside.case import Answer, Case, Request, Wrong, release_memory
from ci_perf.userside.stages import stage
from ci_perf.userside.strides import filler, rearranged

DEFAULT_TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 1e-2, "bfloat16": 2e-2}
TINY = 1e-300


def verify(request: Request) -> Answer:
    """Compare the output with the reference; each gets its own inputs, so a kernel may work in place.

    With `strides` in the request, the kernel gets the same values in that order of memory; with `may_refuse` it may
    raise a ValueError for them.
    """
    release_memory()
    case = Case(request)
    spare = copied(case.inputs)
    with stage("reference"):
        reference = case.module.reference(case.inputs)
    if not leaves(reference):
        raise Wrong("wrong-output", "the reference returns no output, so there is nothing to compare with")
    for leaf in leaves(reference):
        if float_error(leaf, leaf) != 0.0:
            raise Wrong("wrong-output", "the reference contains NaN or infinity")
    if request["target"] == "reference":
        return {"error": 0.0, "tolerance": 0.0, "checked": "reference", "cost": case.cost()}
    case.inputs = None
    spare += copied(spare[0]) if spare else []
    renew(case, spare)
    try:
        with stage("first launch"):
            poison(case.launch(), case.inputs)
            case.synchronize()
    except ValueError:
        if not request.get("may_refuse"):
            raise
        return {"error": 0.0, "tolerance": 0.0, "checked": "refused", "cost": case.cost()}
    with stage("comparison"):
        renew(case, spare)
        output = case.launch()
        case.synchronize()
        error, tolerance = compare(output, reference, request.get("tolerance", {}), request["params"].get("dtype"))
    answer = {"error": error, "tolerance": tolerance, "checked": "launch", "cost": case.cost()}
    if not error <= tolerance:
        raise Wrong("wrong-output", f"largest error against the reference is {error:.3g}, allowed is {tolerance:.3g}")
    return answer


def copied(inputs: Any) -> list[Any]:
    """Return a copy of the inputs in a list; an empty list without enough memory, or if they cannot be copied."""
    try:
        return [copy.deepcopy(inputs)]
    except Exception:
        return []


def renew(case: Case, spare: list[Any]) -> None:
    """Give a case unused inputs: a prepared copy if one is left, else new ones, which takes longer for large inputs."""
    case.inputs = None
    inputs = spare.pop() if spare else case.fresh_inputs()
    case.inputs = rearranged(inputs, case.request.get("strides", "contiguous"), case.request.get("seed", 0))


def poison(output: Any, inputs: Any) -> None:
    """Overwrite an output, so that neither reused memory nor a stored result can be right by chance."""
    owned = {address(leaf) for leaf in leaves(inputs)}
    for leaf in leaves(output):
        if address(leaf) is None or address(leaf) in owned:
            continue
        if hasattr(leaf, "is_floating_point"):
            spoil(sys.modules["torch"], leaf, leaf.fill_)
        elif hasattr(leaf, "__array_interface__") and leaf.dtype.kind in "biufc" and leaf.flags.writeable:
            spoil(sys.modules["numpy"], leaf, leaf.fill)


def spoil(library: Any, leaf: Any, fill: Callable[[Any], object]) -> None:
    """Make every element of a tensor or array wrong: NaN, the largest integer, or the other truth value."""
    if str(leaf.dtype).endswith("bool"):
        leaf ^= True
    else:
        fill(filler(library, leaf.dtype))


def address(leaf: Any) -> int | None:
    """Return the address of a tensor or array; None for a plain number."""
    if hasattr(leaf, "data_ptr"):
        return int(leaf.data_ptr())
    interface = getattr(leaf, "__array_interface__", None) if shape(leaf) else None
    return int(interface["data"][0]) if interface else None


def structure(value: Any) -> Any:
    """Return the nesting and the names of outputs, without the tensors."""
    if isinstance(value, dict):
        return {key: structure(value[key]) for key in sorted(value)}
    return [structure(part) for part in value] if isinstance(value, (tuple, list)) else None


def leaves(value: Any) -> list[Any]:
    """Flatten tuples, lists and dictionaries of tensors."""
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in leaves(value[key])]
    if isinstance(value, (tuple, list)):
        return [leaf for part in value for leaf in leaves(part)]
    return [value]


def shape(leaf: Any) -> tuple[int, ...]:
    """Return the shape of a tensor or array; that of a number is empty."""
    return tuple(getattr(leaf, "shape", ()))


def compare(output: Any, reference: Any, tolerances: dict[str, float], dtype: str | None) -> tuple[float, float]:
    """Return the error that is largest relative to its tolerance, or the first that exceeds it, and that tolerance."""
    outputs, references = leaves(output), leaves(reference)
    if len(outputs) != len(references):
        raise Wrong("wrong-output", f"{len(outputs)} outputs, the reference has {len(references)}")
    if structure(output) != structure(reference):
        raise Wrong("wrong-output", "the outputs are not nested and named like those of the reference")
    worst = (0.0, 0.0)
    for out, ref in zip(outputs, references):
        if shape(out) != shape(ref):
            raise Wrong("wrong-output", f"shape {shape(out)}, the reference has {shape(ref)}")
        name = str(getattr(out, "dtype", "float64")).replace("torch.", "")
        tolerance = tolerances.get(name, tolerances.get(str(dtype), DEFAULT_TOLERANCE.get(name, 0.0)))
        error = float_error(out, ref)
        if not error <= tolerance:
            return error, tolerance
        worst = max(worst, (error, tolerance), key=lambda found: found[0] / (found[1] + TINY))
    return worst


def float_error(out: Any, ref: Any) -> float:
    """Return max |out - ref| / (|ref| + rms(ref)) in double precision; NaN and infinity give NaN or infinity."""
    if hasattr(ref, "detach"):
        import torch

        wide = torch.complex128 if ref.is_complex() or out.is_complex() else torch.float64
        ref = ref.detach().to(wide)
        out = out.detach().to(device=ref.device, dtype=wide)
    elif hasattr(ref, "astype"):
        # In a narrow type the squares below overflow, and an error divided by infinity is 0.
        name = "complex128" if "c" in (ref.dtype.kind, getattr(out, "dtype", ref.dtype).kind) else "float64"
        ref = ref.astype(name)
        out = out.astype(name) if hasattr(out, "astype") else out
    size, error = abs(ref), abs(out - ref)
    if 0 in shape(ref):
        return 0.0
    if hasattr(size, "mean"):
        size = size + (size * size).mean() ** 0.5
    error = error / (size + TINY)
    return float(error.max() if hasattr(error, "max") else error)
