"""Base and head in turns: two resident processes on one device, each measuring short bursts while the other waits."""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ci_perf.core.model import Failure, KernelSpec, Pair
from ci_perf.core.plan import Job
from ci_perf.edge import gpu
from ci_perf.edge.worker_process import Worker

ROUNDS = 10
SAMPLES = 3
"""Samples of one side in one round; the first after the other side's turn is dropped by the worker."""
WARM_UP_S = {"cuda": 0.25, "cpu": 0.05}
"""For so long both sides take turns before a round counts: an idle GPU runs at a fraction of its clock."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two commits: where its files lie, its kernels, and the worker that runs them."""

    name: str
    """`base` or `head`."""
    root: Path
    kernels: Mapping[str, KernelSpec]
    worker: Worker

    def request(self, job: Job, **more: object) -> dict[str, Any]:
        """Return a request for a case: this side's code, the head's parameters."""
        spec = self.kernels[job.spec.name]
        return {
            "entry": str(self.root / spec.folder / spec.entry),
            "params": dict(job.params),
            "device": job.device,
            "target": job.target,
            "seed": 0,
            "l2": job.spec.l2,
            **more,
        }


@dataclass(frozen=True, slots=True)
class SideFailure:
    """A side that could not be timed."""

    side: str
    failure: Failure


def measure_pair(
    job: Job, sides: tuple[Side, Side], *, gpu_uuid: str | None, timeout_s: float, planted: float | None = None
) -> Pair | SideFailure:
    """Start a fresh process of each side, make them alike, and let them take turns.

    The first of `sides` is the base. Both start at once, as most of the time goes into their GPU contexts. `planted`
    slows the second side down.
    """
    ready = _both(
        sides,
        [side.request(job, op="ready", planted=planted if i else None) for i, side in enumerate(sides)],
        timeout_s,
    )
    if isinstance(ready, SideFailure):
        return ready
    methods = {answer["method"] for answer in ready}
    if len(methods) > 1:
        message = f"the sides can only be timed by different methods: {', '.join(sorted(methods))}"
        return SideFailure("base", Failure("time", "mixed-methods", message))
    mixed = _same_code(sides, ready)
    if mixed:
        return SideFailure("base", Failure("time", "same-code", mixed))
    launches = max(answer["launches"] for answer in ready)
    alike = _both(sides, [{"op": "ready", "same": True, "launches": launches}] * 2, timeout_s)
    if isinstance(alike, SideFailure):
        return alike
    with gpu.Watch(gpu_uuid if job.device == "cuda" else None) as watch:
        rounds = _take_turns(sides, WARM_UP_S[job.device], timeout_s)
    if isinstance(rounds, SideFailure):
        return rounds
    return _pair(rounds, launches, methods.pop(), watch)


def _same_code(sides: tuple[Side, Side], ready: Sequence[Mapping[str, Any]]) -> str:
    """Say which file of one commit the other's process imported: then both would measure the same code."""
    for index, answer in enumerate(ready):
        own, other = sides[index], sides[1 - index]
        if own.root == other.root:
            return ""
        for file in answer["files"]:
            path = Path(file)
            if path.is_relative_to(other.root) and not path.is_relative_to(own.root):
                shown = path.relative_to(other.root)
                return f"the {own.name} imported {shown} of the {other.name}: nothing would be compared"
    return ""


def _both(
    sides: Sequence[Side], requests: Sequence[Mapping[str, Any]], timeout_s: float
) -> list[dict[str, Any]] | SideFailure:
    """Ask both sides at once."""
    for side, request in zip(sides, requests, strict=True):
        side.worker.send(request)
    answers = [(side, side.worker.receive(timeout_s)) for side in sides]
    for side, answer in answers:
        if isinstance(answer, Failure):
            return SideFailure(side.name, answer)
    return [answer for _, answer in answers if not isinstance(answer, Failure)]


_Round = tuple[dict[str, Any], dict[str, Any]]


def _take_turns(sides: tuple[Side, Side], warm_up_s: float, timeout_s: float) -> list[_Round] | SideFailure:
    """Alternate base head, head base; the rounds before the device is warm are dropped."""
    rounds: list[_Round] = []
    started = time.monotonic()
    number = 0
    while len(rounds) < ROUNDS:
        order = (0, 1) if number % 2 == 0 else (1, 0)
        taken: dict[int, dict[str, Any]] = {}
        for index in order:
            answer = sides[index].worker.ask({"op": "turn", "same": True, "samples": SAMPLES}, timeout_s)
            if isinstance(answer, Failure):
                return SideFailure(sides[index].name, answer)
            taken[index] = answer
        number += 1
        if rounds or time.monotonic() - started >= warm_up_s:
            rounds.append((taken[0], taken[1]))
    return rounds


def _pair(rounds: Sequence[_Round], launches: int, method: str, watch: gpu.Watch) -> Pair:
    base, head = ([statistics.median(r[i]["seconds"]) for r in rounds] for i in (0, 1))
    states = [[state for r in rounds for state in watch.between(*r[i]["window"])] for i in (0, 1)]
    clocks = [_mean_clock(seen) for seen in states]
    every = [state for seen in states for state in seen]
    return Pair(
        base=tuple(base),
        head=tuple(head),
        launches=launches,
        method=method,
        clocks=round(clocks[1] / clocks[0], 6) if clocks[0] and clocks[1] else None,
        temperature_c=max((s.temperature_c for s in every if s.temperature_c is not None), default=None),
        throttle_reasons=tuple(sorted({reason for s in every for reason in s.throttle_reasons or ()})),
    )


def _mean_clock(states: Sequence[gpu.State]) -> float | None:
    clocks = [state.sm_clock_hz for state in states if state.sm_clock_hz]
    return statistics.fmean(clocks) if clocks else None
