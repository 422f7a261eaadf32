"""Compiles kernels before they are verified and timed, the cases of both sides at once: each can take a minute."""

import contextlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

from ci_perf.measure.conditions import Conditions
from ci_perf.measure.side import Side
from ci_perf.measure.temporary import temporary_folder
from ci_perf.measure.worker_process import START_TIMEOUT_S
from ci_perf.values.job import Job
from ci_perf.values.kernel import CONTIGUOUS
from ci_perf.values.measurement import Failure

STAGE = "compile"
"""The seconds of all processes that compile a case ahead; several run at the same time."""


class CompileAhead:
    """Launches the jobs on a GPU once, kernel by kernel, for as long as a block runs; waits for the last at its end.

    With several `processes`, the cases of head and base are compiled at once, each before it is verified. The first
    case of the head is verified meanwhile, unless Triton tunes a kernel: the tuning needs all code, and the GPU for
    itself. With one process, only the base is compiled, while the head is verified, and no kernel that is tuned.
    Failures are ignored: they come again when the job is verified or timed.
    """

    def __init__(
        self, head: Side, base: Side | None, jobs: Sequence[Job], conditions: Conditions, *, processes: int
    ) -> None:
        self._head = head
        self._base = base
        self._conditions = conditions
        self._processes = processes
        self._kernels: dict[str, list[Job]] = {}
        for job in jobs:
            if job.device == "cuda" and job.strides == CONTIGUOUS:
                self._kernels.setdefault(job.spec.name, []).append(job)
        self._begun: set[str] = set()
        self._head_at_work: str | None = None
        """The kernel whose cases the head compiles at the moment."""
        self._of_base: list[Future[None]] = []
        self._thread = ThreadPoolExecutor(1)
        self._stack = contextlib.ExitStack()
        self._slots: str | None = None
        """The folder of a file for each process that may compile at the same time."""
        self._stopped = False

    def __enter__(self) -> Self:
        if self._processes > 1 and self._kernels:
            slots = self._stack.enter_context(temporary_folder("ci-perf-slots-")) / "slots"
            slots.mkdir()
            for number in range(self._processes):
                (slots / str(number)).touch()
            self._slots = str(slots)
        else:
            for name in self._kernels:
                self._begin_base(name)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._wait_for_head()
            else:
                self._kill()
        finally:
            self._thread.shutdown()
            self._stack.close()

    def before(self, job: Job) -> None:
        """Begin to compile the kernel of a job that will be verified next, or wait until the job is compiled."""
        name = job.spec.name
        if self._slots is None or self._stopped or job.device != "cuda" or name not in self._kernels:
            return
        if name in self._begun:
            if name == self._head_at_work and job in self._kernels[name]:
                self._collect(self._head, name, case=self._kernels[name].index(job))
            return
        self._wait_for_head()
        self._begun.add(name)
        self._begin_base(name)
        if self._begin_head(name):
            self._wait_for_head()
            self._wait_for_base()

    def stop(self) -> bool:
        """Compile nothing more; return whether something was compiled until now, which held memory on the GPU.

        The base's worker is killed: it starts again at its next request.
        """
        was_at_work = self._head_at_work is not None
        self._wait_for_head(give_up=True)
        return self._stop_base() or was_at_work

    def _stop_base(self) -> bool:
        self._stopped = True
        if self._base is None or all(work.done() for work in self._of_base):
            return False
        self._base.worker.kill()
        self._wait_for_base()
        self._base.worker.end()
        return True

    def _kill(self) -> None:
        """Let neither side compile any longer, nor wait for it."""
        if self._head_at_work is not None:
            self._head_at_work = None
            self._head.worker.end()
        self._stop_base()

    def _begin_head(self, name: str) -> bool:
        """Let the head begin; return whether its kernel is tuned."""
        answer = self._head.worker.ask(self._request(self._head, name, but_first=True), self._limit_s(name, 1))
        if isinstance(answer, Failure):
            return False
        self._head_at_work = name if answer["begun"] else None
        return bool(answer["tuned"])

    def _wait_for_head(self, **more: object) -> None:
        if self._head_at_work is not None:
            name, self._head_at_work = self._head_at_work, None
            self._collect(self._head, name, **more)

    def _begin_base(self, name: str) -> None:
        if self._base is not None and name in self._base.kernels:
            if all(work.done() for work in self._of_base):
                self._base.worker.begin()  # not in the thread: Linux ends a worker with the thread that started it
            self._of_base.append(self._thread.submit(self._compile_base, self._base, name))

    def _wait_for_base(self) -> None:
        for work in self._of_base:
            work.exception()

    def _compile_base(self, base: Side, name: str) -> None:
        if not self._stopped and base.worker.is_begun:
            answer = base.worker.ask(self._request(base, name), self._limit_s(name, 1))
            if not isinstance(answer, Failure) and not self._stopped:
                self._collect(base, name)

    def _collect(self, side: Side, name: str, **more: object) -> None:
        """Wait until a side has compiled its cases, or the one with the number `case`, and count their time."""
        jobs = self._kernels[name]
        request = {**self._request(side, name), "op": "compiled", **more}
        answer = side.worker.ask(request, self._limit_s(name, len(jobs)))
        for number, case in ({} if isinstance(answer, Failure) else answer["cases"]).items():
            if seconds := sum(case.get("spent", {}).values()):
                self._conditions.spent.add(jobs[int(number)], side.name, {"spent": {STAGE: seconds}})

    def _request(self, side: Side, name: str, **more: object) -> dict[str, Any]:
        """Return the request to compile all cases of a kernel."""
        jobs = self._kernels[name]
        limits = {"processes": min(self._processes, len(jobs)), "timeout_s": self._conditions.timeout_of(jobs[0])}
        slots = {} if self._slots is None else {"slots": self._slots}
        cases = [side.request(job) for job in jobs]
        return {**cases[0], "op": "compile", "cases": cases, **limits, **slots, **more}

    def _limit_s(self, name: str, cases: int) -> float:
        """Return the time limit for the import of a kernel, and for cases one after the other, in seconds."""
        return START_TIMEOUT_S + cases * self._conditions.timeout_of(self._kernels[name][0])
