"""`ci-perf plan`: divides the cases among jobs; prints a table or a matrix for GitHub."""

import json
import math
from collections.abc import Mapping
from pathlib import Path

import click
from tabulate import tabulate

from ci_perf import store
from ci_perf.cli.log import tell
from ci_perf.cli.options import complete_case, resolve_settings, setting_options
from ci_perf.fleet.shards import (
    costs,
    fewest_shards,
    matrix,
    number_decided,
    seconds_of_baselines,
    seconds_of_run,
    share_out,
)
from ci_perf.values.codec import dump_plan
from ci_perf.values.errors import ConfigError
from ci_perf.values.job import Plan, select_jobs
from ci_perf.values.quantity import counted, duration


@click.command("plan")
@click.argument("patterns", metavar="[KERNEL[/CASE]]...", nargs=-1, shell_complete=complete_case)
@click.option(
    "--shards", type=click.IntRange(1, 256), default=None, help="Number of jobs on each runner.  [default: 1]"
)
@click.option(
    "--within",
    metavar="MINUTES",
    type=click.FloatRange(0, min_open=True),
    default=None,
    help="Use as many jobs as are needed so that the cases of each take so many minutes, start and builds not counted; "
    "with --shards, only say how many cases will probably be decided in that time.",
)
@click.option(
    "--runner",
    "runners",
    metavar="LABEL,...",
    multiple=True,
    default=("self-hosted,gpu",),
    show_default=True,
    help="Labels of a runner. Repeat the option for each GPU model: each runner measures all cases.",
)
@click.option(
    "--durations",
    metavar="RUN",
    type=click.Path(path_type=Path),
    help="An earlier run with the duration of each case; default: the baselines.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(("text", "json", "github")),
    default="text",
    show_default=True,
    help="text: a table; json: the plan for `merge`; github: a matrix for `strategy.matrix` through `fromJSON`.",
)
@click.option("--plan", "file", type=click.Path(path_type=Path), help="Also write the plan for `merge` to this file.")
@setting_options("kernels-dir", "baselines", "device", "all-cases")
def plan(
    patterns: tuple[str, ...],
    shards: int | None,
    within: float | None,
    runners: tuple[str, ...],
    durations: Path | None,
    form: str,
    file: Path | None,
    **flags: object,
) -> None:
    """Divide the cases among jobs of about the same duration; nothing is imported or run.

    Each runner gets all cases, divided into --shards jobs, or into as many as --within needs; the cases of a kernel may
    be in several jobs. A case without a known duration counts as the mean of the others. With --within, stderr says how
    many cases will probably be decided.
    """
    root = Path.cwd()
    settings = resolve_settings(root, flags)
    if within is not None and not math.isfinite(within):
        raise ConfigError(f"flag --within: `{within}` is no number of minutes", hint="write --within 30")
    kinds = ["cuda" if kind == "auto" else kind for kind in settings["device"]]
    specs = store.read_kernels(root / settings["kernels-dir"], root, patterns)
    jobs = [j for j in select_jobs(specs, patterns, kinds, all_cases=settings["all-cases"]) if j.runs]
    if not jobs:
        raise ConfigError(f"none of the kernels runs on {', '.join(kinds)}", hint="choose another --device")
    if durations:
        seconds = seconds_of_run(store.read_run(durations))
    else:
        seconds = seconds_of_baselines(store.read_baselines(root / settings["baselines"]))
    if within is not None and shards is None:
        shards = fewest_shards(jobs, seconds, 60 * within)
    made = share_out(jobs, patterns, shards or 1, [_runner(labels) for labels in runners], seconds)
    if file:
        store.write_text(file, dump_plan(made))
    click.echo({"json": dump_plan, "github": _line, "text": _table}[form](made), nl=False)
    if within is not None:
        tell(_decided(made, costs([job.id for job in jobs], seconds), within))


def _runner(labels: str) -> tuple[str, ...]:
    found = tuple(label.strip() for label in labels.split(",") if label.strip())
    if not found:
        raise ConfigError(f"flag --runner: {labels!r} holds no label", hint="write self-hosted,gpu,h100")
    return found


def _line(made: Plan) -> str:
    return json.dumps(matrix(made), separators=(",", ":")) + "\n"


def _decided(made: Plan, cost: Mapping[str, float], minutes: float) -> str:
    """Say how many cases all jobs together will probably decide, each in so many minutes."""
    number = sum(number_decided(shard.cases, cost, 60 * minutes) for shard in made.shards)
    whole = sum(len(shard.cases) for shard in made.shards)
    jobs = counted(len(made.shards), "job")
    return f"{number} of {counted(whole, 'case')} will probably be decided by {jobs} with `--budget {60 * minutes:g}`"


def _table(made: Plan) -> str:
    lines = [
        (shard.name, ", ".join(shard.runner), str(len(shard.cases)), duration(shard.seconds), " ".join(shard.patterns))
        for shard in made.shards
    ]
    header = ("shard", "runner", "cases", "about", "measures")
    return tabulate(lines, headers=header, tablefmt="simple", disable_numparse=True) + "\n"
