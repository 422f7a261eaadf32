"""The backend of Python kernels: each case runs in a fork of a worker process, or in turns with the base's worker."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ci_perf.measure.backend import Compared, Profiled, Verified
from ci_perf.measure.base import Base
from ci_perf.measure.compile_ahead import CompileAhead
from ci_perf.measure.conditions import Conditions
from ci_perf.measure.profile import Profiler
from ci_perf.measure.setup import why_no_base
from ci_perf.measure.side import Side, SideFailure
from ci_perf.measure.side_answers import share_waited
from ci_perf.measure.spare import compile_processes
from ci_perf.measure.starts import Starts
from ci_perf.measure.turns import NOT_BOTH, TurnTaking
from ci_perf.measure.watch import Watch, facts
from ci_perf.measure.worker_process import Worker, job_request
from ci_perf.values.job import Job
from ci_perf.values.kernel import CONTIGUOUS, KernelSpec
from ci_perf.values.measurement import Cost, Failure, Pair, Replicate, SameCode, Verification
from ci_perf.values.reasons import Reason
from ci_perf.values.run import Note

_OTHER_PARAMETERS = "make_inputs() got an unexpected keyword argument"
"""Python's message for an unknown parameter."""


class PythonKernels:
    """A `Backend` for kernels with a Python entry."""

    def __init__(
        self,
        conditions: Conditions,
        worker: Worker,
        profilers: Sequence[Profiler] = (),
        base: Base | None = None,
        *,
        identify: bool = True,
    ) -> None:
        """`identify` tells cases of the same machine code apart from those that only take as long."""
        self._conditions = conditions
        self._worker = worker
        self._profilers = profilers
        self._base = base
        self._heads: dict[str, KernelSpec] = {}
        self._starts = Starts(worker, conditions.root, base)
        if base is not None:
            head = Side("head", conditions.root, self._heads, worker)
            self._with_head = TurnTaking((base.side, head), conditions, identify=identify, skip_same=identify)
            self._control = TurnTaking((base.side, base.control), replace(conditions, planted=None), identify=identify)

    def notes(self, jobs: Sequence[Job]) -> tuple[Note, ...]:
        """Return nothing: there is nothing to note before Python kernels run."""
        del jobs
        return ()

    def preload(self, jobs: Sequence[Job]) -> None:
        """Let all workers begin to import the first kernels."""
        self._starts.preload(jobs, control=True)

    def verify(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Verified | Failure]]:
        """Compare each job's output with its reference, those of one kernel in one process.

        The job after a failure has a fresh process.
        """
        self.preload(jobs)
        self._starts.guess(jobs)
        resident: str | None = None
        head = Side("head", self._conditions.root, {job.spec.name: job.spec for job in jobs}, self._worker)
        base = self._base.side if self._base else None
        processes = compile_processes(self._conditions.gpu_uuid)
        with CompileAhead(head, base, jobs, self._conditions, processes=processes) as ahead:
            for job in jobs:
                ahead.before(job)
                kernel = f"{job.spec.name} on {job.device}"
                request = {"op": "verify", "same": resident == kernel}
                answer = self._ask(job, request | _strides_request(job))
                if isinstance(answer, Failure) and answer.code in NOT_BOTH and ahead.stop():
                    answer = self._ask(job, request | _strides_request(job) | {"same": False})
                resident = None if isinstance(answer, Failure) else kernel
                yield job, answer if isinstance(answer, Failure) else _verified(answer)

    def time(self, job: Job, batch: int) -> Replicate | Failure:
        """Time a job once in a fresh process."""
        request = {"op": "time", "samples": self._conditions.samples, "l2": job.spec.l2, "time": job.spec.time}
        request["check"] = job.target == "launch"
        with self._conditions.watch(job) as watch:
            answer = self._ask(job, {**request, "planted": self._conditions.planted})
        return answer if isinstance(answer, Failure) else _replicate(answer, batch, watch, self._conditions.root)

    def pairs(self, jobs: Sequence[Job], number: int) -> Iterator[tuple[Job, Compared]]:
        """Time each job in turns with the base, those of one kernel in one fresh pair of processes."""
        self._heads.update({job.spec.name: job.spec for job in jobs})
        self._starts.preload(jobs)
        self._starts.wait()  # they use cores until they have imported
        for job, found in self._with_head.pairs(jobs, number):
            if not isinstance(found, SideFailure):
                yield job, found
            elif found.side == "head":
                yield job, found.failure
            else:
                yield job, self._why_no_base(job, found.failure)

    def control(self, job: Job, number: int) -> Pair | str | Failure:
        """Time the base in turns with itself."""
        ((_, found),) = self._control.pairs([job], number)
        if isinstance(found, SameCode):
            raise TypeError("the control is always timed")
        return found.failure.message if isinstance(found, SideFailure) else found

    def start_anew(self, jobs: Sequence[Job], pairs: int) -> None:
        """Let new workers of both sides take over, those of so many pairs at once."""
        self._starts.anew(jobs, pairs)

    def profile(self, jobs: Sequence[Job], changed: Sequence[Job]) -> Iterator[Profiled]:
        """Run all jobs under each profiler, in one process of it; on the base, too, those that may differ."""
        for profiler in self._profilers if jobs else ():
            yield from profiler.profile(jobs, changed, self._base.profiled if self._base else None)

    def close(self) -> None:
        """End the workers of both sides."""
        self._starts.close()

    def _ask(self, job: Job, request: Mapping[str, Any]) -> dict[str, Any] | Failure:
        whole = {**job_request(job, self._conditions.root), **request}
        with self._conditions.spent.waiting(job, ["head"]):
            answer = self._worker.ask(whole, self._conditions.timeout_of(job))
            self._conditions.spent.add(job, "head", answer)
        return answer

    def _why_no_base(self, job: Job, failure: Failure) -> str:
        """Return why the base has no time: NOT_IN_BASE where it has neither the case nor its parameters."""
        cases = self._base.cases.get(job.spec.name, (job.case,)) if self._base else ()
        if job.case not in cases and _OTHER_PARAMETERS in failure.message:
            return Reason.NOT_IN_BASE
        return why_no_base(failure, is_built=self._base is None or self._base.is_built)


def _strides_request(job: Job) -> dict[str, Any]:
    """Return the part of a request that says how inputs lie in memory; empty where `make_inputs` alone decides."""
    return {} if job.strides == CONTIGUOUS else {"strides": job.strides, "may_refuse": job.spec.refuses_strides}


def _replicate(answer: Mapping[str, Any], batch: int, watch: Watch, root: Path) -> Replicate:
    """Join the samples with the states of the GPU that were read while they were taken."""
    states = watch.between(*answer["window"])
    return Replicate(
        seconds=tuple(answer["seconds"]),
        launches=answer["launches"],
        method=answer["method"],
        batch=batch,
        disturbed=watch.disturbances(states, frozenset({answer["pid"]})),
        memory_bytes=answer["memory_bytes"],
        waited=share_waited([answer]),
        not_captured=str(answer["not_captured"]).replace(f"{root}/", ""),
        **facts(states),
    )


def _verified(answer: Mapping[str, Any]) -> Verified:
    cost = answer["cost"]
    verification = Verification(answer["error"], answer["tolerance"], answer["checked"])
    if cost is None:
        return verification, None
    return verification, Cost(float(cost["flop"]), float(cost["bytes"]), cost.get("dtype"))
