"""`ci-perf inspect`: what a profiler's or a benchmark's file holds."""

import json
import os
from pathlib import Path

import click
from tabulate import tabulate

from ci_perf.cli.inspection import inspect as inspect_file
from ci_perf.traces.document import table
from ci_perf.values.escape import clean

ROWS = 200
"""More than these are for programs."""


@click.command("inspect")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs: everything, in base units.")
def inspect(file: Path, as_json: bool) -> None:
    """Say what FILE holds: a trace of nsys or of torch's profiler, an ncu report or its CSV, results of a benchmark.

    A file that is none of these, or holds nothing, is refused with exit status 2 and what it looks like.
    """
    document = inspect_file(file, os.environ)
    if as_json:
        click.echo(json.dumps(document, indent=2, allow_nan=False))
        return
    lines, (headings, rows) = table(document)
    for line in lines:
        click.echo(clean(line, 600))
    cells = [[clean(cell, 100) for cell in row] for row in rows[:ROWS]]
    if cells:
        click.echo(tabulate(cells, headers=headings, tablefmt="simple", disable_numparse=True))
    if len(rows) > ROWS:
        click.echo(f"and {len(rows) - ROWS:,} more; --json prints them all")
    for warning in document["warnings"]:
        click.echo(f"warning: {clean(warning, 600)}", err=True)
