"""Starts programs: no shell, a time limit, and the whole process group ended with it."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ci_perf.measure import process_tracking
from ci_perf.values.errors import MachineError


@dataclass(frozen=True, slots=True)
class Completed:
    """A program that ended."""

    argv: tuple[str, ...]
    status: int
    """Its exit status; negative: the signal that ended it."""
    output: str
    """What it wrote to stdout and stderr, in one text."""
    timed_out: bool = False

    @property
    def end(self) -> str:
        """How it ended: `ended with exit status 3`, `ran into its time limit`."""
        return "ran into its time limit" if self.timed_out else f"ended with {signal_name(self.status)}"

    @property
    def said(self) -> str:
        """The last line that it printed, shortened, after a colon, as the end of a sentence; empty without one."""
        lines = self.output.strip().splitlines()
        return f": {lines[-1][:200]}" if lines else ""

    @property
    def log(self) -> str:
        """The command, its end and its output, for a log file."""
        return f"$ {' '.join(self.argv)}\n# {signal_name(self.status)}\n{self.output}"


def run(
    argv: Sequence[str], *, timeout_s: float, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Completed:
    """Run a program to its end; one that takes longer than `timeout_s` is killed with all that it started."""
    received = os.environ if env is None else env  # never what C holds: secrets are blanked there
    was_stopping = process_tracking.is_stopping()
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=process_tracking.tracked(received),
            cwd=cwd,
            start_new_session=True,
        )
    except OSError as error:
        raise MachineError(f"cannot start `{argv[0]}`: {error.strerror}") from None
    try:
        output, _ = process.communicate(timeout=timeout_s)
        timed_out = False
    except subprocess.TimeoutExpired:
        kill_group(process)
        output, _ = process.communicate()
        timed_out = True
    except BaseException:
        kill_group(process)
        raise
    if process_tracking.is_stopping() and not was_stopping:  # the exception was lost in a destructor
        raise process_tracking.stopped()
    return Completed(tuple(argv), process.returncode, output.decode("utf-8", "replace"), timed_out)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads its own session, and everything in it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def signal_name(status: int) -> str:
    """Name how a process ended.

    >>> signal_name(-11), signal_name(3)
    ('SIGSEGV', 'exit status 3')
    """
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
