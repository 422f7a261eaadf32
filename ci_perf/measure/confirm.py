"""Cases that a baseline calls changed, measured again in turns with the commit that the baseline is of."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from ci_perf.judge.verdict import judge
from ci_perf.measure.backend import Progress
from ci_perf.measure.budget import Budget
from ci_perf.measure.journal import Journal
from ci_perf.measure.machine import Machine
from ci_perf.measure.pair_loop import take_turns
from ci_perf.values.baseline import baseline_for
from ci_perf.values.device import is_dirty
from ci_perf.values.errors import ConfigError, MachineError
from ci_perf.values.job import Job
from ci_perf.values.reasons import Reason
from ci_perf.values.run import Against, Confirmation, Run

Prepare = Callable[[Run, str, Sequence[Job]], AbstractContextManager[tuple[Against, Machine]]]
"""Checks a commit out, builds it, and returns it as a base with a machine; ConfigError, MachineError."""
_CHANGED = (Reason.SLOWER, Reason.FASTER, Reason.SLOWER_STORED, Reason.FASTER_STORED)
"""Of the cases that a stored time calls changed."""


class Confirm:
    """Takes turns with the commits of baselines, within one budget."""

    def __init__(self, jobs: Sequence[Job], prepare: Prepare, budget: Budget, progress: Progress) -> None:
        self._jobs = jobs
        self._prepare = prepare
        self._budget = budget
        self._progress = progress
        self.gpu_seconds = 0.0
        """For how long the turns held the GPU."""

    def __call__(self, run: Run) -> tuple[Confirmation, ...]:
        """Return a confirmation for each commit and device with cases that are slower or faster than their baseline."""
        baselines = {(b.device.slug, b.kernel): b for b in run.baselines}
        devices = {device.kind: device for device in run.devices}
        changed = {(f.id, f.device) for f in judge(run) if f.code in _CHANGED}
        groups: dict[tuple[str, str], list[Job]] = {}
        for job in self._jobs:
            device = devices[job.device]
            baseline = baseline_for(baselines, device, job.spec.name)
            if baseline and (job.id, device.slug) in changed:
                groups.setdefault((job.device, baseline.provenance.commit or ""), []).append(job)
        return tuple(self._confirm(run, commit, jobs) for (_, commit), jobs in groups.items())

    def _confirm(self, run: Run, commit: str, jobs: Sequence[Job]) -> Confirmation:
        """Take turns with one commit."""
        blank = Confirmation(jobs[0].device, tuple(job.id for job in jobs))
        if not commit:
            return replace(blank, problem="the baseline names no commit")
        if is_dirty(commit):
            return replace(blank, problem=f"the baseline is of files that differed from commit {commit[:8]}")
        try:
            with self._prepare(run, commit, jobs) as (against, machine):
                return self._take_turns(blank, run, against, machine, jobs)
        except (ConfigError, MachineError) as error:
            return replace(blank, problem=f"commit {commit[:8]} cannot be measured: {error}")

    def _take_turns(
        self, blank: Confirmation, run: Run, against: Against, machine: Machine, jobs: Sequence[Job]
    ) -> Confirmation:
        started = machine.now()
        alone = replace(run, against=against, measurements=(), gpu_seconds=0.0)
        journal = Journal(alone, jobs, machine, lambda _: None)
        take_turns(journal, machine, jobs, self._budget, self._progress)
        left = max(0.0, self._budget.total_s - (machine.now() - started))
        self._budget = replace(self._budget, total_s=left)
        self.gpu_seconds += machine.seconds_used()
        return replace(blank, against=journal.run.against, measurements=journal.run.measurements)
