"""What the answers of base and head say together: whether their times can be compared, and the pair that they make."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ci_perf.measure.one_install import project_of
from ci_perf.measure.side import Side
from ci_perf.measure.watch import Watch, facts, mean_clock
from ci_perf.values.measurement import Failure, MemoryPeaks, Pair
from ci_perf.values.trace import LaunchedKernel

DIGITS = 12
"""Digits that are kept of the hash of the shapes of a side's inputs."""
Round = tuple[dict[str, Any], dict[str, Any]]
"""The answers of base and head to one turn each."""


def runs_same_code(ready: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the machine code of both sides is known and the same."""
    return ready[0]["code"] is not None and ready[0]["code"] == ready[1]["code"]


def mixed_methods(answers: Sequence[Mapping[str, Any]]) -> Failure | None:
    """Return a Failure where the sides chose different methods: their times would differ without a change."""
    methods = {answer["method"] for answer in answers}
    if len(methods) == 1:
        return None
    message = f"the sides can only be timed by different methods: {', '.join(sorted(methods))}"
    return Failure("time", "mixed-methods", message)


def imported_the_other(sides: tuple[Side, Side], ready: Sequence[Mapping[str, Any]]) -> Failure | None:
    """Return a Failure where one side imported a file of the other: both would measure the same code."""
    if sides[0].root == sides[1].root:
        return None
    for index, answer in enumerate(ready):
        own, other = sides[index], sides[1 - index]
        here, there = own.root.resolve(), other.root.resolve()
        for file in answer["files"]:
            path = Path(file)
            if path.is_relative_to(there) and not path.is_relative_to(here):
                shown = path.relative_to(there)
                message = f"the {own.name} imported {shown} of the {other.name}: nothing would be compared"
                return Failure("time", "same-code", message)
    for name, file in ready[0]["installed"].items():
        if ready[1]["installed"].get(name) == file and _is_source_of(sides[0].root, name):
            message = f"both sides imported `{name}` as it is installed, not as their trees have it"
            return Failure("time", "same-code", f"{message}: nothing would be compared", file)
    return None


def _is_source_of(root: Path, package: str) -> bool:
    """Return whether a tree holds the source of a package: at its top, below `src` or `python`, or as its project."""
    places = (root, root / "src", root / "python")
    files = (place / name for place in places for name in (f"{package}/__init__.py", f"{package}.py"))
    return package == project_of(root) or any(file.is_file() for file in files)


def launched_kernels(answer: Mapping[str, Any]) -> tuple[LaunchedKernel, ...]:
    """Return the GPU kernels of one launch that a side's answer tells."""
    return tuple(
        LaunchedKernel(**{**facts, "grid": tuple(facts["grid"]), "block": tuple(facts["block"])})
        for facts in answer.get("kernels", ())
    )


def share_waited(answers: Sequence[Mapping[str, Any]]) -> float:
    """Return the share of the time of samples in which their thread waited for a core, to 4 digits."""
    whole = sum(answer["window"][1] - answer["window"][0] for answer in answers)
    return round(min(1.0, sum(answer["waited"] for answer in answers) / whole), 4) if whole > 0 else 0.0


def _instructions(rounds: Sequence[Round]) -> tuple[float, ...]:
    """Return the instructions of one launch of base and of head, the medians over their rounds; empty: unknown."""
    counts = [[answers[i]["instructions"] for answers in rounds] for i in (0, 1)]
    if any(not count for side in counts for count in side):
        return ()
    return tuple(float(f"{statistics.median(side):.9g}") for side in counts)


def pair_of(
    rounds: Sequence[Round],
    ready: Sequence[Mapping[str, Any]],
    shape: Mapping[str, int],
    watch: Watch,
    not_captured: tuple[str, ...],
    *,
    at_once: int | None = None,
) -> Pair:
    base, head = ([statistics.median(r[i]["seconds"]) for r in rounds] for i in (0, 1))
    states = [[state for r in rounds for state in watch.between(*r[i]["window"])] for i in (0, 1)]
    clocks = [mean_clock(seen) for seen in states]
    every = [state for seen in states for state in seen]
    pids = frozenset(answer["pid"] for answer in ready)
    return Pair(
        base=tuple(base),
        head=tuple(head),
        launches=shape["launches"],
        method=ready[0]["method"],
        clocks=round(clocks[1] / clocks[0], 6) if clocks[0] and clocks[1] else None,
        placements=shape["placements"],
        planted=float(f"{ready[1]['planted']:.6g}"),
        identical=runs_same_code(ready),
        other_inputs=None not in (ready[0]["inputs"], ready[1]["inputs"]) and ready[0]["inputs"] != ready[1]["inputs"],
        shapes=tuple(str(answer["shapes"])[:DIGITS] for answer in ready),
        waited=share_waited([answer for answers in rounds for answer in answers]),
        instructions=_instructions(rounds),
        memory=MemoryPeaks(*(answer["memory_bytes"] for answer in ready)),
        not_captured=not_captured,
        disturbed=watch.disturbances(every, pids, at_once=at_once),
        **{**facts(every), "sm_clock_hz": facts(states[1])["sm_clock_hz"]},  # the head's clock
    )
