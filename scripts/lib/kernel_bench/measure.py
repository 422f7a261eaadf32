"""The operations of the benchmark's processes: compare an implementation of a case with its reference, then time it.

The operations join those of ci-perf's worker, whose forks answer them; the timers are those of `ci-perf run`.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib.util
import signal
import statistics
import sys
from pathlib import Path
from typing import Any, Callable, NamedTuple

from ci_perf.userside.case import Answer, Case, Request, Wrong, release_memory, run_module, torch_or_none
from ci_perf.userside.cpu_timers import CpuTimer
from ci_perf.userside.outputs import compare, difference, leaves, worst_of
from ci_perf.userside.timer_choice import choose_timer
from ci_perf.userside.timers import LADDER, EventTimer, GraphTimer, warm_up
from ci_perf.userside.verify import poison

SAMPLES = 10
SAMPLE_S = 2e-3
"""A sample lasts at least this long, or 500 launches."""
WARM_UP_S = {"cuda": 0.15, "cpu": 0.02}
"""Of a GPU so long that its clocks have risen: after less, kernels of a few microseconds read slower now and then."""
BUDGET_S = 0.25
"""Slow ones get fewer samples, never below 5, to stay within this time. All of it in each of two rounds."""

COPY_BYTES = {"cuda": 1 << 30, "cpu": 64 << 20}
MATMUL = {"cuda": (8192, "bfloat16"), "cpu": (512, "float32")}


class Work:
    """Something to launch that is no case of a kernel, as the timers take it."""

    def __init__(self, device: str, launch: Callable[[], object]) -> None:
        self.device = device
        self.launch = launch
        self.request: Request = {}
        self.saved: list[tuple[Any, Any]] = []

    def prepare(self) -> None:
        """Do nothing: there are no inputs."""

    def synchronize(self) -> None:
        """Wait for the GPU."""
        if self.device == "cuda":
            torch_or_none().cuda.synchronize()


def timed(work: Any, timer: Any = None) -> Answer:
    """Return the median time of a launch in seconds, and how it was taken."""
    timer = timer or choose_timer(work)
    warm_up(timer, WARM_UP_S[work.device] / 3)
    one = timer.seconds(1)
    count = min(c for c in LADDER if c * one >= SAMPLE_S or c >= timer.most)
    timer.prepare(count)
    warm_up(timer, WARM_UP_S[work.device], batches=True)
    samples = max(5, min(SAMPLES, int(BUDGET_S / (count * one))))
    return {"seconds": statistics.median(timer.samples(samples)) / count, "method": timer.method}


# --- ceilings --------------------------------------------------------------------------------------------------------


def ceilings(request: Request) -> Answer:
    """Time a large copy, by every path, and a large matrix product."""
    torch = torch_or_none()
    device = request["device"]
    copying, by_kernel = copy_works(device, 2 * COPY_BYTES[device])
    answer = {"copy_bytes": 2 * COPY_BYTES[device], "copy_launch": timed(copying, launched(copying))["seconds"]}
    if device == "cuda":
        answer["copy_graph"] = timed(copying, graph_of(copying))["seconds"]
        answer["copy_kernel"] = timed(by_kernel, graph_of(by_kernel))["seconds"]
    del copying, by_kernel
    release_memory()
    size, dtype = MATMUL[device]
    left, right = (torch.randn(size, size, device=device, dtype=getattr(torch, dtype)) for _ in range(2))
    product = timed(Work(device, lambda: left @ right))["seconds"]
    return {**answer, "matmul_size": size, "matmul_dtype": dtype, "matmul_flop": 2 * size**3, "matmul": product}


def launched(work: Work) -> Any:
    """Return the timer of plain launches."""
    return CpuTimer(work) if work.device == "cpu" else EventTimer(work)


def graph_of(work: Work) -> Any:
    """Return the timer of launches in a graph."""
    timer = GraphTimer(work)
    timer.prepare(1)
    return timer


def copy_works(device: str, moved: int) -> tuple[Work, Work]:
    """Return two ways to read half of so many bytes and to write the other half: a memcpy, and a kernel.

    In a graph a memcpy is the slower one for large sizes (H100: 2.4 TB/s, launched by itself 3.0).
    """
    torch = torch_or_none()
    source = torch.zeros(max(1, moved // 8), dtype=torch.int32, device=device)
    into = torch.empty_like(source)
    return Work(device, lambda: into.copy_(source)), Work(device, lambda: torch.bitwise_not(source, out=into))


def fastest_copy(device: str, moved: int) -> Answer:
    """Return the time of the faster way, and which it was."""
    found = [{**timed(work), "by": by} for by, work in zip(("memcpy", "kernel"), copy_works(device, moved))]
    return min(found, key=lambda copied: copied["seconds"])


# --- cases -----------------------------------------------------------------------------------------------------------


class Prepared(NamedTuple):
    """A case with its inputs, which nothing works on, and what its reference makes of them."""

    case: Case
    reference: Any


READY: dict[str, Prepared] = {}
"""The case of this moment, by its label."""


def prepare(request: Request) -> Prepared:
    """Return the case that a request names: the one before, or made anew in its place."""
    label = request["label"]
    if label not in READY:
        READY.clear()
        release_memory()
        forget_compiled()
        case = Case(request)
        reference = case.module.reference(copy.deepcopy(case.inputs))
        if any(difference("", leaf, leaf, 0.0).is_wrong for leaf in leaves(reference)):
            raise Wrong("wrong-output", "the reference contains NaN or infinity")
        READY[label] = Prepared(case, reference)
    return READY[label]


def forget_compiled() -> None:
    """Let torch.compile begin anew: of the second shape it would make code for any shape, which is slower."""
    if "torch._dynamo" in sys.modules:
        torch_or_none().compiler.reset()


@functools.cache
def load_alternatives(folder: Path) -> dict[str, Callable[[Any], object]]:
    """Return what alternatives.py of a kernel offers."""
    sys.path.insert(0, str(folder))
    try:
        spec = importlib.util.spec_from_file_location("alternatives", folder / "alternatives.py")
        return dict(run_module(spec).ALTERNATIVES)
    finally:
        sys.path.remove(str(folder))


def alternatives(request: Request) -> Answer:
    """Return the names of a kernel's alternatives."""
    return {"names": list(load_alternatives(Path(request["entry"]).parent))}


