"""The program `ci-perf`: its commands, and the one place where errors become exit statuses.

A command's module is imported when the command is used: `--version`, `--help` and completion import none of them.
"""

import errno
import fcntl
import importlib
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click

from ci_perf import __version__
from ci_perf.cli.log import tell
from ci_perf.guard import own_environment
from ci_perf.guard.secrets import FILES_OF_A_JOB, looks_secret
from ci_perf.measure import process_tracking
from ci_perf.values.errors import EXIT_BUG, EXIT_NOT_WRITTEN, EXIT_STOPPED, CiPerfError, ConfigError, WriteError
from ci_perf.values.escape import plain, spans

COMMANDS = {
    "audit": ("ci_perf.cli.audit:audit", "Measure the error rate of run --against."),
    "baseline": ("ci_perf.cli.baseline:baseline", "Accept, check and compare baselines."),
    "bisect": ("ci_perf.cli.bisect:bisect", "Find the commit that changed the time of a case."),
    "doctor": ("ci_perf.cli.doctor:doctor", "Diagnose this machine, and print a fix for each problem."),
    "explain": ("ci_perf.cli.explain:explain", "Explain why cases of a recorded run changed."),
    "history": ("ci_perf.cli.history:history", "Show the times of a kernel over commits and runs."),
    "init": ("ci_perf.cli.init:init", "Set up a first kernel, a workflow and a baseline."),
    "inspect": ("ci_perf.cli.inspect:inspect", "Show the content of a profiler's or benchmark's file."),
    "list": ("ci_perf.cli.listing:list_cases", "List the kernels and their cases."),
    "merge": ("ci_perf.cli.merge:merge", "Merge the runs of several jobs into one."),
    "plan": ("ci_perf.cli.plan:plan", "Divide the cases among jobs."),
    "publish": ("ci_perf.cli.publish:publish", "Comment on the pull request of a run."),
    "replay": ("ci_perf.cli.report:replay", "Judge a recorded run again, without a GPU."),
    "report": ("ci_perf.cli.report:report", "Print the report of a recorded run."),
    "run": ("ci_perf.cli.run:run", "Verify, time, profile and judge kernels."),
    "scrub": ("ci_perf.cli.scrub:scrub", "Remove environment variables from profiler files."),
    "site": ("ci_perf.cli.history:site", "Write the history of all kernels as static web pages."),
}
"""For each command its place, `module:attribute`, and its line in the list of commands."""


_NOT_WRITTEN = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO})
"""Errors of the system that are not a bug: the reader of a pipe has ended, the disk is full."""


def _say(error: CiPerfError) -> int:
    """Print an error and its hint, and return the exit status; a stderr that takes nothing does not change it."""
    with suppress(OSError):
        tell(_shown(f"error: {error}", fg="red"))
        if error.hint:
            tell(_shown(f"hint: {error.hint}"))
    return error.exit_status


def _shown(message: str, fg: str | None = None) -> str:
    """Return a message with its code in bold for a terminal, and as it is for a file or a log."""
    if not sys.stderr.isatty():
        return message
    return "".join(click.style(part, fg=fg, bold=is_code or None) for part, is_code in spans(message))


