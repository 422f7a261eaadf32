"""Runs one kernel at a time inside the user's own interpreter; standard library only, Python 3.9 and newer.

Started by path, never imported by ci-perf: `python worker.py --printed LOG [--requests FILE --answers FILE]`. Requests
and answers are JSON, one object a line, over stdin and stdout unless files are named. The kernel never sees the stream
of the answers: file descriptor 1 is replaced, so what it prints lands in the log and cannot be taken for an answer.

Over pipes each request is answered by a fresh process, forked from one that has imported torch and the entry and has
not touched CUDA: its GPU context, its memory and its luck are its own, at a fraction of the cost of a new interpreter.
It stays alive, context and all, until the next request, which it answers itself where that says `same`. An entry whose
import touches CUDA or starts threads is imported by each process itself. With files, as a profiler needs it, one
process answers all.

Requests, each with `op`:
  hello     -> versions and the GPU of this interpreter
  verify    -> error against the reference, and the cost; with `strides`, inputs lie in memory as that says, and with
               `may_refuse` a ValueError is right too
  time      -> samples in seconds per launch, the method id, and from when to when (CLOCK_MONOTONIC) they were taken
  ready     -> the case warm and waiting, to be timed in turns with another process; the hash of what it launches
  alike     -> the same case with as many launches and placements as the other process has
  turn      -> this side's samples of one round
  rest      -> nothing holds memory on the GPU any more
  profile   -> launches inside an NVTX range, between cudaProfilerStart and Stop
  sanitize  -> one launch, for compute-sanitizer to watch
  trace     -> launches under torch's profiler, exported as a Chrome trace to the file `trace`;
               the local memory of the kernels whose loaders know it
All but hello, rest, alike and turn name `entry` (path of kernel.py), `params`, `device`, `target` (`launch` or
`reference`) and `seed`; alike and turn mean the case that is ready.
An answer holds `ok`; where that is false, also `code`, `message` and `detail`.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.metadata
import importlib.util
import json
import os
import platform
import signal
import sys
import threading
import traceback
from typing import Any, Callable, NamedTuple


def expose_package() -> None:
    """Make `ci_perf.cuda` importable for a kernel.py without putting ci-perf's own packages on the path."""
    folder = os.path.dirname(os.path.abspath(__file__))
    # Python puts the folder of a script first on the path, where our cuda.py would hide NVIDIA's `cuda` package.
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != folder]
    spec: Any = importlib.util.spec_from_file_location(
        "ci_perf", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    package = importlib.util.module_from_spec(spec)
    sys.modules["ci_perf"] = package
    spec.loader.exec_module(package)


if "ci_perf" not in sys.modules:
    expose_package()

from ci_perf.userside.case import Answer, Case, Request, Wrong, code_of, load_entry, torch_or_none  # noqa: E402
from ci_perf.userside.stages import stage, take_spent  # noqa: E402
from ci_perf.userside.stopwatch import alike, measure, ready, turn  # noqa: E402
from ci_perf.userside.verify import verify  # noqa: E402

# --- profile ---------------------------------------------------------------------------------------------------------


def profile(request: Request) -> Answer:
    """Launch a few times inside an NVTX range that only holds what counts."""
    import torch

    nvtx = nvtx_functions(request.get("nsys"))
    case = warm_case(request)
    torch.cuda.profiler.start()
    # Start/end, so that the launches of other threads count, as autograd has them. ncu is known to report push/pop.
    opened = nvtx.start(request["range"])
    if "ncu" in request:
        nvtx.push(request["range"])
    for _ in range(request["launches"]):
        case.launch()
    case.synchronize()
    if "ncu" in request:
        nvtx.pop()
    nvtx.end(opened)
    torch.cuda.profiler.stop()
    return {"launches": request["launches"]}


def sanitize(request: Request) -> Answer:
    """Launch once: under compute-sanitizer that takes as long as thousands of launches."""
    case = Case(request)
    case.launch()
    case.synchronize()
    return {"launches": 1}


def warm_case(request: Request) -> Case:
    """Return a case that has compiled, tuned and allocated, with nothing left to do for the GPU."""
    case = Case(request)
    for _ in range(2):
        case.launch()
    case.synchronize()
    return case


class Nvtx(NamedTuple):
    """What opens and closes NVTX ranges: `start` and `end` for all threads, `push` and `pop` for one."""

    start: Callable[[str], Any]
    end: Callable[[Any], Any]
    push: Callable[[str], Any]
    pop: Callable[[], Any]


def nvtx_functions(nsys: str | None) -> Nvtx:
    """Return torch's own functions for NVTX, else those of the package `nvtx`.

    That package is independent of torch, and of its versions from 0.2.13 on an older nsys records nothing.
    """
    import torch

    with contextlib.suppress(RuntimeError, AttributeError):  # a torch that was built without NVTX has stand-ins
        own = torch.cuda.nvtx
        own.range_end(own.range_start("ci-perf: is NVTX there?"))
        return Nvtx(own.range_start, own.range_end, own.range_push, own.range_pop)
    if importlib.util.find_spec("nvtx") is None:
        raise Wrong("raised", "no NVTX: this torch was built without it, and the package `nvtx` is not installed")
    version = importlib.metadata.version("nvtx")
    if numbers(version) >= (0, 2, 13) and nsys is not None and numbers(nsys) < (2025,):
        raise Wrong("raised", f"nsys {nsys} sees no range of nvtx {version}: use nvtx 0.2.11 or nsys 2025 and newer")
    import nvtx

    return Nvtx(nvtx.start_range, nvtx.end_range, nvtx.push_range, nvtx.pop_range)


def numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (2025, 3) of "2025.3.beta"."""
    found = []
    for part in version.split("."):
        if not part.isdigit():
            break
        found.append(int(part))
    return tuple(found)


def trace(request: Request) -> Answer:
    """Launch a few times under torch's own profiler and export what it saw as a Chrome trace."""
    import torch

    case = warm_case(request)
    kinds = torch.profiler.ProfilerActivity
    activities = [kinds.CPU, kinds.CUDA] if case.device == "cuda" else [kinds.CPU]
    with torch.profiler.profile(activities=activities) as profiler, torch.profiler.record_function(request["range"]):
        for _ in range(request["launches"]):
            case.launch()
        case.synchronize()
    profiler.export_chrome_trace(request["trace"])
    return {"launches": request["launches"], "local_bytes": local_bytes()}


def local_bytes() -> dict[str, int]:
    """Return the local memory of a thread, which a trace lacks, of the kernels whose loaders know it."""
    cuda, triton = sys.modules.get("ci_perf.cuda"), sys.modules.get("triton")
    sizes: dict[str, int] = {}
    with contextlib.suppress(Exception):  # an answer without them is an answer too
        sizes.update(cuda.local_bytes() if cuda else {})
    for found in gc.get_objects() if triton else ():
        if type(found).__name__ == "CompiledKernel" and isinstance(getattr(found, "n_spills", None), int):
            sizes[str(found.metadata.name)] = 4 * found.n_spills  # Triton counts registers
    return sizes


# --- the loop --------------------------------------------------------------------------------------------------------


def hello(request: Request) -> Answer:
    """Describe this interpreter and, where `cuda` is asked about, the GPU that it sees first."""
    torch = torch_or_none()
    answer: Answer = {"python": platform.python_version(), "torch": None, "cuda": None, "gpu": None, "packages": {}}
    for name in ("triton", "cuda-core", "cuda-bindings", "numpy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            answer["packages"][name] = importlib.metadata.version(name)
    if torch is None:
        return answer
    answer["torch"] = torch.__version__
    answer["cuda"] = torch.version.cuda
    if request.get("cuda", True) and torch.cuda.is_available():
        gpu = torch.cuda.get_device_properties(0)
        answer["gpu"] = {
            "name": gpu.name,
            "uuid": str(getattr(gpu, "uuid", "")),
            "compute_capability": f"{gpu.major}.{gpu.minor}",
            "sm_count": gpu.multi_processor_count,
            "memory_bytes": gpu.total_memory,
            "l2_bytes": getattr(gpu, "L2_cache_size", None),
        }
    return answer


OPERATIONS: dict[str, Callable[[Request], Answer]] = {
    "hello": hello,
    "ready": ready,
    "alike": alike,
    "turn": turn,
    "verify": verify,
    "time": measure,
    "profile": profile,
    "sanitize": sanitize,
    "trace": trace,
}


def answer_to(line: str) -> Answer:
    """Do what a request asks for; whatever a kernel throws becomes an answer."""
    try:
        request = json.loads(line)
        answer = OPERATIONS[request["op"]](request)
        return {"ok": True, "spent": take_spent(), **answer}
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit of a kernel must not end the worker unanswered
        return {
            "ok": False,
            "spent": take_spent(),
            "code": code_of(error),
            "message": encodable(message_of(error)),
            "detail": encodable(traceback.format_exc()[-6000:]),
        }


def message_of(error: BaseException) -> str:
    """Return one line that names the exception."""
    first = (str(error).strip().split("\n") or [""])[0]
    if isinstance(error, Wrong):
        return first
    if isinstance(error, SystemExit):
        return f"the kernel called exit({first})"
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def encodable(text: str) -> str:
    """Replace lone surrogates, as in a file name that is not UTF-8: no file could take them."""
    return text.encode("utf-8", "replace").decode("utf-8")


class Fork:
    """A process that answers requests until it is let go."""

    def __init__(self, not_its_own: tuple[int, ...], body: Callable[[Any, Any], None] | None = None) -> None:
        self._body = body or answer_all
        request_in, request_out = os.pipe()
        answer_in, answer_out = os.pipe()
        self._pid = self._start(request_in, answer_out, (answer_in, request_out, *not_its_own))
        os.close(answer_out)
        os.close(request_in)
        self._requests = os.fdopen(request_out, "w")
        self._answers = os.fdopen(answer_in)

    def _start(self, request_in: int, answer_out: int, not_its_own: tuple[int, ...]) -> int:
        """Start the process and return its pid."""
        pid = os.fork()
        if pid:
            return pid
        die_with_parent()
        # Held here, the worker's own stream would stay open when the worker dies, and ci-perf would wait for it.
        for stream in not_its_own:
            os.close(stream)
        try:
            with os.fdopen(answer_out, "w") as answers, os.fdopen(request_in) as requests:
                self._body(requests, answers)
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        except BaseException:  # it must not unwind into the frames of the process that it was forked from
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def ask(self, line: str) -> str:
        """Return its answer as a line; where it dies before it answers, how it died."""
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
        """Whether it can still be asked."""
        return self._pid != 0

    @property
    def streams(self) -> tuple[int, ...]:
        """The file descriptors of its pipes: no other process shall hold them."""
        return (self._requests.fileno(), self._answers.fileno()) if self.alive else ()

    def rest(self) -> None:
        """Hold nothing on the GPU any more."""
        self.release()

    def release(self) -> int:
        """Let it end, and return its wait status."""
        if not self._pid:
            return 0
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        self._answers.close()
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        return status


def answer_all(requests: Any, answers: Any) -> None:
    """Answer each request in this process."""
    for line in requests:
        reply(answers, json.dumps(answer_to(line)) + "\n")


def reply(answers: Any, line: str) -> None:
    """Write one answer, so that it can be read at once."""
    answers.write(line)
    answers.flush()


class Template(Fork):
    """A process that has imported an entry and forks those that run its cases: the import is paid for once."""

    def __init__(self, entry: str, not_its_own: tuple[int, ...]) -> None:
        super().__init__(not_its_own, lambda requests, answers: serve_template(entry, requests, answers))
        self.usable = self._answers.readline() == USABLE
        """Whether processes forked from it can use CUDA."""

    def rest(self) -> None:
        """End the process that it forked last."""
        if self.alive:
            self.ask('{"op": "rest"}\n')


USABLE = "usable\n"
MOST_TEMPLATES = 32
"""Each holds the memory that its entry takes when it is imported."""


def serve_template(entry: str, requests: Any, answers: Any) -> None:
    """Import an entry, say whether forks of this process can use CUDA, and answer each request from one."""
    # Otherwise torch.cuda.is_available(), which many packages call when they are imported, initializes the driver.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    with contextlib.suppress(Exception), stage("import"):  # the process of the case meets the error, and reports it
        load_entry(entry)
    usable = not driver_initialized() and threading.active_count() == 1
    reply(answers, USABLE if usable else "not usable\n")
    if usable:

        def start(_: Request) -> Fork:
            process = Fork((requests.fileno(), answers.fileno()))
            take_spent()  # the first process reports the time of the import
            return process

        answer_from_processes(requests, answers, start)


def driver_initialized() -> bool:
    """Say whether this process has initialized CUDA, through torch or by any other way."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return True
    with open("/proc/self/maps") as maps:
        if not any("libcuda.so" in line for line in maps):
            return False
    import ctypes

    count = ctypes.c_int()
    not_initialized = 3  # CUDA_ERROR_NOT_INITIALIZED
    return bool(ctypes.CDLL("libcuda.so.1").cuDeviceGetCount(ctypes.byref(count)) != not_initialized)


class Spawned(Fork):
    """The same as a new interpreter: where importing torch has used CUDA, which no fork survives."""

    def __init__(self, printed: str) -> None:
        self._printed = printed
        super().__init__(())

    def _start(self, request_in: int, answer_out: int, not_its_own: tuple[int, ...]) -> int:
        del not_its_own  # an interpreter inherits no more than it is given
        files = ("--requests", f"/dev/fd/{request_in}", "--answers", f"/dev/fd/{answer_out}")
        argv = [sys.executable, "-u", os.path.abspath(__file__), "--printed", self._printed, *files]
        for stream in (request_in, answer_out):
            os.set_inheritable(stream, True)
        return os.posix_spawn(sys.executable, argv, os.environ)


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


def serve(requests: Any, answers: Any, printed: str) -> None:
    """Answer each request from a fresh process, or from the one before where the request says `same`."""
    torch = torch_or_none()
    used_cuda = torch is not None and torch.cuda.is_initialized()
    not_its_own = (requests.fileno(), answers.fileno())
    templates: dict[str, Template] = {}

    def template_of(entry: str) -> Template:
        if entry not in templates:
            if len(templates) == MOST_TEMPLATES:
                templates.pop(next(iter(templates))).release()
            streams = [stream for template in templates.values() for stream in template.streams]
            templates[entry] = Template(entry, (*not_its_own, *streams))
        return templates[entry]

    def start(request: Request) -> Fork:
        entry = request.get("entry")
        if used_cuda:
            return Spawned(printed)
        if entry is None:
            return Fork(not_its_own)
        template = template_of(entry)
        if template.usable and template.alive:
            return template
        template.release()
        return Fork(not_its_own) if template.usable else Spawned(printed)

    answer_from_processes(requests, answers, start)
    for template in templates.values():
        template.release()


def answer_from_processes(requests: Any, answers: Any, start: Callable[[Request], Fork]) -> None:
    """Answer each request from the process that `start` gives for it, or from the last one where it says `same`."""
    gc.freeze()  # no fork shall go over what was here before it
    process: Fork | None = None
    for line in requests:
        request = json.loads(line)
        if process is None or not process.alive or not request.get("same"):
            if process is not None:
                process.rest()
            process = None if request["op"] == "rest" else start(request)
        reply(answers, '{"ok": true}\n' if process is None else process.ask(line))
    if process is not None:
        process.release()


def die_with_parent() -> None:
    """Ask Linux to kill this process when the one that started it ends, however that ends."""
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG of sys/prctl.h


def keep_memory() -> None:
    """Make glibc keep what is freed, for all processes forked from here.

    Otherwise it hands large blocks back to Linux and asks for them anew, page fault by page fault, or does not: as the
    layout of the heap has it, which a worker's forks inherit. A kernel on the CPU took twice the time or not.
    """
    trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
    with contextlib.suppress(Exception):
        import ctypes

        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_threshold, 32 << 20)  # the most that glibc takes
        libc.mallopt(trim_threshold, (1 << 31) - 1)


def main() -> None:
    """Answer requests until there are no more."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", help="read requests from this file, answer them in this process")
    parser.add_argument("--answers", help="write answers to this file")
    parser.add_argument("--printed", required=True, help="file that takes what kernels print to stdout")
    arguments = parser.parse_args()
    answers = open(arguments.answers, "w") if arguments.answers else os.fdopen(os.dup(1), "w")  # noqa: SIM115
    keep_memory()
    printed = os.open(arguments.printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(printed, 1)
    requests = open(arguments.requests) if arguments.requests else os.fdopen(os.dup(0))  # noqa: SIM115
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if not arguments.requests:
        die_with_parent()  # not under a profiler, whose launching thread may end before the program does
        serve(requests, answers, arguments.printed)
        return
    answer_all(requests, answers)


if __name__ == "__main__":
    main()
