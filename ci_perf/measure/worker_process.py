"""The worker process from the outside: sends requests, and turns every way in which it can die into a Failure."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from ci_perf.measure import proc, process_tracking
from ci_perf.values.errors import MachineError
from ci_perf.values.job import Job
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.measurement import Failure

WORKER = Path(__file__).resolve().parent.parent / "worker.py"
START_TIMEOUT_S = 120.0
_TAIL = 4000
"""Characters that a failure quotes of the begin and of the end of a worker's stderr."""
_READ = 1 << 20
"""Bytes of its begin and of its end that are read."""
_NOT_THE_KERNEL = (f'  File "{WORKER}"', f'  File "{WORKER.parent / "userside"}/', "Extension modules: ")
"""How the lines of Python's fault report begin that say nothing of a kernel."""


def command(python: str, printed: Path, *more: str) -> tuple[str, ...]:
    """Return the command line of a worker; `printed` takes what kernels print to stdout."""
    return (python, "-u", str(WORKER), "--printed", str(printed), *more)


def entry_request(spec: KernelSpec, root: Path) -> dict[str, Any]:
    """Return the part of a request that says what is imported for a kernel, and how."""
    uses = {"path": spec.path_in(root), "env": spec.env_in(root), "imports": spec.package.imports}
    named = {"uses": {**uses, "root": str(root)}} if any(uses.values()) else {}
    return {"entry": str(root / spec.folder / spec.entry), **named}


def job_request(job: Job, root: Path) -> dict[str, Any]:
    """Return the part of a request that says which case is meant, of the kernels below `root`."""
    return {
        **entry_request(job.spec, root),
        "params": dict(job.params),
        "device": job.device,
        "target": job.target,
        "seed": job.seed,
        "rng": job.spec.rng,
        "tolerance": job.spec.tolerances(job.params),
    }


@dataclass(slots=True)
class _Running:
    """A process of a worker."""

    process: subprocess.Popen[bytes]
    unread: int
    """How many answers that were not waited for are still to come: those to its start and to `imported`."""
    buffer: bytes = b""
    """What it wrote of its next answer."""


