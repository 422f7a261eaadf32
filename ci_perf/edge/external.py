"""Programs in place of a Python entry: one fresh run is one replicate.

A `command` is timed through its GPU kernels in an nsys trace, or by the clock where there is no GPU or no nsys; a
benchmark times itself and writes a file. A program that fails, hangs, or writes nothing or something else is a Failure
with its stage and reason, never an exception.
"""

import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ci_perf.benchmarks.choice import Chosen, NoNumber, choose
from ci_perf.benchmarks.reader import beside, parse
from ci_perf.benchmarks.results import BenchmarkFile, scaled
from ci_perf.core import kernel_names
from ci_perf.core.errors import CiPerfError, ProfileError
from ci_perf.core.model import CaseTimeline, Failure, Note, Pair, Part, Program, Reading, Replicate, Verification
from ci_perf.core.parts import parts_of
from ci_perf.core.plan import Job
from ci_perf.core.program import command_line, fill
from ci_perf.edge import proc
from ci_perf.edge.program_counters import ProgramCounters, Traced
from ci_perf.edge.program_traces import DATABASE, REPORT, ProgramTraces
from ci_perf.flow.lab import Profiled
from ci_perf.profilers import activity, nsys, nsys_activity
from ci_perf.profilers.attribution import program_launch_counters, program_timeline
from ci_perf.profilers.program_trace import chosen_ranges, counted_kernels, parts_of_run
from ci_perf.profilers.timeline import RangeStats

WALL = "wall"
TRACED = "nsys-kernel-sum"
_EXPORT_TIMEOUT_S = 300.0
_TAIL = 4000
_LARGEST_FILE = 256 << 20
"""Bytes of a benchmark's results; a larger file is not read."""


