"""What a launch makes the GPU do, as a hash: two sides with the same one cannot differ in speed.

Only where all of it is known: a launch is one kernel whose machine code ci-perf compiled or Triton did, with its
geometry, attributes and arguments, on inputs of known shape and content; every address among its arguments lies in an
input or an output. Where an address is does not count. Kernels of libraries are not known, so torch's own operations
have no hash. All is read from the driver, whoever launched: clusters, a cooperative launch, the share of shared memory.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import re
import struct
import sys
from typing import Any, Callable

from ci_perf.userside.case import Case
from ci_perf.userside.timers import capture
from ci_perf.userside.verify import leaves

_KERNEL_NODE = 0  # CU_GRAPH_NODE_TYPE_KERNEL
_COOPERATIVE = 2  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE
_LAUNCH_ATTRIBUTES, _ATTRIBUTE_BYTES = range(1, 32), 64
"""CUlaunchAttributeID, which ends at 16, and CUlaunchAttributeValue of cuda.h; newer drivers may know more."""
_BYTES_USED = {1: 28, 2: 4, 4: 12, 5: 4, 8: 4, 9: 2, 10: 4, 11: 12, 13: 4, 14: 4, 16: 4}
"""Of a CUlaunchAttributeValue, by its id: the driver need not write the rest."""
_FUNCTION_ATTRIBUTES = range(32)
"""CUfunction_attribute: registers, the limit of dynamic shared memory, the carve-out, what clusters it allows."""
_CONTEXT_LIMITS = range(16)
"""CUlimit: the stack, what of the L2 cache persists."""
_ALIGNMENT = 256
"""Of an address, the position in this many bytes counts: misaligned accesses are slower."""
_CHUNK = 1 << 22
_GOLDEN, _MIX = 0x9E3779B97F4A7C15 - (1 << 64), 0xBF58476D1CE4E5B9 - (1 << 64)
"""Constants of splitmix64 (Steele, Lea and Flood, OOPSLA 2014), as signed numbers."""
_SYMBOLS_AND_STRINGS = (2, 3)  # SHT_SYMTAB and SHT_STRTAB of ELF
_NO_BITS = 8
_NOTHING_THAT_RUNS = re.compile(rb"\.(rela?\.)?(nv_)?debug_|\.note")
"""Sections of line tables and notes; those of a kernel bear its name at the end, which may be any."""


class _KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2 of cuda.h."""

    _fields_ = [  # type: ignore[mutable-override] # as ctypes wants it
        ("func", ctypes.c_void_p),
        *[(name, ctypes.c_uint) for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared")],
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    ]


class Unknown(Exception):
    """Something of the launch is not known."""


NOT_TOLD = (Unknown, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)
"""What an older torch or driver, or an odd input, makes of a question."""


def launch_hash(case: Case) -> str | None:
    """Return the hash of one launch, or None where something of it is not known."""
    try:
        codes = known_codes()
        return _hash(case, codes) if codes else None
    except NOT_TOLD:
        return None


def inputs_hash(case: Case) -> str | None:
    """Return a hash of shape and content of a case's inputs; None where some are neither tensors nor numbers."""
    try:
        return hashlib.sha256(repr([_content(leaf) for leaf in leaves(case.inputs)]).encode()).hexdigest()
    except NOT_TOLD:
        return None


def known_codes() -> dict[int, str]:
    """Return the hash of the machine code of each function that ci-perf or Triton loaded, by its CUfunction."""
    codes: dict[int, str] = {}
    own = sys.modules.get("ci_perf.cuda")
    if own is not None:
        codes.update({function: code_hash(code) for function, code in own.loaded_codes().items()})
    if "triton" in sys.modules:
        for found in gc.get_objects():
            if type(found).__name__ == "CompiledKernel" and getattr(found, "function", None):
                codes[int(found.function)] = code_hash(found.asm["cubin"])
    return codes


def code_hash(cubin: bytes) -> str:
    """Return the hash of what a cubin executes: its sections (ELF-64) without names, symbols and line tables.

    A comment that moves the lines of a source changes those, and nothing that runs. What is no whole cubin is Unknown.
    """
    try:
        return _hash_of_sections(cubin)
    except (struct.error, ValueError, IndexError):
        raise Unknown from None


def _hash_of_sections(cubin: bytes) -> str:
    header = struct.unpack_from("<Q", cubin, 0x28)[0]  # e_shoff
    size, number, names_index = struct.unpack_from("<HHH", cubin, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", cubin, header + size * i) for i in range(number)]
    names_at = sections[names_index][4]
    digest = hashlib.sha256()
    for name_at, kind, _, _, at, length in sections:
        name = cubin[names_at + name_at : cubin.index(b"\0", names_at + name_at)]
        if kind not in _SYMBOLS_AND_STRINGS and not _NOTHING_THAT_RUNS.match(name):
            content = b"" if kind == _NO_BITS else cubin[at : at + length]
            if kind != _NO_BITS and len(content) < length:
                raise Unknown
            digest.update(b"%d:%s%d:%s" % (len(name), name, length, content))
    return digest.hexdigest()


def _hash(case: Case, codes: dict[int, str]) -> str:
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
    known = [_extent(leaf) for leaf in (*leaves(case.inputs), *leaves(outputs)) if hasattr(leaf, "untyped_storage")]
    inputs = [(_content(leaf), _alignment(leaf)) for leaf in leaves(case.inputs)]
    launches = [node_facts(driver, node, codes, known) for node in nodes]
    return hashlib.sha256(repr((launches, context_facts(driver), inputs)).encode()).hexdigest()


def _extent(tensor: Any) -> range:
    """Return the addresses of a tensor's memory."""
    storage = tensor.untyped_storage()
    return range(storage.data_ptr(), storage.data_ptr() + storage.nbytes())


def _alignment(leaf: Any) -> int:
    return int(leaf.data_ptr()) % _ALIGNMENT if getattr(leaf, "is_cuda", False) else 0


def two_launches(driver: Any, graph: int) -> tuple[int, int]:
    """Return the two nodes of a graph of two launches of one kernel each, of which the second waits for the first.

    One that begins before the other has ended (programmatic dependent launch) is Unknown: this function of the driver
    fails where an edge is of any other than the plain kind. Within a launch, of several kernels the order would count.
    """
    number = ctypes.c_size_t()
    _check(driver.cuGraphGetNodes(ctypes.c_void_p(graph), None, ctypes.byref(number)))
    if number.value != 2:
        raise Unknown
    _check(driver.cuGraphGetEdges(ctypes.c_void_p(graph), None, None, ctypes.byref(number)))
    if number.value != 1:
        raise Unknown
    first, second = ctypes.c_void_p(), ctypes.c_void_p()
    ends = ctypes.byref(first), ctypes.byref(second)
    _check(driver.cuGraphGetEdges(ctypes.c_void_p(graph), *ends, ctypes.byref(number)))
    return int(first.value or 0), int(second.value or 0)


def context_facts(driver: Any) -> tuple[Any, ...]:
    """Return what a program may have set for all of its launches: caches, limits."""
    preferred = ctypes.c_int()
    _check(driver.cuCtxGetCacheConfig(ctypes.byref(preferred)))
    return preferred.value, _readable(lambda i, value: driver.cuCtxGetLimit(value, i), _CONTEXT_LIMITS, 8)


def _attributes(driver: Any, node: int, function: int) -> tuple[list[bytes | None], list[bytes | None]]:
    """Return all attributes of a launch and of its function; how they are laid out does not matter to a hash."""
    launch, kernel = ctypes.c_void_p(node), ctypes.c_void_p(function)
    of_launch = _readable(
        lambda i, value: driver.cuGraphKernelNodeGetAttribute(launch, i, value), _LAUNCH_ATTRIBUTES, _ATTRIBUTE_BYTES
    )
    if of_launch[_LAUNCH_ATTRIBUTES.index(_COOPERATIVE)] is None:  # every driver knows this one
        raise Unknown
    used = [v and v[: _BYTES_USED.get(i)] for i, v in zip(_LAUNCH_ATTRIBUTES, of_launch)]
    return used, _readable(lambda i, value: driver.cuFuncGetAttribute(value, i, kernel), _FUNCTION_ATTRIBUTES, 4)


def _readable(ask: Callable[[ctypes.c_int, Any], int], numbers: range, size: int) -> list[bytes | None]:
    """Return what the driver says to each number; None where it knows no such thing: then nothing can have set it."""
    found = []
    for number in numbers:
        value = ctypes.create_string_buffer(size)
        found.append(None if ask(ctypes.c_int(number), value) else value.raw)
    return found


def node_facts(driver: Any, node: int, codes: dict[int, str], known: list[range]) -> tuple[Any, ...]:
    """Return code, geometry, attributes and arguments of a kernel node."""
    kind, found = ctypes.c_int(), _KernelNode()
    _check(driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)))
    if kind.value != _KERNEL_NODE:
        raise Unknown
    _check(driver.cuGraphKernelNodeGetParams_v2(ctypes.c_void_p(node), ctypes.byref(found)))
    code = codes.get(found.func or 0)
    if code is None:
        raise Unknown
    geometry = tuple(getattr(found, name) for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared"))
    return code, geometry, _attributes(driver, node, found.func), _arguments(driver, found, known)


def _arguments(driver: Any, node: _KernelNode, known: list[range]) -> list[bytes]:
    values: list[bytes] = []
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    function = ctypes.c_void_p(node.func)
    while not driver.cuFuncGetParamInfo(
        function, ctypes.c_size_t(len(values)), ctypes.byref(offset), ctypes.byref(size)
    ):
        raw = ctypes.string_at(node.arguments[len(values)], size.value)
        values.append(b"".join(_without_address(driver, raw[at : at + 8], known) for at in range(0, len(raw), 8)))
    return values


def _without_address(driver: Any, word: bytes, known: list[range]) -> bytes:
    """Replace what is an address on the GPU by its alignment; what lies there must be known."""
    start = ctypes.c_void_p()
    range_start = 11  # CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
    value = int.from_bytes(word, "little")
    if len(word) < 8 or driver.cuPointerGetAttribute(ctypes.byref(start), range_start, ctypes.c_uint64(value)):
        return word
    if not any(value in extent for extent in known):
        raise Unknown
    return b"address+%d" % (value % _ALIGNMENT)


def _content(leaf: Any) -> Any:
    """Return shape, strides, type and a hash of a tensor's bytes; a plain value stands for itself."""
    if isinstance(leaf, (int, float, str, bool, type(None))):
        return repr(leaf)
    if not hasattr(leaf, "data_ptr"):
        raise Unknown
    import torch

    flat = leaf.detach().contiguous().view(-1).view(torch.uint8)
    words = torch.nn.functional.pad(flat, (0, -len(flat) % 8)).view(torch.int64)
    total = 0
    for start in range(0, len(words), _CHUNK):
        part = words[start : start + _CHUNK]
        # Every word is mixed and weighed by an odd number that its place decides; all modulo 2^64 (splitmix64).
        place = torch.arange(start, start + len(part), device=part.device) * _GOLDEN
        weight = ((place ^ (place >> 30)) * _MIX) | 1
        mixed = (part ^ (part >> 31)) * _MIX
        total += int(((mixed ^ (mixed >> 29)) * weight).sum())
    return tuple(leaf.shape), leaf.stride(), str(leaf.dtype), total


def _check(status: int) -> None:
    if status:
        raise Unknown
