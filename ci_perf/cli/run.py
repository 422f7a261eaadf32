"""`ci-perf run`: the main job."""

import math
import os
import shlex
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click
from tabulate import tabulate

from ci_perf import __version__, store
from ci_perf.cli import artifacts
from ci_perf.cli.checks import check, is_check
from ci_perf.cli.options import complete_case, resolve_settings, setting_options
from ci_perf.cli.output import Bars, no_workflow_commands, show
from ci_perf.github import actions
from ci_perf.judge.report import Report
from ci_perf.measure import git, gpu
from ci_perf.measure.base import Base, prepared
from ci_perf.measure.lock import gpu_lock
from ci_perf.measure.machine import Machine
from ci_perf.measure.main_job import execute
from ci_perf.measure.pair_loop import Budget
from ci_perf.measure.profile import ProfileSession
from ci_perf.measure.program_counters import ProgramCounters
from ci_perf.measure.program_traces import ProgramTraces
from ci_perf.measure.programs import WALL, ProgramRunner
from ci_perf.measure.session import (
    Session,
    broken_memory,
    find_tracer,
    note_other_programs,
    other_pids,
    prepare,
    wait_until_idle,
)
from ci_perf.render.json_text import render_json
from ci_perf.render.markdown import render_comment
from ci_perf.values.baseline import Baseline
from ci_perf.values.errors import ConfigError
from ci_perf.values.job import Job, select_jobs
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.provenance import Provenance
from ci_perf.values.run import Note, Run
from ci_perf.values.settings import BY_NAME, Settings, policy_from


@click.command()
@click.argument("patterns", metavar="[KERNEL[/CASE]]...", nargs=-1, shell_complete=complete_case)
@setting_options()
@click.option("--show-settings", is_flag=True, help="Show every setting and where its value came from; run nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON instead of a table.")
@click.pass_context
def run(ctx: click.Context, /, patterns: tuple[str, ...], show_settings: bool, as_json: bool, **flags: object) -> None:
    """Verify, time, profile and judge kernels; print the report and the comment that a pull request would get.

    Each case is held against its reference, timed in fresh processes, run under nsys and ncu where there are any, and
    judged against the baselines. A case beyond a threshold is measured a second time in fresh processes. Nothing leaves
    this machine; all files of the run are in the output folder.

    KERNEL and CASE may hold wildcards: `ci-perf run 'sdpa/s*'`. With --fuzz N, or where KERNEL/fuzz-SEED-N is named,
    random cases are verified instead; with --sanitize LIST, cases are run under compute-sanitizer instead.
    """
    root = Path.cwd()
    settings = _with_base(resolve_settings(root, flags))
    specs = store.read_kernels(root / settings["kernels-dir"], root)
    if show_settings:
        click.echo(_settings_table(settings, specs))
        return
    _refuse_missing_baselines(root, settings)
    if is_check(patterns, settings):
        report, session = check(root, patterns, _specs(specs, settings), settings, blank=partial(blank_run, patterns))
        _print(report, render_comment(report), session, as_json=as_json)
        ctx.exit(report.exit_status)
    planned = _planned(specs, patterns, settings)
    session = prepare(settings, root, programs_only=all(job.spec.program for job in planned))
    on_gpu = session.conditions.gpu_uuid if "cuda" in session.kinds else None
    session.worker.rest()  # who waits shall hold no memory on a GPU that another run measures on
    lock = gpu_lock(on_gpu, settings["wait"], partial(click.echo, err=True))
    with artifacts.guarded(session.guard, _say), session.worker, lock:
        jobs = select_jobs(_specs(specs, settings), patterns, session.kinds, all_cases=settings["all-cases"])
        left_out = (*_left_out_note(jobs), *_small_note(jobs, planned))
        jobs = tuple(job for job in jobs if job.runs)
        programs = program_runner(session, jobs)
        blank = blank_run(patterns, jobs, settings, session, root)
        wait_until_idle(on_gpu, settings["wait"], partial(click.echo, err=True))
        session = replace(session, conditions=replace(session.conditions, other_programs=other_pids(on_gpu)))
        strange, health = note_other_programs(on_gpu), gpu.query_health(on_gpu) if on_gpu else None
        blank = replace(blank, notes=(*blank.notes, *left_out, *strange, *_wall_note(programs, jobs)))
        if settings["against"]:
            with _base(root, specs, settings, session) as base:
                _begin(session)
                machine = Machine(session.conditions, session.worker, programs, session.profilers, base)
                found = _measure(_against(blank, base), jobs, settings, session, machine)
        else:
            _begin(session)
            machine = Machine(session.conditions, session.worker, programs, session.profilers)
            found = _measure(blank, jobs, settings, session, machine)
        found = replace(found, notes=(*found.notes, *broken_memory(on_gpu, health)))
        session.worker.close()  # what a worker still writes would escape the search of the folder
        report = artifacts.finish(found, session.guard)
    _print(report, render_comment(report), session, as_json=as_json)
    ctx.exit(report.exit_status)


