"""nsys and ncu over Python kernels: one run of the profiler for all cases, on a worker process."""

import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Self

from ci_perf.guard.guard import Guard
from ci_perf.measure import proc
from ci_perf.measure.backend import Profiled
from ci_perf.measure.both_sides import (
    ProfiledBase,
    as_base,
    as_sides,
    case_codes,
    codes_of,
    trees_of,
    write_differences,
)
from ci_perf.measure.conditions import Conditions
from ci_perf.measure.worker_process import command as worker_command
from ci_perf.measure.worker_process import job_request
from ci_perf.store import write_text
from ci_perf.traces import ncu, nsys
from ci_perf.traces.attribution import case_counters, case_timeline, launch_counters
from ci_perf.traces.diagnosis import Diagnosis
from ci_perf.traces.nsys import activity as nsys_activity
from ci_perf.traces.nsys import scrub as nsys_scrub
from ci_perf.traces.selection import listed
from ci_perf.values.errors import CiPerfError
from ci_perf.values.job import Job
from ci_perf.values.metrics import Metric, wanted
from ci_perf.values.run import Note
from ci_perf.values.trace import CaseTimeline, Reading

NSYS_LAUNCHES = 10
NCU_LAUNCHES = 2
"""Two, to check that exact counters repeat."""
WAITING = (
    "kernels that wait for each other or for another process (NCCL) do not end where a profiler runs them one by one; "
    "`--profile nsys` leaves out ncu, `--timeout` gives more time"
)
"""A hint for a profiler that did not end."""
_EXPORT_TIMEOUT_S = 300.0

_Counters = Mapping[str, tuple[Mapping[str, Reading], ...]]
"""The counters of each launch, by label of the case."""


class Profiler(ABC):
    """Profiles Python kernels; what cannot be had is a note, never an exception."""

    @abstractmethod
    def run(self, jobs: Sequence[Job]) -> Profiled:
        """Profile all jobs once."""

    @abstractmethod
    def of_base(self, base: ProfiledBase) -> Self:
        """Return the same profiler for the base's code."""

    def profile(
        self, jobs: Sequence[Job], changed: Sequence[Job], base: ProfiledBase | None = None
    ) -> Iterator[Profiled]:
        """Profile all jobs; on the base, too, those that `changed` and those whose kernel's own files differ."""
        yield self.run(jobs)
        mine = [job for job in jobs if base and (job in changed or job.spec.name in base.touched)]
        if base and (theirs := base.jobs(mine)):
            yield as_base(self.of_base(base).run(theirs))


