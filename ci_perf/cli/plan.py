"""`ci-perf plan`: shares the cases out over jobs, as a matrix for GitHub or as a table."""

import json
from pathlib import Path

import click
from tabulate import tabulate

from ci_perf import store
from ci_perf.cli.options import complete_case, resolve_settings, setting_options
from ci_perf.fleet.shards import matrix, seconds_of_baselines, seconds_of_run, share_out
from ci_perf.values.codec import dump_plan
from ci_perf.values.errors import ConfigError
from ci_perf.values.job import Plan, select_jobs
from ci_perf.values.quantity import duration


@click.command("plan")
@click.argument("patterns", metavar="[KERNEL[/CASE]]...", nargs=-1, shell_complete=complete_case)
@click.option("--shards", type=click.IntRange(1, 256), default=1, show_default=True, help="Jobs on each runner.")
@click.option(
    "--runner",
    "runners",
    metavar="LABEL,...",
    multiple=True,
    default=("self-hosted,gpu",),
    show_default=True,
    help="Labels of a runner; repeat for each model of GPU. Each measures everything.",
)
@click.option(
    "--durations",
    metavar="RUN",
    type=click.Path(path_type=Path),
    help="An earlier run, from which to take how long each case takes; by default the baselines.",
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
    shards: int,
    runners: tuple[str, ...],
    durations: Path | None,
    form: str,
    file: Path | None,
    **flags: object,
) -> None:
    """Share the cases out over jobs that end at about the same time; nothing is imported or run.

    Each runner gets all cases, split into --shards jobs; the cases of a kernel may go to several jobs. A case of which
    no duration is known counts as their mean.
    """
    root = Path.cwd()
    settings = resolve_settings(root, flags)
    kinds = ["cuda" if kind == "auto" else kind for kind in settings["device"]]
    specs = store.read_kernels(root / settings["kernels-dir"], root, patterns)
    jobs = [j for j in select_jobs(specs, patterns, kinds, all_cases=settings["all-cases"]) if j.runs]
    if not jobs:
        raise ConfigError(f"none of the kernels runs on {', '.join(kinds)}", hint="choose another --device")
    if durations:
        seconds = seconds_of_run(store.read_run(durations))
    else:
        seconds = seconds_of_baselines(store.read_baselines(root / settings["baselines"]))
    made = share_out(jobs, patterns, shards, [_runner(labels) for labels in runners], seconds)
    if file:
        store.write_text(file, dump_plan(made))
    click.echo({"json": dump_plan, "github": _line, "text": _table}[form](made), nl=False)


def _runner(labels: str) -> tuple[str, ...]:
    found = tuple(label.strip() for label in labels.split(",") if label.strip())
    if not found:
        raise ConfigError(f"flag --runner: {labels!r} holds no label", hint="write self-hosted,gpu,h100")
    return found


def _line(made: Plan) -> str:
    return json.dumps(matrix(made), separators=(",", ":")) + "\n"


def _table(made: Plan) -> str:
    lines = [
        (shard.name, ", ".join(shard.runner), str(len(shard.cases)), duration(shard.seconds), " ".join(shard.patterns))
        for shard in made.shards
    ]
    header = ("shard", "runner", "cases", "about", "measures")
    return tabulate(lines, headers=header, tablefmt="simple", disable_numparse=True) + "\n"
