"""`ci-perf report` and `ci-perf replay`: print a recorded run in one of several formats, without a GPU."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import click

from ci_perf import store
from ci_perf.cli.case_history import read_runs, trends_of
from ci_perf.cli.options import resolve_settings
from ci_perf.cli.output import no_workflow_commands, show
from ci_perf.judge.report import Report, build_report
from ci_perf.render.html import render_html
from ci_perf.render.json_text import render_json
from ci_perf.render.junit import render_junit
from ci_perf.render.markdown import render_comment
from ci_perf.render.tabular import render_csv
from ci_perf.values.run import Run

FORMATS: dict[str, tuple[Callable[[Report], str], str]] = {
    "markdown": (render_comment, "The exact body of the pull request comment."),
    "html": (
        render_html,
        "The report as one HTML page with charts, as in report.html, with the history in this folder.",
    ),
    "csv": (render_csv, "Every number, in base units."),
    "junit": (render_junit, "JUnit XML."),
    "json": (render_json, "Verdicts and numbers for programs."),
}


def _formats(command: Callable[..., None]) -> Callable[..., None]:
    for name, (_, text) in reversed(FORMATS.items()):
        command = click.option(f"--{name}", "form", flag_value=name, help=text)(command)
    command = click.option(
        "--runs",
        "earlier",
        metavar="FOLDER",
        multiple=True,
        help="With --html: add the runs below FOLDER to the history.",
    )(command)
    command = click.option("--text", "form", flag_value="text", default=True, help="A table (the default).")(command)
    return click.argument("run_file", metavar="RUN", type=click.Path(path_type=Path))(command)


@click.command("report")
@_formats
def report(run_file: Path, form: str, earlier: tuple[str, ...]) -> None:
    """Print the report of RUN: a run.json, its folder, or a zip that contains one. The exit status is always 0."""
    run = store.read_run(run_file)
    _print(run_file, run, build_report(run), form, earlier)


@click.command("replay")
@_formats
@click.pass_context
def replay(ctx: click.Context, run_file: Path, form: str, earlier: tuple[str, ...]) -> None:
    """Judge RUN again, without a GPU: the report and exit status are those of the run itself."""
    run = store.read_run(run_file)
    found = build_report(run)
    _print(run_file, run, found, form, earlier)
    ctx.exit(found.exit_status)


def _print(run_file: Path, run: Run, found: Report, form: str, earlier: Sequence[str]) -> None:
    if form == "html":
        root = Path.cwd()
        runs = [other for folder in earlier for other in read_runs(Path(folder))]
        click.echo(render_html(found, trends_of(run, root, resolve_settings(root, {})["baselines"], runs)), nl=False)
        return
    with no_workflow_commands() if form in {"text", "markdown"} else nullcontext():
        if form == "text":
            show(found, run_file)
        else:
            click.echo(FORMATS[form][0](found), nl=False)
