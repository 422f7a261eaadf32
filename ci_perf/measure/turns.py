"""Base and head in turns: two resident processes on one device that alternate in short bursts."""

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ci_perf.measure.conditions import Conditions
from ci_perf.measure.side import Side, SideFailure
from ci_perf.measure.side_answers import (
    Round,
    imported_the_other,
    launched_kernels,
    mixed_methods,
    pair_of,
    runs_same_code,
)
from ci_perf.measure.worker_process import rest
from ci_perf.values.job import Job
from ci_perf.values.measurement import Failure, Pair, SameCode

ROUNDS = 10
"""Even, so that each side goes first as often as the other; each round uses another placement of the data."""
SAMPLES = 2
"""Samples of one side in one round; the first after the other side's turn is dropped by the worker."""
SAMPLE_S = {"cuda": 2e-3, "cpu": 2e-3}
"""A sample lasts at least this long: the resolution of an event is 0.5 us, 0.025 % of it."""
WARM_UP_S = {"cuda": 0.25, "cpu": 0.05}
"""Seconds of turns before a round counts: an idle GPU runs at a fraction of its clock."""
STILL_WARM_S = {"cuda": 0.08, "cpu": 0.05}
"""The same directly after another case."""
NOT_BOTH = frozenset({"out-of-memory", "device-taken"})
"""Reason codes of failures that can vanish when one side runs alone."""
ALONE_SAMPLES = 20
"""Samples of a side that runs alone, where both do not fit on the GPU."""
TIMED_SAME = 3
"""So many cases whose machine code is the same on both sides are timed all the same, as controls of the session."""


