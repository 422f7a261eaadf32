"""Programs timed through their GPU kernels: nsys traces each run, and the kernels that count are summed.

The last trace of each case is kept, of each side where two take turns.
"""

import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ci_perf.guard.guard import Guard
from ci_perf.judge.parts import parts_of
from ci_perf.measure import proc
from ci_perf.measure.program_run import Chosen, Launcher, ProgramFailed, bad_end
from ci_perf.traces import activity, nsys
from ci_perf.traces.attribution import program_timeline
from ci_perf.traces.benchmarks.results import scaled
from ci_perf.traces.nsys import activity as nsys_activity
from ci_perf.traces.nsys import scrub as nsys_scrub
from ci_perf.traces.selection import chosen_ranges, counted_kernels, parts_of_run
from ci_perf.traces.timeline import Timeline
from ci_perf.values import kernel_names
from ci_perf.values.errors import CiPerfError, ProfileError
from ci_perf.values.job import Job
from ci_perf.values.kernel import fill
from ci_perf.values.measurement import Part
from ci_perf.values.run import Note
from ci_perf.values.trace import CaseTimeline, Reading

TRACED = "nsys-kernel-sum"
_REPORT, _DATABASE = "trace.nsys-rep", "trace.sqlite"
"""What nsys leaves in the scratch folder of a run: its report, and the database that was exported from it."""
_FOLDER = "traces"
"""Where the traces lie in the artifact folder: `traces/KERNEL.CASE.nsys-rep`."""
_BASE = "@base"
"""Follows the case's name in the trace of the base; no case has this character in its name."""
_EXPORT_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Traced:
    """Which of a program's launches counted in the trace that timed it, so that ncu can skip all others."""

    functions: tuple[str, ...] = ()
    """Names of kernels without namespace, template and parameters; empty: not known, or all count."""
    ranges: tuple[str, ...] = ()
    """The whole names of the NVTX ranges around them; empty: not known, or all count."""
    count: int | None = None
    """How many ran; None where there was no trace."""


@dataclass(frozen=True, slots=True)
class KeptTraces:
    """Holds back the last trace of each case, and admits all once everything is measured: searching them takes time."""

    guard: Guard
    """A trace holds environments: until it was cleaned and searched it waits outside of the run's folder."""
    _kept: dict[str, None] = field(default_factory=dict, init=False)

    def __bool__(self) -> bool:
        """Whether anything is held back."""
        return bool(self._kept)

    def keep(self, job: Job, scratch: Path, *, base: bool = False) -> None:
        """Replace a case's trace by what nsys left of its last run, if it left anything."""
        files = [file for file in (scratch / _REPORT, scratch / _DATABASE) if file.is_file()]
        if not files:
            return
        name = f"{job.spec.name}.{job.case}{_BASE if base else ''}"
        for place in self._places(name):
            place.unlink(missing_ok=True)
        for file in files:
            shutil.move(file, self.guard.outside / f"{name}{file.suffix}")
        self._kept[name] = None

    def admit(self) -> tuple[Note, ...]:
        """Admit all, databases without environments; name each that holds a secret or cannot be cleaned."""
        notes: list[Note] = []
        for name in self._kept:
            report, exported = self._places(name)
            if report.is_file():
                notes += self.guard.admit(report, _FOLDER)
            if exported.is_file():
                notes += self._admit_cleaned(exported)
        self._kept.clear()
        return tuple(notes)

    def _admit_cleaned(self, exported: Path) -> tuple[Note, ...]:
        raw = exported.rename(exported.with_suffix(".exported"))
        try:
            nsys_scrub.clean(raw, exported)
        except CiPerfError:
            return (Note("nsys-failed", f"nsys: {exported.name} is not kept: it cannot be cleaned"),)
        finally:
            raw.unlink()
        return self.guard.admit(exported, _FOLDER)

    def _places(self, name: str) -> list[Path]:
        return [self.guard.outside / f"{name}{Path(file).suffix}" for file in (_REPORT, _DATABASE)]


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


