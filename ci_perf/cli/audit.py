"""`ci-perf audit`: how often the verdicts are wrong, measured where the truth is known."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path

import click

from ci_perf.cli.output import draw, no_workflow_commands
from ci_perf.core.audit_report import AuditReport, build_audit
from ci_perf.core.errors import ConfigError
from ci_perf.core.model import Policy
from ci_perf.edge.audit_file import read_sessions
from ci_perf.edge.store import write_text
from ci_perf.render.audit import render_audit_json, render_audit_markdown, render_audit_terminal
from ci_perf.render.escape import clean
from ci_perf.render.plot import render_plot

FORMATS: dict[str, Callable[[AuditReport], str]] = {"markdown": render_audit_markdown, "json": render_audit_json}


@click.command("audit")
@click.argument("names", metavar="[FILE]...", nargs=-1)
@click.option("--show", "shown", is_flag=True, help="Print what the audit files FILE... hold; measure nothing.")
@click.option("--markdown", "form", flag_value="markdown", help="Print Markdown.")
@click.option("--json", "form", flag_value="json", help="Print JSON for programs.")
@click.option(
    "--plot", type=click.Path(path_type=Path, dir_okay=False), metavar="SVG", help="Draw the operating curve, too."
)
def audit(names: tuple[str, ...], shown: bool, form: str | None, plot: Path | None) -> None:
    """Say how often the verdicts of `run --against` are wrong: on unchanged code, and on slowdowns of known size.

    Exit status 0 whatever the figures are.
    """
    if not shown:
        measure(names)
        return
    if not names:
        raise ConfigError("--show needs at least one audit file", hint="ci-perf audit --show FILE...")
    show((Path(name) for name in names), form, plot)


def measure(patterns: tuple[str, ...]) -> None:
    """Measure sessions of the cases that the patterns choose and append them to an audit file."""
    raise ConfigError(f"measuring{''.join(f' {p}' for p in patterns)} is not part of this version", hint="use --show")


def show(paths: Iterable[Path], form: str | None, plot: Path | None) -> None:
    """Print the sessions of some files as tables, and draw them."""
    sessions, warnings = read_sessions(paths)
    for warning in warnings:
        click.echo(f"warning: {clean(warning, 600)}", err=True)
    report = build_audit(sessions, Policy())
    if plot is not None:
        write_text(plot, render_plot(report))
    with nullcontext() if form == "json" else no_workflow_commands():
        if form is None:
            draw(render_audit_terminal(report))
        else:
            click.echo(FORMATS[form](report), nl=False)
