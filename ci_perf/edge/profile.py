"""One session of nsys or ncu for all cases: start it on a worker, read what it wrote, say what is missing."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ci_perf.core.errors import CiPerfError
from ci_perf.core.metrics import Metric, wanted
from ci_perf.core.model import Note
from ci_perf.core.plan import Job
from ci_perf.edge import proc
from ci_perf.edge.store import write_text
from ci_perf.edge.worker_process import command as worker_command
from ci_perf.flow import Profiled
from ci_perf.profilers import ncu, nsys
from ci_perf.profilers.attribution import case_counters, case_timeline
from ci_perf.profilers.diagnosis import Diagnosis

NSYS_LAUNCHES = 10
NCU_LAUNCHES = 2
"""Two, so that a counter said to be exact is seen to repeat."""
_EXPORT_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class ProfileSession:
    """A profiler that was found and is wanted."""

    tool: str
    """`nsys` or `ncu`."""
    path: str
    python: str
    folder: Path
    """Of the run: takes the reports; its `logs` take the rest."""
    env: Mapping[str, str]
    request: Callable[[Job], dict[str, Any]]
    timeout_s: float

    def run(self, jobs: Sequence[Job]) -> Profiled:
        """Profile all jobs in one session; what cannot be had becomes a note, never an exception."""
        try:
            return self._nsys(jobs) if self.tool == "nsys" else self._ncu(jobs)
        except CiPerfError as error:
            return Profiled(notes=(Note(f"{self.tool}-failed", f"{self.tool}: {error}", error.hint),))

    def _nsys(self, jobs: Sequence[Job]) -> Profiled:
        report, sqlite = self.folder / "timeline.nsys-rep", self.folder / "timeline.sqlite"
        target = self._target(jobs, NSYS_LAUNCHES)
        completed = self._start(nsys.command(self.path, target, report=report), len(jobs))
        if not report.is_file():
            return self._nothing(completed, nsys.diagnose(completed.output))
        exported = proc.run(nsys.export_command(self.path, report, sqlite), timeout_s=_EXPORT_TIMEOUT_S, env=self.env)
        self._log("nsys-export", exported)
        if not sqlite.is_file():
            return self._nothing(exported, nsys.diagnose(exported.output))
        timeline = nsys.read_timeline(sqlite)
        found = {job.label: case_timeline(timeline, job.label, job.spec.kernels, NSYS_LAUNCHES) for job in jobs}
        notes = [Note("nsys-warning", f"nsys: {warning}") for warning in timeline.warnings]
        notes += self._unseen([job.id for job in jobs if found[job.label] is None])
        return Profiled(timelines={k: v for k, v in found.items() if v is not None}, notes=tuple(notes))

    def _ncu(self, jobs: Sequence[Job]) -> Profiled:
        report = self.folder / "kernels.ncu-rep"
        metrics = wanted(gate.metric for job in jobs for gate in job.spec.gates)
        target = self._target(jobs, NCU_LAUNCHES)
        names = sorted({metric.ncu for metric in metrics})
        completed = self._start(ncu.command(self.path, target, metrics=names, report=report), len(jobs))
        trouble = ncu.diagnose(completed.output)
        if not report.is_file():
            return self._nothing(completed, trouble)
        counters = ncu.read(report)
        notes = [Note("ncu-warning", f"ncu: {warning}") for warning in counters.warnings]
        if trouble is not None:
            notes.append(Note(f"ncu-{trouble.code}", f"ncu: {trouble.message}", trouble.hint))
        found = {
            job.label: case_counters(counters, job.label, job.spec.kernels, NCU_LAUNCHES, _of(job, metrics))
            for job in jobs
        }
        notes += self._unseen([job.id for job in jobs if not found[job.label]])
        return Profiled(counters={k: v for k, v in found.items() if v}, notes=tuple(notes))

    def _target(self, jobs: Sequence[Job], launches: int) -> tuple[str, ...]:
        """Write the requests of the session to a file and return the worker that answers them."""
        logs = self.folder / "logs"
        requests = [{**self.request(job), "op": "profile", "range": job.label, "launches": launches} for job in jobs]
        lines = "".join(json.dumps(request) + "\n" for request in requests)
        path = write_text(logs / f"{self.tool}-requests.jsonl", lines)
        answers = logs / f"{self.tool}-answers.jsonl"
        return worker_command(
            self.python, logs / f"{self.tool}.stdout.txt", "--requests", str(path), "--answers", str(answers)
        )

    def _start(self, argv: Sequence[str], cases: int) -> proc.Completed:
        completed = proc.run(argv, timeout_s=self.timeout_s * (1 + cases), env=self.env)
        self._log(self.tool, completed)
        return completed

    def _log(self, name: str, completed: proc.Completed) -> None:
        head = f"$ {' '.join(completed.argv)}\n# {proc.signal_name(completed.status)}\n"
        write_text(self.folder / "logs" / f"{name}.log", head + completed.output)

    def _nothing(self, completed: proc.Completed, trouble: Diagnosis | None) -> Profiled:
        if trouble is not None:
            return Profiled(
                notes=(Note(f"{self.tool}-{trouble.code}", f"{self.tool}: {trouble.message}", trouble.hint),)
            )
        ended = "ran into its time limit" if completed.timed_out else f"ended with {proc.signal_name(completed.status)}"
        lines = completed.output.strip().splitlines()
        message = f"{self.tool} {ended} and wrote no report" + (f": {lines[-1][:200]}" if lines else "")
        return Profiled(
            notes=(Note(f"{self.tool}-no-report", message, f"see logs/{self.tool}.log in the run's folder"),)
        )

    def _unseen(self, cases: Sequence[str]) -> list[Note]:
        if not cases:
            return []
        message = f"{self.tool}: saw no GPU kernel of {', '.join(cases[:5])}" + (
            " and others" if len(cases) > 5 else ""
        )
        return [Note(f"{self.tool}-no-range", message, "do the patterns of `kernels` in kernel.toml fit?")]


def _of(job: Job, metrics: Sequence[Metric]) -> list[Metric]:
    gated = {gate.metric for gate in job.spec.gates}
    return [metric for metric in metrics if not metric.extra_passes or metric.name in gated]
