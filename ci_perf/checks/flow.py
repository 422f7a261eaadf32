"""The flow of a run of checks: random cases, or cases under compute-sanitizer; the run is saved after every step."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from ci_perf.checks.random_cases import named_case, recorded_params, smaller
from ci_perf.checks.sanitize import SanitizerRunner
from ci_perf.measure.backend import Progress
from ci_perf.measure.machine import Machine
from ci_perf.values.job import Job
from ci_perf.values.measurement import Failure
from ci_perf.values.run import Fuzzed, FuzzFailure, Note, Run

MOST_TRIES = 24
"""How many smaller cases are tried at most in place of one that failed."""

Save = Callable[[Run], object]


def fuzz(run: Run, jobs: Sequence[Job], verifier: Machine, *, save: Save, progress: Progress) -> Run:
    """Verify random cases, then look for a smaller case in place of each that failed."""
    progress.begin("fuzz", len(jobs))
    found: dict[tuple[str, str, int], Fuzzed] = {}
    failed: list[tuple[Job, Failure]] = []
    for job, answer in verifier.verify(jobs):
        key = _key(job)
        of_kernel = found.get(key, Fuzzed(job.spec.name, job.device, job.target, seed=key[2], cases=0))
        of_kernel = replace(of_kernel, cases=of_kernel.cases + 1)
        if isinstance(answer, Failure):
            failure = replace(answer, stage="fuzz")
            failed.append((job, failure))
            case = FuzzFailure(job.case, recorded_params(job), failure)
            of_kernel = replace(of_kernel, failures=(*of_kernel.failures, case))
        elif answer[0].checked == "refused":
            of_kernel = replace(of_kernel, refused=of_kernel.refused + 1)
        found[key] = of_kernel
        run = _saved(run, verifier, save, fuzzed=tuple(found.values()))
        progress.step(job.id)
    progress.begin("shrink", len(failed))
    for job, failure in failed:
        found[_key(job)] = _with_smallest(found[_key(job)], job, _smallest(job, failure, verifier))
        run = _saved(run, verifier, save, fuzzed=tuple(found.values()))
        progress.step(job.id)
    return _saved(run, verifier, save, finished=True)


def _key(job: Job) -> tuple[str, str, int]:
    """Return the kernel, the device and the seed of a random case: what its failures are listed under."""
    named = named_case(job.id)
    if named is None:
        raise ValueError(f"{job.id} is not a random case")
    return job.spec.name, job.device, named[1]


def _smallest(job: Job, failure: Failure, verifier: Machine) -> Job | None:
    """Return the smallest case found that fails with the same code; None where there is none, and after a hang."""
    if failure.code == "timeout":
        return None
    best, candidates = job, smaller(job)
    for _ in range(MOST_TRIES):
        candidate = next(candidates, None)
        if candidate is None:
            break
        ((_, answer),) = verifier.verify([candidate])
        if isinstance(answer, Failure) and answer.code == failure.code:
            best, candidates = candidate, smaller(candidate)
    return None if best is job else best


def _with_smallest(found: Fuzzed, job: Job, smallest: Job | None) -> Fuzzed:
    params = recorded_params(smallest) if smallest else None
    failures = (replace(f, smallest=params) if f.case == job.case else f for f in found.failures)
    return replace(found, failures=tuple(failures))


def sanitize(
    run: Run, jobs: Sequence[Job], sanitizer: SanitizerRunner, tools: Sequence[str], *, save: Save, progress: Progress
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


def _saved(run: Run, used: Machine | SanitizerRunner, save: Save, **changes: object) -> Run:
    run = replace(run, gpu_seconds=round(used.seconds_used(), 1), **changes)  # type: ignore[arg-type] # fields by name
    save(run)
    return run
