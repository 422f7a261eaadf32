"""The backend of programs, which take the place of a Python entry: one fresh run is one replicate.

A `command` is timed through its GPU kernels in an nsys trace, or by the clock where there is no GPU or no nsys; a
benchmark times itself and writes a file. A program that fails, hangs, or writes nothing or something else is a Failure
with its stage and reason, never an exception.
"""

import contextlib
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from ci_perf.measure.backend import Profiled, Verified
from ci_perf.measure.both_sides import as_sides, trees_of, write_differences
from ci_perf.measure.program_counters import ProgramCounters, comparable
from ci_perf.measure.program_run import Chosen, Launcher, ProgramFailed
from ci_perf.measure.program_trace import KeptTraces, TracedPrograms
from ci_perf.measure.setup import why_no_base
from ci_perf.measure.temporary import temporary_folder
from ci_perf.measure.watch import Watch, facts, slowdowns
from ci_perf.traces.attribution import program_launch_counters
from ci_perf.values.job import Job
from ci_perf.values.measurement import Failure, MemoryPeaks, Pair, Replicate, Verification
from ci_perf.values.run import Note
from ci_perf.values.trace import SideProfile

WALL = "wall"
FOR_PROFILERS = {"nvbench": ("--profile",)}
"""What benchmarks are told under a profiler: nvbench runs each state once, without the kernel that blocks the stream.

ncu runs kernels one by one, so that a kernel which waits for a later call of the host would never end.
"""

_Measured = TypeVar("_Measured", Replicate, Pair | str | Failure)


