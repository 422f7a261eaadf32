"""What all measurements of a session share: interpreter, repository, environment, limits, GPU."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ci_perf.measure.spent import Spent
from ci_perf.measure.watch import Watch
from ci_perf.values.job import Job


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions under which cases run."""

    python: str
    """The user's interpreter."""
    root: Path
    """Of the repository; kernels' folders are relative to it."""
    env: Mapping[str, str]
    samples: int
    timeout_s: float
    """Where kernel.toml sets no other."""
    planted: float | None = None
    """A slowdown planted on purpose, as a fraction."""
    time_identical: bool = False
    """Time every case, also where base and head run the same machine code."""
    gpu_uuid: str | None = None
    other_programs: frozenset[int] = frozenset()
    """The pids of other programs that were on the GPU, and idle, before anything was measured."""
    spent: Spent = field(default_factory=Spent)
    """Where the time goes; all conditions of a session share it."""

    def timeout_of(self, job: Job) -> float:
        """Return the time limit of one request for a case, in seconds."""
        return job.spec.timeout_s or self.timeout_s

    def watch(self, job: Job) -> Watch:
        """Return a watch on the GPU for as long as a case is measured; of a case on the CPU it records nothing."""
        return Watch(self.gpu_uuid if job.device == "cuda" else None, self.other_programs)
