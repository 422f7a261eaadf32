"""`ci-perf scrub`: removes environments from files of profilers, and searches files for secrets."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import click

from ci_perf.cli.log import in_log
from ci_perf.guard import guard
from ci_perf.guard.secrets import Rules
from ci_perf.guard.spellings import Needle, needles_of
from ci_perf.guard.unpack import Unsearchable
from ci_perf.traces.nsys import scrub as nsys_scrub
from ci_perf.values.errors import EXIT_RED, ConfigError


@click.command()
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False)
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=None,
    metavar="OUT",
    help="A file, or a folder for several files.  [default: FILE with .scrubbed before its suffix]",
)
@click.option(
    "--value-from-env",
    "names",
    multiple=True,
    metavar="NAME",
    help="Search for the value of this variable; can be repeated.  [default: all variables that look secret]",
)
@click.pass_context
def scrub(ctx: click.Context, files: tuple[Path, ...], output: Path | None, names: tuple[str, ...]) -> None:
    """Remove environment variables from nsys exports (.sqlite), and search all other files for secrets.

    Each database is copied without the tables, rows and strings that contain environments, command lines, paths and
    users. Other formats cannot be cleaned: such a file is searched for the values of the secret variables of this
    environment, also in archives (zip, gzip, tar, xz, bzip2). It is copied to OUT, if that is given, only if no secret
    was found.

    The exit status is 1 if a file contains a secret or cannot be searched. The message names the variable, never its
    value.
    """
    if output is not None and len(files) > 1 and not output.is_dir():
        raise ConfigError(f"{output}: is not a folder, and there are {len(files)} files", hint="make the folder first")
    needles = needles_of(_secrets(names, os.environ))
    found = [_scrub(file, _target(file, output), needles) for file in files]
    ctx.exit(EXIT_RED if any(found) else 0)


def _secrets(names: tuple[str, ...], environ: Mapping[str, str]) -> Mapping[str, str | tuple[str, ...]]:
    for name in names:
        if not environ.get(name):
            raise ConfigError(f"--value-from-env {name}: the environment has no such variable", hint="export it first")
    return {name: environ[name] for name in names} if names else Rules().secrets_of(environ)


def _target(file: Path, output: Path | None) -> Path | None:
    if output is not None:
        return output / file.name if output.is_dir() else output
    return file.with_suffix(f".scrubbed{file.suffix}") if nsys_scrub.is_database(file) else None


def _scrub(file: Path, target: Path | None, needles: tuple[Needle, ...]) -> bool:
    """Clean or search a file, print the outcome, and return whether it still holds a secret."""
    if target is not None and target.resolve() == file.resolve():
        raise ConfigError(f"{file}: would be written over", hint="name another file with -o")
    searched = file
    if target is not None and nsys_scrub.is_database(file):
        for line in nsys_scrub.clean(file, target):
            click.echo(in_log(f"{file}: removed {line}"))
        searched = target
    try:
        names = guard.names_in_file(searched, needles)
        suspicious = guard.variables_in_file(searched)
    except Unsearchable as error:
        click.echo(in_log(f"{error}; {error.hint}"))
        return True
    if names:
        click.echo(f"{file}: HOLDS THE VALUE OF {', '.join(names)}")
        if searched == target:
            target.unlink()
            click.echo(f"{file}: the copy was deleted: the secret is in the trace itself, not in an environment")
        return True
    if suspicious:
        click.echo(in_log(f"{file}: holds the variables {', '.join(suspicious)}, whose values are not known here"))
        click.echo(f"{file}: `nsys export --type sqlite` writes a database, which `ci-perf scrub` can clean")
        return True
    if target is not None and searched != target:
        shutil.copyfile(file, target)
    where = f", written to {target}" if target is not None else ""
    click.echo(f"{file}: no secret found{where}")
    return False
