"""One session of nsys or ncu for all cases: start it on a worker, read what it wrote, say what is missing."""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ci_perf.guard.guard import Guard
from ci_perf.measure import proc
from ci_perf.measure.backend import Profiled
from ci_perf.measure.worker_process import command as worker_command
from ci_perf.store import write_text
from ci_perf.traces import ncu, nsys
from ci_perf.traces.attribution import case_counters, case_timeline, launch_counters
from ci_perf.traces.diagnosis import Diagnosis
from ci_perf.traces.nsys import activity as nsys_activity
from ci_perf.traces.nsys import scrub as nsys_scrub
from ci_perf.traces.program_trace import listed
from ci_perf.values.errors import CiPerfError
from ci_perf.values.job import Job
from ci_perf.values.metrics import Metric, wanted
from ci_perf.values.run import Note
from ci_perf.values.trace import CaseTimeline, Reading

NSYS_LAUNCHES = 10
NCU_LAUNCHES = 2
"""Two, so that a counter said to be exact is seen to repeat."""
WAITING = (
    "kernels that wait for each other or for another process (NCCL) do not end where a profiler runs them one by one; "
    "`--profile nsys` leaves out ncu, `--timeout` gives more time"
)
"""What to do about a profiler that did not end."""
_EXPORT_TIMEOUT_S = 300.0
_TIMELINE = ("timeline.sqlite", "timeline.nsys-rep")
"""What nsys leaves in the artifact folder."""


class Profiler(Protocol):
    """What profiles all cases of a run."""

    def run(self, jobs: Sequence[Job]) -> Profiled:
        """Profile all jobs; what cannot be had becomes a note, never an exception."""