def bound(request: Request) -> Answer:
    """Return the cost of a case, and the time of a copy of the same bytes."""
    cost = prepare(request).case.cost()
    copied = fastest_copy(request["device"], int(cost["bytes"])) if cost and cost["bytes"] else None
    return {"cost": cost, "copy": copied}


def check(request: Request) -> Answer:
    """Compare an implementation with the reference: the alternative called `name`, or launch; then warm it up."""
    ready = prepare(request)
    case = chosen(request, ready)
    case.inputs = copy.deepcopy(ready.case.inputs)
    poison(case.launch(), case.inputs)
    case.inputs = copy.deepcopy(ready.case.inputs)
    output = case.launch()
    case.synchronize()
    worst = worst_of(compare(output, ready.reference, request["tolerance"], request["params"].get("dtype")))
    if worst and worst.is_wrong:
        raise Wrong("wrong-output", f"largest error against the reference is {worst.brief}")
    del output
    case.inputs = copy.deepcopy(ready.case.inputs)
    warm_up(choose_timer(case), WARM_UP_S[case.device])
    return {"error": worst.error if worst else 0.0, "tolerance": worst.tolerance if worst else 0.0}


def time_once(request: Request) -> Answer:
    """Time an implementation that was compared with the reference before."""
    ready = prepare(request)
    case = chosen(request, ready)
    case.inputs = copy.deepcopy(ready.case.inputs)
    times = timed(case)
    if case.function is getattr(case.module, "reference", None):
        times["method"] += "/reference"
    return times


def chosen(request: Request, ready: Prepared) -> Case:
    """Return the case with the implementation that a request names."""
    case = copy.copy(ready.case)
    if request["name"] is not None:
        case.function = load_alternatives(Path(request["entry"]).parent)[request["name"]]
    return case


def limited(operation: Callable[[Request], Answer]) -> Callable[[Request], Answer]:
    """Return the operation with an end, a SIGALRM: a kernel that hangs takes its process with it, and nothing else."""

    def within_time(request: Request) -> Answer:
        signal.alarm(request["timeout_s"])
        with contextlib.ExitStack() as stack:
            stack.callback(signal.alarm, 0)
            return operation(request)

    return within_time


OPERATIONS = {
    "ceilings": limited(ceilings),
    "alternatives": limited(alternatives),
    "bound": limited(bound),
    "check": limited(check),
    "time": limited(time_once),
}
