"""Output to the terminal: the report on stdout, and progress bars on stderr if it is a terminal."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import click
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from ci_perf import store
from ci_perf.judge.report import Report
from ci_perf.render.terminal import render_terminal

WIDE = 90
"""Columns from which a progress bar is long."""
WIDTH = 140
"""Columns of a report that is written to a file or a log."""


def show(report: Report, run: Path) -> None:
    """Print the report of a run, which lies at this path: in colour on a terminal, without if NO_COLOR is set."""
    draw(render_terminal(report, store.relative_path(run.resolve(), Path.cwd())))


class _Output(Console):
    """A console on stdout whose reader may end early."""

    def on_broken_pipe(self) -> None:
        """Raise what every other print to a closed pipe raises; rich ends the program with status 1."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def draw(drawing: RenderableType) -> None:
    """Print tables on stdout; if it is not a terminal, they are COLUMNS or else WIDTH columns wide."""
    console = _Output(highlight=False)
    if not console.is_terminal and not os.environ.get("COLUMNS"):
        console.width = WIDTH
    console.print(drawing)


@contextmanager
def no_workflow_commands() -> Iterator[None]:
    """Keep GitHub's runner from executing workflow commands in the printed text, which quotes users' code."""
    if not os.environ.get("GITHUB_ACTIONS"):
        yield
        return
    token = secrets.token_hex(16)
    click.echo(f"::stop-commands::{token}")
    try:
        yield
    finally:
        click.echo(f"::{token}::")


class Bars:
    """Progress bars, one for each stage of a run; not shown if stderr is not a terminal."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description:<8}"),
            BarColumn(bar_width=30 if console.width >= WIDE else 8),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[what]}", table_column=Column(no_wrap=True, overflow="ellipsis")),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = None if self._progress.disable else self._progress.add_task("start", total=None, what="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, stage: str, steps: int) -> None:
        """Add a bar for a stage with this number of steps."""
        if self._task is not None:
            if self._progress.tasks[-1].total is None:
                self._progress.remove_task(self._task)
            self._task = self._progress.add_task(stage, total=steps, what="")

    def step(self, what: str) -> None:
        """Advance the bar of the current stage by one step."""
        if self._task is not None:
            self._progress.update(self._task, advance=1, what=what)
