"""Ends the processes that ci-perf starts, and all that those start: when it is stopped, killed, or has measured.

A daemon leaves its process group and its parent, so a signal to the group does not reach it. It is found in two ways:

- Each process inherits a tracking id in its environment, whatever it forks and whichever session it begins; Jenkins and
  GitHub's runner find the processes of a job in the same way. A watchdog, which is this file started as a program, ends
  these processes where ci-perf itself was killed.
- A process whose parent has ended becomes a child of the nearest ancestor that asked for orphans (`man 2
  PR_SET_CHILD_SUBREAPER`): it stays a descendant of the process that called `adopt_orphans`, even with an empty
  environment.

Standard library only, as the watchdog is started without packages.
"""

import atexit
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

VARIABLE = "CI_PERF_TRACKING_ID"
TRACKING_ID = uuid.uuid4().hex
"""Of the processes that this process starts."""
_ONE_STOP_S = 0.3
"""Signals so close together are one: `timeout` and wrappers send one to the process and another to its group."""
_STOP_S = 1.0
"""How long a stopped ci-perf waits for the processes that it killed. One with memory on a GPU takes a while to end."""
_END_S = 30.0
"""The same after a measurement. A process that forks faster than it is killed is not ended."""
_PR_SET_CHILD_SUBREAPER = 36
"""Of sys/prctl.h."""
_watchdog: subprocess.Popen[bytes] | None = None
_stopped_at: float | None = None
_stopped_by = ""
"""The name of the signal."""


def tracked(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with the tracking id, and start the watchdog if there is none yet.

    The ids of a ci-perf that started this one stay.
    """
    _start_watchdog()
    outer = os.environ.get(VARIABLE, "")
    return {**env, VARIABLE: f"{outer} {TRACKING_ID}".strip()}


def is_stopping() -> bool:
    """Whether a signal has stopped this process, which only cleans up from then on."""
    return _stopped_at is not None


def stopped() -> KeyboardInterrupt:
    """Return the exception of the signal that has stopped this process, for what finds a process killed by `_stop`."""
    return KeyboardInterrupt(_stopped_by)


def stop_on_signals() -> None:
    """Let Ctrl-C, SIGTERM and SIGHUP end all processes that were started, and raise KeyboardInterrupt.

    A second one ends this process at once. Those that are ignored, as `nohup` and a shell's `&` have it, stay so.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


def _stop(number: int, _frame: object) -> None:
    global _stopped_at, _stopped_by  # the state of the process: when a signal stopped it
    now = time.monotonic()
    if _stopped_at is None:
        _stopped_at, _stopped_by = now, signal.Signals(number).name
        end_tracked(TRACKING_ID)
        raise stopped()
    if now - _stopped_at > _ONE_STOP_S:
        end_tracked(TRACKING_ID)
        os._exit(128 + signal.SIGINT)


def adopt_orphans() -> bool:
    """Become the parent of every descendant whose own parent ends; return whether Linux accepted this."""
    with contextlib.suppress(Exception):
        return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    return False


def end_tracked(tracking_id: str) -> None:
    """Kill the processes that have a tracking id, their descendants, and the sessions that they began."""
    _kill_all(lambda: _tracked_processes(tracking_id), _STOP_S)


def end_descendants() -> tuple[list[str], list[str]]:
    """Kill every descendant of this process; return the programs that were ended, and those that still run.

    Call it after every child that is waited for has ended: it takes the exit status of all others. A process of another
    user, such as one that sudo started, cannot be ended. Without /proc, nothing is done.
    """
    ended, alive = _kill_all(_descendants, _END_S)
    return sorted(ended.values()), sorted(alive.values())


class _Process(NamedTuple):
    """A process as /proc/PID/stat describes it; parent and session are numbers of processes."""

    name: str
    parent: int
    session: int


def _kill_all(find: Callable[[], dict[int, str]], limit_s: float) -> tuple[dict[int, str], dict[int, str]]:
    """Kill the processes that `find` returns until they have ended; return the killed ones, and those still there."""
    deadline = time.monotonic() + limit_s
    killed: dict[int, str] = {}
    while True:
        alive = find()
        dying = {pid: name for pid, name in alive.items() if _kill(pid)}
        killed |= dying
        if not dying or time.monotonic() > deadline:
            return killed, alive
        time.sleep(0.01)


def _kill(pid: int) -> bool:
    """Kill a process; return False for one of another user."""
    try:
        os.kill(pid, signal.SIGKILL)
    except PermissionError:
        return False
    except ProcessLookupError:
        pass
    return True


def _tracked_processes(tracking_id: str) -> dict[int, str]:
    """Return the names of the processes to kill; never this one, nor one that only shares its session."""
    found = _processes()
    chosen = {pid for pid in found if _has_id(pid, tracking_id)}
    sessions = {found[pid].session for pid in chosen} - {0, os.getsid(0)}
    chosen |= {pid for pid, process in found.items() if process.session in sessions}
    return _names_below(chosen, found)


def _descendants() -> dict[int, str]:
    """Return the names of the processes below this one; take the exit status of those that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return _names_below({os.getpid()}, _processes())


def _names_below(chosen: set[int], found: Mapping[int, _Process]) -> dict[int, str]:
    """Return the names of processes and all of their descendants, without this process."""
    below, size = set(chosen), -1
    while size != len(below):
        size = len(below)
        below |= {pid for pid, process in found.items() if process.parent in below}
    return {pid: found[pid].name for pid in below - {os.getpid()}}


def _processes() -> dict[int, _Process]:
    """Return the processes of the machine that have not ended; none without /proc."""
    found = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):  # it has ended
            head, _, fields = file.read_text(encoding="utf-8", errors="replace").rpartition(") ")
            pid, _, name = head.partition(" (")
            state, parent, _group, session = fields.split()[:4]
            if state not in "ZX":
                found[int(pid)] = _Process(name, int(parent), int(session))
    return found


def _has_id(pid: int, tracking_id: str) -> bool:
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    prefix = f"{VARIABLE}=".encode()
    return any(entry.startswith(prefix) and tracking_id.encode() in entry for entry in entries)


def _start_watchdog() -> None:
    """Start what ends the tracked processes once this process is gone: then the pipe to it is at its end."""
    global _watchdog  # noqa: PLW0603 # one for each process
    if _watchdog is None or _watchdog.poll() is not None:
        _watchdog = subprocess.Popen(
            (sys.executable, "-I", "-S", str(Path(__file__).resolve()), TRACKING_ID),
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


def _watch(tracking_id: str) -> None:
    """Wait until ci-perf has ended; where it has not said that it is done, end what it started."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if sys.stdin.buffer.read() != b"done":
        end_tracked(tracking_id)


if __name__ == "__main__":
    _watch(sys.argv[1])
