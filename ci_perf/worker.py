"""Runs one kernel at a time inside the user's own interpreter; standard library only, Python 3.9 and newer.

Started by path, never imported by ci-perf: `python worker.py --printed LOG [--requests FILE --answers FILE]`. Requests
and answers are JSON, one object a line, over stdin and stdout unless files are named. The kernel never sees the stream
of the answers: file descriptor 1 is replaced, so what it prints lands in the log and cannot be taken for an answer.

Over pipes each request is answered by a fresh process, forked from one that has imported torch and not touched CUDA:
its GPU context, its memory and its luck are its own, at a fraction of the cost of a new interpreter. It stays alive,
context and all, until the next request, which it answers itself where that says `same`. With files, as a profiler
needs it, one process answers all.

Requests, each with `op`:
  hello     -> versions and the GPU of this interpreter
  verify    -> error against the reference, and the cost
  time      -> samples in seconds per launch, the method id, and from when to when (CLOCK_MONOTONIC) they were taken
  ready     -> the case warm and waiting, to be timed in turns with another process
  turn      -> this side's samples of one round
  profile   -> launches inside an NVTX range, between cudaProfilerStart and Stop
  trace     -> launches under torch's profiler, exported as a Chrome trace to the file `trace`;
               the local memory of the kernels whose loaders know it
All but hello name `entry` (path of kernel.py), `params`, `device`, `target` (`launch` or `reference`) and `seed`.
An answer holds `ok`; where that is false, also `code`, `message` and `detail`.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import random
import signal
import statistics
import sys
import time
import traceback
import warnings
from fractions import Fraction
from typing import Any, Callable, NamedTuple

Request = dict[str, Any]
Answer = dict[str, Any]

LADDER = (1, 2, 5, 10, 20, 50, 100, 200, 500)
"""Launches per sample: few enough to capture quickly, enough to make a sample long."""
SAMPLE_S = {"cuda": 4e-3, "cpu": 2e-3}
"""A sample lasts at least this long, or 500 launches, so that the ends of the measurement (some us) do not count."""
WARM_UP_S = {"cuda": 0.25, "cpu": 0.1}
"""An idle GPU runs at a fraction of its clock; it is under load this long before the first sample."""
ESTIMATE_S = {"cuda": 0.05, "cpu": 0.02}
"""For so long the launches run whose time only sets how many make a sample."""
STEADY = 0.005
"""Warming up ends when two groups of launches differ by less than this fraction, or after four times WARM_UP_S."""
BUDGET_S = {"cuda": 4.0, "cpu": 1.5}
"""Slow kernels get fewer samples (never below 5) to stay within this time for one case in one process."""
DEFAULT_TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 1e-2, "bfloat16": 2e-2}
TINY = 1e-300


class Wrong(Exception):
    """The kernel's output or the entry file is not what it must be; `code` is the reason code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


# --- entry files -----------------------------------------------------------------------------------------------------


def load_entry(path: str, cache: dict[str, Any] = {}) -> Any:  # noqa: B006 # the cache is the point: one module for each file
    """Import a kernel.py once; its folder is importable while it loads."""
    if path not in cache:
        spec = importlib.util.spec_from_file_location(f"ci_perf_entry_{len(cache)}", path)
        sys.path.insert(0, os.path.dirname(path))
        try:
            module = run_module(spec)
        finally:
            sys.path.pop(0)
        for name in ("make_inputs", "reference"):
            if not callable(getattr(module, name, None)):
                raise Wrong("raised", f"{os.path.basename(path)} defines no function `{name}`")
        cache[path] = module
    return cache[path]


