"""Ends every process that ci-perf started, when it is stopped and when it was killed itself.

Each process inherits a variable of its environment that holds the mark of this ci-perf, whatever it forks and whichever
session it moves to; Jenkins and GitHub's runner find the processes of a job in the same way. A watchdog, which is this
file started as a program, ends them where ci-perf was killed. Standard library only.
"""

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "CI_PERF_MARK"
MARK = uuid.uuid4().hex
"""Of the processes that this process starts."""
ONE_STOP_S = 0.3
"""Signals so close together are one: `timeout` and wrappers send one to the process and another to its group."""
_watchdog: subprocess.Popen[bytes] | None = None
_stopped_at: float | None = None


def marked(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with the mark, and start the watchdog if there is none yet.

    The marks of a ci-perf that started this one stay.
    """
    _start_watchdog()
    outer = os.environ.get(VARIABLE, "")
    return {**env, VARIABLE: f"{outer} {MARK}".strip()}


def is_stopping() -> bool:
    """Whether a signal has stopped this process, which only cleans up from then on."""
    return _stopped_at is not None


def stop_on_signals() -> None:
    """Let Ctrl-C, SIGTERM and SIGHUP end all processes that were started, and raise KeyboardInterrupt.

    A second one ends this process at once. Those that are ignored, as `nohup` and a shell's `&` have it, stay so.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


def _stop(number: int, _frame: object) -> None:
    global _stopped_at  # noqa: PLW0603 # the state of the process: when a signal stopped it
    now = time.monotonic()
    if _stopped_at is None:
        _stopped_at = now
        end_all(MARK)
        raise KeyboardInterrupt(signal.Signals(number).name)
    if now - _stopped_at > ONE_STOP_S:
        end_all(MARK)
        os._exit(128 + signal.SIGINT)


def end_all(mark: str) -> None:
    """Kill the processes that have a mark, their descendants, and the sessions that they began, until none is left."""
    killed: set[int] = set()
    while victims := _victims(mark) - killed:
        for pid in victims:
            with contextlib.suppress(OSError):  # it has ended, or belongs to another user
                os.kill(pid, signal.SIGKILL)
        killed |= victims


def _victims(mark: str) -> set[int]:
    """Return the processes to kill; never this one, nor one of its own session."""
    found: dict[int, tuple[int, int]] = {}
    victims: set[int] = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (ids := _parent_and_session(folder)):
            pid = int(folder.name)
            found[pid] = ids
            if _has_mark(folder, mark):
                victims.add(pid)
    here = {0, os.getsid(0)}
    sessions = {found[pid][1] for pid in victims} - here
    size = -1
    while size != len(victims):
        size = len(victims)
        victims |= {pid for pid, (parent, session) in found.items() if parent in victims or session in sessions}
    return victims - {os.getpid()}


def _parent_and_session(folder: Path) -> tuple[int, int] | None:
    """Return the pids of a process's parent and of the leader of its session; None where it is a zombie or gone."""
    try:
        content = (folder / "stat").read_bytes()
        state, parent, _group, session = content.rpartition(b")")[2].split()[:4]
    except (OSError, ValueError):
        return None
    return None if state == b"Z" else (int(parent), int(session))


def _has_mark(folder: Path, mark: str) -> bool:
    try:
        entries = (folder / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    prefix = f"{VARIABLE}=".encode()
    return any(entry.startswith(prefix) and mark.encode() in entry for entry in entries)


def _start_watchdog() -> None:
    """Start what ends the marked processes once this process is gone: then the pipe to it is at its end."""
    global _watchdog  # noqa: PLW0603 # one for each process
    if _watchdog is None or _watchdog.poll() is not None:
        _watchdog = subprocess.Popen(
            (sys.executable, "-I", "-S", str(Path(__file__).resolve()), MARK),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=os.environ,
            start_new_session=True,
        )
        atexit.register(_dismiss, _watchdog)


def _dismiss(watchdog: subprocess.Popen[bytes]) -> None:
    """Let the watchdog end: what a setup command left running on purpose stays, unless a signal stopped the run."""
    if watchdog.stdin is not None:
        try:
            if not is_stopping():
                watchdog.stdin.write(b"done")
            watchdog.stdin.close()
        except OSError:  # something has killed it
            pass
    watchdog.wait()


def _watch(mark: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if sys.stdin.buffer.read() != b"done":
        end_all(mark)


if __name__ == "__main__":
    _watch(sys.argv[1])
