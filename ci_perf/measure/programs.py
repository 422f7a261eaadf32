"""Programs in place of a Python entry: one fresh run is one replicate.

A `command` is timed through its GPU kernels in an nsys trace, or by the clock where there is no GPU or no nsys; a
benchmark times itself and writes a file. A program that fails, hangs, or writes nothing or something else is a Failure
with its stage and reason, never an exception.
"""

import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from ci_perf.measure.backend import Profiled
from ci_perf.measure.program_counters import ProgramCounters, Traced
from ci_perf.measure.program_kernels import TRACED, TracedPrograms
from ci_perf.measure.program_results import read_results
from ci_perf.measure.program_run import Launcher, ProgramFailed
from ci_perf.measure.program_traces import ProgramTraces
from ci_perf.traces.attribution import program_launch_counters
from ci_perf.traces.benchmarks.choice import Chosen
from ci_perf.values.job import Job
from ci_perf.values.measurement import Failure, Pair, Replicate, Verification

WALL = "wall"


class ProgramRunner:
    """Runs the programs of all cases, each time anew, in the root of the repository."""

    def __init__(
        self,
        launcher: Launcher,
        *,
        nsys_path: str | None = None,
        counters: ProgramCounters | None = None,
        traces: ProgramTraces | None = None,
        planted: float | None = None,
    ) -> None:
        self._launcher = launcher
        self._counters = counters
        self._traces = traces
        self._nsys = nsys_path
        self._under_nsys = TracedPrograms(launcher, nsys_path, traces) if nsys_path else None
        self._planted = planted or 0.0
        self._units: dict[tuple[str, str], tuple[str, str]] = {}
        self._pairs = 0
        self._base: ProgramRunner | None = None

    def method(self, job: Job) -> str:
        """Return how a `command` is timed on the job's device."""
        return TRACED if self._under_nsys is not None and job.device == "cuda" else WALL

    def verify(self, job: Job) -> Verification | Failure:
        """Run a program once: it must end with status 0, and a benchmark must write what is asked of it."""
        try:
            with tempfile.TemporaryDirectory(prefix="ci-perf-") as scratch:
                program, argv = self._launcher.prepare(job, Path(scratch))
                self._launcher.run(job, argv)
                if program.kind != "command":
                    read_results(self._launcher, job, program, Path(scratch))
        except ProgramFailed as failed:
            return Failure("verify", failed.code, str(failed), failed.detail)
        return Verification(0.0, 0.0, "status")

    def time(self, job: Job, batch: int) -> Replicate | Failure:
        """Run a program once and return what it measured, or what was measured of it."""
        try:
            with tempfile.TemporaryDirectory(prefix="ci-perf-") as scratch:
                taken = self._take(job, Path(scratch))
        except ProgramFailed as failed:
            return Failure("time", failed.code, str(failed), failed.detail)
        slower = 1 + self._planted if taken.better == "lower" else 1 / (1 + self._planted)
        values = tuple(value * slower for value in taken.values) if self._planted else taken.values
        return Replicate(values, 1, taken.method, batch, unit=taken.unit, better=taken.better)

    def pair(self, job: Job, base_root: Path) -> Pair | str | Failure:
        """Run a program of the base and one of the head, the one first and then the other.

        Text says how the base failed; a Failure is the head's own.
        """
        base, head = self._both(job, self._at(base_root), self)
        if isinstance(head, Failure):
            return head
        return base.message if isinstance(base, Failure) else _pair(base, head)

    def control(self, job: Job, base_root: Path) -> Pair | str:
        """Run the base's program twice."""
        runner = self._at(base_root)
        first, second = self._both(job, runner, runner)
        if isinstance(first, Failure):
            return first.message
        return second.message if isinstance(second, Failure) else _pair(first, second)

    def _both(
        self, job: Job, base: "ProgramRunner", head: "ProgramRunner"
    ) -> tuple[Replicate | Failure, Replicate | Failure]:
        self._pairs += 1
        if self._pairs % 2:
            first = base.time(job, 0)
            return first, head.time(job, 0)
        last = head.time(job, 0)
        return base.time(job, 0), last

    def _at(self, root: Path) -> "ProgramRunner":
        """Return the runner of the base's tree; it plants nothing, and its logs have names of their own."""
        if self._base is None:
            of_base = replace(self._launcher, root=root, side="-base")
            self._base = ProgramRunner(of_base, nsys_path=self._nsys, traces=self._traces)
        return self._base

    @property
    def traced(self) -> bool:
        """Whether there is a trace: of a case that failed, too."""
        return bool((self._under_nsys and self._under_nsys.timelines) or self._traces)

    def profiled(self) -> Profiled:
        """Return what the traces that timed the cases held: the last timeline of each, and what was odd about them.

        The last trace of each is let into the artifact folder.
        """
        if self._under_nsys is None:
            return Profiled()
        timelines = self._under_nsys.timelines
        base = self._base._under_nsys if self._base is not None else None
        return Profiled(
            timelines,
            {label: program_launch_counters(timeline) for label, timeline in timelines.items()},
            notes=(*self._under_nsys.notes(), *(self._traces.admit() if self._traces is not None else ())),
            parts=self._under_nsys.parts(1 + self._planted),
            base_parts=base.parts(1.0) if base is not None else {},
        )

    def count(self, job: Job, *, full: bool = False) -> Profiled:
        """Run a `command` under ncu where there is one that is wanted; benchmarks choose their launches themselves.

        `full` asks for costly counters too.
        """
        if self._counters is None or job.spec.program is None or job.spec.program.kind != "command":
            return Profiled()
        traced = self._under_nsys.traced(job) if self._under_nsys is not None else Traced()
        with tempfile.TemporaryDirectory(prefix="ci-perf-") as scratch:
            _, argv = self._launcher.prepare(job, Path(scratch))
            return self._counters.run(job, argv, traced, full=full)

    def argv(self, job: Job) -> tuple[str, ...]:
        """Return the command line of a `command`, as another tool can run it in the root of the repository."""
        return self._launcher.prepare(job, Path())[1]

    def why_no_kernels(self, job: Job) -> str:
        """Run a `command` under nsys; empty where it launched GPU kernels that count, else why that is not known."""
        if self.method(job) != TRACED:
            return "there is no nsys to see"
        replicate = self.time(job, 0)
        return replicate.message if isinstance(replicate, Failure) else ""

    def _take(self, job: Job, scratch: Path) -> Chosen:
        program, argv = self._launcher.prepare(job, scratch)
        if program.kind != "command":
            self._launcher.run(job, argv)
            taken = read_results(self._launcher, job, program, scratch)
            first = self._units.setdefault((job.id, job.device), (taken.unit, taken.better))
            if first != (taken.unit, taken.better):
                raise ProgramFailed(
                    "wrong-format", f"the unit was {first[0]}, {first[1]} is better; now it is {taken.unit}"
                )
            return taken
        if self._under_nsys is not None and job.device == "cuda":
            return self._under_nsys.time(job, argv, scratch)
        started = time.perf_counter()
        self._launcher.run(job, argv)
        return Chosen((time.perf_counter() - started,), WALL, "s", "lower")


def _pair(base: Replicate, head: Replicate) -> Pair | str:
    if (base.method, base.unit, base.better) != (head.method, head.unit, head.better):
        return f"its program measures {base.unit} by {base.method}, the head's {head.unit} by {head.method}"
    if not all(value > 0 for value in (*base.seconds, *head.seconds)):
        return "a program measured zero"
    return Pair(
        base=(statistics.median(base.seconds),),
        head=(statistics.median(head.seconds),),
        launches=1,
        method=head.method,
        unit=head.unit,
        better=head.better,
    )
