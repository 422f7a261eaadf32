"""`ci-perf run`: the main job."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
from tabulate import tabulate

from ci_perf import store
from ci_perf.cli import artifacts
from ci_perf.cli.against import (
    base_commit,
    prepared_base,
    prepared_commit,
    refuse_several_devices,
    untracked_sources,
    with_against,
    with_event_base,
)
from ci_perf.cli.checks import check, is_check
from ci_perf.cli.empty_run import empty_run, text_of
from ci_perf.cli.log import tell
from ci_perf.cli.options import complete_case, resolve_settings, setting_options
from ci_perf.cli.output import Bars, no_workflow_commands, show
from ci_perf.cli.resume import Attempt, Resumed, first_start, without_repeats
from ci_perf.init.unfinished import find_unfinished
from ci_perf.judge.report import Report
from ci_perf.measure.budget import Budget
from ci_perf.measure.confirm import Confirm, Prepare
from ci_perf.measure.machine import Machine
from ci_perf.measure.main_job import execute
from ci_perf.measure.session import Session, open_session
from ci_perf.render.json_text import render_json
from ci_perf.render.markdown import render_comment
from ci_perf.render.terminal import render_timings
from ci_perf.values.errors import ConfigError
from ci_perf.values.job import Job, may_select, select_jobs
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.quantity import counted
from ci_perf.values.run import Note, Run
from ci_perf.values.settings import Settings


@click.command()
@click.argument("patterns", metavar="[KERNEL[/CASE]]...", nargs=-1, shell_complete=complete_case)
@setting_options()
@click.option("--show-settings", is_flag=True, help="Print each setting and the source of its value; run nothing.")
@click.option("--timings", is_flag=True, help="Print the duration of each stage of the run, by case and side.")
@click.option("--json", "form", flag_value="json", help="Print the report as JSON instead of tables.")
@click.option("--markdown", "form", flag_value="markdown", help="Print the pull request comment instead of tables.")
@click.option(
    "--resume",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Continue the run in this folder, which was stopped or has undecided cases: what it has measured is kept.",
)
@click.option(
    "--earlier",
    metavar="ARTIFACT",
    type=click.Path(path_type=Path),
    help="In a workflow: continue what an earlier attempt of this job measured, if it fits; a note says why not.",
)
@click.pass_context
def run(
    ctx: click.Context,
    /,
    patterns: tuple[str, ...],
    show_settings: bool,
    timings: bool,
    form: str | None,
    resume: Path | None,
    earlier: Path | None,
    **flags: object,
) -> None:
    """Verify, time, profile and judge kernels, and print the report.

    The output of each case is compared with its reference. The case is timed in fresh processes, profiled with nsys and
    ncu if they are installed, and compared with its baseline. A case beyond a threshold is measured again in fresh
    processes. Nothing leaves this machine; all files of the run are in the output folder.

    KERNEL and CASE can contain wildcards: `ci-perf run 'sdpa/s*'`. With --fuzz N, or if KERNEL/fuzz-SEED-N is named,
    random cases are verified instead; with --sanitize LIST, cases are run under compute-sanitizer instead.
    """
    root = Path.cwd()
    if resume and resume.is_file():  # run.json, which other commands take in place of its folder
        resume = resume.parent
    settings = with_event_base(resolve_settings(root, flags if resume is None else _into(resume, flags)))
    specs = store.read_kernels(root / settings["kernels-dir"], root, patterns)
    if show_settings:
        click.echo(_settings_table(settings, specs))
        return
    _refuse_missing_baselines(root, settings)
    _refuse_unfinished(root, specs, patterns)
    if is_check(patterns, settings):
        if resume:
            raise ConfigError("--resume: --fuzz and --sanitize cannot be resumed", hint="run them again")
        if earlier:  # a re-run of a job, which must not fail for it
            tell("--earlier is not used: a run of --fuzz or --sanitize is done again as a whole")
        report, session = check(root, patterns, _specs(specs, settings), settings)
        _print(report, session=session, form=form)
        ctx.exit(report.exit_status)
    show_report = partial(_print, form=form)
    if resume and earlier:
        raise ConfigError("--resume and --earlier each name a run to continue", hint="give one of them")
    begins = Resumed.of(resume) if resume else Attempt.of(earlier) if earlier else None
    report, session = measure_run(root, specs, patterns, settings, show_report, begins=begins)
    show_report(report, session=session)
    if timings:
        click.echo(f"\n{render_timings(report)}", nl=False, err=form is not None)
    ctx.exit(report.exit_status)


def measure_run(
    root: Path,
    specs: tuple[KernelSpec, ...],
    patterns: tuple[str, ...],
    settings: Settings,
    print_report: Callable[..., object],
    *,
    begins: Resumed | Attempt | None = None,
    say: Callable[[str], object] = tell,
) -> tuple[Report, Session]:
    """Measure the selected cases of a tree, finish the folder of the run, and return its report and its session.

    `print_report` gets a report that cannot be written, and the session. `begins` is a run to continue.
    `say` gets warnings, and what the run waits for.
    """
    planned = _planned(specs, patterns, settings)
    commit = base_commit(root, settings)  # an error in it leaves the last run's folder as it is
    untracked = untracked_sources(root, planned, settings["against"])
    for note in untracked:
        say(f"warning: {note.message}; {note.hint}")
    prepare_base = partial(prepared_base, root, commit, specs, settings)
    with open_session(settings, root, say, planned, prepare_base) as session:
        selected = select_jobs(_specs(specs, settings), patterns, session.kinds, all_cases=settings["all-cases"])
        jobs = tuple(job for job in selected if job.runs)
        empty = empty_run(patterns, jobs, settings, session, root)
        more = (*untracked, *_left_out_note(selected), *_small_note(selected, planned))
        empty = replace(empty, notes=(*empty.notes, *more))
        complete = partial(_completed, session=session, jobs=jobs, begins=begins)
        with _reported(session, complete, settings["baselines"], partial(print_report, session=session)) as recorder:
            empty = with_against(empty, session.base, settings["baselines"])
            empty = begins.begin(empty) if begins else empty
            session.begin(keep=begins is not None and begins.keeps_folder)
            prepare = partial(prepared_commit, root, specs, settings, session) if settings["confirm"] else None
            machine = session.machine(jobs, session.base, first_start=first_start(empty))
            found = _measure(empty, jobs, settings, recorder, machine, prepare)
            report = artifacts.conclude(complete(found), session, settings["baselines"])
    return report, session


def _into(folder: Path, flags: Mapping[str, object]) -> dict[str, object]:
    """Return the flags with the folder that is resumed as the output."""
    output = flags.get("output")
    if output is not None and Path(str(output)) != folder:
        raise ConfigError(f"--resume {folder} and --output {output} are two folders", hint="omit --output")
    return {**flags, "output": str(folder)}


def _stopped(folder: Path) -> str:
    return (
        f"the report of what was finished is {folder / 'report.md'}; `ci-perf run --resume {folder}` measures the rest"
    )


@contextmanager
def _reported(
    session: Session, complete: Callable[[Run], Run], baselines: str, show_report: Callable[[Report], object]
) -> Iterator[artifacts.Recorder]:
    """Yield what saves the run; where a signal stops it, `complete` what was saved, and write its report.

    Where a file cannot be written, the report is printed nevertheless.
    """
    recorder = artifacts.Recorder(session.guard, tell)
    try:
        try:
            yield recorder
        except KeyboardInterrupt:
            if recorder.last is not None:
                artifacts.conclude(complete(recorder.last), session, baselines)
                tell(_stopped(session.folder))
            raise
    except artifacts.NotWritten as error:
        show_report(error.report)
        raise


def _completed(run: Run, session: Session, jobs: Sequence[Job], begins: Resumed | Attempt | None) -> Run:
    """Return the run with the seconds that each case took, by side and stage, and a note on what takes long.

    `begins` is the run that this one continues.
    """
    spent = session.conditions.spent
    measurements = tuple(replace(m, spent=spent.of(m.id, m.device) or m.spent) for m in run.measurements)
    run = replace(run, measurements=measurements, notes=(*run.notes, *spent.slow_inputs(jobs)))
    return without_repeats(run, begins)


def _planned(specs: Sequence[KernelSpec], patterns: tuple[str, ...], settings: Settings) -> tuple[Job, ...]:
    """Select the jobs that may run; ConfigError for a pattern that matches nothing, and for two devices."""
    if settings["against"]:
        refuse_several_devices(settings, f"`against` is `{settings['against']}`")
    return select_jobs(specs, patterns, ["cuda"])


def _refuse_missing_baselines(root: Path, settings: Settings) -> None:
    if settings.chosen_by_user("baselines") and not (root / settings["baselines"]).is_dir():
        raise ConfigError(f"{settings.origins['baselines']}: `{settings['baselines']}` is not a folder")


def _refuse_unfinished(root: Path, specs: tuple[KernelSpec, ...], patterns: tuple[str, ...]) -> None:
    """Refuse a selected kernel of which `ci-perf init` left a function to a person; ConfigError."""
    for spec in specs:
        entry = Path(spec.folder, spec.entry)
        if spec.program is not None or not may_select(spec.name, patterns):
            continue
        if found := find_unfinished((root / entry).read_text(encoding="utf-8", errors="replace")):
            line, function, message = found
            raise ConfigError(
                f"{entry}:{line}: `{function}` is not written yet{f': {message}' if message else ''}",
                hint="write it in place of `raise NotImplementedError`, or run other kernels by their names",
            )


def _left_out_note(jobs: tuple[Job, ...]) -> tuple[Note, ...]:
    names = sorted({f"{job.spec.name} on {job.device}" for job in jobs if not job.runs})
    return (Note("left-out", f"{', '.join(names)}: the program does not run there"),) if names else ()


def _small_note(jobs: tuple[Job, ...], planned: tuple[Job, ...]) -> tuple[Note, ...]:
    """Return a note on the cases that a run on the CPU leaves out by default."""
    elsewhere = {job.spec.name for job in jobs if not job.runs}
    here = {job.id for job in planned if job.spec.name not in elsewhere}
    left = len(here - {job.id for job in jobs})
    if not left or any(job.device == "cuda" for job in jobs):
        return ()
    return (Note("large-cases", f"left out on the CPU: {counted(left, 'large case')}", "`--all-cases` runs them too"),)


def _measure(
    empty: Run,
    jobs: tuple[Job, ...],
    settings: Settings,
    recorder: artifacts.Recorder,
    machine: Machine,
    prepare: Prepare | None,
) -> Run:
    """Measure the jobs; `prepare` gives the commits of baselines, in turns with which changes are confirmed."""
    empty = replace(empty, notes=(*empty.notes, *machine.notes(jobs)))
    budget = Budget(settings["budget"] or math.inf, settings["case-budget"] or math.inf)
    with Bars() as bars:
        return execute(
            empty,
            jobs,
            machine,
            processes=settings["processes"],
            save=recorder,
            progress=bars,
            budget=budget,
            confirm=Confirm(jobs, prepare, budget, bars) if prepare else None,
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


def _print(report: Report, *, session: Session, form: str | None) -> None:
    if form == "json":
        click.echo(render_json(report), nl=False)
        return
    with no_workflow_commands():
        if form == "markdown":
            click.echo(render_comment(report), nl=False)
        else:
            show(report, session.folder)
            click.echo(f"{session.folder / 'report.md'} is the comment that a pull request gets; --markdown prints it.")


def _settings_table(settings: Settings, specs: tuple[KernelSpec, ...]) -> str:
    lines = [(name, text_of(value), settings.origins[name]) for name, value in settings.values.items()]
    for spec in specs:
        own = (
            ("regression-threshold", spec.regression),
            ("speedup-threshold", spec.speedup),
            ("timeout", spec.timeout_s),
        )
        for name, value in own:
            if value is not None:
                loses = " (outranked)" if settings.chosen_by_user(name) else ""
                lines.append((f"{name} of {spec.name}", text_of(value), f"{spec.folder}/kernel.toml{loses}"))
    return tabulate(lines, headers=("setting", "value", "from"), tablefmt="simple", disable_numparse=True)
