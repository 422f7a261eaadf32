"""Timelines without nsys: torch's own profiler, one worker process for each case."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from ci_perf.guard.guard import Guard
from ci_perf.measure.backend import Profiled
from ci_perf.measure.both_sides import ProfiledBase
from ci_perf.measure.conditions import Conditions
from ci_perf.measure.profile import NSYS_LAUNCHES, NsysProfiler, Profiler, timelines_found
from ci_perf.measure.worker_process import Worker, job_request
from ci_perf.traces import activity, chrome
from ci_perf.traces.attribution import case_timeline
from ci_perf.values.errors import CiPerfError
from ci_perf.values.job import Job
from ci_perf.values.measurement import Failure
from ci_perf.values.run import Note
from ci_perf.values.trace import CaseTimeline

_NAME = "timeline{}.trace.json"
_HINT = "install Nsight Systems for API calls of other threads and local memory; https://ui.perfetto.dev opens the file"


@dataclass(frozen=True, slots=True)
class TorchProfiler(Profiler):
    """Timelines from torch's profiler; timeline.trace.json opens at https://ui.perfetto.dev."""

    worker: Worker
    conditions: Conditions
    guard: Guard
    side: str = ""
    """Ends the name of its file: `-base`, or empty."""

    def of_base(self, base: ProfiledBase) -> Self:
        """Return torch's profiler in the worker of the base."""
        conditions = replace(self.conditions, root=base.root)
        return replace(self, worker=base.worker, conditions=conditions, side="-base")

    def run(self, jobs: Sequence[Job]) -> Profiled:
        """Trace each job in a separate process; what cannot be had becomes a note."""
        found: dict[str, CaseTimeline | None] = {}
        documents: list[dict[str, Any]] = []
        notes: list[Note] = []
        for job in jobs:
            file = self.guard.outside / f"{len(documents)}.trace.json"
            try:
                found[job.label], document = self._trace(job, file)
                documents.append(document)
            except CiPerfError as error:
                notes.append(Note("torch-trace-failed", f"torch's profiler: {job.id}: {error}", error.hint))
            file.unlink(missing_ok=True)
        if documents:
            merged = self.guard.outside / _NAME.format(self.side)
            merged.write_text(json.dumps(chrome.merge(documents)), encoding="utf-8")
            notes += self.guard.admit(merged)
            notes.append(Note("torch-trace", "the timeline is that of torch's profiler, not of nsys", _HINT))
        unseen = sorted(job.id for job in jobs if job.label in found and found[job.label] is None)
        if unseen:
            notes.append(Note("torch-no-range", f"torch's profiler: saw no GPU kernel of {', '.join(unseen[:5])}"))
        trace = activity.not_analysed("each case was traced by itself")
        return timelines_found(found, trace, notes)

    def _trace(self, job: Job, file: Path) -> tuple[CaseTimeline | None, dict[str, Any]]:
        request = {
            **job_request(job, self.conditions.root),
            "op": "trace",
            "range": job.label,
            "launches": NSYS_LAUNCHES,
            "trace": str(file),
        }
        answer = self.worker.ask(request, self.conditions.timeout_of(job))
        if isinstance(answer, Failure):
            raise CiPerfError(answer.message)
        found, document = chrome.read(file, answer["local_bytes"])
        if not found.timeline.has_kernel_data:
            raise CiPerfError(found.timeline.warnings[0])
        metrics = found.metrics.get(job.label)
        timeline = case_timeline(found.timeline, job.label, job.spec.kernels, NSYS_LAUNCHES, metrics, "torch")
        return timeline, document


@dataclass(frozen=True, slots=True)
class NsysOrTorch(Profiler):
    """nsys, and torch's profiler in its place where nsys saw no kernel of any case."""

    nsys: NsysProfiler
    torch: TorchProfiler

    def of_base(self, base: ProfiledBase) -> Self:
        """Return both for the base's code."""
        return replace(self, nsys=self.nsys.of_base(base), torch=self.torch.of_base(base))

    def run(self, jobs: Sequence[Job]) -> Profiled:
        """Trace with nsys, or else with torch; the notes say what nsys lacked."""
        found = self.nsys.run(jobs)
        if any(timeline.kernels for timeline in found.timelines.values()):
            return found
        instead = self.torch.run(jobs)
        return replace(instead, notes=(*found.notes, *instead.notes))
