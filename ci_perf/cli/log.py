"""What is printed into the log of a job: GitHub's runner reads it, and it may quote a repository or an artifact."""

import os

import click

from ci_perf.values.escape import without_commands


def tell(message: str) -> None:
    """Print a message on stderr."""
    click.echo(in_log(message), err=True)


def in_log(text: str) -> str:
    """Return a text as it is, or in a workflow so that the runner finds no command in it."""
    return without_commands(text) if os.environ.get("GITHUB_ACTIONS") else text
