"""Compares the output of a kernel with its reference."""

from __future__ import annotations

import copy
import sys
from typing import Any, Callable

from ci_perf.userside.case import Answer, Case, Request, Wrong, release_memory
from ci_perf.userside.gradients import as_output, expected
from ci_perf.userside.outputs import compare, difference, leaves, shape, worst_of, wrong_sentence
from ci_perf.userside.stages import stage
from ci_perf.userside.strides import filler, rearranged


def verify(request: Request) -> Answer:
    """Compare the output with the reference; each gets its own inputs, so a kernel may work in place.

    With `strides` in the request, the kernel gets the same values in that order of memory; with `may_refuse` it may
    raise a ValueError for them.
    """
    release_memory()
    case = Case(request)
    spare = copied(case.inputs)
    with stage("reference"):
        reference = expected(case)
    if not leaves(reference):
        raise Wrong("wrong-output", "the reference returns no output, so there is nothing to compare with")
    for leaf in leaves(reference):
        if difference("", leaf, leaf, 0.0).is_wrong:
            raise Wrong("wrong-output", "the reference contains NaN or infinity")
    if request["target"] == "reference":
        return {"error": 0.0, "tolerance": 0.0, "checked": "reference", "cost": case.cost()}
    case.inputs = None
    spare += copied(spare[0]) if spare else []
    try:
        with stage("first launch"):
            renew(case, spare)
            poison(case.launch(), (case.inputs, case.arguments))
            case.synchronize()
    except ValueError:
        if not request.get("may_refuse"):
            raise
        return {"error": 0.0, "tolerance": 0.0, "checked": "refused", "cost": case.cost()}
    with stage("comparison"):
        renew(case, spare)
        output = case.launch()
        case.synchronize()
        reference = as_output(reference, output, case)
        found = compare(output, reference, request.get("tolerance", {}), request["params"].get("dtype"))
    answer = {"checked": "launch", "cost": case.cost()}
    if wrong := wrong_sentence(found):
        raise Wrong("wrong-output", wrong)
    worst = worst_of(found)
    return {**answer, "error": worst.error if worst else 0.0, "tolerance": worst.tolerance if worst else 0.0}


def copied(inputs: Any) -> list[Any]:
    """Return a copy of the inputs in a list; an empty list without enough memory, or if they cannot be copied."""
    try:
        return [copy.deepcopy(inputs)]
    except Exception:
        return []


def renew(case: Case, spare: list[Any]) -> None:
    """Give a case unused inputs: a prepared copy if one is left, else new ones, which takes longer for large inputs."""
    case.inputs = case.prepared = None
    inputs = spare.pop() if spare else case.fresh_inputs()
    case.inputs = rearranged(inputs, case.request.get("strides", "contiguous"), case.request.get("seed", 0))
    case.prepare()


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
