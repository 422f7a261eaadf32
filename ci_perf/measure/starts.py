"""Starts of the workers of both sides: all that import at the same time, so that a package is waited for once.

Processes that descend from one start of the workers may be of one kind (`judge.looks`), so a case that seems changed
takes each further pair from workers that started anew. Importing a large package takes hardly longer in thirteen
processes at once than in three, where there are cores for them (`baselines/h200/projects.md`). So the starts of several
pairs are made at once, and before they are needed where cores would be idle otherwise.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ci_perf.measure import cpu
from ci_perf.measure.base import Base
from ci_perf.measure.worker_process import Worker, entry_request
from ci_perf.values.job import Job

MOST_PRELOADED = 8
"""Kernels that each worker imports before they are asked for: each import takes a core and memory."""
GUESSED = 5
"""So many starts, one pair of each, decide a change of 3 to 20 % in a run of up to 17 cases (`judge.looks`)."""
MOST_GUESSED = 2
"""Where a run has more kernels on a GPU, no start is made before a case seems changed."""
WORKER_BYTES = 1 << 30
"""Memory that is allowed for a process that has imported torch or a kernel."""


class Starts:
    """The workers of head and base, and those that take their places."""

    def __init__(self, head: Worker, root: Path, base: Base | None) -> None:
        """`root` is the tree of the head."""
        self._head = head
        self._root = root
        self._base = base

    def preload(self, jobs: Sequence[Job], *, control: bool = False) -> None:
        """Let the workers import the first kernels, if they have not, without waiting for it; the control, too."""
        for worker, entries in self._sides(jobs, control=control):
            worker.preload(entries)

    def guess(self, jobs: Sequence[Job]) -> None:
        """Begin the starts that are needed if a case seems changed, where cores would be idle otherwise."""
        on_gpu = {job.spec.name for job in jobs if job.device == "cuda"}
        if self._base is not None and 0 < len(on_gpu) <= MOST_GUESSED:
            self._begin(jobs, min(GUESSED, self._at_once(len(on_gpu), importing=3)))

    def anew(self, jobs: Sequence[Job], pairs: int) -> None:
        """End the workers of both sides; others take their places, of which so many pairs start at the same time.

        The worker of the control stays: it takes turns with the new ones of the base.
        """
        for worker, _ in self._sides(jobs):
            worker.end()
        if not self.wait():
            kernels = len({job.spec.name for job in jobs})
            self._begin(jobs, min(pairs, max(1, self._at_once(kernels))))
            self.wait()

    def wait(self) -> bool:
        """Wait until all have imported their kernels; return whether each side has one that can take over."""
        return min(worker.wait_ahead() for worker, _ in self._sides(())) > 0

    def close(self) -> None:
        """End the workers of both sides, and of the control."""
        for worker, _ in self._sides((), control=True):
            worker.close()

    def _begin(self, jobs: Sequence[Job], count: int) -> None:
        for worker, entries in self._sides(jobs):
            worker.start_ahead(count, entries)

    def _at_once(self, kernels: int, importing: int = 0) -> int:
        return at_once(kernels, cpu.usable_cores(), cpu.available_bytes() or 0, importing=importing)

    def _sides(self, jobs: Sequence[Job], *, control: bool = False) -> list[tuple[Worker, list[dict[str, Any]]]]:
        """Return the worker of each side, and of the control, and what it is to import for these jobs."""
        specs = list({job.spec.name: job.spec for job in jobs}.values())[:MOST_PRELOADED]
        sides = [(self._head, [entry_request(spec, self._root) for spec in specs])]
        if self._base is not None:
            side = self._base.side
            known = [side.kernels[spec.name] for spec in specs if spec.name in side.kernels]
            entries = [entry_request(spec, side.root) for spec in known]
            sides += [(side.worker, entries), *([(self._base.control.worker, entries)] if control else [])]
        return sides


def at_once(kernels: int, cores: int, available_bytes: int, *, importing: int = 0) -> int:
    """Return for how many starts of both sides, with so many kernels each, there are cores and memory.

    `importing` processes are at work already. Half of the available memory is left to the cases.

    >>> gb = 10**9
    >>> at_once(1, 16, 100 * gb, importing=3), at_once(1, 16, 20 * gb), at_once(1, 2, 20 * gb, importing=3)
    (6, 2, 0)
    """
    for_cores = (cores - importing) // 2
    for_memory = available_bytes // 2 // (2 * (1 + kernels) * WORKER_BYTES)
    return max(0, min(for_cores, for_memory))
