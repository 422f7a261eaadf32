"""The processes that answer a worker's requests: forks, and new interpreters where a fork cannot use CUDA."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import traceback
from typing import Any, Callable

from ci_perf.userside.answers import answer_all
from ci_perf.userside.case import Answer

WORKER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "worker.py")
_STREAMS: set[int] = set()
"""File descriptors of the streams of this process, and of its pipes to its forks.

Each fork closes them: a stream that another process has open is not at its end when its writer dies.
"""


class Fork:
    """A fork of this process that answers requests until it is released."""

    def __init__(self, body: Callable[[Any, Any], None] = answer_all) -> None:
        """Start it; `body` reads its requests and writes its answers."""
        self._body = body
        request_in, request_out = os.pipe()
        answer_in, answer_out = os.pipe()
        _STREAMS.update((request_out, answer_in))
        self._pid = self._start(request_in, answer_out)
        os.close(answer_out)
        os.close(request_in)
        self._requests = os.fdopen(request_out, "w")
        self._answers = os.fdopen(answer_in)

    def _start(self, request_in: int, answer_out: int) -> int:
        """Start the process and return its pid."""
        pid = os.fork()
        if pid:
            return pid
        die_with_parent()
        for stream in _STREAMS:
            os.close(stream)
        _STREAMS.clear()
        _STREAMS.update((request_in, answer_out))
        try:
            with os.fdopen(answer_out, "w") as answers, os.fdopen(request_in) as requests:
                self._body(requests, answers)
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        except BaseException:  # it must not propagate into the frames of the parent process
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def ask(self, line: str) -> str:
        """Return its answer as a line; if it dies before it answers, how it died."""
        self.send(line)
        return self.receive()

    def send(self, line: str) -> None:
        """Send a request without waiting; `receive` must follow before the next one."""
        with contextlib.suppress(BrokenPipeError):
            self._requests.write(line)
            self._requests.flush()

    def fileno(self) -> int:
        """Return the descriptor that can be read once there is an answer."""
        return self._answers.fileno()

    def receive(self) -> str:
        """Return the answer to what was sent, as a line; if it dies before it answers, how it died."""
        answer = self._answers.readline()
        if answer.endswith("\n"):
            return answer
        status = self.release()
        return json.dumps({"ok": False, "detail": "", **cause_of_death(status)}) + "\n"

    @property
    def alive(self) -> bool:
        """Whether it can still answer."""
        return self._pid != 0

    def rest(self) -> None:
        """Free everything that it holds on the GPU."""
        self.release()

    def close_requests(self) -> None:
        """Send no further request: it ends when it has answered."""
        if self._requests.closed:
            return
        _STREAMS.discard(self._requests.fileno())
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()

    def kill(self) -> None:
        """Kill it, in the middle of whatever it does."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
        self.release()

    def release(self) -> int:
        """Let it end, and return its wait status."""
        if not self._pid:
            return 0
        self.close_requests()
        _STREAMS.discard(self._answers.fileno())
        self._answers.close()
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        return status


class Spawned(Fork):
    """A new interpreter in place of a fork, where the worker itself has initialised CUDA."""

    more: tuple[str, ...] = ()
    """Further arguments of the worker."""

    def __init__(self, printed: str, env: dict[str, str] | None = None) -> None:
        """Start it; `printed` is the path of the log of its stdout, `env` is added to the environment."""
        self._printed = printed
        self._env = env or {}
        super().__init__()

    def _start(self, request_in: int, answer_out: int) -> int:
        files = ("--requests", f"/dev/fd/{request_in}", "--answers", f"/dev/fd/{answer_out}")
        argv = [sys.executable, "-u", WORKER, "--printed", self._printed, *files, *self.more]
        for stream in (request_in, answer_out):
            os.set_inheritable(stream, True)
        return os.posix_spawn(sys.executable, argv, {**os.environ, **self._env})


def keep_open(*streams: Any) -> None:
    """Note streams of this process that its forks must close."""
    _STREAMS.update(stream.fileno() for stream in streams)


def cause_of_death(status: int) -> Answer:
    """Return the reason code and message of a wait status."""
    if not os.WIFSIGNALED(status):
        return {"code": "exited", "message": f"the process ended with exit status {os.WEXITSTATUS(status)}"}
    number = os.WTERMSIG(status)
    if number == signal.SIGKILL:
        message = "the process was killed by SIGKILL: most often the system ran out of memory"
        return {"code": "out-of-memory", "message": message}
    names = {int(known): known.name for known in signal.Signals}  # real-time signals have none
    return {"code": "crashed", "message": f"the process ended with {names.get(number, f'signal {number}')}"}


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent ends."""
    with contextlib.suppress(Exception):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG of sys/prctl.h


def keep_memory() -> None:
    """Make glibc keep freed memory, in this process and its forks.

    Otherwise glibc may return large blocks to Linux and get them back page fault by page fault, depending on the layout
    of the heap, which forks inherit: kernels on the CPU then took longer in some workers than in others.
    """
    trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
    with contextlib.suppress(Exception):
        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_threshold, 32 << 20)  # the largest value that glibc accepts
        libc.mallopt(trim_threshold, (1 << 31) - 1)
