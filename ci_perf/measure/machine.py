"""The real machine: workers and programs that verify and time, one session of each profiler for all cases."""

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from ci_perf.judge.versus import NOT_IN_BASE
from ci_perf.measure import gpu
from ci_perf.measure.backend import Profiled
from ci_perf.measure.base import Base
from ci_perf.measure.profile import Profiler, ProfileSession
from ci_perf.measure.programs import ProgramRunner
from ci_perf.measure.turns import Side, SideFailure, TurnTaking
from ci_perf.measure.watch import Watch, slowdowns
from ci_perf.measure.worker_process import Worker
from ci_perf.values.job import Job
from ci_perf.values.kernel import CONTIGUOUS, KernelSpec
from ci_perf.values.measurement import Cost, Failure, Pair, Replicate, Verification
from ci_perf.values.trace import Reading

HELLO_TIMEOUT_S = 120.0
Found = TypeVar("Found")
_OTHER_PARAMETERS = "make_inputs() got an unexpected keyword argument"
"""What Python says where a function does not know a parameter."""

_Counters = Mapping[str, Sequence[Mapping[str, Reading]]]
"""The counters of each launch, by label of the case."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What all measurements of a run share."""

    python: str
    root: Path
    """Of the repository; kernels' folders are relative to it."""
    env: Mapping[str, str]
    samples: int
    timeout_s: float
    planted: float | None = None
    gpu_uuid: str | None = None
    other_programs: frozenset[int] = frozenset()
    """The pids of other programs that were on the GPU, and idle, before anything was measured."""


