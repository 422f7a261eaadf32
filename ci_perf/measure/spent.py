"""Where the seconds of a run go: by case, side and stage."""

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ci_perf.values.job import Job
from ci_perf.values.reasons import Reason
from ci_perf.values.run import Note

WAITING = "waiting"
"""The stage in which a process waits for the other side, is started, or ends."""

SLOW_INPUTS_S = 1.0
"""A case whose inputs take this long in each process is named: a pair of it takes about a second otherwise."""


class Spent:
    """Seconds by case, side (`head`, `base` or `control`) and stage, summed over all processes."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
        self._inputs: dict[tuple[str, str], list[float]] = {}
        """Seconds for the inputs of a case in each process, by case and kind of device."""

    def of(self, case: str, device: str) -> dict[str, dict[str, float]]:
        """Return the seconds of `kernel/case` on a kind of device, by side and stage, to the millisecond."""
        sides = self._seconds.get((case, device), {})
        return {side: {name: round(s, 3) for name, s in stages.items()} for side, stages in sides.items()}

    def add(self, job: Job, side: str, answer: object) -> None:
        """Add the stages of a worker's answer; an answer that has none, or a failure, adds nothing."""
        if isinstance(answer, Mapping):
            if "inputs" in answer.get("spent", {}):
                self._inputs.setdefault((job.id, job.device), []).append(answer["spent"]["inputs"])
            for stage, seconds in answer.get("spent", {}).items():
                self._stages(job, side)[stage] = self._stages(job, side).get(stage, 0.0) + seconds

    def slow_inputs(self, jobs: Sequence[Job]) -> tuple[Note, ...]:
        """Return a note that names the cases on a GPU whose inputs take long in each process, if there are any."""
        drawn_on_cpu = [job for job in jobs if job.device == "cuda" and job.spec.rng == "cpu"]
        seconds = {job.id: statistics.fmean(self._inputs.get((job.id, job.device), [0.0])) for job in drawn_on_cpu}
        slow = {case: mean for case, mean in seconds.items() if mean >= SLOW_INPUTS_S}
        if not slow:
            return ()
        cases = ", ".join(f"{case} ({mean:.1f} s)" for case, mean in slow.items())
        message = f"make_inputs takes long in each process: {cases}"
        return (Note(Reason.SLOW_INPUTS, message, Reason.SLOW_INPUTS.hint),)

    @contextmanager
    def waiting(self, job: Job, sides: Sequence[str]) -> Iterator[None]:
        """Count as waiting what these sides did not spend on any stage of their own during a block."""
        before = {side: self._total(job, side) for side in sides}
        started = time.monotonic()
        yield
        wall = time.monotonic() - started
        for side, earlier in before.items():
            own = self._total(job, side) - earlier
            stages = self._stages(job, side)
            stages[WAITING] = stages.get(WAITING, 0.0) + max(0.0, sides.count(side) * wall - own)

    def _stages(self, job: Job, side: str) -> dict[str, float]:
        return self._seconds.setdefault((job.id, job.device), {}).setdefault(side, {})

    def _total(self, job: Job, side: str) -> float:
        return sum(self._stages(job, side).values())