class Worker:
    """A process that answers each request from a fork of itself; started at the first request.

    A request that exceeds its time limit ends the whole process, and the next request starts another, or goes to one
    that was started ahead.
    """

    def __init__(
        self, python: str, env: Mapping[str, str], logs: Path, name: str = "worker", cwd: Path | None = None
    ) -> None:
        self._cwd = cwd
        self.python = python
        self.env = dict(env)
        self._stderr = logs / f"{name}.stderr.txt"
        self._printed = logs / f"{name}.stdout.txt"
        self._running: _Running | None = None
        self._ahead: list[_Running] = []
        """Processes that take the place of the one that runs when that has ended."""
        self._asked: dict[str, Any] = {}
        self._offset = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any] | Failure:
        """Send a request and return its answer, or why there is none."""
        self.send(request)
        return self.receive(timeout_s)

    def begin(self) -> None:
        """Start the process without waiting for it: importing torch takes seconds, and several can do it at once.

        Linux ends the process together with the thread that started it (`userside.processes.die_with_parent`).
        """
        self._begun()

    @property
    def is_begun(self) -> bool:
        """Whether the next request goes to a process that was started before."""
        return self._running is not None

    def wait(self) -> None:
        """Wait until the process has started; MachineError."""
        self._started()

    def preload(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Let the process import kernels (`entry_request`) while it has nothing else to do; waits for nothing."""
        _write(self._begun().process, *_preloads(entries))

    def start_ahead(self, count: int, entries: Iterable[Mapping[str, Any]]) -> None:
        """Start further processes, up to so many that wait, and let them import kernels; waits for nothing.

        Call `wait_ahead` before anything is measured: they use the CPU until they have imported.
        """
        requests = [*_preloads(entries), {"op": "imported"}]
        for _ in range(count - len(self._ahead)):
            started = self._launch()
            started.unread += 1
            _write(started.process, *requests)
            self._ahead.append(started)

    def wait_ahead(self) -> int:
        """Wait until the processes that were started ahead have imported their kernels; return how many there are.

        Those that failed are left out: the failure comes again, and is told, when the kernel is asked for.
        """
        failed = [started for started in self._ahead if not self._has_started(started)]
        for started in failed:
            self._ahead.remove(started)
            _end(started)
        return len(self._ahead)

    def send(self, request: Mapping[str, Any]) -> None:
        """Send a request without waiting; `receive` must follow before the next one."""
        process = self._started().process
        self._asked = dict(request)
        self._offset = self._stderr.stat().st_size if self._stderr.exists() else 0  # the folder may have been removed
        _write(process, request)

    def receive(self, timeout_s: float) -> dict[str, Any] | Failure:
        """Return the answer to what was sent, or why there is none."""
        if self._running is None:
            raise RuntimeError("nothing was sent")
        stage = str(self._asked["op"])
        try:
            answer = self._read(self._running, time.monotonic() + timeout_s)
        except BaseException:
            self.close()
            raise
        if answer is not None and answer["ok"]:
            return answer
        if answer is not None:
            detail = "\n".join(part for part in (answer["detail"], self._tail()) if part)
            return Failure(stage, answer["code"], answer["message"], detail)
        failure = self._died(self._running.process, stage, timeout_s)
        self.end()
        return failure

    def kill(self) -> None:
        """Kill the process; another thread that waits for its answer gets a Failure."""
        if self._running is not None:
            proc.kill_group(self._running.process)

    def end(self) -> None:
        """End the process and all that it started; the next request goes to one started ahead, or to a new one."""
        if self._running is not None:
            running, self._running = self._running, None
            _end(running)

    def close(self) -> None:
        """End all processes of the worker and everything that they started."""
        self.end()
        while self._ahead:
            _end(self._ahead.pop())

    def _begun(self) -> _Running:
        if self._running is None:
            self._running = self._ahead.pop(0) if self._ahead else self._launch()
        return self._running

    def _launch(self) -> _Running:
        """Start a process, which imports torch."""
        try:
            self._stderr.parent.mkdir(parents=True, exist_ok=True)
            with self._stderr.open("ab") as stderr:
                process = subprocess.Popen(
                    command(self.python, self._printed),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    env=process_tracking.tracked(self.env),
                    cwd=self._cwd,
                    start_new_session=True,
                    bufsize=0,
                )
        except OSError as error:
            raise MachineError(
                f"cannot start the interpreter `{self.python}`: {error.strerror}", hint="name another with --python"
            ) from None
        _write(process, {"op": "hello", "cuda": False})
        return _Running(process, unread=1)

    def _started(self) -> _Running:
        """Return the process once it has imported torch: that is not counted against a case's time limit."""
        running = self._begun()
        if not self._has_started(running):
            tail = self._tail()
            self.close()
            raise MachineError(
                f"the worker did not start under `{self.python}`", hint=tail.splitlines()[-1] if tail else ""
            )
        return running

    def _has_started(self, running: _Running) -> bool:
        """Read the answers that were not waited for; return whether they came."""
        while running.unread:
            answer = self._read(running, time.monotonic() + START_TIMEOUT_S)
            if answer is None or not answer["ok"]:
                return False
            running.unread -= 1
        return True

    def _read(self, running: _Running, deadline: float) -> dict[str, Any] | None:
        """Return the next answer, or None where the process died or the deadline passed."""
        stdout = _pipe(running.process.stdout)
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while b"\n" not in running.buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return None
                chunk = os.read(stdout.fileno(), 1 << 16)
                if not chunk:
                    if process_tracking.is_stopping():  # it was killed: that is no failure of a case
                        raise process_tracking.stopped()
                    return None
                running.buffer += chunk
        line, running.buffer = running.buffer.split(b"\n", 1)
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or "ok" not in answer:
            message = "something wrote into the worker's answers"
            if running is self._running:
                self.end()  # whatever comes next belongs to no request
            return {"ok": False, "code": "crashed", "message": message, "detail": repr(line[:200])}
        return answer

    def _died(self, process: subprocess.Popen[bytes], stage: str, timeout_s: float) -> Failure:
        """Say why the process itself, not only its fork, gives no answer."""
        try:
            status = process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return Failure(stage, "timeout", f"no answer within {timeout_s:g} s; the process was killed", self._tail())
        ended = f"the worker ended with {proc.signal_name(status)}"
        if status == -signal.SIGKILL:
            return Failure(stage, "out-of-memory", f"{ended}: most often the system ran out of memory", self._tail())
        return Failure(stage, "crashed", ended, self._tail())

    def _tail(self) -> str:
        try:
            with self._stderr.open("rb") as log:
                log.seek(self._offset)
                begin = log.read(_READ)
                log.seek(max(log.tell(), os.fstat(log.fileno()).st_size - _READ))
                return told((begin + log.read()).decode("utf-8", "replace"))
        except FileNotFoundError:  # the folder was removed
            return ""


def rest(*workers: Worker) -> None:
    """End the fork of the last case of each worker, which may hold memory on the GPU; all of them at the same time."""
    begun = [worker for worker in workers if worker.is_begun]
    try:
        for worker in begun:
            worker.send({"op": "rest"})
        for worker in begun:
            worker.receive(START_TIMEOUT_S)
    except BaseException:
        for worker in begun:
            worker.close()  # the next request would get an answer that was not read
        raise


def told(stderr: str) -> str:
    """Return what a worker wrote on stderr, shortened, without what concerns ci-perf alone in Python's fault report.

    The report (faulthandler) names the kernel's frame first, then those of ci-perf that called it, then all extension
    modules.
    """
    lines = stderr.splitlines(keepends=True)
    text = "".join(line for line in lines if not line.startswith(_NOT_THE_KERNEL)).strip()
    return text if len(text) <= 2 * _TAIL else f"{text[:_TAIL]}\n...\n{text[-_TAIL:]}"


def _preloads(entries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"op": "preload", **entry} for entry in entries]


def _end(running: _Running) -> None:
    process = running.process
    proc.kill_group(process)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream:
            stream.close()


def _write(process: subprocess.Popen[bytes], *requests: Mapping[str, Any]) -> None:
    lines = b"".join(json.dumps(request).encode() + b"\n" for request in requests)
    with contextlib.suppress(BrokenPipeError):
        _pipe(process.stdin).write(lines)


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise RuntimeError("a worker is started with pipes")
    return stream