@dataclass(frozen=True, slots=True)
class NvidiaProfiler(Profiler):
    """What nsys and ncu have in common."""

    tool: ClassVar[str]
    path: str
    version: str
    conditions: Conditions
    """Their environment is the one for profilers, which record it."""
    guard: Guard
    """The tool writes outside of the run's folder; a file that holds a secret stays there."""
    side: str = field(default="", kw_only=True)
    """Ends the names of its files: `-base`, or empty."""

    def run(self, jobs: Sequence[Job]) -> Profiled:
        """Profile all jobs in one run of the tool."""
        try:
            found = self._run(jobs)
        except CiPerfError as error:
            message = str(error).replace(f"{self.guard.outside}/", "")
            found = Profiled(notes=(self._note("failed", message, error.hint),))
        withheld = (note for file in self._files if file.is_file() for note in self.guard.admit(file))
        return replace(found, notes=(*found.notes, *withheld))

    @abstractmethod
    def _run(self, jobs: Sequence[Job]) -> Profiled:
        """Raises CiPerfError."""

    @property
    @abstractmethod
    def _files(self) -> tuple[Path, ...]:
        """The files for the artifact folder."""

    @property
    def _stem(self) -> str:
        """The beginning of the names of its logs."""
        return f"{self.tool}{self.side}"

    def of_base(self, base: ProfiledBase) -> Self:
        """Return the same profiler for the base's code, with files of its own."""
        return replace(self, conditions=base.conditions(self.conditions), side="-base")

    def _target(self, jobs: Sequence[Job], launches: int) -> tuple[str, ...]:
        """Write the requests to a file and return the command of the worker that answers them."""
        logs = self.guard.folder / "logs"
        more = {"op": "profile", "launches": launches, self.tool: self.version}
        requests = [{**job_request(job, self.conditions.root), **more, "range": job.label} for job in jobs]
        lines = "".join(json.dumps(request) + "\n" for request in requests)
        path = write_text(logs / f"{self._stem}-requests.jsonl", lines)
        files = ("--requests", str(path), "--answers", str(logs / f"{self._stem}-answers.jsonl"))
        return worker_command(self.conditions.python, logs / f"{self._stem}.stdout.txt", *files)

    def _start(self, argv: Sequence[str], cases: int) -> proc.Completed:
        limit_s = self.conditions.timeout_s * (1 + cases)
        completed = proc.run(argv, timeout_s=limit_s, env=self.conditions.env, cwd=self.conditions.root)
        self._log(self._stem, completed)
        return completed

    def _log(self, name: str, completed: proc.Completed) -> None:
        write_text(self.guard.folder / "logs" / f"{name}.log", completed.log)

    def _note(self, code: str, message: str, hint: str = "") -> Note:
        return Note(f"{self.tool}-{code}", f"{self.tool}: {message}", hint)

    def _nothing(self, completed: proc.Completed, trouble: Diagnosis | None) -> Profiled:
        """Return a note on why there is no report."""
        if trouble is not None:
            return Profiled(notes=(self._note(trouble.code, trouble.message, trouble.hint),))
        hint = WAITING if completed.timed_out else f"see logs/{self._stem}.log in the run's folder"
        message = f"{self.tool} {completed.end} and wrote no report{completed.said}"
        return Profiled(notes=(Note(f"{self.tool}-no-report", message, hint),))

    def _doubts(self, completed: proc.Completed, warnings: Iterable[str]) -> list[Note]:
        """Return notes on a report that is incomplete, and its warnings."""
        notes = [self._note("warning", warning) for warning in warnings]
        if completed.timed_out:
            message = f"{self.tool} exceeded its time limit and was killed: its report is incomplete"
            notes.insert(0, Note(f"{self.tool}-time-limit", message, WAITING))
        return notes

    def _unseen(self, jobs: Sequence[Job], seen: Collection[str], ran: Mapping[str, Sequence[str]]) -> list[Note]:
        """Return notes on the cases that ran and of which the tool saw no kernel that counts.

        `ran` are the GPU kernels of each range, `seen` the labels of the cases with kernels that count.
        """
        unseen = [job for job in jobs if job.label not in seen]
        notes = []
        for job in (job for job in unseen if ran.get(job.label)):
            there = listed(list(dict.fromkeys(ran[job.label])))
            message = f"{job.id}: no GPU kernel is called {listed(job.spec.kernels)}; there ran {there}"
            notes.append(self._note("no-kernel", message, "correct `kernels` in kernel.toml"))
        if cases := [job.id for job in unseen if not ran.get(job.label)]:
            hint = "does `launch` start any, on torch's current stream?"
            notes.append(self._note("no-range", f"saw no GPU kernel of {_named(cases)}", hint))
        return notes

    def _ended(self, jobs: Sequence[Job]) -> tuple[list[Job], list[Note]]:
        """Return the cases that the worker finished, and notes on the others, whose ranges are incomplete.

        Its answers are in the order of the jobs. Without a file of answers all count as finished.
        """
        try:
            file = self.guard.folder / "logs" / f"{self._stem}-answers.jsonl"
            lines = file.read_text(encoding="utf-8").splitlines()
        except OSError:
            return list(jobs), []
        answers = [json.loads(line) for line in lines if line.endswith("}")]
        answered = list(zip(jobs, answers, strict=False))
        notes = [
            self._note("case-failed", f"{job.id} was not profiled: {answer['message']}")
            for job, answer in answered
            if not answer.get("ok", True)
        ]
        if cut_off := [job.id for job in jobs[len(answered) :]]:
            message = f"its run ended early, without results for {_named(cut_off)}"
            notes.append(self._note("cut-off", message, f"see logs/{self._stem}.log in the run's folder"))
        return [job for job, answer in answered if answer.get("ok", True)], notes


@dataclass(frozen=True, slots=True)
class NsysProfiler(NvidiaProfiler):
    """Timelines, from Nsight Systems."""

    tool = "nsys"

    @property
    def _files(self) -> tuple[Path, ...]:
        stem = self.guard.outside / f"timeline{self.side}"
        return stem.with_suffix(".sqlite"), stem.with_suffix(".nsys-rep")

    def _run(self, jobs: Sequence[Job]) -> Profiled:
        sqlite, report = self._files
        raw = sqlite.with_suffix(".exported")
        completed = self._start(nsys.command(self.path, self._target(jobs, NSYS_LAUNCHES), report=report), len(jobs))
        if not report.is_file():
            return self._nothing(completed, nsys.diagnose(completed.output))
        command = nsys.export_command(self.path, report, raw)
        exported = proc.run(command, timeout_s=_EXPORT_TIMEOUT_S, env=self.conditions.env)
        self._log(f"{self._stem}-export", exported)
        if not raw.is_file():
            return self._nothing(exported, nsys.diagnose(exported.output))
        nsys_scrub.clean(raw, sqlite)
        raw.unlink()
        timeline = nsys.read_timeline(sqlite)
        metrics, whole = nsys_activity.read(sqlite, {job.label for job in jobs})
        ended, failures = self._ended(jobs)
        found = {
            job.label: case_timeline(timeline, job.label, job.spec.kernels, NSYS_LAUNCHES, metrics.get(job.label))
            for job in ended
        }
        notes = [*self._doubts(completed, timeline.warnings), *failures]
        ran = {name: [kernel.short_name for kernel in timeline.inside([name])] for name in timeline.ranges}
        notes += self._unseen(ended, {label for label, mine in found.items() if mine and mine.kernels}, ran)
        return timelines_found(found, whole, notes)


