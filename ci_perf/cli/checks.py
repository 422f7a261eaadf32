"""`ci-perf run --fuzz` and `--sanitize`: a run of checks, in which nothing is timed."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ci_perf.checks.flow import fuzz, sanitize
from ci_perf.checks.random_cases import fuzz_jobs, named_case
from ci_perf.checks.sanitize import SanitizerRunner
from ci_perf.cli import artifacts
from ci_perf.cli.empty_run import empty_run
from ci_perf.cli.log import tell
from ci_perf.cli.output import Bars
from ci_perf.guard.guard import rules_of
from ci_perf.judge.checks import applies, left_out
from ci_perf.judge.report import Report
from ci_perf.measure import tools
from ci_perf.measure.session import Session, open_session
from ci_perf.measure.torch_profiler import TorchProfiler
from ci_perf.values.errors import ConfigError, MachineError
from ci_perf.values.job import Job, select_jobs
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.settings import Settings


def is_check(patterns: Sequence[str], settings: Settings) -> bool:
    """Return whether a run is one of checks: --fuzz, --sanitize, or the name of a random case."""
    return bool(settings["fuzz"] or settings["sanitize"] or any(map(named_case, patterns)))


def check(
    root: Path, patterns: tuple[str, ...], specs: tuple[KernelSpec, ...], settings: Settings
) -> tuple[Report, Session]:
    """Verify random cases, or run cases under compute-sanitizer."""
    select = partial(_select, patterns, specs, settings)
    selected = select(["cuda"])  # a wrong selection is an error before anything starts
    path = _find_sanitizer(settings) if settings["sanitize"] else ""
    unprofiled = settings.replaced({"profile": "none"})
    with open_session(unprofiled, root, tell, selected) as session:
        if settings["sanitize"] and "cuda" not in session.kinds:
            hint = "`ci-perf doctor` lists what is missing"
            raise MachineError("--sanitize needs a GPU, and none was found", hint=hint)
        jobs = select(["cuda"] if settings["sanitize"] else session.kinds)
        run = empty_run(patterns, jobs, settings, session, root, checks=True)
        session.begin()
        save = artifacts.Recorder(session.guard)
        with Bars() as bars:
            if settings["sanitize"]:
                sanitizer = _sanitizer(path, settings, session, jobs)
                run = sanitize(run, jobs, sanitizer, settings["sanitize"], save=save, progress=bars)
            else:
                run = fuzz(run, jobs, session.machine(jobs), save=save, progress=bars)
        report = artifacts.conclude(run, session, settings["baselines"])
    return report, session


def _select(
    patterns: Sequence[str], specs: Sequence[KernelSpec], settings: Settings, devices: Sequence[str]
) -> tuple[Job, ...]:
    if settings["fuzz"] and settings["sanitize"]:
        raise ConfigError("--fuzz and --sanitize cannot be combined", hint="run one after the other")
    if settings["against"]:
        raise ConfigError("--against has no effect with --fuzz and --sanitize", hint="omit it: nothing is timed")
    if not settings["sanitize"]:
        return fuzz_jobs(specs, patterns, devices, seed=settings["seed"], count=settings["fuzz"] or 0)
    able = [spec for spec in specs if spec.program is None or spec.program.kind == "command"]
    small = select_jobs(able, patterns, devices, all_cases=settings["all-cases"], small=True)
    small = tuple(job for job in small if job.runs)
    if not small:
        raise ConfigError("no case can run under --sanitize", hint="add --all-cases, or name a case (no benchmark)")
    if not any(applies(job, tool) for job in small for tool in settings["sanitize"]):
        left = "; ".join(note.message for note in left_out(small, settings["sanitize"]))
        raise ConfigError(f"no case can run under --sanitize: {left}", hint="name another tool or another case")
    return small


def _find_sanitizer(settings: Settings) -> str:
    found = tools.find("compute-sanitizer", rules_of(settings).for_workers(os.environ))
    usable = next((tool for tool in found if tool.complete), None)
    if usable is None:
        problem = found[0].problem if found else "compute-sanitizer was not found"
        raise MachineError(
            f"compute-sanitizer was asked for and cannot be used: {problem}",
            hint="install cuda-sanitizer of the CUDA toolkit, or set CI_PERF_COMPUTE_SANITIZER to its path",
        )
    return usable.path


def _sanitizer(path: str, settings: Settings, session: Session, jobs: Sequence[Job]) -> SanitizerRunner:
    conditions = session.conditions
    return SanitizerRunner(
        path,
        replace(conditions, env=rules_of(settings).for_profilers(conditions.env)),
        session.folder,
        TorchProfiler(session.worker, conditions, session.guard),
        session.programs(jobs, keep_traces=False),
    )