def run_module(spec: Any) -> Any:
    """Execute the file that an import spec names and return its module."""
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def expose_package() -> None:
    """Make `ci_perf.cuda` importable for a kernel.py without putting ci-perf's own packages on the path."""
    folder = os.path.dirname(os.path.abspath(__file__))
    # Python puts the folder of a script first on the path, where our cuda.py would hide NVIDIA's `cuda` package.
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != folder]
    spec = importlib.util.spec_from_file_location(
        "ci_perf", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    sys.modules["ci_perf"] = run_module(spec)


def torch_or_none() -> Any:
    """Return torch where this interpreter has it."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    return torch


def leave_cores_free() -> None:
    """Let torch use half of the cores: threads that wait for a core that another process holds time the scheduler."""
    torch = torch_or_none()
    if torch is not None:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // 2))


def generator(seed: int) -> Any:
    """Return the source of randomness for make_inputs: on the CPU, so that all devices get the same inputs."""
    torch = torch_or_none()
    return random.Random(seed) if torch is None else torch.Generator().manual_seed(seed)


class Case:
    """A kernel with its inputs, ready to be called."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.device = request["device"]
        if self.device == "cpu":
            leave_cores_free()
        self.module = load_entry(request["entry"])
        if not callable(getattr(self.module, request["target"], None)):
            raise Wrong("raised", f"{request['entry']} defines no function `{request['target']}`")
        self.function = getattr(self.module, request["target"])
        self.inputs = self.fresh_inputs()

    def fresh_inputs(self) -> Any:
        """Make the inputs anew: the same ones, as the seed is the same."""
        return self.module.make_inputs(generator(self.request.get("seed", 0)), self.device, **self.request["params"])

    def launch(self) -> Any:
        """Call the kernel once."""
        return self.function(self.inputs)

    def synchronize(self) -> None:
        """Wait for the GPU, so that an error shows up in the case that caused it."""
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()

    def cost(self) -> Any:
        """Return what `cost()` of the entry says, or None."""
        function = getattr(self.module, "cost", None)
        return checked_cost(function(**self.request["params"])) if callable(function) else None


def checked_cost(cost: Any) -> Any:
    """Return what `cost()` gave as plain numbers, or say what is wrong with it."""
    if cost is None:
        return None
    if not isinstance(cost, dict) or not {"flop", "bytes"} <= cost.keys() <= {"flop", "bytes", "dtype"}:
        raise Wrong("raised", f"cost() returned {cost!r:.80}, not a dictionary of `flop`, `bytes` and perhaps `dtype`")
    checked = {"flop": cost["flop"], "bytes": cost["bytes"], "dtype": cost.get("dtype")}
    for name in ("flop", "bytes"):
        value = cost[name]
        if isinstance(value, str) or not 0 <= float(value) < math.inf:
            raise Wrong("raised", f"cost(): `{name}` is {value!r:.80}, not a finite number from 0 up")
        checked[name] = float(value)
    if not isinstance(checked["dtype"], (str, type(None))):
        raise Wrong("raised", f"cost(): `dtype` is {checked['dtype']!r:.80}, not the name of a type")
    return checked


# --- verify ----------------------------------------------------------------------------------------------------------


def verify(request: Request) -> Answer:
    """Hold the output against the reference; each gets inputs of its own, so that working in place spoils nothing."""
    case = Case(request)
    reference = case.module.reference(case.fresh_inputs())
    if not leaves(reference):
        raise Wrong("wrong-output", "the reference returns no output: there is nothing to hold against it")
    for leaf in leaves(reference):
        if float_error(leaf, leaf) != 0.0:
            raise Wrong("wrong-output", "the reference itself holds NaN or infinity")
    if request["target"] == "reference":
        return {"error": 0.0, "tolerance": 0.0, "checked": "reference", "cost": case.cost()}
    poison(case.launch(), case.inputs)
    case.inputs = case.fresh_inputs()
    output = case.launch()
    case.synchronize()
    error, tolerance = compare(output, reference, request.get("tolerance", {}), request["params"].get("dtype"))
    answer = {"error": error, "tolerance": tolerance, "checked": "launch", "cost": case.cost()}
    if not error <= tolerance:
        raise Wrong("wrong-output", f"largest error against the reference is {error:.3g}, allowed is {tolerance:.3g}")
    return answer


def poison(output: Any, inputs: Any) -> None:
    """Overwrite an output, so that memory handed out again, or a stored answer, cannot be right by chance."""
    owned = {address(leaf) for leaf in leaves(inputs)}
    for leaf in leaves(output):
        if address(leaf) is None or address(leaf) in owned:
            continue
        if hasattr(leaf, "is_floating_point") and leaf.is_floating_point():
            leaf.fill_(float("nan"))
        elif hasattr(leaf, "__array_interface__") and leaf.dtype.kind == "f" and leaf.flags.writeable:
            leaf.fill(float("nan"))


def address(leaf: Any) -> int | None:
    """Return where a tensor or array lies in memory; a plain number lies nowhere."""
    if hasattr(leaf, "data_ptr"):
        return int(leaf.data_ptr())
    interface = getattr(leaf, "__array_interface__", None) if shape(leaf) else None
    return int(interface["data"][0]) if interface else None


def structure(value: Any) -> Any:
    """Return how outputs are nested and named, without the tensors."""
    if isinstance(value, dict):
        return {key: structure(value[key]) for key in sorted(value)}
    return [structure(part) for part in value] if isinstance(value, (tuple, list)) else None


def leaves(value: Any) -> list[Any]:
    """Flatten tuples, lists and dictionaries of tensors."""
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in leaves(value[key])]
    if isinstance(value, (tuple, list)):
        return [leaf for part in value for leaf in leaves(part)]
    return [value]