class Programs:
    """A `Backend` for programs, each run anew in the root of its tree."""

    def __init__(
        self,
        launcher: Launcher,
        *,
        nsys_path: str | None = None,
        counters: ProgramCounters | None = None,
        traces: KeptTraces | None = None,
        base_root: Path | None = None,
        base_is_built: bool = True,
        trace_benchmarks: bool = False,
        renamed: Mapping[str, str] | None = None,
    ) -> None:
        """`nsys_path` times commands on a GPU, `counters` profiles them, `traces` keeps what nsys recorded.

        `trace_benchmarks`: benchmarks that changed are traced too, on both sides. `renamed` is the base's name of each
        file that the head calls otherwise.
        """
        self._conditions = launcher.conditions
        self._launcher = launcher
        self._counters = counters
        self._traces = traces
        of_base = replace(launcher.conditions, root=base_root or launcher.conditions.root, planted=None)
        self._has_base = base_root is not None
        self._base_is_built = base_is_built
        self._trace_benchmarks = trace_benchmarks
        self._renamed = renamed or {}
        self._head = _Side(launcher, nsys_path, traces)
        self._base = _Side(replace(launcher, conditions=of_base, side="-base"), nsys_path, traces)

    def notes(self, jobs: Sequence[Job]) -> tuple[Note, ...]:
        """Name the programs that are timed by the clock unasked, which is far coarser than the trace."""
        commands = [job for job in jobs if job.is_command and job.spec.time == "gpu"]
        by_clock = sorted({job.spec.name for job in commands if not self._head.under_nsys.can_trace(job)})
        if not by_clock:
            return ()
        lacking = "a GPU" if all(job.device == "cpu" for job in commands) else "nsys"
        how = "timed by the clock, the whole program with its start and end"
        message = f"{', '.join(by_clock)}: {how}, for lack of {lacking}"
        return (Note("wall-time", message, "with a GPU and nsys the program's GPU kernels are summed instead"),)

    def verify(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Verified | Failure]]:
        """Run each program once: it must end with status 0, and a benchmark must write its results."""
        for job in jobs:
            yield job, self._head.verify(job)

    def time(self, job: Job, batch: int) -> Replicate | Failure:
        """Run a program once and return its own results, or its time.

        Without clock and power: the GPU is idle for an unknown part of the run, so their means would be misleading.
        """
        with self._conditions.watch(job) as watch:
            found = _timed(self._head, job, batch, watch)
        if isinstance(found, Failure):
            return found
        found = replace(found, **{**facts(watch.states), "sm_clock_hz": None, "power_w": None})
        return _with_disturbances(found, watch)

    def pairs(self, jobs: Sequence[Job], number: int) -> Iterator[tuple[Job, Pair | str | Failure]]:
        """Run a program of the base and one of the head, one after the other; `number` says which goes first."""
        for job in jobs:
            yield job, self._pair(job, self._base, self._head, number)

    def control(self, job: Job, number: int) -> Pair | str | Failure:
        """Run the base's program twice."""
        found = self._pair(job, self._base, self._base, number)
        return found.message if isinstance(found, Failure) else found

    def profile(self, jobs: Sequence[Job], changed: Sequence[Job]) -> Iterator[Profiled]:
        """Yield what the traces that timed the programs hold, then run each `command` under ncu.

        With a base, programs that changed are also counted on both sides for what explains the change. Those that no
        trace timed are run once more on each side for one.
        """
        for job in changed if self._has_base and self._trace_benchmarks else ():
            if not job.is_command or job.spec.time != "gpu":
                self._base.trace(job)
                self._head.trace(job)
        if self._head.under_nsys.timelines or self._traces:
            yield self._from_traces()
        for job in jobs:
            yield self._count(job, full=job in changed and not self._has_base)
        for job in changed if self._has_base else ():
            yield self._count_both(job)

    def start_anew(self, jobs: Sequence[Job], pairs: int) -> None:
        """Do nothing: each pair has new processes."""

    def close(self) -> None:
        """Do nothing: no program outlives its run."""

    def argv(self, job: Job) -> tuple[str, ...]:
        """Return the command line of a `command`, as another tool can run it in the root of the repository."""
        return self._launcher.prepare(job, Path())[1]

    def why_no_kernels(self, job: Job) -> str:
        """Run a `command` under nsys; return why no GPU kernel that counts was seen, empty where one was."""
        if not self._head.under_nsys.can_trace(job):
            return "there is no nsys to see"
        replicate = self._head.time(replace(job, spec=replace(job.spec, time="gpu")), 0)
        return replicate.message if isinstance(replicate, Failure) else ""

    def _pair(self, job: Job, base: "_Side", head: "_Side", number: int) -> Pair | str | Failure:
        """Time both sides. Text says how the base failed; a Failure is the head's own."""
        with self._conditions.watch(job) as watch:
            if number % 2 == 0:
                first, last = _timed(base, job, 0, watch), _timed(head, job, 0, watch)
            else:
                last, first = _timed(head, job, 0, watch), _timed(base, job, 0, watch)
        if isinstance(last, Failure):
            return last
        if isinstance(first, Failure):
            return why_no_base(first, is_built=self._base_is_built)
        return _with_disturbances(_as_pair(first, last), watch)

    def _from_traces(self) -> Profiled:
        """Return the last timeline of each case and notes on them, and admit the kept traces to the run's folder."""
        head, base = self._head, self._base
        timelines = head.under_nsys.timelines
        return Profiled(
            timelines,
            {label: program_launch_counters(timeline) for label, timeline in timelines.items()},
            notes=(*head.under_nsys.notes(), *(self._traces.admit() if self._traces is not None else ())),
            parts=head.under_nsys.parts(1 + head.planted),
            base_parts=base.under_nsys.parts(1 + base.planted),
            base_profiles={label: SideProfile((), timeline) for label, timeline in base.under_nsys.timelines.items()},
        )

    def _count(self, job: Job, *, full: bool) -> Profiled:
        """Run a `command` under ncu if that is wanted; benchmarks choose their launches themselves."""
        if self._counters is None or not job.is_command:
            return Profiled()
        with temporary_folder("ci-perf-program-") as scratch:
            _, argv = self._launcher.prepare(job, scratch)
            return self._counters.run(job, argv, self._head.under_nsys.traced(job), full=full)

    def _count_both(self, job: Job) -> Profiled:
        """Run a program of each side under ncu for what explains its change."""
        base, head = self._base, self._head
        if self._counters is None:
            return Profiled()
        once = not job.is_command or not comparable(base.under_nsys.traced(job), head.under_nsys.traced(job))
        old = base.count(job, self._counters, "explain-base", once=once)
        new = head.count(job, self._counters, "explain", once=once)
        write_differences(self._counters.guard.folder, [job], old, new)
        return as_sides(old, new, trees_of(base.root, [job], head.root, [job], self._renamed))


