"""The program `ci-perf`: its commands, and the one place where errors become exit statuses."""

import signal
import sys
import traceback
from typing import Any

import click

from ci_perf import __version__
from ci_perf.cli.audit import audit
from ci_perf.cli.baseline import baseline
from ci_perf.cli.doctor import doctor
from ci_perf.cli.inspect import inspect
from ci_perf.cli.listing import list_cases
from ci_perf.cli.merge import merge
from ci_perf.cli.plan import plan
from ci_perf.cli.publish import publish
from ci_perf.cli.report import replay, report
from ci_perf.cli.run import run
from ci_perf.cli.scrub import scrub
from ci_perf.guard import own_environment
from ci_perf.guard.secrets import looks_secret
from ci_perf.values.errors import EXIT_BUG, EXIT_STOPPED, CiPerfError


class Program(click.Group):
    """A group that says what is wrong in one line and how to mend it in the next."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 # click's own signature
        """Run the command; a CiPerfError is the user's to mend, any other exception is ours."""
        try:
            return super().invoke(ctx)
        except CiPerfError as error:
            click.secho(f"error: {error}", err=True, fg="red")
            if error.hint:
                click.echo(f"hint: {error.hint}", err=True)
            ctx.exit(error.exit_status)
        except KeyboardInterrupt:
            click.echo("stopped; what was finished is in the output folder", err=True)
            ctx.exit(EXIT_STOPPED)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception:
            traceback.print_exc()
            click.echo(f"This is a bug in ci-perf {__version__}: report it with the lines above.", err=True)
            ctx.exit(EXIT_BUG)


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="ci-perf")
def program() -> None:
    """Check, time, profile and judge GPU kernels; explain the verdict.

    `ci-perf run` does it all and prints the comment that a pull request would get; nothing leaves this machine.

    Exit status: 0 fine; 1 regression, failed kernel, broken gate; 2 usage; 3 this machine cannot measure; 70 a bug.

    Completion of commands and case names: eval "$(_CI_PERF_COMPLETE=bash_source ci-perf)" (or zsh_source).
    """


for _command in (run, list_cases, plan, merge, report, replay, baseline, publish, inspect, scrub, audit, doctor):
    program.add_command(_command)


def main() -> None:
    """Start the program; what `ci-perf` and `python -m ci_perf` call.

    A job that is cancelled gets SIGTERM, a closed terminal SIGHUP: like Ctrl-C, they end the workers and leave a
    readable run.json.
    """
    signal.signal(signal.SIGHUP, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    own_environment.hide(looks_secret)
    sys.exit(program.main(prog_name="ci-perf"))
