"""The GPU kernels that one launch starts: geometry, registers, shared and local memory."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

from ci_perf.userside.case import Case, release_memory
from ci_perf.userside.cupti_timers import CuptiTimer
from ci_perf.userside.identity import KERNEL_NODE, NOT_TOLD, KernelNode, check
from ci_perf.userside.machine_code import Unknown
from ci_perf.userside.timers import capture

_CHILD_GRAPH = 4  # CU_GRAPH_NODE_TYPE_GRAPH
_STATIC_SHARED, _LOCAL, _REGISTERS = 1, 3, 4  # CUfunction_attribute
LEAST_REGISTERS = 16
"""A thread has at least so many. On an H200 the driver tells the 10 that a small kernel uses, CUPTI 16."""
_MOST = 10_000
"""Nodes of a graph, and kernels, that are read."""


def launched_kernels(case: Case, timer: Any, *, captured: bool) -> list[dict[str, Any]]:
    """Return the facts of each GPU kernel of a launch, from a CUDA graph, or from CUPTI where that times the case.

    Nothing is captured for a case that the clock times: a capture that fails may change what the host does afterwards.
    """
    if captured:
        return launch_facts(case)
    return timer.kernels()[:_MOST] if isinstance(timer, CuptiTimer) else []


def launch_facts(case: Case) -> list[dict[str, Any]]:
    """Return the facts of each GPU kernel of a launch; empty where they are not known of all."""
    found: list[dict[str, Any]] = []
    with contextlib.suppress(*NOT_TOLD):
        found = _facts(case)
    release_memory()
    return found


def _facts(case: Case) -> list[dict[str, Any]]:
    import torch

    graph = torch.cuda.CUDAGraph(keep_graph=True)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        capture(graph, case.launch, 1)
    torch.cuda.synchronize()
    return kernels_of(ctypes.CDLL("libcuda.so.1"), int(graph.raw_cuda_graph()))


def kernels_of(driver: Any, graph: int) -> list[dict[str, Any]]:
    """Return the facts of the kernel nodes of a graph; Unknown where one does not tell them."""
    number = ctypes.c_size_t()
    check(driver.cuGraphGetNodes(ctypes.c_void_p(graph), None, ctypes.byref(number)))
    if number.value > _MOST:
        raise Unknown
    nodes = (ctypes.c_void_p * number.value)()
    check(driver.cuGraphGetNodes(ctypes.c_void_p(graph), nodes, ctypes.byref(number)))
    found = []
    for node in filter(None, nodes):
        kind = ctypes.c_int()
        check(driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)))
        if kind.value == _CHILD_GRAPH:
            raise Unknown
        if kind.value == KERNEL_NODE:
            found.append(_kernel(driver, node))
    return found


def _kernel(driver: Any, node: int) -> dict[str, Any]:
    params = KernelNode()
    check(driver.cuGraphKernelNodeGetParams_v2(ctypes.c_void_p(node), ctypes.byref(params)))
    if not params.func:
        raise Unknown
    static, local, registers = (_attribute(driver, params.func, name) for name in (_STATIC_SHARED, _LOCAL, _REGISTERS))
    return {
        "grid": [params.gx, params.gy, params.gz],
        "block": [params.bx, params.by, params.bz],
        "registers_per_thread": max(LEAST_REGISTERS, registers),
        "static_shared_bytes": static,
        "dynamic_shared_bytes": params.shared,
        "local_bytes": local,
    }


def _attribute(driver: Any, function: int, name: int) -> int:
    value = ctypes.c_int()
    check(driver.cuFuncGetAttribute(ctypes.byref(value), ctypes.c_int(name), ctypes.c_void_p(function)))
    return value.value