class _Side:
    """The programs of one tree: verified, timed, and what their traces held."""

    def __init__(self, launcher: Launcher, nsys_path: str | None, traces: KeptTraces | None) -> None:
        self._launcher = launcher
        self.planted = launcher.conditions.planted or 0.0
        self.root = launcher.conditions.root
        self.under_nsys = TracedPrograms(launcher, nsys_path, traces)
        self._units: dict[tuple[str, str], tuple[str, str]] = {}

    def verify(self, job: Job) -> Verified | Failure:
        try:
            with temporary_folder("ci-perf-program-") as scratch:
                program, argv = self._launcher.prepare(job, scratch)
                self._launcher.run(job, argv)
                if program.kind != "command":
                    self._launcher.read_results(job, program, scratch)
        except ProgramFailed as failed:
            return Failure("verify", failed.code, str(failed), failed.detail)
        return Verification(0.0, 0.0, "status"), None

    def time(self, job: Job, batch: int) -> Replicate | Failure:
        try:
            with temporary_folder("ci-perf-program-") as scratch:
                taken = self._take(job, scratch)
        except ProgramFailed as failed:
            return Failure("time", failed.code, str(failed), failed.detail)
        slower = 1 + self.planted if taken.better == "lower" else 1 / (1 + self.planted)
        values = tuple(value * slower for value in taken.values) if self.planted else taken.values
        return Replicate(values, 1, taken.method, batch, unit=taken.unit, better=taken.better)

    def trace(self, job: Job) -> None:
        """Run a program under nsys, for its timeline; without GPU kernels there is none."""
        if not self.under_nsys.can_trace(job):
            return
        with temporary_folder("ci-perf-program-") as scratch:
            for argv in self._profiled_argv(job, scratch):
                with contextlib.suppress(ProgramFailed):
                    self.under_nsys.time(job, argv, scratch)
                    return

    def count(self, job: Job, counters: ProgramCounters, files: str, *, once: bool) -> Profiled:
        """Run a program under ncu for what explains its change."""
        found = Profiled()
        with temporary_folder("ci-perf-program-") as scratch:
            conditions = replace(counters.conditions, root=self.root)
            explaining = counters.explaining(files, conditions, once=once)
            for argv in self._profiled_argv(job, scratch):
                found = explaining.run(job, argv, self.under_nsys.traced(job))
                if found.counters:
                    break
        return found

    def _profiled_argv(self, job: Job, scratch: Path) -> Iterator[tuple[str, ...]]:
        """Yield the command lines to try under a profiler; a program that refuses the first may take the second."""
        program, argv = self._launcher.prepare(job, scratch)
        if more := FOR_PROFILERS.get(program.kind):
            yield (*argv, *more)
        yield argv

    def _take(self, job: Job, scratch: Path) -> Chosen:
        program, argv = self._launcher.prepare(job, scratch)
        if program.kind != "command":
            self._launcher.run(job, argv)
            taken = self._launcher.read_results(job, program, scratch)
            first = self._units.setdefault((job.id, job.device), (taken.unit, taken.better))
            if first != (taken.unit, taken.better):
                message = f"the unit was {first[0]}, {first[1]} is better; now it is {taken.unit}"
                raise ProgramFailed("wrong-format", message)
            return taken
        if job.spec.time == "gpu" and self.under_nsys.can_trace(job):
            return self.under_nsys.time(job, argv, scratch)
        started = time.perf_counter()
        self._launcher.run(job, argv)
        return Chosen((time.perf_counter() - started,), WALL, "s", "lower")


def _timed(side: "_Side", job: Job, batch: int, watch: Watch) -> Replicate | Failure:
    """Run a program once, with the peak of the memory that its processes held on the GPU."""
    started = time.monotonic()
    found = side.time(job, batch)
    if isinstance(found, Failure):
        return found
    return replace(found, memory_bytes=watch.memory_bytes(started, time.monotonic()))


def _as_pair(base: Replicate, head: Replicate) -> Pair | str | Failure:
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
        memory=MemoryPeaks(base.memory_bytes, head.memory_bytes),
    )


def _with_disturbances(found: _Measured, watch: Watch) -> _Measured:
    """Add what disturbed a program. A new process on the GPU does not count: the program may have started it."""
    if isinstance(found, Replicate | Pair):
        return replace(found, disturbed=(*slowdowns(watch.states), *watch.woken))
    return found