def shape(leaf: Any) -> tuple[int, ...]:
    """Return the shape of a tensor or array; a number has none."""
    return tuple(getattr(leaf, "shape", ()))


def compare(output: Any, reference: Any, tolerances: dict[str, float], dtype: str | None) -> tuple[float, float]:
    """Return the error that comes nearest to its tolerance, and that tolerance; the first that passes it ends it."""
    outputs, references = leaves(output), leaves(reference)
    if len(outputs) != len(references):
        raise Wrong("wrong-output", f"{len(outputs)} outputs, the reference has {len(references)}")
    if structure(output) != structure(reference):
        raise Wrong("wrong-output", "the outputs are not nested and named like those of the reference")
    worst = (0.0, 0.0)
    for out, ref in zip(outputs, references):
        if shape(out) != shape(ref):
            raise Wrong("wrong-output", f"shape {shape(out)}, the reference has {shape(ref)}")
        name = str(getattr(out, "dtype", "float64")).replace("torch.", "")
        tolerance = tolerances.get(name, tolerances.get(str(dtype), DEFAULT_TOLERANCE.get(name, 0.0)))
        error = float_error(out, ref)
        if not error <= tolerance:
            return error, tolerance
        worst = max(worst, (error, tolerance), key=lambda found: found[0] / (found[1] + TINY))
    return worst


def float_error(out: Any, ref: Any) -> float:
    """Return max |out - ref| / (|ref| + rms(ref)) in double precision; NaN and infinity give NaN or infinity."""
    if hasattr(ref, "detach"):
        import torch

        wide = torch.complex128 if ref.is_complex() or out.is_complex() else torch.float64
        ref = ref.detach().to(wide)
        out = out.detach().to(device=ref.device, dtype=wide)
    elif hasattr(ref, "astype"):
        # In a narrow type the squares below run over, and every error divided by infinity is 0.
        name = "complex128" if "c" in (ref.dtype.kind, getattr(out, "dtype", ref.dtype).kind) else "float64"
        ref = ref.astype(name)
        out = out.astype(name) if hasattr(out, "astype") else out
    size, error = abs(ref), abs(out - ref)
    if 0 in shape(ref):
        return 0.0
    if hasattr(size, "mean"):
        size = size + (size * size).mean() ** 0.5
    error = error / (size + TINY)
    return float(error.max() if hasattr(error, "max") else error)


# --- time ------------------------------------------------------------------------------------------------------------


