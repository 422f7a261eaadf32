"""A fork server: processes that import an entry once (templates) and fork those that run its cases.

Kernels of one package, which name it in kernel.toml, have their templates forked from a process that has imported it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import sys
import threading
from typing import Any, Callable

from ci_perf.userside.answers import answer_all, reply
from ci_perf.userside.case import Request, load_entry, torch_or_none
from ci_perf.userside.compile_pool import NOTHING, CompilePool
from ci_perf.userside.device_queries import asked_in_forks
from ci_perf.userside.garbage import uncollected
from ci_perf.userside.package import needs_new_interpreter, take_effect
from ci_perf.userside.processes import Fork, Spawned, keep_open
from ci_perf.userside.stages import stage, take_spent
from ci_perf.userside.tuned import has_tuned

MOST_TEMPLATES = 32
"""Each template holds the memory that its entry allocates at import."""
_IMPORTED = '{"op": "imported"}\n'
_REST = '{"op": "rest"}\n'
_USABLE = "usable\n"


class _Reporting(Fork):
    """A process that first says whether its forks can use CUDA (`_reported_usable`), then answers requests."""

    _usable: bool | None = None

    def usable(self) -> bool:
        """Return whether its forks can use CUDA; waits until it has imported."""
        if self._usable is None:
            self._usable = self._answers.readline() == _USABLE
        return self._usable

    def ask(self, line: str) -> str:
        """Return the answer to a request."""
        self.usable()  # its first line is no answer
        return super().ask(line)


class Template(_Reporting):
    """A process that has imported an entry and forks the processes that run its cases: it is imported only once.

    If its forks cannot use CUDA, it runs the cases of one process itself, and the next needs another template.
    """

    def __init__(self, request: Request, *, tuned: bool = False) -> None:
        """`tuned` says that its parent has imported kernels that Triton tunes."""
        super().__init__(lambda requests, answers: serve_template(request, requests, answers, tuned=tuned))

    def imported(self) -> None:
        """Wait until it has imported the entry; end it if its forks cannot use CUDA: it may hold memory on the GPU."""
        if not self.usable():
            self.release()

    def compile(self, line: str) -> str:
        """Return the answer to `compile` or `compiled`; without forks that can use CUDA nothing is compiled ahead."""
        return self.ask(line) if self.usable() else json.dumps(NOTHING) + "\n"

    def rest(self) -> None:
        """End the process that it forked last, or itself."""
        if self.alive and self.usable():
            self.ask(_REST)
        else:
            self.release()


def serve_template(request: Request, requests: Any, answers: Any, *, tuned: bool = False) -> None:
    """Import an entry, report whether forks of this process can use CUDA, and answer each request from a fork."""
    if not _reported_usable(lambda: load_entry(request), answers):
        gc.freeze()
        answer_all(requests, answers)
        return

    def start(_: Request) -> Fork:
        process = Fork()
        take_spent()  # the first process reports the time of the import
        return process

    answer_from_processes(requests, answers, start, CompilePool(tuned=tuned or has_tuned()).beside)


def _reported_usable(imports: Callable[[], object], answers: Any) -> bool:
    """Import something, and report whether forks of this process can use CUDA."""
    # Otherwise torch.cuda.is_available(), which many packages call at import, initialises the driver.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    # The process of the case gets an error, too, and reports it.
    with contextlib.suppress(Exception), stage("import"), asked_in_forks(), uncollected():
        imports()
        hash_triton()
    usable = not driver_initialized() and threading.active_count() == 1
    reply(answers, _USABLE if usable else "not usable\n")
    return usable


def hash_triton() -> None:
    """If Triton was imported, let it hash its own files: all forks have the result.

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


class ForkServer(Fork):
    """A worker within the worker, which has templates of its own."""

    is_given_up = False
    """Whether its packages cannot be imported before a fork."""

    def usable(self) -> bool:
        """Return whether it can be asked."""
        return self.alive

    def compile(self, line: str) -> str:
        """Return the answer to `compile` or `compiled`."""
        return self.ask(line)

    def rest(self) -> None:
        """End the process that it forked last."""
        if self.alive:
            self.ask(_REST)

    def imported(self) -> None:
        """Wait until it has imported what it was to preload."""
        if self.alive:
            self.ask(_IMPORTED)

    def preload(self, request: Request) -> None:
        """Let it begin to import an entry, unless its packages cannot be imported before a fork: then it has ended."""
        if not self.is_given_up:
            self.send(json.dumps({**request, "op": "preload"}) + "\n")


class WithVariables(Spawned, ForkServer):
    """A new interpreter, for kernels whose variables are read when an interpreter or torch starts."""

    more: tuple[str, ...] = ("--fork",)


class WithPackages(_Reporting, ForkServer):
    """A fork that has imported the packages of kernels, which are imported only once for all of them."""

    def __init__(self, printed: str, uses: dict[str, Any]) -> None:
        """`uses` are the packages and variables (`userside.package`), `printed` is the path of the log of stdout."""
        super().__init__(lambda requests, answers: serve_packages(uses, requests, answers, printed))

    def usable(self) -> bool:
        """Return whether its forks can use CUDA; waits until it has imported the packages. If not, it has ended."""
        if not super().usable():
            self.is_given_up = True
            self.release()
        return self.alive

    def imported(self) -> None:
        """Wait until it has imported what it was to preload."""
        if self.usable():
            super().imported()