def _against(blank: Run, base: Base) -> Run:
    """Return the run with its base; a commit that is measured against itself is told: its verdicts are known before."""
    notes = blank.notes
    if base.against.commit == blank.provenance.commit:
        message = f"the base is the commit that is checked out, {base.against.commit[:8]}: it is compared with itself"
        hint = "name the commit before the change: --against HEAD~1, or merge-base:BRANCH"
        notes = (*notes, Note("base-is-head", message, hint))
    return replace(blank, against=base.against, notes=notes)


def _planned(specs: Sequence[KernelSpec], patterns: tuple[str, ...], settings: Settings) -> tuple[Job, ...]:
    """Refuse what can never be measured before anything is started: a pattern that matches nothing, two devices."""
    if settings["against"]:
        refuse_several_devices(settings, f"`against` is `{settings['against']}`")
    return select_jobs(specs, patterns, ["cuda"])


def _refuse_missing_baselines(root: Path, settings: Settings) -> None:
    if settings.chosen_by_user("baselines") and not (root / settings["baselines"]).is_dir():
        raise ConfigError(f"{settings.origins['baselines']}: `{settings['baselines']}` is no folder")


def refuse_several_devices(settings: Settings, why: str) -> None:
    """Refuse several devices where sides take turns: the base against itself vouches for the one that it ran on."""
    if len(set(settings["device"])) > 1:
        kinds = ",".join(settings["device"])
        message = f"{settings.origins['device']}: `{kinds}` in one session, whose control is of one device; {why}"
        raise ConfigError(message, hint="run once for each device, with an --output of its own")


def _with_base(settings: Settings) -> Settings:
    """Settle what `auto` is measured against: the base of the event, or nothing."""
    if settings["against"] != "auto":
        return settings
    base = "base" if git.query_event_base(os.environ) else ""
    return replace(settings, values={**settings.values, "against": base})


def _begin(session: Session) -> None:
    """Take the folder: nothing can be wrong with the input any more, so what an earlier run left may go."""
    store.clear_run_folder(session.folder)
    session.guard.open()


def _say(note: Note) -> None:
    click.echo(f"warning: {note.message}", err=True)


def program_runner(session: Session, jobs: tuple[Job, ...]) -> ProgramRunner:
    """Return what runs the programs among the jobs."""
    conditions = session.conditions
    traces = any(job.device == "cuda" and job.spec.program and job.spec.program.kind == "command" for job in jobs)
    return ProgramRunner(
        session.launcher,
        nsys_path=find_tracer(conditions.env) if traces else None,
        counters=_program_counters(session) if traces else None,
        traces=ProgramTraces(session.guard) if traces else None,
        planted=conditions.planted,
    )


def _program_counters(session: Session) -> ProgramCounters | None:
    conditions = session.conditions
    for profiler in session.profilers:
        if isinstance(profiler, ProfileSession) and profiler.tool == "ncu":
            return ProgramCounters(
                profiler.path, session.guard, conditions.root, conditions.env, conditions.timeout_s, profiler.full
            )
    return None


def _left_out_note(jobs: tuple[Job, ...]) -> tuple[Note, ...]:
    names = sorted({f"{job.spec.name} on {job.device}" for job in jobs if not job.runs})
    return (Note("left-out", f"{', '.join(names)}: the program does not run there"),) if names else ()


def _small_note(jobs: tuple[Job, ...], planned: tuple[Job, ...]) -> tuple[Note, ...]:
    """Say how many cases a run on the CPU leaves out by default."""
    elsewhere = {job.spec.name for job in jobs if not job.runs}
    here = {job.id for job in planned if job.spec.name not in elsewhere}
    left = len(here - {job.id for job in jobs})
    if not left or any(job.device == "cuda" for job in jobs):
        return ()
    return (Note("large-cases", f"{left} large cases were left out on the CPU", "`--all-cases` runs them too"),)


def _wall_note(programs: ProgramRunner, jobs: tuple[Job, ...]) -> tuple[Note, ...]:
    """Say which programs are timed by the clock of the wall, which is far coarser than the trace."""
    commands = [job for job in jobs if job.spec.program and job.spec.program.kind == "command"]
    by_clock = sorted({job.spec.name for job in commands if programs.method(job) == WALL})
    if not by_clock:
        return ()
    lacking = "a GPU" if all(job.device == "cpu" for job in commands) else "nsys"
    message = (
        f"{', '.join(by_clock)}: timed by the clock, the whole program with its start and end, for lack of {lacking}"
    )
    return (Note("wall-time", message, "with a GPU and nsys the program's GPU kernels are summed instead"),)


