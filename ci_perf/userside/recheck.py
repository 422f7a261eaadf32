"""Compares the outputs of launches after the timing with that of the first launch: faults that do not always occur."""

from __future__ import annotations

import copy
import itertools
from typing import Any

from ci_perf.userside.case import Case, Wrong
from ci_perf.userside.outputs import Difference, difference, leaves, named, tolerance_of
from ci_perf.userside.restore import copied, is_array, restore, same

LAUNCHES = 64
"""A fault in one of 20 launches is among them with a probability of 96 %, and in each of at least five processes."""
LEAST_LAUNCHES = 3
SECONDS = 0.25
"""Slow kernels are launched less often, to stay within this time."""


def kept(output: Any) -> list[Any]:
    """Return a copy of each output."""
    return [copied(leaf) if is_array(leaf) else copy.copy(leaf) for leaf in leaves(output)]


def check_again(case: Case, first: list[Any], timed: list[Any], per_launch: float) -> None:
    """Compare outputs of timed launches that are still there, then those of new launches; Wrong with their number.

    Two launches may differ by twice the tolerance, as each may differ from the reference by the tolerance. If most
    launches differ from the first one, it is that one which is wrong.
    """
    number = max(LEAST_LAUNCHES, min(LAUNCHES, int(SECONDS / max(per_launch, 1e-9))))
    wrong = faults(case, first, timed, number)
    if 2 * len(wrong) > number + len(timed):
        other = faults(case, kept(launched(case)), timed, number)
        wrong = min(wrong, other, key=len)
    if wrong:
        found = f"wrong in {len(wrong)} of {number + len(timed)} launches after the timing"
        raise Wrong("wrong-output", f"{found}: largest error against an earlier launch is {wrong[0]}")


def launched(case: Case) -> Any:
    """Launch once on restored inputs."""
    restore(case.saved)
    output = case.launch()
    case.synchronize()
    return output


def faults(case: Case, expected: list[Any], timed: list[Any], number: int) -> list[Difference]:
    """Return how the outputs of each wrong launch differ from the expected ones."""
    outputs = itertools.chain(timed, (launched(case) for _ in range(number)))  # one at a time is held in memory
    return [found for found in (fault(case, output, expected) for output in outputs) if found]


def fault(case: Case, output: Any, expected: list[Any]) -> Difference | None:
    """Return the first output of a launch that differs by more than twice its tolerance."""
    tolerances, declared = case.request.get("tolerance", {}), case.request["params"].get("dtype")
    for (name, out), ref in zip(named(output), expected):
        if is_array(out) and same(out, ref):
            continue
        found = difference(name, out, ref, 2 * tolerance_of(name, out, tolerances, declared))
        if found.is_wrong:
            return found
    return None