class Machine:
    """A `Lab` on this machine."""

    identify = True
    """Whether cases of the same machine code are told apart from those that only take as long."""

    def __init__(
        self,
        conditions: Conditions,
        worker: Worker,
        programs: ProgramRunner,
        profilers: Sequence[Profiler] = (),
        base: Base | None = None,
    ) -> None:
        self._conditions = conditions
        self._worker = worker
        self._programs = programs
        self._base = base
        self._profilers = profilers
        self._gpu_seconds = 0.0
        self._heads: dict[str, KernelSpec] = {}
        self._turns: tuple[TurnTaking, TurnTaking] | None = None

    def seconds_used(self) -> float:
        """Return for how long workers and profilers held the GPU, in seconds."""
        return self._gpu_seconds

    def verify(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, tuple[Verification, Cost | None] | Failure]]:
        """Hold each job's output against its reference, those of one kernel in one process; a program must end well.

        What follows a failure has a fresh process.
        """
        resident: str | None = None
        for job in jobs:
            if job.spec.program is not None:
                with self._holding_gpu(job):
                    verified = self._programs.verify(job)
                yield job, verified if isinstance(verified, Failure) else (verified, None)
                continue
            kernel = f"{job.spec.name} on {job.device}"
            request = {"op": "verify", "tolerance": dict(job.spec.tolerance), "same": resident == kernel}
            request |= _strides_request(job)
            answer = self._ask(job, request)
            resident = None if isinstance(answer, Failure) else kernel
            yield job, answer if isinstance(answer, Failure) else _verified(answer)

    def time(self, jobs: Sequence[Job], *, batch: int, turn: int) -> Iterator[tuple[Job, Replicate | Failure]]:
        """Time each job once in a fresh process; `turn` rotates their order."""
        first = turn % max(1, len(jobs))
        for job in (*jobs[first:], *jobs[:first]):
            if job.spec.program is not None:
                yield job, self._time_program(job, batch)
                continue
            request = {"op": "time", "samples": self._conditions.samples, "l2": job.spec.l2}
            with self._watch(job) as watch:
                answer = self._ask(job, {**request, "planted": self._conditions.planted})
            yield job, answer if isinstance(answer, Failure) else _replicate(answer, batch, watch)

    def pairs(self, jobs: Sequence[Job], number: int) -> Iterator[tuple[Job, Pair | str | Failure]]:
        """Time each job in turns with the base, those of one kernel in one fresh pair of processes."""
        base, with_head, _ = self._need_base()
        known = [job for job in jobs if job.spec.name in base.side.kernels]
        yield from ((job, NOT_IN_BASE) for job in jobs if job.spec.name not in base.side.kernels)
        for job in known:
            if job.spec.program is not None:
                with self._watch(job) as watch, self._holding_gpu(job):
                    found = self._programs.pair(job, base.side.root)
                yield job, _with_disturbances(found, watch)
        self._heads.update({job.spec.name: job.spec for job in known})
        measured = with_head.pairs([job for job in known if job.spec.program is None], number)
        for job, pair in self._timed(measured):
            if isinstance(pair, SideFailure):
                yield job, pair.failure if pair.side == "head" else _why_no_base(base, job, pair.failure)
            else:
                yield job, pair

    def control(self, job: Job, number: int) -> Pair | str | Failure:
        """Time the base in turns with itself."""
        base, _, with_twin = self._need_base()
        if job.spec.program is not None:
            with self._watch(job) as watch, self._holding_gpu(job):
                control = self._programs.control(job, base.side.root)
            return _with_disturbances(control, watch)
        ((_, found),) = self._timed(with_twin.pairs([job], number))
        return found.failure.message if isinstance(found, SideFailure) else found

    def now(self) -> float:
        """Return time.monotonic()."""
        return time.monotonic()

    def _need_base(self) -> tuple[Base, TurnTaking, TurnTaking]:
        """Return the base, where head and base take turns, and where the base does with itself."""
        if self._base is None:
            raise RuntimeError("pairs need a base")
        if self._turns is None:
            head = Side("head", self._conditions.root, self._heads, self._worker)
            side, twin = self._base.side, self._base.twin
            self._turns = (
                self._turn_taking((side, head), self._conditions.planted),
                self._turn_taking((side, twin), None),
            )
        return self._base, *self._turns

    def _turn_taking(self, sides: tuple[Side, Side], planted: float | None) -> TurnTaking:
        return TurnTaking(
            sides,
            gpu_uuid=self._conditions.gpu_uuid,
            timeout_s=self._timeout_s,
            planted=planted,
            identify=self.identify,
            other_programs=self._conditions.other_programs,
        )

    def _timeout_s(self, job: Job) -> float:
        return job.spec.timeout_s or self._conditions.timeout_s

    def _timed(self, measured: Iterator[tuple[Job, Found]]) -> Iterator[tuple[Job, Found]]:
        """Count the time of what is measured, start and end of the processes included."""
        started = time.monotonic()
        for job, found in measured:
            if job.device == "cuda":
                self._gpu_seconds += time.monotonic() - started
            yield job, found
            started = time.monotonic()

    def profile(self, jobs: Sequence[Job], changed: Sequence[Job] = ()) -> Iterator[Profiled]:
        """Run all jobs under each profiler, one session each; programs were traced when they were timed.

        Each program is run under ncu by itself: it starts and ends as it likes. What changed has a session more.
        """
        for worker in (self._worker, *((self._base.side.worker, self._base.twin.worker) if self._base else ())):
            worker.close()  # the last case would hold its memory on the GPU
        if self._programs.traced:
            yield self._programs.profiled()
        for job in jobs:
            if job.spec.program is not None:
                with self._holding_gpu(job):
                    counted = self._programs.count(job, full=job in changed)
                yield counted
        jobs = [job for job in jobs if job.spec.program is None]
        for session in self._profilers if jobs else ():
            started = time.monotonic()
            found = session.run(jobs)
            self._gpu_seconds += time.monotonic() - started
            yield found
            known = [job for job in jobs if job in changed and job.label in found.counters]
            if isinstance(session, ProfileSession) and session.can_explain and known:
                started = time.monotonic()
                explained = session.explaining().run(known)
                self._gpu_seconds += time.monotonic() - started
                yield replace(explained, counters=_with_more(found.counters, explained.counters))

    def _time_program(self, job: Job, batch: int) -> Replicate | Failure:
        """Time a program. The GPU is idle for an unknown part of it, so its mean clock and power would say nothing."""
        with self._watch(job) as watch, self._holding_gpu(job):
            replicate = self._programs.time(job, batch)
        if isinstance(replicate, Failure):
            return replicate
        states = watch.states
        found = replace(replicate, temperature_c=_hottest(states), throttle_reasons=_throttle_reasons(states))
        return _with_disturbances(found, watch)

    def _watch(self, job: Job) -> Watch:
        return Watch(self._conditions.gpu_uuid if job.device == "cuda" else None, self._conditions.other_programs)

    def _ask(self, job: Job, request: Mapping[str, Any]) -> dict[str, Any] | Failure:
        timeout_s = job.spec.timeout_s or self._conditions.timeout_s
        with self._holding_gpu(job):
            return self._worker.ask({**job_request(job, self._conditions.root), **request}, timeout_s)

    @contextmanager
    def _holding_gpu(self, job: Job) -> Iterator[None]:
        """Count the time that a job holds the GPU."""
        started = time.monotonic()
        yield
        if job.device == "cuda":
            self._gpu_seconds += time.monotonic() - started


