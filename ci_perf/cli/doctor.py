"""`ci-perf doctor`: find what this machine lacks, and print how to fix it."""

import json
import os
from dataclasses import asdict
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from ci_perf.cli.options import resolve_settings, setting_options
from ci_perf.cli.output import draw
from ci_perf.doctor.diagnosis import diagnose
from ci_perf.doctor.facts import Diagnosis, DiagnosisState
from ci_perf.doctor.machine import gather_facts
from ci_perf.values.errors import EXIT_ENVIRONMENT
from ci_perf.values.escape import plain

_STYLE = {
    DiagnosisState.OK: "green",
    DiagnosisState.WARN: "yellow",
    DiagnosisState.MISSING: "yellow",
    DiagnosisState.BROKEN: "bold red",
}


@click.command()
@setting_options("python", "kernels-dir")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
@click.pass_context
def doctor(ctx: click.Context, /, as_json: bool, **flags: object) -> None:
    """Diagnose Python, torch, GPU, driver, CUDA, nsys, ncu and counter permission; print a fix for each problem.

    The exit status is 3 if something is broken. A run skips what needs a missing tool, and the report says so.
    """
    root = Path.cwd()
    settings = resolve_settings(root, flags)
    diagnoses = diagnose(gather_facts(os.environ, python=settings["python"] or None, folder=root))
    if as_json:
        click.echo(json.dumps([asdict(diagnosis) for diagnosis in diagnoses], indent=2))
    else:
        draw(_table(diagnoses))
    ctx.exit(EXIT_ENVIRONMENT if any(diagnosis.state is DiagnosisState.BROKEN for diagnosis in diagnoses) else 0)


def _table(diagnoses: tuple[Diagnosis, ...]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for diagnosis in diagnoses:
        words = Text(plain(diagnosis.sentence))
        if diagnosis.fix:
            words.append(f"\nfix: {plain(diagnosis.fix)}", style="bold")
        table.add_row(Text(str(diagnosis.state), style=_STYLE[diagnosis.state]), diagnosis.name, words)
    return table