def _was_closed(error: OSError) -> bool:
    """Return whether an error comes from a stdout that the caller closed, which `_open_closed_streams` opened."""
    return error.errno == errno.EBADF and fcntl.fcntl(1, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY


def _not_written(error: OSError) -> WriteError:
    return WriteError(f"not everything could be written: {error.strerror}")


def _refuse_removed_folder() -> None:
    try:
        os.getcwd()  # noqa: PTH109 # its error is what is asked for
    except FileNotFoundError:
        raise ConfigError("the current folder was removed", hint="change to a folder that exists") from None


class _Formatter(click.HelpFormatter):
    """Writes help texts, which are Markdown in the documentation, without markup."""

    def write_text(self, text: str) -> None:
        """Write a paragraph."""
        super().write_text(plain(text))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write a list of flags or commands."""
        super().write_dl([(name, plain(text)) for name, text in rows], col_max, col_spacing)


class _Context(click.Context):
    formatter_class: type[click.HelpFormatter] = _Formatter


def _without_markup(command: click.Command) -> None:
    """Let the help of a command, and of those in it if it is a group, be without markup."""
    command.context_class = _Context
    if isinstance(command, click.Group):
        for each in command.commands.values():
            _without_markup(each)


class LazyCommand(click.Command):
    """Stands for a command in the group; imports its module when it is called or asked for its own help."""

    def __init__(self, name: str, place: str, short_help: str) -> None:
        super().__init__(name, short_help=short_help)
        self._place = place

    def load(self) -> click.Command:
        """Import and return the command."""
        module, _, attribute = self._place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        _without_markup(command)
        return command

    def make_context(self, *args: Any, **options: Any) -> click.Context:  # noqa: ANN401 # click's own signature
        """Parse the arguments of the command itself."""
        return self.load().make_context(*args, **options)


@contextmanager
def _exit_statuses() -> Iterator[None]:
    """Print errors, and turn them into exit statuses; an exception that is not the user's to fix is a bug."""
    try:
        yield
    except CiPerfError as error:
        raise click.exceptions.Exit(_say(error)) from None
    except KeyboardInterrupt as stop:
        click.echo(f"stopped by {stop}" if str(stop) else "stopped", err=True)
        raise click.exceptions.Exit(EXIT_STOPPED) from None
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except Exception as error:
        if isinstance(error, OSError) and (error.errno in _NOT_WRITTEN or _was_closed(error)):
            raise click.exceptions.Exit(_say(_not_written(error))) from None
        tell(traceback.format_exc().rstrip("\n"))
        click.echo(f"This is a bug in ci-perf {__version__}: report it with the lines above.", err=True)
        raise click.exceptions.Exit(EXIT_BUG) from None


class Program(click.Group):
    """A group that prints what is wrong in one line and how to fix it in the next."""

    context_class: type[click.Context] = _Context

    def make_context(self, *args: Any, **options: Any) -> click.Context:  # noqa: ANN401 # click's own signature
        """Parse the arguments; --help and --version print here."""
        with _exit_statuses():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 # click's own signature
        """Run the command."""
        with _exit_statuses():
            _refuse_removed_folder()
            return super().invoke(ctx)


@click.group(
    cls=Program,
    commands=[LazyCommand(name, *rest) for name, rest in COMMANDS.items()],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="ci-perf")
def program() -> None:
    """Check, time, profile and judge GPU kernels; explain the verdict.

    `ci-perf run` measures the kernels in kernels/ and prints a report; nothing is uploaded.

    Exit status: 0 success; 1 regression, failed kernel or broken gate; 2 wrong usage or configuration; 3 this
    machine cannot measure; 70 bug in ci-perf; 74 a file or stdout could not be written; 130 stopped.

    Shell completion of commands and cases: eval "$(_CI_PERF_COMPLETE=bash_source ci-perf)" (or zsh_source).
    """


def main() -> None:
    """Start the program; what `ci-perf` and `python -m ci_perf` call.

    A canceled job gets SIGTERM, a closed terminal sends SIGHUP: like Ctrl-C, they end all processes that were started,
    and the run that was stopped writes its report.
    """
    _open_closed_streams()
    process_tracking.stop_on_signals()
    own_environment.hide(lambda name, value: name in FILES_OF_A_JOB or looks_secret(name, value))
    own_environment.close_memory()
    try:
        program.main(prog_name="ci-perf")
    except SystemExit as end:
        sys.exit(_flushed(end.code))


def _open_closed_streams() -> None:
    """Open the streams that the caller closed, or the next file would be one of them.

    What is written to a closed stdout is an error as on a full disk; messages on a closed stderr are dropped.
    """
    for stream, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(stream)
        except OSError:
            os.open(os.devnull, mode)  # the lowest number that is free: this one
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _flushed(status: int | str | None) -> int | str | None:
    """Return the exit status, or another where stdout does not take what was printed."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _discard(1)
        status = status if status == EXIT_NOT_WRITTEN else _say(_not_written(error))
    try:
        sys.stderr.flush()
    except OSError:
        _discard(2)
    return status


def _discard(stream: int) -> None:
    """Let what Python still holds for a stream, and would try to write again, go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
