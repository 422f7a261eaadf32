"""Compiles the kernels of the base while those of the head are verified: either can take a minute."""

import contextlib
import threading
from collections.abc import Sequence
from typing import Self

from ci_perf.measure.conditions import Conditions
from ci_perf.measure.side import Side
from ci_perf.values.job import Job
from ci_perf.values.measurement import Failure
from ci_perf.values.reasons import Reason


class CompileAhead:
    """Launches jobs on a GPU once on the base, in a thread, for as long as a block runs; waits for it at the end.

    Failures are ignored: they come again when the job is timed.
    """

    def __init__(self, base: Side | None, jobs: Sequence[Job], conditions: Conditions) -> None:
        self._base = base
        known = base.kernels if base else {}
        self._jobs = [job for job in jobs if job.device == "cuda" and job.spec.name in known]
        self._conditions = conditions
        self._thread = threading.Thread(target=self._compile, daemon=True)
        self._stopped = False

    def __enter__(self) -> Self:
        if self._jobs:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.stop()
        elif self._jobs:
            self._thread.join()

    def stop(self) -> bool:
        """Kill the base's worker, which starts again at its next request; return whether it was still at work."""
        if self._base is None or not self._jobs or not self._thread.is_alive():
            return False
        self._stopped = True
        self._base.worker.kill()
        self._thread.join()
        self._base.worker.end()
        return True

    def _compile(self) -> None:
        """Launch the jobs of each kernel in one process, until one of them exceeds its time limit."""
        resident: str | None = None
        with contextlib.suppress(Exception, KeyboardInterrupt):  # the worker was killed
            if self._base is None:
                return
            for job in self._jobs:
                request = self._base.request(job, op="compile", same=resident == job.spec.name)
                answer = self._base.worker.ask(request, self._conditions.timeout_of(job))
                self._conditions.spent.add(job, "base", answer)
                resident = None if isinstance(answer, Failure) else job.spec.name
                if self._stopped or (isinstance(answer, Failure) and answer.code == Reason.TIMEOUT):
                    return
            self._base.worker.rest()
