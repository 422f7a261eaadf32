"""The real machine: workers that verify and time, one session of each profiler for all cases."""

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ci_perf.core.model import Cost, Failure, Replicate, Verification
from ci_perf.core.plan import Job
from ci_perf.edge import gpu
from ci_perf.edge.profile import ProfileSession
from ci_perf.edge.worker_process import Worker
from ci_perf.flow import Profiled

HELLO_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Bench:
    """What all measurements of a run share."""

    python: str
    root: Path
    """Of the repository; kernels' folders are relative to it."""
    logs: Path
    env: Mapping[str, str]
    samples: int
    timeout_s: float
    planted: float | None = None
    gpu_uuid: str | None = None


class MachineLab:
    """A `Lab` on this machine."""

    def __init__(self, bench: Bench, profilers: Sequence[ProfileSession] = ()) -> None:
        self._bench = bench
        self._profilers = profilers
        self._gpu_seconds = 0.0
        bench.logs.mkdir(parents=True, exist_ok=True)

    def seconds_used(self) -> float:
        """Return for how long workers and profilers held the GPU, in seconds."""
        return self._gpu_seconds

    def verify(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, tuple[Verification, Cost | None] | Failure]]:
        """Hold each job's output against its reference, the jobs of one kernel in one process."""
        for group in _by_kernel(jobs):
            with self._worker(f"verify-{group[0].spec.name}-{group[0].device}") as worker:
                for job in group:
                    answer = self._ask(worker, job, {"op": "verify", "tolerance": dict(job.spec.tolerance)})
                    yield job, answer if isinstance(answer, Failure) else _verified(answer)

    def time(self, jobs: Sequence[Job], *, batch: int, turn: int) -> Iterator[tuple[Job, Replicate | Failure]]:
        """Time each job once, the jobs of one kernel in one fresh process; `turn` rotates their order."""
        for group in _by_kernel(jobs):
            first = turn % len(group)
            with self._worker(f"time-{group[0].spec.name}-{group[0].device}-{batch}-{turn}") as worker:
                for job in (*group[first:], *group[:first]):
                    request = {"op": "time", "samples": self._bench.samples, "l2": job.spec.l2}
                    answer = self._ask(worker, job, {**request, "planted": self._bench.planted})
                    if isinstance(answer, Failure):
                        yield job, answer
                    else:
                        yield job, self._replicate(answer, batch, job, worker.pid)

    def profile(self, jobs: Sequence[Job]) -> Iterator[Profiled]:
        """Run all jobs under each profiler, one session each."""
        for session in self._profilers if jobs else ():
            started = time.monotonic()
            found = session.run(jobs)
            self._gpu_seconds += time.monotonic() - started
            yield found

    def _worker(self, name: str) -> Worker:
        return Worker(self._bench.python, self._bench.env, self._bench.logs, name)

    def _ask(self, worker: Worker, job: Job, request: Mapping[str, Any]) -> dict[str, Any] | Failure:
        started = time.monotonic()
        timeout_s = job.spec.timeout_s or self._bench.timeout_s
        answer = worker.ask({**job_request(job, self._bench.root), **request}, timeout_s)
        if job.device == "cuda":
            self._gpu_seconds += time.monotonic() - started
        return answer

    def _replicate(self, answer: Mapping[str, Any], batch: int, job: Job, pid: int | None) -> Replicate:
        state = gpu.State()
        if job.device == "cuda" and self._bench.gpu_uuid:
            state = gpu.query_state(self._bench.gpu_uuid, frozenset({pid} if pid else ()))
        return Replicate(
            seconds=tuple(answer["seconds"]),
            launches=answer["launches"],
            method=answer["method"],
            batch=batch,
            temperature_c=state.temperature_c,
            sm_clock_hz=state.sm_clock_hz,
            power_w=state.power_w,
        )


def query_interpreter(python: str, env: Mapping[str, str], logs: Path) -> dict[str, Any] | Failure:
    """Ask the user's interpreter what it is: versions, and the GPU that torch sees."""
    logs.mkdir(parents=True, exist_ok=True)
    with Worker(python, env, logs, "hello") as worker:
        return worker.ask({"op": "hello"}, HELLO_TIMEOUT_S)


def job_request(job: Job, root: Path) -> dict[str, Any]:
    """Return the part of a request that says which case is meant."""
    return {
        "entry": str(root / job.spec.folder / job.spec.entry),
        "params": dict(job.params),
        "device": job.device,
        "target": job.target,
        "seed": 0,
    }


def _by_kernel(jobs: Sequence[Job]) -> list[list[Job]]:
    return [list(group) for _, group in itertools.groupby(jobs, key=lambda job: (job.device, job.spec.name))]


def _verified(answer: Mapping[str, Any]) -> tuple[Verification, Cost | None]:
    cost = answer["cost"]
    verification = Verification(answer["error"], answer["tolerance"], answer["checked"])
    if cost is None:
        return verification, None
    return verification, Cost(float(cost["flop"]), float(cost["bytes"]), cost.get("dtype"))