class TurnTaking:
    """Two sides that take turns, case after case."""

    def __init__(
        self, sides: tuple[Side, Side], conditions: Conditions, *, identify: bool = True, skip_same: bool = False
    ) -> None:
        """The first of `sides` is the base; what the conditions plant slows the second one down.

        `identify` compares the machine code of both sides; where something is planted, it differs. `skip_same` times
        only the first TIMED_SAME cases whose machine code is the same, unless the conditions say to time all.
        """
        self._sides = sides
        self._conditions = conditions
        self._names = tuple(side.name for side in sides)
        """By which the time is counted; base against itself is the control."""
        if self._names == ("base", "base"):
            self._names = ("control", "control")
        self._identify = identify and not conditions.planted
        self._skip_same = skip_same and not conditions.time_identical
        self._timed_same: set[str] = set()
        """Cases of the same machine code that are timed all the same."""
        self._restored: set[str] = set()
        """Cases that work in place on one side only."""
        self._alone: set[str] = set()
        """Cases of which only one side at a time fits on the device."""
        self._not_captured: dict[str, tuple[str, ...]] = {}
        """Cases that the wall clock times, as only one side can be captured in a CUDA graph: why base and head not."""

    def pairs(self, jobs: Sequence[Job], number: int) -> Iterator[tuple[Job, Pair | SameCode | SideFailure]]:
        """Measure a pair of each job, the jobs of one kernel in one fresh pair of processes.

        Jobs share processes because a GPU context takes longer than a case. `number` counts the pairs of a run: it
        rotates the jobs, so that no case always follows the same one, and alternates which side goes first.
        """
        try:
            for group in _by_kernel(jobs):
                first = number % len(group)
                fresh = True
                for job in (*group[first:], *group[:first]):
                    found = self._pair(job, number, fresh=fresh)
                    fresh = isinstance(found, SideFailure) or job.id in self._alone
                    yield job, found
        finally:
            self._rest()

    def _pair(self, job: Job, number: int, *, fresh: bool) -> Pair | SameCode | SideFailure:
        with self._conditions.spent.waiting(job, self._names):
            try:
                if job.id not in self._alone:
                    return self._resident_pair(job, number, fresh=fresh)
            except SideFailure as failed:
                if failed.failure.code not in NOT_BOTH:
                    return failed
            try:
                alone = self._alternate(job, number)
            except SideFailure as failed:
                return failed
            self._alone.add(job.id)
            return alone

    def _resident_pair(self, job: Job, number: int, *, fresh: bool) -> Pair | SameCode:
        """Make both sides alike and let them take turns; SideFailure."""
        ready = self._make_ready(job, number, fresh=fresh)
        launched = [launched_kernels(answer) for answer in ready]
        if self._lost_capture(job, ready):
            fresh = True
            ready = self._make_ready(job, number, fresh=fresh)
        if self._restored_on_one_side(job, ready):
            fresh = True
            ready = self._make_ready(job, number, fresh=fresh)
        if mixed := mixed_methods(ready) or imported_the_other(self._sides, ready):
            raise SideFailure("base", mixed)
        if self._is_proven(job, ready):
            return SameCode()
        step = math.lcm(*(answer["step"] for answer in ready))  # only whole launches can be planted
        shape = {
            "launches": -(-max(answer["launches"] for answer in ready) // step) * step,
            "placements": min(answer["placements"] for answer in ready),
        }
        # The wait of a kernel's own threads is not known: without that of the other side, these would seem slower.
        keeps_waits = any(answer.get("has_threads") for answer in ready)
        request = {"op": "alike", "same": True, **shape, "keeps_waits": keeps_waits}
        alike = self._both(job, [request] * 2, number)
        warm_up_s = (WARM_UP_S if fresh else STILL_WARM_S)[job.device]
        with self._conditions.watch(job) as watch:
            rounds = self._take_turns(job, number, warm_up_s, method=str(ready[0]["method"]))
        for index, side in enumerate(self._sides):
            if _is_checked(side, job):
                self._ask(job, index, {"op": "check", "same": True})
        facts = [{**a, **b} for a, b in zip(ready, alike, strict=True)]
        pair = pair_of(rounds, facts, shape, watch, self._not_captured.get(job.id, ()))
        if number:
            return pair
        base, head = (
            launched_kernels(answer) or before for answer, before in zip(ready, launched, strict=True)
        )  # the clock tells none
        return replace(pair, base_kernels=base, head_kernels=head)

    def _lost_capture(self, job: Job, answers: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether only one side was captured in a CUDA graph; from then on the wall clock times both.

        CUPTI could time both, too, but would not see the synchronisation that most often prevents a capture.
        """
        reasons = tuple(
            str(answer["not_captured"]).replace(f"{side.root}/", "")
            for side, answer in zip(self._sides, answers, strict=True)
        )
        if job.spec.l2 == "cold" or all(reasons) or not any(reasons):
            return False
        self._not_captured[job.id] = reasons
        return True

    def _restored_on_one_side(self, job: Job, answers: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether only one side works in place; from then on both are timed in the way of such kernels."""
        restored = [str(answer["method"]).partition("/")[0].endswith("-restored") for answer in answers]
        if all(restored) or not any(restored):
            return False
        self._restored.add(job.id)
        return True

    def _is_proven(self, job: Job, ready: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether both sides run the same code, and the case is not one of those that are timed as controls."""
        if not self._skip_same or not runs_same_code(ready) or ready[0]["memory_bytes"] != ready[1]["memory_bytes"]:
            return False
        if len(self._timed_same) < TIMED_SAME:
            self._timed_same.add(job.id)
        return job.id not in self._timed_same

    def _timer(self, job: Job) -> dict[str, Any]:
        """Return the part of a request that says how to time a case whose sides would choose differently."""
        way: dict[str, Any] = {"time": "wall"} if job.id in self._not_captured else {}
        return {**way, "restore": True} if job.id in self._restored else way

    def _make_ready(self, job: Job, number: int, *, fresh: bool) -> list[dict[str, Any]]:
        """Let both sides make the inputs of a case and choose a timer."""
        wishes = {
            "op": "ready",
            "placements": ROUNDS,
            "least_s": SAMPLE_S[job.device],
            "identify": self._identify,
            **({} if fresh else {"same": True}),
            **self._timer(job),
        }
        planted = zip(self._sides, (None, self._conditions.planted), strict=True)
        requests = [
            side.request(job, **wishes, planted=slowdown, check=_is_checked(side, job)) for side, slowdown in planted
        ]
        return self._both(job, requests, number)

    def _alternate(self, job: Job, number: int) -> Pair:
        """Time the sides one after the other, each alone on the device; SideFailure."""
        with self._conditions.watch(job) as watch:
            answers = self._each_alone(job, number)
            if self._lost_capture(job, answers) or self._restored_on_one_side(job, answers):
                answers = self._each_alone(job, number)
        if mixed := mixed_methods(answers):
            raise SideFailure("base", mixed)
        method = f"{answers[0]['method']}/alternating"
        found = {"launches": max(a["launches"] for a in answers), "placements": 1}
        ready = [{**answer, "method": method, "code": None, "inputs": None} for answer in answers]
        not_captured = self._not_captured.get(job.id, ())
        return pair_of([(answers[0], answers[1])], ready, found, watch, not_captured, at_once=1)

    def _rest(self) -> None:
        rest(*(side.worker for side in self._sides))

    def _each_alone(self, job: Job, number: int) -> list[dict[str, Any]]:
        """Return the answers of base and head, each timed while the other is not on the device; SideFailure."""
        answers: dict[int, dict[str, Any]] = {}
        for index in _order(number):
            self._rest()
            planted = self._conditions.planted if index else None
            side = self._sides[index]
            more = {"samples": ALONE_SAMPLES, "planted": planted, "check": _is_checked(side, job), **self._timer(job)}
            answers[index] = self._ask(job, index, side.request(job, op="time", **more))
        return [answers[0], answers[1]]

    def _both(self, job: Job, requests: Sequence[Mapping[str, Any]], number: int) -> list[dict[str, Any]]:
        """Send both requests at once, to base or head first depending on `number`, and return both answers."""
        for index in _order(number):
            self._sides[index].worker.send(requests[index])
        timeout_s = self._conditions.timeout_of(job)
        answers = [side.worker.receive(timeout_s) for side in self._sides]
        for name, answer in zip(self._names, answers, strict=True):
            self._conditions.spent.add(job, name, answer)
        return [self._sound(index, answer) for index, answer in enumerate(answers)]

    def _ask(self, job: Job, index: int, request: Mapping[str, Any]) -> dict[str, Any]:
        answer = self._sides[index].worker.ask(request, self._conditions.timeout_of(job))
        self._conditions.spent.add(job, self._names[index], answer)
        return self._sound(index, answer)

    def _sound(self, index: int, answer: dict[str, Any] | Failure) -> dict[str, Any]:
        if isinstance(answer, Failure):
            raise SideFailure(self._sides[index].name, answer)
        return answer

    def _take_turns(self, job: Job, number: int, warm_up_s: float, *, method: str) -> list[Round]:
        """Alternate base head, head base; rounds before the device is warm are dropped.

        By the wall clock both sides run on one core, another one for each pair: cores differ by several percent.
        """
        rounds: list[Round] = []
        cores = sorted(os.sched_getaffinity(0))
        place = {"core": cores[number % len(cores)]} if method.startswith("wall") else {}
        started = time.monotonic()
        turn = 0
        while len(rounds) < ROUNDS:
            taken: dict[int, dict[str, Any]] = {}
            request = {"op": "turn", "same": True, "samples": SAMPLES, "placement": turn, **place}
            for index in _order(number + turn):
                taken[index] = self._ask(job, index, request)
            turn += 1
            if rounds or time.monotonic() - started >= warm_up_s:
                rounds.append((taken[0], taken[1]))
        return rounds


def _is_checked(side: Side, job: Job) -> bool:
    """Return whether the outputs of a side are checked after the timing: those of the head's kernel are."""
    return side.name == "head" and job.target == "launch"


def _order(number: int) -> tuple[int, int]:
    return (0, 1) if number % 2 == 0 else (1, 0)


def _by_kernel(jobs: Sequence[Job]) -> list[list[Job]]:
    """Group the jobs by kernel and device: the cases of one kernel share their process, and no other's."""
    groups: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        groups.setdefault((job.spec.name, job.device), []).append(job)
    return list(groups.values())
