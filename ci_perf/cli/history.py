"""`ci-perf history` and `ci-perf site`: the times of kernels over commits and runs."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import click

from ci_perf import store
from ci_perf.cli.case_history import read_runs
from ci_perf.cli.creep import sound_merges
from ci_perf.cli.log import in_log, tell
from ci_perf.cli.options import resolve_settings, setting_options
from ci_perf.history.export import FORMATS
from ci_perf.history.git_log import read_history
from ci_perf.history.page import render_site
from ci_perf.history.parquet import add_points, read_points
from ci_perf.history.picture import render_svg
from ci_perf.history.points import points_of_run, series_of
from ci_perf.history.table import render_table
from ci_perf.history.trend import change_points
from ci_perf.judge.creep import accepted, creep, sentence
from ci_perf.values.errors import ConfigError, FormatError
from ci_perf.values.series import Point, Series

_RUNS = click.option(
    "--runs", metavar="FOLDER", multiple=True, help="Add the runs below this folder: each run.json and each zip."
)
_STORE = click.option(
    "--store",
    "place",
    metavar="FOLDER|URL",
    help="Add the points to the Parquet files in this place, and show all of its points.",
)


@click.command()
@click.argument("kernel")
@setting_options("baselines", "config")
@_RUNS
@_STORE
@click.option("--picture", metavar="FILE", help="Write a chart to this file, as SVG.")
@click.option("--export", type=click.Choice(list(FORMATS)), help="Print this format instead of the table.")
def history(
    kernel: str, runs: tuple[str, ...], place: str | None, picture: str | None, export: str | None, **flags: object
) -> None:
    """Show the times of KERNEL over the commits of its baselines: table, change points, creep.

    Every version of the kernel's baselines in the git log is a point. With --runs, recorded runs are points, too.
    """
    points = _points([kernel], flags, runs, place)
    series = series_of(points)
    if not series:
        hint = "`ci-perf baseline accept RUN` writes baselines; commit them, or name recorded runs with --runs"
        raise ConfigError(f"there is no history of `{kernel}`", hint=hint)
    if picture:
        store.write_text(Path(picture), render_svg(series, change_points))
        tell(f"wrote {picture}")
    if export:
        click.echo(FORMATS[export](series), nl=False)
    else:
        click.echo(in_log("\n".join([render_table(series, change_points), *_merged(kernel, flags)])))


@click.command()
@setting_options("baselines", "config")
@_RUNS
@_STORE
@click.option("--output", "folder", metavar="FOLDER", default="site", show_default=True, help="Folder of the pages.")
def site(runs: tuple[str, ...], place: str | None, folder: str, **flags: object) -> None:
    """Write the history of all kernels as static HTML pages, one for each kernel, for GitHub Pages or any server."""
    kernels: dict[str, list[Series]] = {}
    for one in series_of(_points([], flags, runs, place)):
        kernels.setdefault(one.last.kernel, []).append(one)
    if not kernels:
        raise ConfigError("there is no history of any kernel", hint="commit baselines, or name runs with --runs")
    changes_of = cache(change_points)  # a page and its chart ask for the same
    for name, text in render_site(kernels, changes_of).items():
        store.write_text(Path(folder) / name, text)
    pages = "1 page" if len(kernels) == 1 else f"{len(kernels)} pages"
    click.echo(f"wrote {pages} and index.html to {folder}")


def _merged(kernel: str, flags: dict[str, object]) -> list[str]:
    """Return a line for each case of a kernel that crept over the merges that are recorded."""
    root = Path.cwd()
    settings = resolve_settings(root, flags)
    folder = root / settings["baselines"]
    try:
        merges = store.read_merged(folder)
        known = accepted(store.read_baselines(folder, kernels=[kernel])) if merges else {}
    except FormatError as error:
        return [f"creep of merges is not known: {error}"]
    limit = _own_threshold(root, settings["kernels-dir"], kernel) or settings["regression-threshold"]
    found = creep(sound_merges(folder, merges), limit, known)
    return [f"creep of merges: {sentence(one)}" for one in found if one.case.partition("/")[0] == kernel]


def _own_threshold(root: Path, kernels: str, kernel: str) -> float | None:
    """Return the threshold in the kernel.toml of a kernel; None where it sets none, is wrong, or is no longer there."""
    try:
        specs = store.read_kernels(root / kernels, root, [kernel])
    except ConfigError:
        return None
    return next((spec.regression for spec in specs if spec.name == kernel), None)


def _points(kernels: list[str], flags: dict[str, object], runs: Sequence[str], place: str | None) -> list[Point]:
    root = Path.cwd()
    settings = resolve_settings(root, flags)
    points, problems = read_history(root, settings["baselines"], kernels)
    for folder in runs:
        points += [point for run in read_runs(Path(folder)) for point in points_of_run(run)]
    for problem in problems:
        tell(f"warning: {problem}")
    points = [point for point in points if not kernels or point.kernel in kernels]
    if place:
        if points:
            add_points(place, points)
        points = list(read_points(place, kernels[0] if kernels else None))
    return points
