"""One of the two commits whose kernels take turns."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ci_perf.measure.worker_process import Worker, job_request
from ci_perf.values.job import Job
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.measurement import Failure


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two commits: where its files lie, its kernels, and the worker that runs them."""

    name: str
    """`base` or `head`."""
    root: Path
    kernels: Mapping[str, KernelSpec]
    worker: Worker

    def request(self, job: Job, **more: object) -> dict[str, Any]:
        """Return a request for a case: this side's code, the head's parameters."""
        own = replace(job, spec=self.kernels[job.spec.name])
        return {**job_request(own, self.root), "target": job.target, "l2": job.spec.l2, "time": job.spec.time, **more}


class SideFailure(Exception):
    """A side that could not be timed."""

    def __init__(self, side: str, failure: Failure) -> None:
        super().__init__(failure.message)
        self.side = side
        self.failure = failure
