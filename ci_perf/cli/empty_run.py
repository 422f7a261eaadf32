"""A run before anything is measured: where it comes from, how it was asked for, what it will be compared with."""

import os
import shlex
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from ci_perf import __version__, store
from ci_perf.github import actions
from ci_perf.measure import git
from ci_perf.measure.session import Session
from ci_perf.values.baseline import Baseline, selected_rows
from ci_perf.values.device import Provenance
from ci_perf.values.job import Job
from ci_perf.values.reasons import Reason
from ci_perf.values.run import Note, Run
from ci_perf.values.settings import BY_NAME, Settings, policy_from


def empty_run(
    patterns: tuple[str, ...],
    jobs: tuple[Job, ...],
    settings: Settings,
    session: Session,
    root: Path,
    *,
    checks: bool = False,
) -> Run:
    """Return the run before anything is measured; one of checks is compared with no baseline."""
    return Run(
        provenance=provenance_of(root, ["run", *patterns, *_flags(settings)], shard=settings["shard"] or None),
        selection=patterns,
        policy=policy_from(settings),
        kernels=tuple({job.spec.name: job.spec for job in jobs}.values()),
        devices=session.devices,
        toolchain=session.toolchain,
        baselines=() if checks else _baselines(root / settings["baselines"], patterns, jobs, session),
        notes=(
            *session.notes,
            *_git_note(root),
            *_gpu_note(settings, session, root),
            *_reference_note(jobs, checks=checks),
        ),
        planted=settings["plant-slowdown"],
        among=settings["among"],
    )


def _git_note(root: Path) -> tuple[Note, ...]:
    """Return a note where there is a repository that git cannot use: the run does not know its commit."""
    problem = git.query_problem(root)
    return (Note("no-git", f"{problem[0]}: the commit is not known", problem[1]),) if problem else ()


def _gpu_note(settings: Settings, session: Session, root: Path) -> tuple[Note, ...]:
    """Return a note where no GPU was found although the repository's baselines or the environment name one."""
    if settings["device"] != ("auto",) or session.kinds != ("cpu",):
        return ()
    slugs = sorted({path.parent.name for path in (root / settings["baselines"]).glob("*/*.json")})
    expected = [f"{settings['baselines']}/{slug}" for slug in slugs if not slug.startswith("cpu-")]
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if chosen not in ("", "-1"):
        expected.append(f"CUDA_VISIBLE_DEVICES={chosen}")
    if not expected:
        return ()
    message = f"no usable GPU, but one is expected: {', '.join(expected)}"
    return (Note(Reason.GPU_EXPECTED, message, Reason.GPU_EXPECTED.hint),)


def _reference_note(jobs: tuple[Job, ...], *, checks: bool) -> tuple[Note, ...]:
    """Return a note on the kernels of which only the reference can run."""
    names = ", ".join(sorted({job.spec.name for job in jobs if job.target == "reference"}))
    if not names:
        return ()
    if checks:
        message = f"{names}: the kernel runs on a GPU only, so only its reference was checked"
        return (Note("reference-checked", message),)
    return (Note("reference-timed", f"{names}: the kernel runs on a GPU only, its reference was timed in its place"),)


def provenance_of(root: Path, words: Iterable[str], *, shard: str | None = None) -> Provenance:
    """Return where the numbers of a command come from; `words` are those of its command line."""
    repository, head = actions.query_origin(os.environ)
    return Provenance(
        tool=__version__,
        date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        command=shlex.join(["ci-perf", *words]),
        commit=git.query_commit(root) or os.environ.get("GITHUB_SHA"),
        repository=repository,
        head=head,
        shard=shard,
    )


def _flags(settings: Settings) -> list[str]:
    """Return the settings that change what is measured or judged, as flags; paths do not count."""
    chosen = {name: value for name, value in settings.values.items() if _makes_a_difference(name, settings)}
    return [flag for name, value in chosen.items() if (flag := _flag(name, value))]


def _flag(name: str, value: object) -> str:
    """Return the flag of a setting; empty where it is off, as it is by default."""
    if value is False:
        return f"--no-{name}" if BY_NAME[name].default else ""
    return f"--{name}" if value is True else f"--{name}={text_of(value)}"


def _makes_a_difference(name: str, settings: Settings) -> bool:
    elsewhere = {"output", "baselines", "python", "base-python", "shard", "config"}
    return (
        settings.origins[name] != "default"
        and BY_NAME[name].command == "run"
        and name not in elsewhere
        and settings[name] != ""
    )


def _baselines(
    folder: Path, patterns: tuple[str, ...], jobs: tuple[Job, ...], session: Session
) -> tuple[Baseline, ...]:
    """Return the baselines of these devices; with patterns, only the rows that the selected cases need."""
    if not patterns:
        return store.read_baselines(folder, session.devices, consistent=True)
    specs = {job.spec.name: job.spec for job in jobs}
    found = store.read_baselines(folder, session.devices, specs, consistent=True)
    rows = [selected_rows(b, specs[b.kernel], _cases_of(b, jobs)) for b in found if b.kernel in specs]
    return tuple(baseline for baseline in rows if baseline.cases)


def _cases_of(baseline: Baseline, jobs: tuple[Job, ...]) -> set[str]:
    return {job.case for job in jobs if (job.spec.name, job.device) == (baseline.kernel, baseline.device.kind)}


def text_of(value: object) -> str:
    """Write the value of a setting as its flag takes it."""
    return ",".join(value) if isinstance(value, tuple) else "" if value is None else str(value)
