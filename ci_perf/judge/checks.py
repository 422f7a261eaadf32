"""The verdict on random cases (`run --fuzz`) and on cases under compute-sanitizer (`run --sanitize`)."""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from ci_perf.judge.finding import Finding
from ci_perf.values.device import Device
from ci_perf.values.job import Job
from ci_perf.values.kernel import Params
from ci_perf.values.quantity import counted
from ci_perf.values.reasons import Reason, Verdict
from ci_perf.values.run import Defect, Fuzzed, FuzzFailure, Note, Run, Sanitized

_MOST_SHOWN = 3
"""How many defects a sentence names; the run holds all."""


def judge_checks(run: Run) -> Iterator[Finding]:
    """Yield a finding for each random case that failed, and each case under a tool that failed or was not checked.

    Nothing that passed counts where the GPU's memory had errors meanwhile: then it has a finding, too.
    """
    devices = {device.kind: device for device in run.devices}
    for fuzzed in run.fuzzed:
        device = devices[fuzzed.device]
        yield from (_fuzz_finding(fuzzed, failed, device) for failed in fuzzed.failures)
        if fuzzed.cases > len(fuzzed.failures) and (broken := memory_errors(run, fuzzed.device)):
            yield Finding(fuzzed.kernel, "*", device.slug, Verdict.INCONCLUSIVE, Reason.MEMORY_ERRORS, broken)
    known = {(spec.name, case): spec.expected_failure(case) for spec in run.kernels for case in spec.cases}
    for found in run.sanitized:
        sentence = _sanitizer_sentence(found)
        code = Reason.SANITIZER_NOT_CHECKED if found.problem else Reason(f"sanitizer-{found.tool}")
        verdict = Verdict.INCONCLUSIVE if found.problem or not sentence else Verdict.FAILED
        if verdict is not Verdict.FAILED and (broken := memory_errors(run, found.device)):
            code, sentence = Reason.MEMORY_ERRORS, broken
        if verdict is Verdict.FAILED and not found.errors and (why := known.get((found.kernel, found.case))):
            verdict, code, sentence = Verdict.EXPECTED_FAILURE, Reason.EXPECTED_FAILURE, f"{why}; {sentence}"
        if sentence:
            yield Finding(found.kernel, found.case, devices[found.device].slug, verdict, code, sentence)


def memory_errors(run: Run, device: str) -> str:
    """Return why nothing that passed on a kind of device can be trusted; empty where it can."""
    return next((note.message for note in run.notes if note.code == Reason.MEMORY_ERRORS and device == "cuda"), "")


def _fuzz_finding(fuzzed: Fuzzed, failed: FuzzFailure, device: Device) -> Finding:
    again = shlex.quote(f"{fuzzed.kernel}/{failed.case}")
    smallest = f"; also fails with {written(failed.smallest)}" if failed.smallest else ""
    sentence = f"fuzz: {failed.failure.message}; with {written(failed.params)}{smallest}; "
    sentence += f"run it again with `ci-perf run {again}`"
    return Finding(fuzzed.kernel, failed.case, device.slug, Verdict.FAILED, Reason.of(failed.failure.code), sentence)


def written(params: Params) -> str:
    """Write parameters in one line, in an order that reading and writing a run keeps.

    >>> written({"seq": 3, "dtype": "float16"})
    'dtype=float16, seq=3'
    """
    return ", ".join(f"{name}={value}" for name, value in sorted(params.items()))


def _sanitizer_sentence(found: Sanitized) -> str:
    """Return what is wrong with a case, or why it was not checked; empty where it passed."""
    if found.problem:
        died = f"; the case: {found.failure.message}" if found.failure else ""
        return f"{found.tool}: {found.problem}{died}"
    if not found.errors and not found.defects:
        return f"{found.tool}: {found.failure.message}" if found.failure else ""
    shown = [defect_line(defect) for defect in found.defects[:_MOST_SHOWN]]
    more = [counted(len(found.defects) - _MOST_SHOWN, "other place")] if len(found.defects) > _MOST_SHOWN else []
    count = counted(found.errors, "error")
    return f"{found.tool}: {count}: {'; '.join([*shown, *more]) or 'none of them was printed'}"


def defect_line(defect: Defect) -> str:
    """Write a defect in one line.

    >>> defect_line(Defect("Invalid __global__ write of size 4 bytes", "f(int *)", "a.cu:9", "(1,0,0)", "(2,0,0)", 3))
    'Invalid __global__ write of size 4 bytes in f(int *) at a.cu:9 by thread (1,0,0) of block (2,0,0), 3 times'
    """
    where = (f" in {defect.function}" if defect.function else "") + (f" at {defect.place}" if defect.place else "")
    who = f" by thread {defect.thread} of block {defect.block}" if defect.thread else ""
    return defect.message + where + who + (f", {defect.count} times" if defect.count > 1 else "")


def summary_of_checks(run: Run) -> list[str]:
    """Return in words how many cases passed each check: `20 random cases passed (seed 7), 2 of them refused`."""
    words = []
    trusted = [fuzzed for fuzzed in run.fuzzed if not memory_errors(run, fuzzed.device)]
    if trusted:
        passed = sum(fuzzed.cases - len(fuzzed.failures) for fuzzed in trusted)
        seeds = ", ".join(str(seed) for seed in dict.fromkeys(fuzzed.seed for fuzzed in trusted))
        refused = sum(fuzzed.refused for fuzzed in trusted)
        which = f", {refused} of them refused" if refused else ""
        words.append(f"{counted(passed, 'random case')} passed (seed {seeds}){which}")
    checked = [found for found in run.sanitized if not memory_errors(run, found.device)]
    clean = Counter(found.tool for found in checked if not _sanitizer_sentence(found))
    words += [f"{tool}: {counted(count, 'case')} clean" for tool, count in clean.items()]
    return words


def applies(job: Job, tool: str) -> bool:
    """Return whether a case runs under a tool of compute-sanitizer, as `sanitize` of its kernel.toml says."""
    if job.spec.sanitize is None:
        return True
    named = (entry.partition("/") for entry in job.spec.sanitize)
    return any(name == tool and fnmatchcase(job.case, cases or "*") for name, _, cases in named)


def left_out(jobs: Sequence[Job], tools: Iterable[str]) -> Iterator[Note]:
    """Yield a note for each kernel with cases that `sanitize` of its kernel.toml excludes from a tool."""
    for tool in tools:
        for kernel in dict.fromkeys(job.spec.name for job in jobs):
            of_kernel = [job for job in jobs if job.spec.name == kernel]
            skipped = [job.case for job in of_kernel if not applies(job, tool)]
            if skipped:
                which = kernel if len(skipped) == len(of_kernel) else ", ".join(f"{kernel}/{case}" for case in skipped)
                message = f"{which}: not run under {tool}, which `sanitize` in kernel.toml excludes"
                yield Note("sanitizer-left-out", message)


def could_not_check(run: Run) -> bool:
    """Return whether a case could not be checked by a sanitizer that was asked for."""
    return any(found.problem for found in run.sanitized)


def check_flags(run: Run) -> tuple[str, ...]:
    """Return the flags of `ci-perf run` that repeat the checks of a run; none for a run that measured."""
    if run.sanitized:
        return ("--sanitize", ",".join(dict.fromkeys(found.tool for found in run.sanitized)))
    if run.fuzzed:
        most = max(fuzzed.cases for fuzzed in run.fuzzed)
        return ("--fuzz", str(most), "--seed", str(run.fuzzed[0].seed))
    return ()