class Stopwatch:
    """A case that is compiled, warm and ready to be timed."""

    def __init__(self, request: Request) -> None:
        self.case = Case(request)
        self.case.launch()  # compiles, tunes and allocates; whatever it prints is no launch's fault
        self.case.synchronize()
        self.printed = printed_bytes()
        self.device = self.case.device
        self.timer: Any = cuda_timer(self.case) if self.device == "cuda" else CpuTimer(self.case)
        self.planted = request.get("planted") or 0.0
        warm_up(self.timer, ESTIMATE_S[self.device])
        self.per_launch = self.timer.seconds(1)
        least = SAMPLE_S[self.device]
        count = min(c for c in LADDER if c * self.per_launch >= least or c == self.timer.most)
        # Planted exactly: 5 % is 21 launches for 20, so a sample counts a multiple of 20.
        step = Fraction(self.planted).limit_denominator(LADDER[-1]).denominator
        self.set_count(math.ceil(count / step) * step)

    def set_count(self, count: int) -> None:
        """Set how many launches a sample is averaged over; a planted slowdown adds to those that are really made."""
        self.count = count
        self.really = round(count * (1 + self.planted))
        self.timer.prepare(self.really)

    @property
    def method(self) -> str:
        """The method id."""
        return str(self.timer.method) + ("" if self.case.request["target"] == "launch" else "/reference")

    def take(self, samples: int) -> Answer:
        """Take samples back to back; say from when to when."""
        started = time.monotonic()
        seconds = self.timer.samples(samples)
        self.case.synchronize()
        ended = time.monotonic()
        if printed_bytes() > self.printed:
            message = "the kernel printed to stdout while it was timed: the time would be that of printing"
            raise Wrong("printed", message)
        return {"seconds": [float(f"{s / self.count:.7g}") for s in seconds], "window": [started, ended]}

    def facts(self) -> Answer:
        """Return what must be the same for two of them to be compared."""
        return {"launches": self.count, "method": self.method, "planted": self.really / self.count - 1}


def measure(request: Request) -> Answer:
    """Time one case: settle, warm up until steady, then take samples back to back."""
    watch = Stopwatch(request)
    warm_up(watch.timer, WARM_UP_S[watch.device], batches=True)
    most = int(BUDGET_S[watch.device] / max(watch.count * watch.per_launch, TINY))
    return {**watch.take(max(5, min(request.get("samples", 30), most))), **watch.facts()}


READY: dict[str, Stopwatch] = {}
"""The case that this process times in turns with another process."""


def own_files() -> list[str]:
    """Return the files that were imported from outside this interpreter's own folders: the code under test."""
    here = os.path.dirname(os.path.abspath(__file__))
    installed = (os.path.join(sys.base_prefix, "lib"), here)
    files = {os.path.abspath(str(getattr(module, "__file__", None) or "")) for module in list(sys.modules.values())}
    return sorted(
        file
        for file in files
        if file.endswith(".py") and "-packages" + os.sep not in file and not file.startswith(installed)
    )


def ready(request: Request) -> Answer:
    """Prepare a case to be timed in turns; `launches` sets how many make a sample, so that both sides are alike."""
    if not request.get("same"):
        READY["case"] = Stopwatch(request)
    if request.get("launches") and request["launches"] != READY["case"].count:
        READY["case"].set_count(request["launches"])
    return {**READY["case"].facts(), "files": own_files()}


def turn(request: Request) -> Answer:
    """Take this side's samples of one round; the first one of a turn is not counted: the other side ran before."""
    answer = READY["case"].take(request["samples"] + 1)
    return {**answer, "seconds": answer["seconds"][1:]}


def warm_up(timer: Any, least_s: float, batches: bool = False) -> None:
    """Keep the device busy until two groups of launches take the same time."""
    started = time.perf_counter()
    before: float | None = None
    while True:
        now = statistics.median(timer.samples(3)) if batches else timer.seconds(3)
        spent = time.perf_counter() - started
        steady = before is not None and abs(now / before - 1) < STEADY
        if spent >= least_s and (steady or spent >= 4 * least_s):
            return
        before = now


