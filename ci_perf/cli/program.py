"""The program `ci-perf`: its commands, and the one place where errors become exit statuses.

A command's module is imported when the command is used: `--version`, `--help` and completion import none of them.
"""

import errno
import importlib
import os
import sys
import traceback
from typing import Any

import click

from ci_perf import __version__
from ci_perf.guard import own_environment
from ci_perf.guard.secrets import FILES_OF_A_JOB, looks_secret
from ci_perf.measure import process_tracking
from ci_perf.values.errors import EXIT_BUG, EXIT_NOT_WRITTEN, EXIT_STOPPED, CiPerfError, ConfigError, WriteError

COMMANDS = {
    "audit": ("ci_perf.cli.audit:audit", "Measure the error rate of `run --against`."),
    "baseline": ("ci_perf.cli.baseline:baseline", "Accept, check and compare baselines."),
    "bisect": ("ci_perf.cli.bisect:bisect", "Find the commit that changed the time of a case."),
    "doctor": ("ci_perf.cli.doctor:doctor", "Diagnose this machine; print a fix for each problem."),
    "explain": ("ci_perf.cli.explain:explain", "Explain what changed between two sides on disk."),
    "history": ("ci_perf.cli.history:history", "Show the times of a kernel over commits and runs."),
    "inspect": ("ci_perf.cli.inspect:inspect", "Show what a profiler's or a benchmark's file holds."),
    "list": ("ci_perf.cli.listing:list_cases", "List the kernels and their cases."),
    "merge": ("ci_perf.cli.merge:merge", "Merge the runs of several jobs into one."),
    "plan": ("ci_perf.cli.plan:plan", "Share the cases out over jobs."),
    "publish": ("ci_perf.cli.publish:publish", "Comment on the pull request of a run."),
    "replay": ("ci_perf.cli.report:replay", "Judge a recorded run again, without a GPU."),
    "report": ("ci_perf.cli.report:report", "Print the report of a recorded run."),
    "run": ("ci_perf.cli.run:run", "Verify, time, profile and judge kernels."),
    "scrub": ("ci_perf.cli.scrub:scrub", "Remove environments from profiler files; search for secrets."),
    "site": ("ci_perf.cli.history:site", "Write the history of all kernels as static web pages."),
}
"""For each command its place, `module:attribute`, and its line in the list of commands."""


_NOT_WRITTEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})
"""Errors of the system that are no bug, beside a pipe whose reader has ended."""


def _say(error: CiPerfError) -> int:
    """Print an error and its hint, and return the exit status."""
    click.secho(f"error: {error}", err=True, fg="red")
    if error.hint:
        click.echo(f"hint: {error.hint}", err=True)
    return error.exit_status


def _refuse_removed_folder() -> None:
    try:
        os.getcwd()  # noqa: PTH109 # its error is what is asked for
    except FileNotFoundError:
        raise ConfigError("the current folder was removed", hint="change to a folder that exists") from None


class LazyCommand(click.Command):
    """Stands for a command in the group; imports its module when it is called or asked for its own help."""

    def __init__(self, name: str, place: str, short_help: str) -> None:
        super().__init__(name, short_help=short_help)
        self._place = place

    def load(self) -> click.Command:
        """Import and return the command."""
        module, _, attribute = self._place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def make_context(self, *args: Any, **options: Any) -> click.Context:  # noqa: ANN401 # click's own signature
        """Parse the arguments of the command itself."""
        return self.load().make_context(*args, **options)


class Program(click.Group):
    """A group that prints what is wrong in one line and how to fix it in the next."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 # click's own signature
        """Run the command; a CiPerfError is the user's to fix, any other exception is a bug."""
        try:
            _refuse_removed_folder()
            return super().invoke(ctx)
        except CiPerfError as error:
            ctx.exit(_say(error))
        except KeyboardInterrupt as stop:
            click.echo(f"stopped by {stop}" if str(stop) else "stopped", err=True)
            ctx.exit(EXIT_STOPPED)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if isinstance(error, BrokenPipeError) or (isinstance(error, OSError) and error.errno in _NOT_WRITTEN):
                ctx.exit(_say(WriteError(f"not everything could be written: {error.strerror or 'Broken pipe'}")))
            traceback.print_exc()
            click.echo(f"This is a bug in ci-perf {__version__}: report it with the lines above.", err=True)
            ctx.exit(EXIT_BUG)


@click.group(
    cls=Program,
    commands=[LazyCommand(name, *rest) for name, rest in COMMANDS.items()],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="ci-perf")
def program() -> None:
    """Check, time, profile and judge GPU kernels; explain the verdict.

    `ci-perf run` does it all and prints the comment that a pull request would get; nothing leaves this machine.

    Exit status: 0 fine; 1 regression, failed kernel, broken gate; 2 usage; 3 this machine cannot measure; 70 a bug;
    74 a file or stdout could not be written; 130 stopped.

    Completion of commands and case names: eval "$(_CI_PERF_COMPLETE=bash_source ci-perf)" (or zsh_source).
    """


def main() -> None:
    """Start the program; what `ci-perf` and `python -m ci_perf` call.

    A canceled job gets SIGTERM, a closed terminal sends SIGHUP: like Ctrl-C, they end all processes that were started,
    and the run that was stopped writes its report.
    """
    process_tracking.stop_on_signals()
    own_environment.hide(lambda name, value: name in FILES_OF_A_JOB or looks_secret(name, value))
    own_environment.close_memory()
    try:
        program.main(prog_name="ci-perf")
    except SystemExit as end:
        sys.exit(_flushed(end.code))


def _flushed(status: int | str | None) -> int | str | None:
    """Return the exit status, or another where stdout does not take what was printed."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what Python would try to write again
        if status == EXIT_NOT_WRITTEN:
            return status
        return _say(WriteError(f"not everything could be written: {getattr(error, 'strerror', error)}"))
    return status
