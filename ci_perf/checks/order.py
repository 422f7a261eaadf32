"""A run that checks in place of measuring: random cases, or cases under compute-sanitizer; saved after every step."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from ci_perf.measure.lab import Progress
from ci_perf.values.check_outcome import Fuzzed, FuzzFailure, Sanitized
from ci_perf.values.job import Job
from ci_perf.values.kernel import Params
from ci_perf.values.measurement import Cost, Failure, Verification
from ci_perf.values.random_cases import MOST_TRIES, named_case, smaller
from ci_perf.values.run import Note, Run

Verified = tuple[Job, tuple[Verification, Cost | None] | Failure]


class Verifier(Protocol):
    """What holds outputs against references."""

    def verify(self, jobs: Sequence[Job]) -> Iterator[Verified]:
        """Hold each job's output against its reference."""

    def seconds_used(self) -> float:
        """Return for how long the GPU was held so far."""


class Sanitizer(Protocol):
    """What runs cases under compute-sanitizer."""

    def run(self, jobs: Sequence[Job], tools: Sequence[str]) -> Iterator[Sanitized | Note]:
        """Run each job under each tool."""

    def seconds_used(self) -> float:
        """Return for how long the GPU was held so far."""


def fuzz(run: Run, jobs: Sequence[Job], lab: Verifier, *, save: Callable[[Run], object], progress: Progress) -> Run:
    """Verify random cases, and look for a smaller one in place of each that failed."""
    progress.begin("fuzz", len(jobs))
    found: dict[tuple[str, str, int], Fuzzed] = {}
    failed: list[tuple[tuple[str, str, int], Job, Failure]] = []
    for job, answer in lab.verify(jobs):
        key = (job.spec.name, job.device, _seed(job))
        blank = Fuzzed(job.spec.name, job.device, job.target, _seed(job), 0)
        found[key] = replace(found.get(key, blank), cases=found.get(key, blank).cases + 1)
        if isinstance(answer, Failure):
            failure = replace(answer, stage="fuzz")
            failed.append((key, job, failure))
            case = FuzzFailure(job.case, job.params, failure)
            found[key] = replace(found[key], failures=(*found[key].failures, case))
        elif answer[0].checked == "refused":
            found[key] = replace(found[key], refused=found[key].refused + 1)
        run = _saved(run, lab, save, fuzzed=tuple(found.values()))
        progress.step(job.id)
    progress.begin("shrink", len(failed))
    for key, job, failure in failed:
        smallest = _smallest(job, failure, lab)
        failures = (replace(f, smallest=smallest) if f.case == job.case else f for f in found[key].failures)
        found[key] = replace(found[key], failures=tuple(failures))
        run = _saved(run, lab, save, fuzzed=tuple(found.values()))
        progress.step(job.id)
    return _saved(run, lab, save, finished=True)


def _seed(job: Job) -> int:
    named = named_case(job.id)
    if named is None:
        raise ValueError(f"{job.id} is no random case")
    return named[1]


def _smallest(job: Job, failure: Failure, lab: Verifier) -> Params | None:
    """Return the smallest parameters found that fail with the same code, or None; a hang is not tried again."""
    best, tries = job, 0
    while failure.code != "timeout":
        for params in smaller(job.spec, best.params):
            if tries == MOST_TRIES:
                return best.params if best is not job else None
            tries += 1
            candidate = replace(job, params=params)
            ((_, answer),) = lab.verify([candidate])
            if isinstance(answer, Failure) and answer.code == failure.code:
                best = candidate
                break
        else:
            break
    return best.params if best is not job else None


def sanitize(
    run: Run,
    jobs: Sequence[Job],
    sanitizer: Sanitizer,
    tools: Sequence[str],
    *,
    save: Callable[[Run], object],
    progress: Progress,
) -> Run:
    """Run each case under each tool of compute-sanitizer."""
    progress.begin("sanitize", len(jobs) * len(tools))
    for found in sanitizer.run(jobs, tools):
        if isinstance(found, Note):
            run = replace(run, notes=(*run.notes, found))
            continue
        run = _saved(run, sanitizer, save, sanitized=(*run.sanitized, found))
        progress.step(f"{found.kernel}/{found.case} {found.tool}")
    return _saved(run, sanitizer, save, finished=True)


def _saved(run: Run, used: Verifier | Sanitizer, save: Callable[[Run], object], **changes: object) -> Run:
    run = replace(run, gpu_seconds=round(used.seconds_used(), 1), **changes)  # type: ignore[arg-type] # fields by name
    save(run)
    return run