class CpuTimer:
    """perf_counter around a loop of launches."""

    method = "perf-counter"
    most = LADDER[-1]

    def __init__(self, case: Case) -> None:
        self.case = case
        self.count = 1

    def prepare(self, count: int) -> None:
        """Set the number of launches of one sample."""
        self.count = count

    def seconds(self, launches: int) -> float:
        """Return the time of one launch, measured over a few."""
        launch = self.case.launch
        started = time.perf_counter()
        for _ in range(launches):
            launch()
        return (time.perf_counter() - started) / launches

    def samples(self, number: int) -> list[float]:
        """Return the time of the launches of each sample."""
        return [self.seconds(self.count) * self.count for _ in range(number)]


class EventTimer:
    """CUDA events around launches; the inputs stay in the L2 cache."""

    method = "cuda-events"
    most = LADDER[-1]
    """Launches in one sample at most."""

    def __init__(self, case: Case) -> None:
        import torch

        self.torch = torch
        self.case = case
        self.count = 1

    def prepare(self, count: int) -> None:
        """Set the number of launches of one sample."""
        self.count = count

    def seconds(self, launches: int) -> float:
        """Return the time of one launch, measured over a few."""
        start, stop = self.event(), self.event()
        start.record()
        for _ in range(launches):
            self.case.launch()
        stop.record()
        self.torch.cuda.synchronize()
        return float(start.elapsed_time(stop)) / 1e3 / launches

    def event(self) -> Any:
        """Make a timing event."""
        return self.torch.cuda.Event(enable_timing=True)

    def one(self) -> None:
        """Issue the launches of one sample."""
        for _ in range(self.count):
            self.case.launch()

    def samples(self, number: int) -> list[float]:
        """Return the time of the launches of each sample; all are queued before the first is read."""
        events = [(self.event(), self.event()) for _ in range(number)]
        for start, stop in events:
            start.record()
            self.one()
            stop.record()
        self.torch.cuda.synchronize()
        return [start.elapsed_time(stop) / 1e3 for start, stop in events]


class GraphTimer(EventTimer):
    """A CUDA graph of many launches between two events: no launch gaps, warm L2."""

    method = "cuda-graph"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.graph: Any = None
        self.prepare(3)

    def prepare(self, count: int) -> None:
        """Capture the launches of one sample."""
        self.count = count
        self.graph = None
        side = self.torch.cuda.Stream()
        side.wait_stream(self.torch.cuda.current_stream())
        with self.torch.cuda.stream(side):
            self.case.launch()
        self.torch.cuda.current_stream().wait_stream(side)
        self.torch.cuda.synchronize()
        graph = self.torch.cuda.CUDAGraph()
        with warnings.catch_warnings(record=True) as said, self.torch.cuda.graph(graph):
            warnings.simplefilter("always")
            for _ in range(count):
                self.case.launch()
        if any("graph is empty" in str(warning.message).lower() for warning in said):
            message = "its GPU work is not on torch's current stream, where it would be timed"
            raise Wrong("raised", message + ": launch on torch.cuda.current_stream()")
        self.graph = graph

    def seconds(self, launches: int) -> float:
        """Return the time of one launch, measured over the graph of this moment."""
        del launches
        return statistics.median(self.samples(3)) / self.count

    def one(self) -> None:
        """Replay the graph."""
        self.graph.replay()


class ColdTimer(EventTimer):
    """CUDA events around single launches, the L2 cache overwritten before each."""

    method = "cuda-events-cold"
    most = 20

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        cache = getattr(self.torch.cuda.get_device_properties(0), "L2_cache_size", 64 << 20)
        self.flush = self.torch.empty(2 * cache, dtype=self.torch.int8, device="cuda")

    def seconds(self, launches: int) -> float:
        """Return the time of one cold launch."""
        return statistics.median(self.one_cold() for _ in range(launches))

    def samples(self, number: int) -> list[float]:
        """Return the time of the launches of each sample, without that of the overwriting."""
        return [sum(self.one_cold() for _ in range(self.count)) for _ in range(number)]

    def one_cold(self) -> float:
        """Overwrite twice the size of the L2 cache, then time one launch; both are queued before either runs."""
        start, stop = self.event(), self.event()
        self.flush.zero_()
        start.record()
        self.case.launch()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) / 1e3


