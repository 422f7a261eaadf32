"""Runs cases under compute-sanitizer: a process for each case and tool, so that each finding belongs to one case.

A memory error ends the CUDA context, and with it every later case of the same process. The process is a worker, or the
program of the kernel.toml.
"""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ci_perf.checks import sanitizer
from ci_perf.judge.checks import applies, left_out
from ci_perf.measure import proc
from ci_perf.measure.backend import Profiled
from ci_perf.measure.conditions import Conditions
from ci_perf.measure.program_run import program_env
from ci_perf.measure.programs import Programs
from ci_perf.measure.torch_profiler import TorchProfiler
from ci_perf.measure.worker_process import command as worker_command
from ci_perf.measure.worker_process import job_request
from ci_perf.store import write_text
from ci_perf.values.job import Job
from ci_perf.values.measurement import Failure
from ci_perf.values.run import Note, Sanitized

SLOWER = 10
"""How many times a case's time limit it may take under a tool."""


@dataclass(slots=True)
class SanitizerRunner:
    """Runs cases under the compute-sanitizer at `path`."""

    path: str
    conditions: Conditions
    """Their environment is the one for profilers."""
    folder: Path
    """The artifact folder: logs go below it."""
    torch: TorchProfiler
    """Tells which GPU kernels each case launches: 0 errors of a case that launches none are not a pass."""
    programs: Programs
    """Tells the same of programs, where it has nsys."""
    _gpu_seconds: float = field(default=0.0, init=False)

    def seconds_used(self) -> float:
        """Return how long the GPU was held so far, in seconds."""
        return self._gpu_seconds

    def run(self, jobs: Sequence[Job], tools: Sequence[str]) -> Iterator[Sanitized | Note]:
        """Run each job under each tool; yield the results, and notes on what could not be checked."""
        started = time.monotonic()
        traced = self.torch.run([job for job in jobs if job.spec.program is None])
        unseen = {job.label: self._unseen(job, traced) for job in jobs}
        self._gpu_seconds += time.monotonic() - started
        yield from (note for note in traced.notes if note.code != "torch-trace")
        yield from left_out(jobs, tools)
        for tool in tools:
            for job in (job for job in jobs if applies(job, tool)):
                started = time.monotonic()
                found = self._run(job, tool, unseen[job.label])
                self._gpu_seconds += time.monotonic() - started
                yield found

    def _unseen(self, job: Job, traced: Profiled) -> str:
        """Return why a clean report of a case would mean nothing; empty where it is known to launch GPU kernels."""
        doubt = "it is not known whether the case launches a GPU kernel, so a clean report means nothing"
        if job.spec.program:
            why = self.programs.why_no_kernels(job)
            return f"{doubt}: {why}" if why else ""
        timeline = traced.timelines.get(job.label)
        return "" if timeline and timeline.kernels else doubt

    def _run(self, job: Job, tool: str, unseen: str) -> Sanitized:
        """Run one case under one tool; `unseen` says why a clean report would mean nothing."""
        logs, name = self.folder / "logs", f"sanitizer-{tool}-{job.spec.name}.{job.case}"
        answers = None if job.spec.program else logs / f"{name}.answers.jsonl"
        target = self.programs.argv(job) if answers is None else self._worker(job, answers)
        timeout_s = SLOWER * self.conditions.timeout_of(job)
        # memcheck sees no bounds of a tensor in torch's memory pool; to initcheck, reused memory is initialised.
        env = {**program_env(self.conditions, job), "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        command = sanitizer.command(self.path, tool, target, children=answers is None)
        completed = proc.run(command, timeout_s=timeout_s, env=env, cwd=self.conditions.root)
        write_text(logs / f"{name}.log", completed.log)
        found, trouble = sanitizer.read(completed.output), sanitizer.diagnose(completed.output)
        failure = (
            _worker_failure(answers, completed, timeout_s)
            if answers
            else _program_failure(target[0], completed, timeout_s)
        )
        problem = ""
        if found.defects:
            pass
        elif trouble is not None and (failure is None or trouble.code != "other"):
            problem = f"{trouble.message}; {trouble.hint}"
        elif failure is None and found.errors is None:
            problem = f"compute-sanitizer printed no summary, see logs/{name}.log"
        elif failure is None and not found.errors:
            problem = unseen
        errors = 0 if problem else found.errors or 0  # a refused device counts as an error too
        return Sanitized(job.spec.name, job.case, job.device, tool, errors, found.defects, failure, problem)

    def _worker(self, job: Job, answers: Path) -> tuple[str, ...]:
        """Return the command line of a worker that launches the case once."""
        requests = answers.with_name(answers.name.replace("answers.jsonl", "requests.jsonl"))
        printed = answers.with_name(answers.name.replace("answers.jsonl", "stdout.txt"))
        write_text(requests, json.dumps({**job_request(job, self.conditions.root), "op": "sanitize"}) + "\n")
        return worker_command(self.conditions.python, printed, "--requests", str(requests), "--answers", str(answers))


def _program_failure(name: str, completed: proc.Completed, timeout_s: float) -> Failure | None:
    """Return how a program failed, by its exit status or by what the tool printed of it; None where it succeeded."""
    if completed.timed_out:
        return Failure("sanitize", "timeout", f"no end within {timeout_s:g} s; the program was killed")
    if completed.status == 0 and not sanitizer.target_failed(completed.output):
        return None
    how = f"ended with {proc.signal_name(completed.status)}" if completed.status else "returned an error"
    return Failure(
        "sanitize", "crashed" if completed.status < 0 else "exited", f"`{name}` {how}", completed.output[-4000:]
    )


def _worker_failure(answers: Path, completed: proc.Completed, timeout_s: float) -> Failure | None:
    """Return how the worker failed; None where it launched the case."""
    if completed.timed_out:
        return Failure("sanitize", "timeout", f"no answer within {timeout_s:g} s; the process was killed")
    lines = answers.read_text(encoding="utf-8").splitlines() if answers.is_file() else []
    if not lines or not lines[0].endswith("}"):
        return Failure("sanitize", "crashed", f"the worker gave no answer: {proc.signal_name(completed.status)}")
    answer = json.loads(lines[0])
    if answer["ok"]:
        return None
    return Failure("sanitize", answer["code"], answer["message"], answer["detail"])
