"""What a launch makes the GPU do, as a hash: two sides with the same one cannot differ in speed.

Only where all of it is known: every node of the captured launch is a kernel whose machine code ci-perf compiled or
Triton did, launched with the same geometry and arguments, on inputs of the same shape and content. Addresses do not
count. Kernels of libraries are not known, so torch's own operations have no such hash.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import re
import struct
import sys
from typing import Any

from ci_perf.userside.case import Case
from ci_perf.userside.timers import capture
from ci_perf.userside.verify import leaves

_KERNEL_NODE = 0  # CU_GRAPH_NODE_TYPE_KERNEL
_ALIGNMENT = 256
"""Of an address, the position in this many bytes counts: misaligned accesses are slower."""
_ROW = 4096
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


def launch_hash(case: Case) -> str | None:
    """Return the hash of one launch, or None where something of it is not known."""
    try:
        codes = known_codes()
        return _hash(case, codes) if codes else None
    except (Unknown, AttributeError, TypeError, RuntimeError):  # an older torch or driver does not tell
        return None


def inputs_hash(case: Case) -> str | None:
    """Return a hash of shape and content of a case's inputs; None where some are neither tensors nor numbers."""
    try:
        return hashlib.sha256(repr([_content(leaf) for leaf in leaves(case.inputs)]).encode()).hexdigest()
    except (Unknown, AttributeError, TypeError, RuntimeError):
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
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        capture(graph, case.launch, 1)
    torch.cuda.synchronize()
    driver = ctypes.CDLL("libcuda.so.1")
    nodes = [_node(driver, node, codes) for node in _nodes(driver, int(graph.raw_cuda_graph()))]
    inputs = [_content(leaf) for leaf in leaves(case.inputs)]
    return hashlib.sha256(repr((nodes, inputs)).encode()).hexdigest()


def _nodes(driver: Any, graph: int) -> list[int]:
    number = ctypes.c_size_t()
    _check(driver.cuGraphGetNodes(ctypes.c_void_p(graph), None, ctypes.byref(number)))
    nodes = (ctypes.c_void_p * number.value)()
    _check(driver.cuGraphGetNodes(ctypes.c_void_p(graph), nodes, ctypes.byref(number)))
    return [int(node or 0) for node in nodes]


def _node(driver: Any, node: int, codes: dict[int, str]) -> tuple[Any, ...]:
    """Return code, geometry and arguments of a kernel node."""
    kind, found = ctypes.c_int(), _KernelNode()
    _check(driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)))
    if kind.value != _KERNEL_NODE:
        raise Unknown
    _check(driver.cuGraphKernelNodeGetParams_v2(ctypes.c_void_p(node), ctypes.byref(found)))
    code = codes.get(found.func or 0)
    if code is None:
        raise Unknown
    geometry = tuple(getattr(found, name) for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared"))
    return code, geometry, _arguments(driver, found)


def _arguments(driver: Any, node: _KernelNode) -> list[bytes]:
    values: list[bytes] = []
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    function = ctypes.c_void_p(node.func)
    while not driver.cuFuncGetParamInfo(
        function, ctypes.c_size_t(len(values)), ctypes.byref(offset), ctypes.byref(size)
    ):
        raw = ctypes.string_at(node.arguments[len(values)], size.value)
        values.append(b"".join(_without_address(driver, raw[at : at + 8]) for at in range(0, len(raw), 8)))
    return values


def _without_address(driver: Any, word: bytes) -> bytes:
    """Replace what is an address on the GPU by its alignment."""
    start = ctypes.c_void_p()
    range_start = 11  # CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
    value = int.from_bytes(word, "little")
    if len(word) < 8 or driver.cuPointerGetAttribute(ctypes.byref(start), range_start, ctypes.c_uint64(value)):
        return word
    return b"address+%d" % (value % _ALIGNMENT)


def _content(leaf: Any) -> Any:
    """Return shape, strides, type and two weighted sums of a tensor's bytes; a plain value stands for itself."""
    if isinstance(leaf, (int, float, str, bool, type(None))):
        return repr(leaf)
    if not hasattr(leaf, "data_ptr"):
        raise Unknown
    import torch

    flat = leaf.detach().contiguous().view(-1).view(torch.uint8)
    padded = torch.nn.functional.pad(flat, (0, -len(flat) % _ROW)).view(-1, _ROW)
    sums = [padded.sum(axis, dtype=torch.int64) for axis in (0, 1)]
    weighted = [int((s * torch.arange(1, len(s) + 1, device=s.device)).sum()) for s in sums]
    return tuple(leaf.shape), leaf.stride(), str(leaf.dtype), leaf.data_ptr() % _ALIGNMENT, weighted


def _check(status: int) -> None:
    if status:
        raise Unknown
