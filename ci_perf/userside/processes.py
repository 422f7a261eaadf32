"""The processes that answer a worker's requests: forks, and new interpreters where a fork cannot use CUDA."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import sys
import threading
import traceback
from typing import Any, Callable

from ci_perf.userside.answers import answer_all, reply
from ci_perf.userside.case import Answer, Request, load_entry, torch_or_none
from ci_perf.userside.package import needs_new_interpreter
from ci_perf.userside.stages import stage, take_spent

WORKER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "worker.py")
MOST_TEMPLATES = 32
"""Each template holds the memory that its entry allocates at import."""
_USABLE = "usable\n"
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
        self._pipes = {request_out, answer_in}
        _STREAMS.update(self._pipes)
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
        with contextlib.suppress(BrokenPipeError):
            self._requests.write(line)
            self._requests.flush()
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

    def release(self) -> int:
        """Let it end, and return its wait status."""
        if not self._pid:
            return 0
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        self._answers.close()
        _STREAMS.difference_update(self._pipes)
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        return status


class Template(Fork):
    """A process that has imported an entry and forks the processes that run its cases: it is imported only once."""

    def __init__(self, request: Request) -> None:
        super().__init__(lambda requests, answers: serve_template(request, requests, answers))
        self._usable: bool | None = None

    @property
    def usable(self) -> bool:
        """Whether its forks can use CUDA; waits until it has imported the entry."""
        if self._usable is None:
            self._usable = self._answers.readline() == _USABLE
        return self._usable

    def rest(self) -> None:
        """End the process that it forked last."""
        if self.alive:
            self.ask('{"op": "rest"}\n')


def serve_template(request: Request, requests: Any, answers: Any) -> None:
    """Import an entry, report whether forks of this process can use CUDA, and answer each request from a fork."""
    # Otherwise torch.cuda.is_available(), which many packages call at import, initialises the driver.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    with contextlib.suppress(Exception), stage("import"):  # the process of the case gets the error too, and reports it
        load_entry(request)
        hash_triton()
    usable = not driver_initialized() and threading.active_count() == 1
    reply(answers, _USABLE if usable else "not usable\n")
    if usable:

        def start(_: Request) -> Fork:
            process = Fork()
            take_spent()  # the first process reports the time of the import
            return process

        answer_from_processes(requests, answers, start)


def hash_triton() -> None:
    """If Triton was imported, let it hash its own files, which takes 0.8 s: all forks have the result.

    Each first launch needs the hash as a part of the key of compiled code. Triton 3.0 to 3.5 has it in another module.
    """
    if "triton" not in sys.modules:
        return
    for place in ("triton.runtime.cache", "triton.compiler.compiler"):
        with contextlib.suppress(Exception):
            importlib.import_module(place).triton_key()
            return


def driver_initialized() -> bool:
    """Return whether this process has initialised CUDA, through torch or otherwise."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return True
    with open("/proc/self/maps") as maps:
        if not any("libcuda.so" in line for line in maps):
            return False
    count = ctypes.c_int()
    not_initialized = 3  # CUDA_ERROR_NOT_INITIALIZED
    return bool(ctypes.CDLL("libcuda.so.1").cuDeviceGetCount(ctypes.byref(count)) != not_initialized)


class Spawned(Fork):
    """A new interpreter in place of a fork: for an import that has initialised CUDA or started threads."""

    def __init__(self, printed: str, env: dict[str, str] | None = None) -> None:
        """Start it; `printed` is the path of the log of its stdout, `env` is added to the environment."""
        self._printed = printed
        self._env = env or {}
        super().__init__()

    def _start(self, request_in: int, answer_out: int) -> int:
        files = ("--requests", f"/dev/fd/{request_in}", "--answers", f"/dev/fd/{answer_out}")
        argv = [sys.executable, "-u", WORKER, "--printed", self._printed, *files]
        for stream in (request_in, answer_out):
            os.set_inheritable(stream, True)
        return os.posix_spawn(sys.executable, argv, {**os.environ, **self._env})


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


class Templates:
    """The templates of a worker, by entry."""

    def __init__(self, printed: str) -> None:
        """`printed` is the path of the log of stdout."""
        torch = torch_or_none()
        self._used_cuda = torch is not None and torch.cuda.is_initialized()
        self._printed = printed
        self._templates: dict[str, Template] = {}

    def start(self, request: Request) -> Fork:
        """Return a process that answers a request."""
        entry = request.get("entry")
        if self._used_cuda or needs_new_interpreter(request.get("uses", {})):
            return Spawned(self._printed, request.get("uses", {}).get("env", {}))
        if entry is None:
            return Fork()
        template = self._template_of(request)
        if template.usable and template.alive:
            return template
        template.release()
        return Fork() if template.usable else Spawned(self._printed)

    def preload(self, request: Request) -> None:
        """Begin to import the entry of a request, without waiting for it."""
        usable = not self._used_cuda and not needs_new_interpreter(request.get("uses", {}))
        if usable and len(self._templates) < MOST_TEMPLATES:
            self._template_of(request)

    def release(self) -> None:
        """Let all of them end."""
        for template in self._templates.values():
            template.release()

    def _template_of(self, request: Request) -> Template:
        entry = request["entry"]
        if entry not in self._templates:
            if len(self._templates) == MOST_TEMPLATES:
                self._templates.pop(next(iter(self._templates))).release()
            self._templates[entry] = Template(request)
        return self._templates[entry]


def serve(requests: Any, answers: Any, printed: str) -> None:
    """Answer each request from a new process, or from the last one if the request says `same`."""
    _STREAMS.update((requests.fileno(), answers.fileno()))
    templates = Templates(printed)
    answer_from_processes(requests, answers, templates.start, templates.preload)
    templates.release()


def answer_from_processes(
    requests: Any,
    answers: Any,
    start: Callable[[Request], Fork],
    preload: Callable[[Request], object] = lambda _: None,
) -> None:
    """Answer each request from the process that `start` returns for it, or from the last one if it says `same`.

    A request to preload an entry has no answer.
    """
    gc.freeze()  # the garbage collector of a fork need not visit what existed before
    process: Fork | None = None
    for line in requests:
        request = json.loads(line)
        if request["op"] == "preload":
            preload(request)
            continue
        if process is None or not process.alive or not request.get("same"):
            if process is not None:
                process.rest()
            process = None if request["op"] == "rest" else start(request)
        reply(answers, '{"ok": true}\n' if process is None else process.ask(line))
    if process is not None:
        process.release()


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent ends."""
    with contextlib.suppress(Exception):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG of sys/prctl.h


def keep_memory() -> None:
    """Make glibc keep freed memory, in this process and its forks.

    Otherwise glibc may return large blocks to Linux and get them back page fault by page fault, depending on the layout
    of the heap, which forks inherit: a kernel on the CPU then took twice the time in some workers and not in others.
    """
    trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
    with contextlib.suppress(Exception):
        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_threshold, 32 << 20)  # the largest value that glibc accepts
        libc.mallopt(trim_threshold, (1 << 31) - 1)