class _Failed(Exception):
    """What became of a program, on its way to the one place that turns it into a Failure."""

    def __init__(self, code: str, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.detail = detail[-_TAIL:].strip()


@dataclass(slots=True)
class _Seen:
    """What the traces of one case held."""

    timeline: CaseTimeline
    traced: Traced
    kernels: list[tuple[str, ...]] = field(default_factory=list)
    """The names of each run, in its order."""
    parts: list[Mapping[tuple[str, str], tuple[int, int]]] = field(default_factory=list)
    """What the time of each run was made of."""
    warnings: dict[str, None] = field(default_factory=dict)


class ProgramRunner:
    """Runs the programs of all cases, each time anew, in the root of the repository."""

    def __init__(
        self,
        *,
        root: Path,
        folder: Path,
        python: str,
        env: Mapping[str, str],
        timeout_s: float,
        nsys_path: str | None = None,
        counters: ProgramCounters | None = None,
        traces: ProgramTraces | None = None,
        planted: float | None = None,
        side: str = "",
    ) -> None:
        self._side = side
        self._counters = counters
        self._traces = traces
        self._root = root
        self._folder = folder
        self._python = python
        self._env = env
        self._timeout_s = timeout_s
        self._nsys = nsys_path
        self._planted = planted or 0.0
        self._seen: dict[str, _Seen] = {}
        self._units: dict[tuple[str, str], tuple[str, str]] = {}
        self._pairs = 0
        self._base: ProgramRunner | None = None

    def method(self, job: Job) -> str:
        """Return how a `command` is timed on the job's device."""
        return TRACED if self._nsys and job.device == "cuda" else WALL

    def verify(self, job: Job) -> Verification | Failure:
        """Run a program once: it must end with status 0, and a benchmark must write what is asked of it."""
        try:
            with tempfile.TemporaryDirectory(prefix="ci-perf-") as scratch:
                program, argv = self._prepare(job, Path(scratch))
                self._run(job, argv)
                if program.kind != "command":
                    self._benchmark(job, program, Path(scratch))
        except _Failed as failed:
            return Failure("verify", failed.code, str(failed), failed.detail)
        return Verification(0.0, 0.0, "status")

    def time(self, job: Job, batch: int) -> Replicate | Failure:
        """Run a program once and return what it measured, or what was measured of it."""
        try:
            with tempfile.TemporaryDirectory(prefix="ci-perf-") as scratch:
                taken = self._take(job, Path(scratch))
        except _Failed as failed:
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
            self._base = ProgramRunner(
                root=root,
                folder=self._folder,
                python=self._python,
                env=self._env,
                timeout_s=self._timeout_s,
                nsys_path=self._nsys,
                traces=self._traces,
                side="-base",
            )
        return self._base

    @property
    def traced(self) -> bool:
        """Whether there is a trace: of a case that failed, too."""
        return bool(self._seen or self._traces)

    def profiled(self) -> Profiled:
        """Return what the traces that timed the cases held: the last timeline of each, and what was odd about them.

        The last trace of each is let into the artifact folder.
        """
        notes = [note for label, seen in self._seen.items() for note in _notes(label.removeprefix("ci-perf:"), seen)]
        timelines = {label: seen.timeline for label, seen in self._seen.items()}
        counters = {label: program_launch_counters(timeline) for label, timeline in timelines.items()}
        withheld = self._traces.admit() if self._traces is not None else ()
        base_parts = self._base._parts() if self._base is not None else {}
        return Profiled(timelines, counters, notes=(*notes, *withheld), parts=self._parts(), base_parts=base_parts)

    def _parts(self) -> dict[str, tuple[Part, ...]]:
        return {label: parts_of(seen.parts, 1 + self._planted) for label, seen in self._seen.items()}

    def count(self, job: Job) -> Profiled:
        """Run a `command` under ncu where there is one that is wanted; benchmarks choose their launches themselves."""
        if self._counters is None or job.spec.program is None or job.spec.program.kind != "command":
            return Profiled()
        seen = self._seen.get(job.label)
        with tempfile.TemporaryDirectory(prefix="ci-perf-") as scratch:
            _, argv = self._prepare(job, Path(scratch))
            return self._counters.run(job, argv, seen.traced if seen else Traced())

    def argv(self, job: Job) -> tuple[str, ...]:
        """Return the command line of a `command`, as another tool can run it in the root of the repository."""
        return self._prepare(job, Path())[1]

    def why_no_kernels(self, job: Job) -> str:
        """Run a `command` under nsys; empty where it launched GPU kernels that count, else why that is not known."""
        if self.method(job) != TRACED:
            return "there is no nsys to see"
        replicate = self.time(job, 0)
        return replicate.message if isinstance(replicate, Failure) else ""

    def _take(self, job: Job, scratch: Path) -> Chosen:
        program, argv = self._prepare(job, scratch)
        if program.kind != "command":
            self._run(job, argv)
            taken = self._benchmark(job, program, scratch)
            first = self._units.setdefault((job.id, job.device), (taken.unit, taken.better))
            if first != (taken.unit, taken.better):
                raise _Failed("wrong-format", f"the unit was {first[0]}, {first[1]} is better; now it is {taken.unit}")
            return taken
        if self.method(job) == TRACED:
            try:
                return self._trace(job, argv, scratch)
            finally:  # a trace that cannot be used shows best why
                if self._traces is not None:
                    self._traces.keep(job, scratch, base=bool(self._side))
        started = time.perf_counter()
        self._run(job, argv)
        return Chosen((time.perf_counter() - started,), WALL, "s", "lower")

    def _prepare(self, job: Job, scratch: Path) -> tuple[Program, tuple[str, ...]]:
        program = job.spec.program
        if program is None:
            raise ValueError(f"{job.id} has an entry, not a program")
        places = {
            "output": str(scratch / f"results.{'csv' if program.kind == 'triton_csv' else 'json'}"),
            "folder": job.spec.folder,
            "python": self._python,
        }
        return program, command_line(program, job.params, places)

    def _run(self, job: Job, argv: Sequence[str]) -> None:
        """Run to an end, which must be a good one."""
        completed = self._start(job, argv)
        if completed.status != 0:
            raise _bad_end(argv[0], completed.status, completed)

    def _start(self, job: Job, argv: Sequence[str]) -> proc.Completed:
        """Run to an end of any kind within the time limit; the output goes to the case's log."""
        timeout_s = job.spec.timeout_s or self._timeout_s
        try:
            completed = proc.run(argv, timeout_s=timeout_s, env=self._env, cwd=self._root)
        except (CiPerfError, ValueError) as error:  # the latter: a null character in an argument
            raise _Failed("not-started", f"{error}; programs are started in {self._root}") from None
        self._log(job, completed)
        if completed.timed_out:
            raise _Failed("timeout", f"no end within {timeout_s:g} s; the program was killed", completed.output)
        return completed

    def _log(self, job: Job, completed: proc.Completed) -> None:
        log = self._folder / "logs" / f"program{self._side}.{job.spec.name}.{job.case}.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as file:
            file.write(f"$ {' '.join(completed.argv)}\n# {proc.signal_name(completed.status)}\n{completed.output}\n")

    def _trace(self, job: Job, argv: Sequence[str], scratch: Path) -> Chosen:
        """Run under nsys and sum the kernels that count."""
        nsys_path = self._nsys or "nsys"
        report, sqlite = scratch / REPORT, scratch / DATABASE
        completed = self._start(job, nsys.command(nsys_path, argv, report=report))
        _check_traced(argv[0], completed, report)
        try:
            exported = proc.run(
                nsys.export_command(nsys_path, report, sqlite), timeout_s=_EXPORT_TIMEOUT_S, env=self._env
            )
            if not sqlite.is_file():
                raise _Failed("profiler", f"nsys exported nothing{_last(exported)}", exported.output)
            timeline = nsys.read_timeline(sqlite)
        except CiPerfError as error:
            raise _Failed("profiler", f"the trace cannot be read: {_without(error, sqlite)}") from None
        try:
            kernels = counted_kernels(
                timeline,
                [fill(pattern, job.params) for pattern in job.spec.ranges],
                [fill(pattern, job.params) for pattern in job.spec.kernels],
                lambda names: nsys.read_inside(sqlite, names),
            )
        except ProfileError as error:
            raise _Failed("no-kernels", str(error), completed.output) from None
        ranges = chosen_ranges(timeline, [fill(pattern, job.params) for pattern in job.spec.ranges])
        seen = self._seen.get(job.label)
        # What the program did is looked at call by call, which takes its time: once is enough.
        metrics = seen.timeline.metrics if seen else _activity(sqlite, job, ranges)
        now = program_timeline(kernels, timeline.devices, metrics)
        functions = dict.fromkeys(kernel.short_name for kernel in kernels) if job.spec.kernels else ()
        traced = Traced(
            tuple(functions), tuple(r.name for r in ranges if r.count), sum(kernel.count for kernel in kernels)
        )
        seen = self._seen.setdefault(job.label, _Seen(now, traced))
        seen.timeline, seen.traced = now, traced
        seen.parts.append(parts_of_run(kernels, ranges, [fill(pattern, job.params) for pattern in job.spec.kernels]))
        seen.kernels.append(tuple(dict.fromkeys(kernel.name for kernel in kernels)))
        seen.warnings |= dict.fromkeys(timeline.warnings)
        return Chosen((scaled(sum(kernel.total_ns for kernel in kernels), 1e-9),), TRACED, "s", "lower")

    def _benchmark(self, job: Job, program: Program, scratch: Path) -> Chosen:
        try:
            return choose(_read(self._output(job, scratch), program.kind), program, job.params)
        except NoNumber as error:
            raise _Failed(error.code, str(error)) from None

    def _output(self, job: Job, scratch: Path) -> Path:
        """Return the file that the benchmark wrote, and keep a copy of it in the run's folder."""
        written = [file for file in sorted(scratch.rglob("*")) if file.is_file() and file.suffix in (".json", ".csv")]
        written = [file for file in written if file.stat().st_size]
        if not written:
            raise _Failed("no-output", "the program ended well and wrote nothing to {output}")
        if len(written) > 1:
            names = ", ".join(file.relative_to(scratch).as_posix() for file in written[:5])
            raise _Failed("no-output", f"the program wrote {len(written)} files to {{output}}, expected one: {names}")
        kept = self._folder / "benchmarks" / f"{job.spec.name}.{job.case}{self._side}{written[0].suffix}"
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(written[0], kept)
        samples = Path(f"{written[0]}-bin")  # of nvbench --jsonbin
        if samples.is_dir():
            shutil.copytree(samples, f"{kept}-bin", dirs_exist_ok=True)
        return written[0]


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


def _bad_end(name: str, status: int, completed: proc.Completed, where: str = "") -> _Failed:
    how = f"ended with {proc.signal_name(status)}{where}{_last(completed)}"
    return _Failed("crashed" if status < 0 else "exited", f"`{name}` {how}", completed.output)


def _check_traced(name: str, completed: proc.Completed, report: Path) -> None:
    """Tell what nsys did from what the program did: nsys passes its exit status on, or 0 whatever happened.

    nsys writes a report of a program that failed too. It ends a program whose capture is over with SIGTERM.
    """
    trouble = nsys.diagnose(completed.output)
    if not report.is_file():
        ended = f"nsys ended with {proc.signal_name(completed.status)} and wrote no report{_last(completed)}"
        raise _Failed("profiler", trouble.message if trouble else ended, completed.output)
    if trouble and trouble.code == "other-profiler":
        raise _Failed("profiler", trouble.message, completed.output)
    status = 128 - completed.status if completed.status > 128 else completed.status  # 128 + n stands for signal n
    if status not in (0, -signal.SIGTERM):
        raise _bad_end(name, status, completed, " under nsys")
    if trouble and trouble.code == "target-failed":
        raise _Failed("exited", trouble.message, completed.output)


def _activity(sqlite: Path, job: Job, ranges: Sequence[RangeStats]) -> Mapping[str, Reading]:
    """Return the metrics of what counts: of the whole trace, or of the ranges of one name."""
    found, whole = nsys_activity.read(sqlite, {r.name for r in ranges})
    if not job.spec.ranges:
        return whole
    if len(ranges) > 1:
        return activity.not_analysed("ranges of several names count")
    return found.get(ranges[0].name) or activity.not_analysed("the range is outside of NVTX's default domain")


def _read(path: Path, promised: str) -> BenchmarkFile:
    if path.stat().st_size > _LARGEST_FILE:
        raise _Failed("wrong-format", f"{{output}} is larger than {_LARGEST_FILE >> 20} MiB")
    try:
        text = path.read_text(encoding="utf-8-sig")
        return parse(text, "{output}", promised=promised, beside=partial(_samples, path))
    except UnicodeDecodeError:
        raise _Failed("wrong-format", "{output}: binary data, not a benchmark's results") from None
    except ProfileError as error:
        raise _Failed("wrong-format", str(error), error.hint) from None


def _samples(path: Path, folder: str, name: str) -> bytes:
    """Return a file that nvbench just wrote beside `path`; without it some replicates would be samples, some a mean."""
    content = beside(path, folder, name)
    if content is None:
        hint = "let nvbench write `--jsonbin {output}`, or `--json {output}` for the mean alone"
        raise ProfileError(f"names the samples {folder}/{name}, which are not beside it", hint=hint)
    return content


def _notes(case: str, seen: _Seen) -> list[Note]:
    notes = [Note("nsys-warning", f"{case}: nsys: {warning}") for warning in seen.warnings]
    others = [names for names in seen.kernels[1:] if not kernel_names.compare(seen.kernels[0], names).same_kernels]
    if others:
        changes = kernel_names.compare(seen.kernels[0], others[0])
        differing = ", ".join((*changes.added, *changes.removed)[:3])
        message = f"{case}: {len(others)} of {len(seen.kernels)} runs ran other GPU kernels than the first: {differing}"
        notes.append(Note("kernels-differ", message, "fix what the program chooses at run time (autotuning, seeds)"))
    collisions = kernel_names.collisions(seen.kernels[-1])
    told_apart = "they are told apart by their full names"
    return [*notes, *(Note("kernel-names-collide", f"{case}: {collision}", told_apart) for collision in collisions)]


def _last(completed: proc.Completed) -> str:
    lines = completed.output.strip().splitlines()
    return f": {lines[-1][:200]}" if lines else ""


def _without(error: CiPerfError, path: Path) -> str:
    """Return an error's sentence without the path of a file that nobody can look at any more."""
    return str(error).removeprefix(f"{path}: ")
