"""The counters of programs: each is run under ncu by itself, for the first of its GPU kernels that count."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from ci_perf.guard.guard import Guard
from ci_perf.measure import proc
from ci_perf.measure.backend import Profiled
from ci_perf.measure.both_sides import codes_of, located
from ci_perf.measure.conditions import Conditions
from ci_perf.measure.profile import WAITING
from ci_perf.measure.program_run import program_env
from ci_perf.measure.program_trace import Traced
from ci_perf.store import write_text
from ci_perf.traces import ncu
from ci_perf.traces.attribution import program_counters
from ci_perf.traces.ncu.code import Code
from ci_perf.traces.selection import counts, listed
from ci_perf.values.errors import CiPerfError
from ci_perf.values.job import Job
from ci_perf.values.kernel import fill
from ci_perf.values.metrics import wanted
from ci_perf.values.run import Note
from ci_perf.values.trace import Reading

LAUNCHES = 20
"""Each is replayed a few times, and a program may have thousands."""
RUNS = 2
"""Two, to check that exact counters repeat."""
FOLDER = "counters"
"""Where the reports lie in the artifact folder."""


class _NoCounters(CiPerfError):
    """There are none; `code` is the end of the note's."""

    def __init__(self, code: str, message: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.code = code


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
    explain: bool = False
    """Whether ncu collects what finds the cause of a change, in one run."""
    once: bool = False
    """Whether each kernel counts once: a benchmark launches it as often as it needs."""
    side: str = ""
    """Ends the names of its files: no case has an `@` in its name."""

    def explaining(self, side: str, conditions: Conditions, *, once: bool) -> Self:
        """Return what counts for an explanation, of the tree of these conditions, with files of its own."""
        return replace(self, conditions=conditions, full=False, explain=True, once=once, side=f"@{side}")

    def run(self, job: Job, argv: Sequence[str], traced: Traced, *, full: bool = False) -> Profiled:
        """Count what a program does on the GPU; what cannot be had becomes a note, never an exception."""
        report = self.guard.outside / f"{job.spec.name}.{job.case}{self.side}.ncu-rep"
        notes: dict[Note, None] = {}
        runs: list[Mapping[str, Reading]] = []
        try:
            for _ in range(1 if self.explain else RUNS):
                readings, said = self._run(job, argv, traced, report, full=self.full or full)
                runs.append(readings)
                notes |= dict.fromkeys(said)
        except CiPerfError as error:
            code = error.code if isinstance(error, _NoCounters) else "failed"
            notes[_note(job, code, str(error), error.hint)] = None
        if runs and traced.count is not None and traced.count > LAUNCHES and not self.explain:
            message = f"the counters are those of the first {LAUNCHES} of {traced.count:,} GPU kernels that count"
            notes[_note(job, "first-kernels", message, "`ranges` and `kernels` in kernel.toml can choose fewer")] = None
        codes = self._codes(job, report) if runs and self.explain else {}
        withheld = self.guard.admit(report, FOLDER) if report.is_file() else ()
        return Profiled(counters={job.label: tuple(runs)} if runs else {}, notes=(*notes, *withheld), codes=codes)

    def _codes(self, job: Job, report: Path) -> Mapping[str, tuple[Code, ...]]:
        """Return the machine code of the kernels that count."""
        kernels = [fill(pattern, job.params) for pattern in job.spec.kernels]
        found = codes_of(report)
        mine = (code.of_one_launch if self.once else code for code in found if counts(code.name, kernels))
        return {job.label: tuple(located(code, self.conditions.root, job.spec.folder) for code in mine)}

    def _run(
        self, job: Job, argv: Sequence[str], traced: Traced, report: Path, *, full: bool
    ) -> tuple[Mapping[str, Reading], list[Note]]:
        gated = () if self.explain else [gate.metric for gate in job.spec.gates]
        metrics = wanted(gated, full=full, explain=self.explain)
        command = ncu.program_command(
            self.ncu,
            argv,
            metrics=sorted({metric.ncu for metric in metrics}),
            report=report,
            functions=traced.functions,
            ranges=traced.ranges[:LAUNCHES],
            launches=LAUNCHES,
            full=full,
            lines=self.explain,
        )
        report.unlink(missing_ok=True)
        conditions, limit_s = self.conditions, 2 * self.conditions.timeout_of(job)
        completed = proc.run(command, timeout_s=limit_s, env=program_env(conditions, job), cwd=conditions.root)
        log = f"ncu.{job.spec.name}.{job.case}{self.side}.log"
        write_text(self.guard.folder / "logs" / log, completed.log)
        trouble = ncu.diagnose(completed.output)
        if not report.is_file() and trouble:
            raise _NoCounters(trouble.code, trouble.message, trouble.hint)
        if not report.is_file():
            hint = WAITING if completed.timed_out else f"see logs/{log} in the run's folder"
            raise _NoCounters("no-report", f"ncu {completed.end} and wrote no report", hint)
        counters = ncu.read(report)
        ranges, kernels = ([fill(p, job.params) for p in patterns] for patterns in (job.spec.ranges, job.spec.kernels))
        readings = program_counters(counters, ranges, kernels, metrics, once=self.once)
        if not readings:
            ran = listed(list(dict.fromkeys(launch.name for launch in counters.launches)))
            message = f"none of the first {len(counters.launches)} GPU kernels counts; there ran {ran}"
            raise _NoCounters("no-range", message, "do the patterns of `ranges` and `kernels` in kernel.toml fit?")
        notes = [_note(job, "warning", warning) for warning in counters.warnings]
        return readings, [*notes, _note(job, trouble.code, trouble.message, trouble.hint)] if trouble else notes


def comparable(base: Traced, head: Traced) -> bool:
    """Return whether the first kernels of both sides do the same part of the work: all of it, or as many of as many."""
    counts = {base.count, head.count}
    return None in counts or len(counts) == 1 or max(base.count or 0, head.count or 0) <= LAUNCHES


def _note(job: Job, code: str, message: str, hint: str = "") -> Note:
    return Note(f"ncu-{code}", f"ncu: {job.id}: {message}", hint)
