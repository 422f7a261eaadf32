"""`ci-perf merge`: merges the shards of a plan into one run, with one report."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from ci_perf import store
from ci_perf.cli import artifacts
from ci_perf.cli.empty_run import provenance_of
from ci_perf.cli.options import resolve_settings, setting_options
from ci_perf.cli.output import no_workflow_commands, show
from ci_perf.fleet.merge import merge_planned, merge_runs
from ci_perf.guard.guard import Guard
from ci_perf.values.errors import CiPerfError
from ci_perf.values.run import Note, Run


@click.command("merge")
@click.argument("runs", metavar="RUN...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--plan",
    "plan_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The plan that `ci-perf plan --plan` wrote: a planned case without a measurement is a failed row.",
)
@setting_options("output", "baselines")
def merge(runs: tuple[Path, ...], plan_file: Path | None, **flags: object) -> None:
    """Merge the shards of a plan, or runs on different devices, into one run. Print its report.

    RUN is a run.json, its folder, or a zip. Runs of different commits, bases, policies or versions are refused. Each
    case is judged with the machine and the control of the job that measured it. The exit status does not depend on the
    verdicts; that of `replay` does.
    """
    root = Path.cwd()
    settings = resolve_settings(root, flags)
    plan = store.read_plan(plan_file) if plan_file else None
    found, notes = _read(runs, lenient=plan is not None)
    provenance = provenance_of(root, ["merge", *map(str, runs)])
    merged = merge_planned(found, plan, provenance) if plan else merge_runs(found)
    merged = _with_baselines(merged, root / settings["baselines"])
    named = replace(merged.provenance, command=provenance.command)
    merged = replace(merged, provenance=named, notes=(*merged.notes, *notes))
    folder = root / settings["output"]
    with store.held_run_folder(folder):
        guard = Guard.of(folder, os.environ)
        store.claim_run_folder(folder)
        store.clear_run_folder(folder)
        report = artifacts.finish(merged, guard, settings["baselines"])
    with no_workflow_commands():
        show(report, folder)


def _read(runs: Sequence[Path], *, lenient: bool) -> tuple[dict[str, Run], tuple[Note, ...]]:
    """Read the runs; with a plan, a run that cannot be read becomes a note."""
    found: dict[str, Run] = {}
    notes: list[Note] = []
    for path in runs:
        try:
            found[str(path)] = store.read_run(path)
        except CiPerfError as error:
            if not lenient:
                raise
            notes.append(Note("unreadable-run", f"not merged: {error}", error.hint))
    return found, tuple(notes)


def _with_baselines(run: Run, folder: Path) -> Run:
    """Add the baselines of kernels that are in no shard: their cases are MISSING."""
    if run.selection or run.against is not None:
        return run
    known = {(baseline.device.slug, baseline.kernel) for baseline in run.baselines}
    found = store.read_baselines(folder, run.devices)
    return replace(run, baselines=(*run.baselines, *(b for b in found if (b.device.slug, b.kernel) not in known)))