class TracedPrograms:
    """Runs programs under nsys, where it is there, and remembers by label of the case what their traces held."""

    def __init__(self, launcher: Launcher, nsys_path: str | None, traces: KeptTraces | None) -> None:
        self._launcher = launcher
        self._nsys = nsys_path
        self._traces = traces
        self._seen: dict[str, _Seen] = {}

    def can_trace(self, job: Job) -> bool:
        """Return whether a program runs on a GPU, and nsys is there to trace it."""
        return self._nsys is not None and job.device == "cuda"

    @property
    def timelines(self) -> dict[str, CaseTimeline]:
        """The last one of each case."""
        return {label: seen.timeline for label, seen in self._seen.items()}

    def traced(self, job: Job) -> Traced:
        """Return which of a case's launches counted."""
        seen = self._seen.get(job.label)
        return seen.traced if seen else Traced()

    def parts(self, scale: float) -> dict[str, tuple[Part, ...]]:
        """Return what the time of each case was made of, `scale` times as long."""
        return {label: parts_of(seen.parts, scale) for label, seen in self._seen.items()}

    def notes(self) -> tuple[Note, ...]:
        """Return notes on what the traces lack, and on runs that differed."""
        return tuple(n for label, seen in self._seen.items() for n in _notes(label.removeprefix("ci-perf:"), seen))

    def time(self, job: Job, argv: Sequence[str], scratch: Path) -> Chosen:
        """Run a program under nsys and sum the kernels that count; the trace is kept. ProgramFailed."""
        try:
            return self._time(job, argv, scratch)
        finally:  # a trace that cannot be used shows best why
            if self._traces is not None:
                self._traces.keep(job, scratch, base=bool(self._launcher.side))

    def _time(self, job: Job, argv: Sequence[str], scratch: Path) -> Chosen:
        report, sqlite = scratch / _REPORT, scratch / _DATABASE
        completed = self._launcher.start(job, nsys.command(str(self._nsys), argv, report=report))
        _check_traced(argv[0], completed, report)
        timeline = self._exported(report, sqlite)
        wanted = [fill(pattern, job.params) for pattern in job.spec.ranges]
        patterns = [fill(pattern, job.params) for pattern in job.spec.kernels]
        try:
            kernels = counted_kernels(timeline, wanted, patterns)
        except ProfileError as error:
            raise ProgramFailed("no-kernels", str(error), completed.output) from None
        ranges = chosen_ranges(timeline, wanted)
        seen = self._seen.get(job.label)
        # What the program did is looked at call by call, which takes its time: once is enough.
        metrics = seen.timeline.metrics if seen else _activity(sqlite, job, ranges)
        now = program_timeline(kernels, timeline.devices, metrics)
        functions = dict.fromkeys(kernel.short_name for kernel in kernels) if job.spec.kernels else ()
        launching = tuple(name for name in ranges if timeline.inside([name]))
        traced = Traced(tuple(functions), launching, sum(kernel.count for kernel in kernels))
        seen = self._seen.setdefault(job.label, _Seen(now, traced))
        seen.timeline, seen.traced = now, traced
        seen.parts.append(parts_of_run(timeline, kernels, ranges, patterns))
        seen.kernels.append(tuple(dict.fromkeys(kernel.name for kernel in kernels)))
        seen.warnings |= dict.fromkeys(timeline.warnings)
        return Chosen((scaled(sum(kernel.total_ns for kernel in kernels), 1e-9),), TRACED, "s", "lower")

    def _exported(self, report: Path, sqlite: Path) -> Timeline:
        try:
            command = nsys.export_command(str(self._nsys), report, sqlite)
            exported = proc.run(command, timeout_s=_EXPORT_TIMEOUT_S, env=self._launcher.conditions.env)
            if not sqlite.is_file():
                raise ProgramFailed("profiler", f"nsys exported nothing{exported.said}", exported.output)
            return nsys.read_timeline(sqlite)
        except CiPerfError as error:
            raise ProgramFailed(
                "profiler", f"the trace cannot be read: {str(error).removeprefix(f'{sqlite}: ')}"
            ) from None


def _check_traced(name: str, completed: proc.Completed, report: Path) -> None:
    """Tell what nsys did from what the program did: nsys passes its exit status on, or 0 whatever happened.

    nsys writes a report of a program that failed too. It ends a program whose capture is over with SIGTERM.
    """
    trouble = nsys.diagnose(completed.output)
    if not report.is_file():
        ended = f"nsys {completed.end} and wrote no report{completed.said}"
        raise ProgramFailed("profiler", trouble.message if trouble else ended, completed.output)
    if trouble and trouble.code == "other-profiler":
        raise ProgramFailed("profiler", trouble.message, completed.output)
    status = 128 - completed.status if completed.status > 128 else completed.status  # 128 + n stands for signal n
    if status not in (0, -signal.SIGTERM):
        raise bad_end(name, status, completed, " under nsys")
    if trouble and trouble.code == "target-failed":
        raise ProgramFailed("exited", trouble.message, completed.output)


def _activity(sqlite: Path, job: Job, ranges: Sequence[str]) -> Mapping[str, Reading]:
    """Return the metrics of what counts: of the whole trace, or of the ranges of one name."""
    found, whole = nsys_activity.read(sqlite, set(ranges))
    if not job.spec.ranges:
        return whole
    if len(ranges) > 1:
        return activity.not_analysed("ranges of several names count")
    return found.get(ranges[0]) or activity.not_analysed("the range is outside of NVTX's default domain")


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
