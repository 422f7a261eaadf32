"""Starts of the workers of both sides: all that import at the same time, so that a package is waited for once.

Processes that descend from one start of the workers may be of one kind (`judge.looks`), so a case that seems changed
takes each further pair from workers that started anew. Importing flash-linear-attention took 9 s in three processes at
once and 15 s in thirteen, on 16 cores. So the starts of several pairs are made at once, but none before it is needed.
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
WORKER_BYTES = 1 << 30
"""Memory of a process that has imported torch or a kernel: 0.3 to 0.8 GB were measured."""


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

    def anew(self, jobs: Sequence[Job], pairs: int) -> None:
        """End the workers of both sides; others take their places, of which so many pairs start at the same time.

        The worker of the control stays: it takes turns with the new ones of the base.
        """
        for worker, _ in self._sides(jobs):
            worker.end()
        if not self._waited():
            kernels = len({job.spec.name for job in jobs})
            count = min(pairs, at_once(kernels, cpu.usable_cores(), cpu.available_bytes()))
            for worker, entries in self._sides(jobs):
                worker.start_ahead(count, entries)
            self._waited()  # they use cores until they have imported

    def close(self) -> None:
        """End the workers of both sides, and of the control."""
        for worker, _ in self._sides((), control=True):
            worker.close()

    def _waited(self) -> bool:
        """Wait until all have imported their kernels; return whether each side has one that can take over."""
        return min(worker.wait_ahead() for worker, _ in self._sides(())) > 0

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


def at_once(kernels: int, cores: int, available_bytes: int) -> int:
    """Return for how many starts of both sides, with so many kernels each, there are cores and memory; at least one.

    Half of the available memory is left to the cases.

    >>> gb = 10**9
    >>> at_once(1, 16, 100 * gb), at_once(1, 16, 20 * gb), at_once(1, 2, 20 * gb), at_once(9, 1, 0)
    (8, 2, 1, 1)
    """
    for_memory = available_bytes // 2 // (2 * (1 + kernels) * WORKER_BYTES)
    return max(1, min(cores // 2, for_memory))