@dataclass(frozen=True, slots=True)
class NcuProfiler(NvidiaProfiler):
    """Counters, from Nsight Compute."""

    tool = "ncu"
    full: bool = False
    """Whether ncu collects every counter, not only those that are compared and gated."""
    explain: bool = False
    """Whether ncu also collects what finds the cause of a change."""
    report: str = "kernels"
    """What its report is called."""

    def profile(
        self, jobs: Sequence[Job], changed: Sequence[Job], base: ProfiledBase | None = None
    ) -> Iterator[Profiled]:
        """Count all jobs; then, in separate reports, what explains those that `changed`.

        With a base that is a discriminating set of counters on both sides, without one every counter there is.
        """
        found = self.run(jobs)
        yield found
        known = [job for job in jobs if job in changed and job.label in found.counters]
        theirs = base.jobs(known) if base else []
        if base and theirs:
            both = replace(self, full=False, explain=True, report="explain")
            old, new = both.of_base(base).run(theirs), both.run(known)
            write_differences(self.guard.folder, known, old, new)
            yield as_sides(old, new, trees_of(base.root, theirs, self.conditions.root, known, base.renamed))
        elif known and not self.full:
            explained = replace(self, full=True, report="explain").run(known)
            yield replace(explained, counters=_with_more(found.counters, explained.counters))

    @property
    def _files(self) -> tuple[Path, ...]:
        return (self.guard.outside / f"{self.report}{self.side}.ncu-rep",)

    @property
    def _stem(self) -> str:
        name = self.tool if self.report == "kernels" else f"{self.tool}-{self.report}"
        return f"{name}{self.side}"

    @property
    def _launches(self) -> int:
        """A cause needs no exact counter that repeats."""
        return 1 if self.explain else NCU_LAUNCHES

    def _run(self, jobs: Sequence[Job]) -> Profiled:
        (report,) = self._files
        metrics = self._wanted(jobs)
        target = self._target(jobs, self._launches)
        names = sorted({metric.ncu for metric in metrics})
        more = {"full": self.full, "lines": self.explain}
        completed = self._start(ncu.command(self.path, target, metrics=names, report=report, **more), len(jobs))
        trouble = ncu.diagnose(completed.output)
        if not report.is_file():
            return self._nothing(completed, trouble)
        counters = ncu.read(report)
        ended, failures = self._ended(jobs)
        notes = [*self._doubts(completed, counters.warnings), *failures]
        if trouble is not None:
            notes.append(self._note(trouble.code, trouble.message, trouble.hint))
        found = {}
        for job in ended:  # of its own metrics: a gate of another kernel may have brought in more
            metrics = self._wanted([job])
            found[job.label] = case_counters(counters, job.label, job.spec.kernels, self._launches, metrics)
        ran: dict[str, list[str]] = defaultdict(list)
        for launch in counters.launches:
            for name in launch.ranges:
                ran[name].append(launch.name)
        notes += self._unseen(ended, {label for label, counters in found.items() if counters}, ran)
        codes = case_codes(codes_of(report), ended, self.conditions.root) if self.explain else {}
        return Profiled(counters={k: v for k, v in found.items() if v}, notes=tuple(notes), codes=codes)

    def _wanted(self, jobs: Sequence[Job]) -> tuple[Metric, ...]:
        gated = () if self.explain else [gate.metric for job in jobs for gate in job.spec.gates]
        return wanted(gated, full=self.full, explain=self.explain)


def _named(cases: Sequence[str]) -> str:
    return ", ".join(cases[:5]) + (" and others" if len(cases) > 5 else "")


def _with_more(known: _Counters, more: _Counters) -> _Counters:
    """Add to each launch the counters that only the second report has; those that were judged keep their values."""
    return {
        label: tuple({**further, **first} for first, further in zip(known[label], launches, strict=True))
        for label, launches in more.items()
        if len(launches) == len(known[label])
    }


def timelines_found(
    found: Mapping[str, CaseTimeline | None], trace: Mapping[str, Reading], notes: Sequence[Note]
) -> Profiled:
    """Return the timelines, and the metrics of launches that a trace knows; those of ncu replace them."""
    timelines = {label: timeline for label, timeline in found.items() if timeline is not None}
    counters = {label: launch_counters(timeline) for label, timeline in timelines.items()}
    return Profiled(timelines, {k: v for k, v in counters.items() if v}, trace, tuple(notes))
