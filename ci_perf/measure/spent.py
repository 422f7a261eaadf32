"""Where the seconds of a run go: by case, side and stage."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ci_perf.values.job import Job

WAITING = "waiting"
"""The stage in which a process waits for the other side, is started, or ends."""


class Spent:
    """Seconds by case, side (`head`, `base` or `control`) and stage, summed over all processes."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, str], dict[str, dict[str, float]]] = {}

    def of(self, case: str, device: str) -> dict[str, dict[str, float]]:
        """Return the seconds of `kernel/case` on a kind of device, by side and stage, to the millisecond."""
        sides = self._seconds.get((case, device), {})
        return {side: {name: round(s, 3) for name, s in stages.items()} for side, stages in sides.items()}

    def add(self, job: Job, side: str, answer: object) -> None:
        """Add the stages of a worker's answer; an answer that has none, or a failure, adds nothing."""
        if isinstance(answer, Mapping):
            for stage, seconds in answer.get("spent", {}).items():
                self._stages(job, side)[stage] = self._stages(job, side).get(stage, 0.0) + seconds

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
