"""Launches a case under a profiler, under compute-sanitizer, or under torch's own profiler."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import sys
from typing import Any, Callable, NamedTuple

from ci_perf.userside.case import Answer, Case, Request, Wrong
from ci_perf.userside.machine_code import triton_kernels


def profile(request: Request) -> Answer:
    """Launch a few times inside an NVTX range, between cudaProfilerStart and cudaProfilerStop."""
    import torch

    nvtx = nvtx_functions(request.get("nsys"))
    case = warm_case(request)
    torch.cuda.profiler.start()
    # A start/end range also covers launches of other threads, such as those of autograd; ncu needs a push/pop range.
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
    """Launch once: under compute-sanitizer one launch takes as long as thousands without."""
    case = Case(request)
    case.prepare()
    case.launch()
    case.synchronize()
    return {"launches": 1}


def warm_case(request: Request) -> Case:
    """Return a case that is compiled, tuned and allocated, on an idle GPU."""
    case = Case(request)
    case.prepare()
    for _ in range(2):
        case.launch()
    case.synchronize()
    return case


class Nvtx(NamedTuple):
    """The functions that open and close NVTX ranges: `start` and `end` for all threads, `push` and `pop` for one."""

    start: Callable[[str], Any]
    end: Callable[[Any], Any]
    push: Callable[[str], Any]
    pop: Callable[[], Any]


def nvtx_functions(nsys: str | None) -> Nvtx:
    """Return torch's own NVTX functions, else those of the package `nvtx`.

    An nsys before 2025 records nothing of the package from version 0.2.13 on.
    """
    import torch

    with contextlib.suppress(RuntimeError, AttributeError):  # in a torch built without NVTX they raise
        own = torch.cuda.nvtx
        own.range_end(own.range_start("ci-perf: is NVTX there?"))
        return Nvtx(own.range_start, own.range_end, own.range_push, own.range_pop)
    if importlib.util.find_spec("nvtx") is None:
        raise Wrong("raised", "no NVTX: this torch was built without it, and the package `nvtx` is not installed")
    version = importlib.metadata.version("nvtx")
    if numbers(version) >= (0, 2, 13) and nsys is not None and numbers(nsys) < (2025,):
        message = f"nsys {nsys} does not record ranges of nvtx {version}: use nvtx 0.2.11, or nsys 2025 or newer"
        raise Wrong("raised", message)
    import nvtx

    return Nvtx(nvtx.start_range, nvtx.end_range, nvtx.push_range, nvtx.pop_range)


def numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version.

    >>> numbers("2025.3.beta")
    (2025, 3)
    """
    found = []
    for part in version.split("."):
        if not part.isdigit():
            break
        found.append(int(part))
    return tuple(found)


def trace(request: Request) -> Answer:
    """Launch a few times under torch's own profiler and export its Chrome trace."""
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
    """Return the local memory per thread of each kernel that ci_perf.cuda or Triton loaded, which no trace holds."""
    cuda = sys.modules.get("ci_perf.cuda")
    sizes: dict[str, int] = {}
    with contextlib.suppress(Exception):  # the trace is of use without them
        sizes.update(cuda.local_bytes() if cuda else {})
    for kernel in triton_kernels():
        if isinstance(getattr(kernel, "n_spills", None), int):
            sizes[str(kernel.metadata.name)] = 4 * kernel.n_spills  # Triton counts registers
    return sizes
