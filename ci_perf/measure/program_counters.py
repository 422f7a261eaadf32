"""The counters of programs: each is run under ncu by itself, for the first of its GPU kernels that count."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ci_perf.guard.guard import Guard
from ci_perf.measure import proc
from ci_perf.measure.backend import Profiled
from ci_perf.measure.conditions import Conditions
from ci_perf.measure.profile import WAITING
from ci_perf.measure.program_trace import Traced
from ci_perf.store import write_text
from ci_perf.traces import ncu
from ci_perf.traces.attribution import program_counters
from ci_perf.traces.diagnosis import Diagnosis
from ci_perf.traces.program_trace import listed
from ci_perf.values.errors import CiPerfError
from ci_perf.values.job import Job
from ci_perf.values.metrics import wanted
from ci_perf.values.program import fill
from ci_perf.values.run import Note
from ci_perf.values.trace import Reading

LAUNCHES = 20
"""Each is replayed a few times, and a program may have thousands."""
RUNS = 2
"""Two, to check that exact counters repeat."""
FOLDER = "counters"
"""Where the reports lie in the artifact folder."""


class _NoCounters(Exception):
    """There are none; the note says why."""

    def __init__(self, note: Note) -> None:
        super().__init__(note.message)
        self.note = note


@dataclass(frozen=True, slots=True)
class ProgramCounters:
    """Runs programs under an ncu that was found and is wanted."""

    ncu: str
    """The path of ncu."""
    conditions: Conditions
    guard: Guard
    """ncu writes outside of the run's folder; a report that holds a secret stays there."""
    full: bool = False
    """Whether ncu collects every counter, not only those that are compared and gated."""

    def run(self, job: Job, argv: Sequence[str], traced: Traced, *, full: bool = False) -> Profiled:
        """Count what a program does on the GPU; what cannot be had becomes a note, never an exception."""
        report = self.guard.outside / f"{job.spec.name}.{job.case}.ncu-rep"
        notes: dict[Note, None] = {}
        runs: list[Mapping[str, Reading]] = []
        try:
            for _ in range(RUNS):
                readings, said = self._run(job, argv, traced, report, full=self.full or full)
                runs.append(readings)
                notes |= dict.fromkeys(said)
        except _NoCounters as reason:
            notes[reason.note] = None
        except CiPerfError as error:
            notes[Note("ncu-failed", f"ncu: {job.id}: {error}", error.hint)] = None
        if runs and traced.count is not None and traced.count > LAUNCHES:
            notes[_first_note(job, traced.count)] = None
        withheld = self.guard.admit(report, FOLDER) if report.is_file() else ()
        return Profiled(counters={job.label: tuple(runs)} if runs else {}, notes=(*notes, *withheld))

    def _run(
        self, job: Job, argv: Sequence[str], traced: Traced, report: Path, *, full: bool
    ) -> tuple[Mapping[str, Reading], list[Note]]:
        metrics = wanted((gate.metric for gate in job.spec.gates), full=full)
        command = ncu.program_command(
            self.ncu,
            argv,
            metrics=sorted({metric.ncu for metric in metrics}),
            report=report,
            functions=traced.functions,
            ranges=traced.ranges[:LAUNCHES],
            launches=LAUNCHES,
            full=full,
        )
        report.unlink(missing_ok=True)
        conditions, limit_s = self.conditions, 2 * self.conditions.timeout_of(job)
        completed = proc.run(command, timeout_s=limit_s, env=conditions.env, cwd=conditions.root)
        write_text(self.guard.folder / "logs" / f"ncu.{job.spec.name}.{job.case}.log", completed.log)
        trouble = ncu.diagnose(completed.output)
        if not report.is_file():
            raise _NoCounters(_nothing(job, completed) if trouble is None else _complaint(job, trouble))
        counters = ncu.read(report)
        ranges, kernels = ([fill(p, job.params) for p in patterns] for patterns in (job.spec.ranges, job.spec.kernels))
        readings = program_counters(counters, ranges, kernels, metrics)
        if not readings:
            raise _NoCounters(_uncounted(job, [launch.name for launch in counters.launches]))
        notes = [Note("ncu-warning", f"ncu: {job.id}: {warning}") for warning in counters.warnings]
        return readings, notes if trouble is None else [*notes, _complaint(job, trouble)]


def _complaint(job: Job, trouble: Diagnosis) -> Note:
    return Note(f"ncu-{trouble.code}", f"ncu: {job.id}: {trouble.message}", trouble.hint)


def _nothing(job: Job, completed: proc.Completed) -> Note:
    hint = WAITING if completed.timed_out else f"see logs/ncu.{job.spec.name}.{job.case}.log in the run's folder"
    return Note("ncu-no-report", f"ncu: {job.id}: ncu {completed.end} and wrote no report", hint)


def _uncounted(job: Job, ran: Sequence[str]) -> Note:
    names = listed(list(dict.fromkeys(ran)))
    message = f"ncu: {job.id}: none of the first {len(ran)} GPU kernels counts; there ran {names}"
    return Note("ncu-no-range", message, "do the patterns of `ranges` and `kernels` in kernel.toml fit?")


def _first_note(job: Job, count: int) -> Note:
    message = f"ncu: {job.id}: the counters are those of the first {LAUNCHES} of {count:,} GPU kernels that count"
    return Note("ncu-first-kernels", message, "`ranges` and `kernels` in kernel.toml can choose fewer")