@dataclass(frozen=True, slots=True)
class ProfileSession:
    """A profiler that was found and is wanted."""

    tool: str
    """`nsys` or `ncu`."""
    path: str
    version: str
    python: str
    guard: Guard
    """The tool writes outside of the run's folder; a file that holds a secret stays there."""
    env: Mapping[str, str]
    request: Callable[[Job], dict[str, Any]]
    timeout_s: float
    full: bool = False
    """Whether ncu is asked for all that it knows, not only for what is compared and gated."""
    report: str = "kernels"
    """What ncu's report is called."""

    @property
    def can_explain(self) -> bool:
        """Whether a second session would say more of a case."""
        return self.tool == "ncu" and not self.full

    def explaining(self) -> "ProfileSession":
        """Return the session that asks for every counter, and leaves what this one leaves as it is."""
        return replace(self, full=True, report="explain")

    @property
    def _stem(self) -> str:
        """What its logs begin with."""
        return self.tool if self.report == "kernels" else f"{self.tool}-{self.report}"

    def run(self, jobs: Sequence[Job]) -> Profiled:
        """Profile all jobs in one session; what cannot be had becomes a note, never an exception."""
        try:
            found = self._nsys(jobs) if self.tool == "nsys" else self._ncu(jobs)
        except CiPerfError as error:
            message = str(error).replace(f"{self.guard.outside}/", "")
            found = Profiled(notes=(Note(f"{self.tool}-failed", f"{self.tool}: {message}", error.hint),))
        names = _TIMELINE if self.tool == "nsys" else (f"{self.report}.ncu-rep",)
        files = (self.guard.outside / name for name in names)
        withheld = (note for file in files if file.is_file() for note in self.guard.admit(file))
        return replace(found, notes=(*found.notes, *withheld))

    def _nsys(self, jobs: Sequence[Job]) -> Profiled:
        outside = self.guard.outside
        report, exported_to, sqlite = (outside / f"timeline.{kind}" for kind in ("nsys-rep", "exported", "sqlite"))
        target = self._target(jobs, NSYS_LAUNCHES)
        completed = self._start(nsys.command(self.path, target, report=report), len(jobs))
        if not report.is_file():
            return self._nothing(completed, nsys.diagnose(completed.output))
        command = nsys.export_command(self.path, report, exported_to)
        exported = proc.run(command, timeout_s=_EXPORT_TIMEOUT_S, env=self.env)
        self._log("nsys-export", exported)
        if not exported_to.is_file():
            return self._nothing(exported, nsys.diagnose(exported.output))
        nsys_scrub.clean(exported_to, sqlite)
        exported_to.unlink()
        timeline = nsys.read_timeline(sqlite)
        metrics, whole = nsys_activity.read(sqlite, {job.label for job in jobs})
        ended, failures = self._ended(jobs)
        found = {
            job.label: case_timeline(timeline, job.label, job.spec.kernels, NSYS_LAUNCHES, metrics.get(job.label))
            for job in ended
        }
        notes = [*self._partial(completed), *(Note("nsys-warning", f"nsys: {w}") for w in timeline.warnings), *failures]
        ran = {inside.name: [kernel.short_name for kernel in inside.kernels] for inside in timeline.ranges}
        notes += self._unseen(ended, {label for label, mine in found.items() if mine and mine.kernels}, ran)
        return timelines_found(found, whole, notes)

    def _ncu(self, jobs: Sequence[Job]) -> Profiled:
        report = self.guard.outside / f"{self.report}.ncu-rep"
        metrics = wanted((gate.metric for job in jobs for gate in job.spec.gates), full=self.full)
        target = self._target(jobs, NCU_LAUNCHES)
        names = sorted({metric.ncu for metric in metrics})
        completed = self._start(ncu.command(self.path, target, metrics=names, report=report, full=self.full), len(jobs))
        trouble = ncu.diagnose(completed.output)
        if not report.is_file():
            return self._nothing(completed, trouble)
        counters = ncu.read(report)
        ended, failures = self._ended(jobs)
        notes = [*self._partial(completed), *(Note("ncu-warning", f"ncu: {w}") for w in counters.warnings), *failures]
        if trouble is not None:
            notes.append(Note(f"ncu-{trouble.code}", f"ncu: {trouble.message}", trouble.hint))
        found = {
            job.label: case_counters(counters, job.label, job.spec.kernels, NCU_LAUNCHES, self._of(job))
            for job in ended
        }
        ran: dict[str, list[str]] = defaultdict(list)
        for launch in counters.launches:
            for name in launch.ranges:
                ran[name].append(launch.name)
        notes += self._unseen(ended, {label for label, counters in found.items() if counters}, ran)
        return Profiled(counters={k: v for k, v in found.items() if v}, notes=tuple(notes))

    def _of(self, job: Job) -> tuple[Metric, ...]:
        """Return the metrics of one case: a gate of another kernel may have brought more into the session."""
        return wanted((gate.metric for gate in job.spec.gates), full=self.full)

    def _target(self, jobs: Sequence[Job], launches: int) -> tuple[str, ...]:
        """Write the requests of the session to a file and return the worker that answers them."""
        logs = self.guard.folder / "logs"
        more = {"op": "profile", "launches": launches, self.tool: self.version}
        requests = [{**self.request(job), **more, "range": job.label} for job in jobs]
        lines = "".join(json.dumps(request) + "\n" for request in requests)
        path = write_text(logs / f"{self._stem}-requests.jsonl", lines)
        answers = logs / f"{self._stem}-answers.jsonl"
        return worker_command(
            self.python, logs / f"{self._stem}.stdout.txt", "--requests", str(path), "--answers", str(answers)
        )

    def _start(self, argv: Sequence[str], cases: int) -> proc.Completed:
        completed = proc.run(argv, timeout_s=self.timeout_s * (1 + cases), env=self.env)
        self._log(self._stem, completed)
        return completed

    def _log(self, name: str, completed: proc.Completed) -> None:
        head = f"$ {' '.join(completed.argv)}\n# {proc.signal_name(completed.status)}\n"
        write_text(self.guard.folder / "logs" / f"{name}.log", head + completed.output)

    def _nothing(self, completed: proc.Completed, trouble: Diagnosis | None) -> Profiled:
        if trouble is not None:
            return Profiled(
                notes=(Note(f"{self.tool}-{trouble.code}", f"{self.tool}: {trouble.message}", trouble.hint),)
            )
        ended = "ran into its time limit" if completed.timed_out else f"ended with {proc.signal_name(completed.status)}"
        lines = completed.output.strip().splitlines()
        message = f"{self.tool} {ended} and wrote no report" + (f": {lines[-1][:200]}" if lines else "")
        hint = WAITING if completed.timed_out else f"see logs/{self._stem}.log in the run's folder"
        return Profiled(notes=(Note(f"{self.tool}-no-report", message, hint),))

    def _partial(self, completed: proc.Completed) -> list[Note]:
        if not completed.timed_out:
            return []
        message = f"{self.tool} ran into its time limit and was killed: what it wrote is not all"
        return [Note(f"{self.tool}-time-limit", message, WAITING)]

    def _unseen(self, jobs: Sequence[Job], seen: Collection[str], ran: Mapping[str, Sequence[str]]) -> list[Note]:
        """Say of which of the cases that ran the tool saw nothing.

        `ran` are the GPU kernels of each range: those of a case that no pattern matches are named.
        """
        unseen = [job for job in jobs if job.label not in seen]
        notes = [_unmatched(self.tool, job, ran[job.label]) for job in unseen if ran.get(job.label)]
        cases = [job.id for job in unseen if not ran.get(job.label)]
        if not cases:
            return notes
        message = f"{self.tool}: saw no GPU kernel of {_named(cases)}"
        return [*notes, Note(f"{self.tool}-no-range", message, "does `launch` start any, on torch's current stream?")]

    def _ended(self, jobs: Sequence[Job]) -> tuple[list[Job], list[Note]]:
        """Return the cases that the worker ran to their end, and why not the others: their ranges hold a part.

        Its answers come in the order of the jobs. A worker that left no file of them did not run at all.
        """
        try:
            file = self.guard.folder / "logs" / f"{self._stem}-answers.jsonl"
            lines = file.read_text(encoding="utf-8").splitlines()
        except OSError:
            return list(jobs), []
        answers = [json.loads(line) for line in lines if line.endswith("}")]
        answered = list(zip(jobs, answers, strict=False))
        notes = [
            Note(f"{self.tool}-case-failed", f"{self.tool}: {job.id} was not profiled: {answer['message']}")
            for job, answer in answered
            if not answer.get("ok", True)
        ]
        if cut_off := [job.id for job in jobs[len(answered) :]]:
            message = f"{self.tool}: the session ended early, and nothing is known of {_named(cut_off)}"
            notes.append(Note(f"{self.tool}-cut-off", message, f"see logs/{self._stem}.log in the run's folder"))
        return [job for job, answer in answered if answer.get("ok", True)], notes


def _named(cases: Sequence[str]) -> str:
    return ", ".join(cases[:5]) + (" and others" if len(cases) > 5 else "")


def _unmatched(tool: str, job: Job, ran: Sequence[str]) -> Note:
    message = f"no GPU kernel is called {listed(job.spec.kernels)}; there ran {listed(list(dict.fromkeys(ran)))}"
    return Note(f"{tool}-no-kernel", f"{tool}: {job.id}: {message}", "correct `kernels` in kernel.toml")


def timelines_found(
    found: Mapping[str, CaseTimeline | None], trace: Mapping[str, Reading], notes: Sequence[Note]
) -> Profiled:
    """Return what a trace gives: timelines, and from them the counters that need no counter, until ncu has its say."""
    timelines = {label: timeline for label, timeline in found.items() if timeline is not None}
    counters = {label: launch_counters(timeline) for label, timeline in timelines.items()}
    return Profiled(timelines, {k: v for k, v in counters.items() if v}, trace, tuple(notes))
