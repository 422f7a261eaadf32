"""`ci-perf doctor`: what this machine lacks, and what mends each thing."""

import json
import os
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ci_perf.cli.options import resolve_settings, setting_options
from ci_perf.doctor.diagnosis import diagnose
from ci_perf.doctor.facts import Check, CheckState
from ci_perf.doctor.machine import gather_facts
from ci_perf.values.errors import EXIT_ENVIRONMENT

_STYLE = {
    CheckState.OK: "green",
    CheckState.WARN: "yellow",
    CheckState.MISSING: "yellow",
    CheckState.BROKEN: "bold red",
}


@click.command()
@setting_options("python", "kernels-dir")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
@click.pass_context
def doctor(ctx: click.Context, /, as_json: bool, **flags: object) -> None:
    """Look at Python, torch, GPU, driver, CUDA, nsys, ncu and counter permission; say what mends each problem.

    Exit status 3 where something is broken; what is only missing is left out of a run, which says so.
    """
    root = Path.cwd()
    settings = resolve_settings(root, flags)
    checks = diagnose(gather_facts(os.environ, python=settings["python"] or None, folder=root))
    if as_json:
        click.echo(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        Console(highlight=False).print(_table(checks))
    ctx.exit(EXIT_ENVIRONMENT if any(check.state is CheckState.BROKEN for check in checks) else 0)


def _table(checks: tuple[Check, ...]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        words = Text(check.sentence)
        if check.fix:
            words.append(f"\nfix: {check.fix}", style="bold")
        table.add_row(Text(str(check.state), style=_STYLE[check.state]), check.name, words)
    return table