def _with_more(known: _Counters, more: _Counters) -> dict[str, tuple[Mapping[str, Reading], ...]]:
    """Add to the counters of each launch those that only a second session has: what was judged stays as it was."""
    return {
        label: tuple({**further, **first} for first, further in zip(known[label], launches, strict=True))
        for label, launches in more.items()
        if len(launches) == len(known[label])
    }


def query_interpreter(worker: Worker) -> dict[str, Any] | Failure:
    """Ask the user's interpreter what it is: versions, and the GPU that torch sees."""
    return worker.ask({"op": "hello"}, HELLO_TIMEOUT_S)


def job_request(job: Job, root: Path) -> dict[str, Any]:
    """Return the part of a request that says which case is meant."""
    return {
        "entry": str(root / job.spec.folder / job.spec.entry),
        "params": dict(job.params),
        "device": job.device,
        "target": job.target,
        "seed": job.seed,
    }


def _strides_request(job: Job) -> dict[str, Any]:
    """Return the part of a request that says how inputs lie in memory; empty where `make_inputs` alone decides."""
    return {} if job.strides == CONTIGUOUS else {"strides": job.strides, "may_refuse": job.spec.refuses_strides}


def _replicate(answer: Mapping[str, Any], batch: int, watch: Watch) -> Replicate:
    """Join the samples with the states of the GPU that were read while they were taken."""
    states = watch.between(*answer["window"])
    return Replicate(
        seconds=tuple(answer["seconds"]),
        launches=answer["launches"],
        method=answer["method"],
        batch=batch,
        temperature_c=_hottest(states),
        sm_clock_hz=_mean([s.sm_clock_hz for s in states]),
        power_w=_mean([s.power_w for s in states]),
        throttle_reasons=_throttle_reasons(states),
        disturbed=watch.disturbances(states, frozenset({answer["pid"]})),
    )


_Measured = TypeVar("_Measured", Replicate, Pair | str | Failure)


def _why_no_base(base: Base, job: Job, failure: Failure) -> str:
    """Say why the base has no time: it may have no such case, and not know its parameters."""
    new = job.case not in base.cases.get(job.spec.name, (job.case,))
    return NOT_IN_BASE if new and _OTHER_PARAMETERS in failure.message else failure.message


def _with_disturbances(found: _Measured, watch: Watch) -> _Measured:
    """Add what disturbed a program. Who is new on the GPU is not among it: that may be the program's own."""
    if isinstance(found, Replicate | Pair):
        return replace(found, disturbed=(*slowdowns(watch.states), *watch.woken))
    return found


def _hottest(states: Sequence[gpu.State]) -> float | None:
    return max((s.temperature_c for s in states if s.temperature_c is not None), default=None)


def _throttle_reasons(states: Sequence[gpu.State]) -> tuple[str, ...]:
    return tuple(sorted({reason for state in states for reason in state.throttle_reasons or ()}))


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of what was read, to 6 digits; NVML's zeros mean that it does not know."""
    known = [value for value in values if value]
    return float(f"{statistics.fmean(known):.6g}") if known else None


def _verified(answer: Mapping[str, Any]) -> tuple[Verification, Cost | None]:
    cost = answer["cost"]
    verification = Verification(answer["error"], answer["tolerance"], answer["checked"])
    if cost is None:
        return verification, None
    return verification, Cost(float(cost["flop"]), float(cost["bytes"]), cost.get("dtype"))
