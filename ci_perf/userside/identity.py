"""A hash of what a launch makes the GPU do: two sides with the same hash cannot differ in speed.

There is a hash only if everything is known: the launch is one kernel whose machine code comes from ci_perf.cuda or
Triton, with its geometry, attributes and arguments, on inputs of known shape and content, and every address among its
arguments lies in an input, an output or memory that the launch itself allocated. The hash includes which one and the
offset in it, not its address. Kernels of libraries are not known, so torch's own operations have no hash. Everything is
read from the driver, whatever launched the kernel: clusters, a cooperative launch, the carve-out of shared memory.

Not hashed: what the host wrote into `__constant__` and `__device__` variables, and the former content of an
output or of memory that the launch allocated. A kernel that reads different data there on each side has the same hash
on both.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable

from ci_perf.userside.case import Case, release_memory
from ci_perf.userside.machine_code import Unknown, code_hash, known_codes
from ci_perf.userside.outputs import leaves
from ci_perf.userside.timers import capture

KERNEL_NODE = 0  # CU_GRAPH_NODE_TYPE_KERNEL
_POINTER_RANGE = 11  # CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
_INVALID_VALUE = 1  # CUDA_ERROR_INVALID_VALUE
_NO_SUCH_THING = (_INVALID_VALUE, 215, 801)  # and CUDA_ERROR_UNSUPPORTED_LIMIT, CUDA_ERROR_NOT_SUPPORTED
_ACCESS_POLICY_WINDOW, _COOPERATIVE = 1, 2  # CUlaunchAttributeID
_LAUNCH_ATTRIBUTES, _ATTRIBUTE_BYTES = range(1, 32), 64
"""CUlaunchAttributeID, which ends at 16, and CUlaunchAttributeValue of cuda.h; newer drivers may know more."""
_BYTES_USED = {2: 4, 4: 12, 5: 4, 8: 4, 9: 2, 10: 4, 11: 12, 13: 4, 14: 4, 16: 4}
"""Bytes in use of a CUlaunchAttributeValue, by its id; the driver need not write the rest. Others may be handles."""
_WINDOW = struct.Struct("<8sQfii")
"""CUaccessPolicyWindow: base_ptr, num_bytes, hitRatio, hitProp, missProp."""
_FUNCTION_ATTRIBUTES = range(32)
"""CUfunction_attribute: registers, the limit of dynamic shared memory, the carve-out, what clusters it allows."""
_CONTEXT_LIMITS = (5, 6)
"""CUlimit: the fetch granularity of L2, and its persisting size. Not the stack, which grows with earlier kernels."""
_ALIGNMENT = 256
"""An address counts modulo this many bytes: misaligned accesses are slower."""
_CHUNK = 1 << 22
"""The number of words of an input that are hashed at a time."""
_GOLDEN, _MIX = 0x9E3779B97F4A7C15 - (1 << 64), 0xBF58476D1CE4E5B9 - (1 << 64)
"""Constants of splitmix64 (Steele, Lea and Flood, OOPSLA 2014), as signed numbers."""


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2 of cuda.h."""

    _fields_ = [  # type: ignore[mutable-override] # as ctypes wants it
        ("func", ctypes.c_void_p),
        *[(name, ctypes.c_uint) for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared")],
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    ]


NOT_TOLD = (Unknown, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError, ctypes.ArgumentError)
"""Exceptions with an older torch or driver, or an unusual input: there is no hash then."""


def launch_hash(case: Case, inputs: str | None) -> str | None:
    """Return the hash of one launch, or None where something about it is not known.

    `inputs` is their hash before the first launch: a kernel that works in place has changed them since, and the number
    of launches may have depended on a clock.
    """
    found = None
    with contextlib.suppress(*NOT_TOLD):
        codes = known_codes()
        if inputs and codes:
            found = _hash(case, inputs, codes)
    release_memory()  # frees the outputs and the graph
    return found


def inputs_hash(case: Case) -> str | None:
    """Return a hash of shape and content of a case's inputs; None if one is neither a tensor nor a plain value."""
    try:
        return hashlib.sha256(repr([_content(leaf) for leaf in leaves(case.inputs)]).encode()).hexdigest()
    except NOT_TOLD:
        return None


def shapes_hash(case: Case) -> str:
    """Return a hash of shape and type of each array among a case's inputs, and of the class of every other input."""
    shapes = [
        (str(leaf.shape), str(leaf.dtype)) if hasattr(leaf, "__array__") else type(leaf).__name__
        for leaf in leaves(case.inputs)
    ]
    return hashlib.sha256(repr(shapes).encode()).hexdigest()


def _hash(case: Case, inputs: str, codes: Mapping[int, Callable[[], bytes]]) -> str:
    import torch

    graph = torch.cuda.CUDAGraph(keep_graph=True)
    outputs: list[Any] = []
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        capture(graph, lambda: outputs.append(case.launch()), 2)
    torch.cuda.synchronize()
    driver = ctypes.CDLL("libcuda.so.1")
    nodes = two_launches(driver, int(graph.raw_cuda_graph()))
    known = [*extents(case.inputs, outputs), *scratch(graph)]
    launches = [node_facts(driver, node, codes, known) for node in nodes]
    return hashlib.sha256(repr((launches, context_facts(driver), inputs)).encode()).hexdigest()


def extents(inputs: Any, outputs: Any) -> list[range]:
    """Return the range of addresses of each tensor's elements, in an order that is the same in every process.

    The memory of a view outside of its elements is not included, as it was not hashed.
    """
    tensors = [x for x in (*leaves(inputs), *leaves(outputs)) if hasattr(x, "data_ptr")]
    return [range(x.data_ptr(), x.data_ptr() + _length(x)) for x in tensors]


def scratch(graph: Any) -> list[range]:
    """Return the memory that the launches allocated while they were captured, in an order that depends on sizes first.

    A launch may keep intermediate results there, as kernels of autograd functions do. The memory of a graph is its own,
    so the same allocations lie at the same offsets in each process.
    """
    import torch

    segments = [s for s in torch.cuda.memory_snapshot() if s.get("segment_pool_id") == graph.pool()]
    ordered = sorted(segments, key=lambda segment: (segment["total_size"], segment["address"]))
    return [range(segment["address"], segment["address"] + segment["total_size"]) for segment in ordered]


def _length(tensor: Any) -> int:
    """Return the number of bytes from the first element to the end of the last one."""
    if not tensor.numel():
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return int(last + 1) * int(tensor.element_size())


def two_launches(driver: Any, graph: int) -> tuple[int, int]:
    """Return the two nodes of a graph of two launches of one kernel each, the second of which waits for the first.

    Any other graph is Unknown. So is a second launch that begins before the first has ended (programmatic dependent
    launch): cuGraphGetEdges fails for edges that are not plain.
    """
    number = ctypes.c_size_t()
    check(driver.cuGraphGetNodes(ctypes.c_void_p(graph), None, ctypes.byref(number)))
    if number.value != 2:
        raise Unknown
    check(driver.cuGraphGetEdges(ctypes.c_void_p(graph), None, None, ctypes.byref(number)))
    if number.value != 1:
        raise Unknown
    first, second = ctypes.c_void_p(), ctypes.c_void_p()
    ends = ctypes.byref(first), ctypes.byref(second)
    check(driver.cuGraphGetEdges(ctypes.c_void_p(graph), *ends, ctypes.byref(number)))
    return int(first.value or 0), int(second.value or 0)


def context_facts(driver: Any) -> tuple[Any, ...]:
    """Return the settings for all launches of this context: the split of L1, limits of L2."""
    preferred = ctypes.c_int()
    check(driver.cuCtxGetCacheConfig(ctypes.byref(preferred)))
    return preferred.value, _readable(lambda i, value: driver.cuCtxGetLimit(value, i), _CONTEXT_LIMITS, 8)


def _attributes(driver: Any, node: int, function: int, known: Sequence[range]) -> tuple[list[Any], list[Any]]:
    """Return all attributes of a launch and of its function, as bytes."""
    launch, kernel = ctypes.c_void_p(node), ctypes.c_void_p(function)
    of_launch = _readable(
        lambda i, value: driver.cuGraphKernelNodeGetAttribute(launch, i, value), _LAUNCH_ATTRIBUTES, _ATTRIBUTE_BYTES
    )
    if of_launch[_LAUNCH_ATTRIBUTES.index(_COOPERATIVE)] is None:  # every driver knows this one
        raise Unknown
    used = [_used(driver, number, value, known) for number, value in zip(_LAUNCH_ATTRIBUTES, of_launch)]
    return used, _readable(lambda i, value: driver.cuFuncGetAttribute(value, i, kernel), _FUNCTION_ATTRIBUTES, 4)


def _used(driver: Any, number: int, value: bytes | None, known: Sequence[range]) -> Any:
    """Return the significant part of an attribute of a launch; an unknown one that is set is Unknown."""
    if value is None:
        return None
    if number == _ACCESS_POLICY_WINDOW:
        base, *rest = _WINDOW.unpack_from(value)
        length = rest[0]
        return (_placed(driver, base, known), *rest) if length else 0
    if number not in _BYTES_USED and any(value):
        raise Unknown
    return value[: _BYTES_USED.get(number, 0)]


def _readable(ask: Callable[[ctypes.c_int, Any], int], numbers: Iterable[int], size: int) -> list[bytes | None]:
    """Return the driver's value for each number; None where the driver does not know it, so it cannot have been set."""
    found = []
    for number in numbers:
        value = ctypes.create_string_buffer(size)
        status = ask(ctypes.c_int(number), value)
        if status and status not in _NO_SUCH_THING:
            raise Unknown
        found.append(None if status else value.raw)
    return found


def node_facts(
    driver: Any, node: int, codes: Mapping[int, Callable[[], bytes]], known: Sequence[range]
) -> tuple[Any, ...]:
    """Return code, geometry, attributes and arguments of a kernel node."""
    kind, found = ctypes.c_int(), KernelNode()
    check(driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)))
    if kind.value != KERNEL_NODE:
        raise Unknown
    check(driver.cuGraphKernelNodeGetParams_v2(ctypes.c_void_p(node), ctypes.byref(found)))
    cubin = codes.get(found.func or 0)
    if cubin is None:
        raise Unknown
    geometry = tuple(getattr(found, name) for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared"))
    attributes = _attributes(driver, node, found.func, known)
    return code_hash(cubin()), geometry, attributes, _arguments(driver, found, known)


def _arguments(driver: Any, node: KernelNode, known: Sequence[range]) -> list[Any]:
    """Return each argument, in words of 8 bytes."""
    values: list[Any] = []
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    function = ctypes.c_void_p(node.func)
    while True:
        index = ctypes.c_size_t(len(values))
        status = driver.cuFuncGetParamInfo(function, index, ctypes.byref(offset), ctypes.byref(size))
        if status == _INVALID_VALUE:  # the previous argument was the last
            return values
        check(status)
        raw = ctypes.string_at(node.arguments[len(values)], size.value)
        values.append([_placed(driver, raw[at : at + 8], known) for at in range(0, len(raw), 8)])


def _placed(driver: Any, word: bytes, known: Sequence[range]) -> Any:
    """Return a word as it is; for an address on the GPU, its extent, the offset in it, and its alignment.

    It is the first extent with the address: two inputs may share memory, and an output may be an input. An address
    outside of all extents is Unknown.
    """
    if len(word) < 8:
        return word
    start, value = ctypes.c_void_p(), int.from_bytes(word, "little")
    status = driver.cuPointerGetAttribute(ctypes.byref(start), _POINTER_RANGE, ctypes.c_uint64(value))
    if status == _INVALID_VALUE:
        return word
    check(status)
    for index, extent in enumerate(known):
        if value in extent:
            return index, value - extent.start, value % _ALIGNMENT
    raise Unknown


def _content(leaf: Any) -> Any:
    """Return shape, strides, type and a hash of the bytes of a tensor; the text of a plain value."""
    if isinstance(leaf, (int, float, str, bool, type(None))):
        return repr(leaf)
    if not hasattr(leaf, "data_ptr"):
        raise Unknown
    import torch

    flat = leaf.detach().contiguous().view(-1).view(torch.uint8)
    total = 0
    for start in range(0, len(flat), 8 * _CHUNK):
        part = flat[start : start + 8 * _CHUNK]
        if len(part) % 8 or part.storage_offset() % 8:  # only a part that is not aligned to words is copied
            part = torch.nn.functional.pad(part, (0, -len(part) % 8))
        part = part.view(torch.int64)
        # Every word is mixed, and weighted by an odd number that depends on its place; modulo 2^64 (splitmix64).
        place = torch.arange(start // 8, start // 8 + len(part), device=part.device) * _GOLDEN
        weight = ((place ^ (place >> 30)) * _MIX) | 1
        mixed = (part ^ (part >> 31)) * _MIX
        total += int(((mixed ^ (mixed >> 29)) * weight).sum())
    return tuple(leaf.shape), leaf.stride(), str(leaf.dtype), total


def check(status: int) -> None:
    """Raise Unknown for any answer of the driver but success."""
    if status:
        raise Unknown