def serve_packages(uses: dict[str, Any], requests: Any, answers: Any, printed: str) -> None:
    """Import packages, report whether forks of this process can use CUDA, and if so answer requests from templates."""

    def imports() -> None:
        take_effect(uses)
        for name in uses["imports"]:
            importlib.import_module(name)

    if _reported_usable(imports, answers):
        templates = Templates(printed, has_variables=True, has_packages=True, tuned=has_tuned())
        answer_from_processes(requests, answers, templates.start, templates.beside)
        templates.release()


class Templates:
    """The templates of a worker, by entry, and its fork servers for kernels with packages or other variables."""

    def __init__(
        self, printed: str, *, has_variables: bool = False, has_packages: bool = False, tuned: bool = False
    ) -> None:
        """`printed` is the path of the log of stdout.

        `has_variables` says that this process was started with the variables of a kernel, `has_packages` that it has
        imported its packages, `tuned` that these have kernels that Triton tunes: a template does not find them.
        """
        self._tuned = tuned
        torch = torch_or_none()
        self._used_cuda = torch is not None and torch.cuda.is_initialized()
        self._printed = printed
        self._has_variables = has_variables
        self._templates: dict[str, Template] = {}
        self._has_packages = has_packages
        self._servers: dict[str, ForkServer] = {}

    def start(self, request: Request) -> Fork:
        """Return a process that answers a request."""
        if self._used_cuda:
            return Spawned(self._printed, request.get("uses", {}).get("env", {}))
        if "entry" not in request:
            return Fork()
        server = self._server_of(request)
        return server if server is not None and server.usable() else self._template_of(request)

    def preload(self, request: Request) -> None:
        """Begin to import the entry of a request, without waiting for it."""
        if self._used_cuda:
            return
        server = self._server_of(request)
        if server is not None:
            server.preload(request)
        elif len(self._templates) < MOST_TEMPLATES:
            self._template_of(request)

    def imported(self) -> None:
        """Wait until what was to be preloaded is imported."""
        for template in self._templates.values():
            template.imported()
        for server in self._servers.values():
            server.imported()

    def beside(self, line: str) -> str | None:
        """Answer a request that concerns imports or compiling ahead; None for any other."""
        request = json.loads(line)
        if request["op"] == "preload":
            self.preload(request)
            return ""
        if request["op"] == "imported":
            self.imported()
            return '{"ok": true}\n'
        return self._compile(line, request) if request["op"] in ("compile", "compiled") else None

    def _compile(self, line: str, request: Request) -> str:
        """Compile ahead in the process that has imported the entry."""
        process = self.start(request) if not self._used_cuda else None
        return process.compile(line) if isinstance(process, (Template, ForkServer)) else json.dumps(NOTHING) + "\n"

    def release(self) -> None:
        """Let all of them end."""
        for process in (*self._templates.values(), *self._servers.values()):
            process.release()

    def _server_of(self, request: Request) -> ForkServer | None:
        """Return the fork server for the variables or packages of a kernel; None for one that has neither.

        One that has ended is replaced, unless its packages cannot be imported before a fork.
        """
        uses = request.get("uses", {})
        if not self._has_variables and needs_new_interpreter(uses):
            return self._server(
                json.dumps(uses["env"], sort_keys=True), lambda: WithVariables(self._printed, uses["env"])
            )
        if not self._has_packages and uses.get("imports"):
            return self._server(json.dumps(uses, sort_keys=True), lambda: WithPackages(self._printed, uses))
        return None

    def _server(self, key: str, start: Callable[[], ForkServer]) -> ForkServer:
        if key not in self._servers or not (self._servers[key].alive or self._servers[key].is_given_up):
            self._servers[key] = start()
        return self._servers[key]

    def _template_of(self, request: Request) -> Template:
        entry = request["entry"]
        if entry in self._templates and not self._templates[entry].alive:
            del self._templates[entry]
        if entry not in self._templates:
            if len(self._templates) == MOST_TEMPLATES:
                self._templates.pop(next(iter(self._templates))).release()
            self._templates[entry] = Template(request, tuned=self._tuned)
            take_spent()  # the first template reports the time of the packages
        return self._templates[entry]


def serve(requests: Any, answers: Any, printed: str, *, has_variables: bool = False) -> None:
    """Answer each request from a new process, or from the last one if the request says `same`; see `Templates`."""
    keep_open(requests, answers)
    templates = Templates(printed, has_variables=has_variables)
    answer_from_processes(requests, answers, templates.start, templates.beside)
    templates.release()


def answer_from_processes(
    requests: Any,
    answers: Any,
    start: Callable[[Request], Fork],
    beside: Callable[[str], str | None],
) -> None:
    """Answer each request from the process that `start` returns for it, or from the last one if it says `same`.

    `beside` answers those that no process of a case answers, and returns None for all others; empty: without an answer.
    """
    gc.freeze()  # the garbage collector of a fork need not visit what existed before
    process: Fork | None = None
    for line in requests:
        request = json.loads(line)
        if process is not None and request["op"] == "compile":  # which needs the memory of the last case
            process.rest()
            process = None
        answer = beside(line)
        if answer is None and (process is None or not process.alive or not request.get("same")):
            if process is not None:
                process.rest()
            process = None if request["op"] == "rest" else start(request)
        if answer is None:
            answer = '{"ok": true}\n' if process is None else process.ask(line)
        reply(answers, answer)
    if process is not None:
        process.release()