def cuda_timer(case: Case) -> EventTimer:
    """Choose the timer: cold events where asked for, a graph where it can be captured, else events."""
    if case.request.get("l2") == "cold":
        return ColdTimer(case)
    try:
        return GraphTimer(case)
    except Wrong:
        raise
    except Exception as error:
        if code_of(error) == "out-of-memory":
            raise
        reason = str(error).split("\n")[0]
        print(f"ci-perf: no CUDA graph of this kernel ({reason}); timing by events", file=sys.stderr)
        case.synchronize()
        return EventTimer(case)


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
    "turn": turn,
    "verify": verify,
    "time": measure,
    "profile": profile,
    "trace": trace,
}


def answer_to(line: str) -> Answer:
    """Do what a request asks for; whatever a kernel throws becomes an answer."""
    try:
        request = json.loads(line)
        return {"ok": True, **OPERATIONS[request["op"]](request)}
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit of a kernel must not end the worker unanswered
        return {
            "ok": False,
            "code": code_of(error),
            "message": encodable(message_of(error)),
            "detail": encodable(traceback.format_exc()[-6000:]),
        }


def code_of(error: BaseException) -> str:
    """Return the reason code of an exception that a kernel threw."""
    if isinstance(error, Wrong):
        return error.code
    if isinstance(error, SystemExit):
        return "exited"
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__ or "out of memory" in str(error):
        return "out-of-memory"
    return "raised"


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


def printed_bytes() -> int:
    """Return how much has been written to stdout so far, buffers included."""
    sys.stdout.flush()
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).fflush(None)
    return os.fstat(1).st_size


class Fork:
    """A process that answers requests until it is let go."""

    def __init__(self, not_its_own: tuple[int, ...]) -> None:
        request_in, request_out = os.pipe()
        answer_in, answer_out = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            die_with_parent()
            # Held here, the worker's own stream would stay open when the worker dies, and ci-perf would wait for it.
            for stream in (answer_in, request_out, *not_its_own):
                os.close(stream)
            with os.fdopen(answer_out, "w") as answers, os.fdopen(request_in) as requests:
                for line in requests:
                    answers.write(json.dumps(answer_to(line)) + "\n")
                    answers.flush()
            os._exit(0)
        os.close(answer_out)
        os.close(request_in)
        self._requests = os.fdopen(request_out, "w")
        self._answers = os.fdopen(answer_in)

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


def serve(requests: Any, answers: Any) -> None:
    """Answer each request from a fresh fork, or from the one before where the request says `same`."""
    torch_or_none()
    fork = None
    for line in requests:
        if fork is None or not fork.alive or not json.loads(line).get("same"):
            if fork is not None:
                fork.release()
            fork = Fork((requests.fileno(), answers.fileno()))
        answers.write(fork.ask(line))
        answers.flush()
    if fork is not None:
        fork.release()


def die_with_parent() -> None:
    """Ask Linux to kill this process when the one that started it ends, however that ends."""
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG of sys/prctl.h


def main() -> None:
    """Answer requests until there are no more."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", help="read requests from this file, answer them in this process")
    parser.add_argument("--answers", help="write answers to this file")
    parser.add_argument("--printed", required=True, help="file that takes what kernels print to stdout")
    arguments = parser.parse_args()
    answers = open(arguments.answers, "w") if arguments.answers else os.fdopen(os.dup(1), "w")  # noqa: SIM115
    printed = os.open(arguments.printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(printed, 1)
    requests = open(arguments.requests) if arguments.requests else os.fdopen(os.dup(0))  # noqa: SIM115
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    expose_package()
    if not arguments.requests:
        die_with_parent()  # not under a profiler, whose launching thread may end before the program does
        serve(requests, answers)
        return
    for line in requests:
        answers.write(json.dumps(answer_to(line)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
