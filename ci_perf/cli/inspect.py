"""`ci-perf inspect`: the content of a profiler's or benchmark's file."""

import os
from itertools import islice
from pathlib import Path

import click
from tabulate import tabulate

from ci_perf.cli import inspection
from ci_perf.cli.log import in_log, tell
from ci_perf.traces.document import table, written
from ci_perf.values.escape import clean

ROWS = 200
"""Rows of the printed table; `--json` prints all."""


@click.command("inspect")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs: everything, in base units.")
def inspect(file: Path, as_json: bool) -> None:
    """Show the content of FILE: an nsys or torch trace, an ncu report or its CSV, or the results of a benchmark.

    Any other file is refused with exit status 2; the message says what the file looks like.
    """
    found = inspection.read(file, os.environ)
    if as_json:
        for piece in written(found):
            click.echo(piece, nl=False)
        click.echo()
        return
    shown = table(found)
    for line in shown.above:
        click.echo(in_log(clean(line, 600)))
    cells = [[clean(cell, 100) for cell in row] for row in islice(shown.rows, ROWS)]
    if cells:
        click.echo(in_log(tabulate(cells, headers=shown.headings, tablefmt="simple", disable_numparse=True)))
    if shown.count > ROWS:
        click.echo(f"and {shown.count - ROWS:,} more; --json prints them all")
    for warning in found.warnings:
        tell(f"warning: {clean(warning, 600)}")