def _base(
    root: Path, specs: tuple[KernelSpec, ...], settings: Settings, session: Session
) -> AbstractContextManager[Base]:
    return prepared(
        root,
        settings["against"],
        kernels_dir=settings["kernels-dir"],
        head=specs,
        setup=settings["setup"],
        python=settings["base-python"] or session.conditions.python,
        env=session.conditions.env,
        logs=session.folder / "logs",
        environ=os.environ,
        shared=not settings["base-python"],
    )


def _measure(blank: Run, jobs: tuple[Job, ...], settings: Settings, session: Session, machine: Machine) -> Run:
    with Bars() as bars:
        return execute(
            blank,
            jobs,
            machine,
            processes=settings["processes"],
            save=lambda run: artifacts.save(run, session.guard),
            progress=bars,
            budget=Budget(settings["budget"] or math.inf, settings["case-budget"] or math.inf),
        )


def blank_run(
    patterns: tuple[str, ...], jobs: tuple[Job, ...], settings: Settings, session: Session, root: Path
) -> Run:
    """Return the run before anything is measured."""
    specs = {job.spec.name: job.spec for job in jobs}
    repository, head = actions.query_origin(os.environ)
    provenance = Provenance(
        tool=__version__,
        date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        command=shlex.join(["ci-perf", "run", *patterns, *_flags(settings)]),
        commit=git.query_commit(root) or os.environ.get("GITHUB_SHA"),
        repository=repository,
        head=head,
        shard=settings["shard"] or None,
    )
    stand_ins = sorted({job.spec.name for job in jobs if job.target == "reference"})
    notes = session.notes
    if stand_ins:
        message = f"{', '.join(stand_ins)}: the kernel runs on a GPU only, its reference was timed in its place"
        notes = (*notes, Note("reference-timed", message))
    return Run(
        provenance=provenance,
        selection=patterns,
        policy=policy_from(settings),
        kernels=tuple(specs.values()),
        devices=session.devices,
        toolchain=session.toolchain,
        baselines=_baselines(root / settings["baselines"], patterns, specs, session),
        notes=notes,
        planted=settings["plant-slowdown"],
    )


def _flags(settings: Settings) -> list[str]:
    """Return what makes the run another than the default one, as flags; where files lie makes no difference."""
    chosen = {name: value for name, value in settings.values.items() if _makes_a_difference(name, settings)}
    return [
        f"--{name}" if value is True else f"--{name}={_text(value)}"
        for name, value in chosen.items()
        if value is not False
    ]


def _makes_a_difference(name: str, settings: Settings) -> bool:
    elsewhere = {"output", "baselines", "python", "base-python", "shard", "config"}
    return (
        settings.origins[name] != "default"
        and BY_NAME[name].command == "run"
        and name not in elsewhere
        and settings[name] != ""
    )


def _specs(specs: tuple[KernelSpec, ...], settings: Settings) -> tuple[KernelSpec, ...]:
    """Let a threshold from a flag or the environment outrank the one in kernel.toml."""
    if settings.chosen_by_user("regression-threshold"):
        specs = tuple(replace(spec, regression=None) for spec in specs)
    if settings.chosen_by_user("speedup-threshold"):
        specs = tuple(replace(spec, speedup=None) for spec in specs)
    if settings.chosen_by_user("timeout"):
        specs = tuple(replace(spec, timeout_s=None) for spec in specs)
    return specs


def _baselines(
    folder: Path, patterns: tuple[str, ...], specs: dict[str, KernelSpec], session: Session
) -> tuple[Baseline, ...]:
    """Return the baselines that this run can be held against: of these devices, and of these kernels or of all."""
    found = store.read_baselines(folder, dict.fromkeys(device.slug for device in session.devices))
    return tuple(b for b in found if not patterns or b.kernel in specs)


def _print(report: Report, comment: str, session: Session, *, as_json: bool) -> None:
    if as_json:
        click.echo(render_json(report), nl=False)
    else:
        with no_workflow_commands():
            show(report)
            click.echo(f"\n--- the comment, also in {session.folder / 'report.md'} ---\n\n{comment}", nl=False)


def _settings_table(settings: Settings, specs: tuple[KernelSpec, ...]) -> str:
    lines = [(name, _text(value), settings.origins[name]) for name, value in settings.values.items()]
    for spec in specs:
        own = (
            ("regression-threshold", spec.regression),
            ("speedup-threshold", spec.speedup),
            ("timeout", spec.timeout_s),
        )
        for name, value in own:
            if value is not None:
                loses = " (outranked)" if settings.chosen_by_user(name) else ""
                lines.append((f"{name} of {spec.name}", _text(value), f"{spec.folder}/kernel.toml{loses}"))
    return tabulate(lines, headers=("setting", "value", "from"), tablefmt="simple", disable_numparse=True)


def _text(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) else "" if value is None else str(value)
