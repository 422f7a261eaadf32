"""The machine code of the loaded kernels, and its hash."""

from __future__ import annotations

import gc
import hashlib
import re
import struct
import sys
from functools import partial
from typing import Any, Callable

_SYMBOLS_AND_STRINGS = (2, 3)  # SHT_SYMTAB and SHT_STRTAB of ELF
_NO_BITS = 8
_NOTHING_THAT_RUNS = re.compile(rb"\.(rela?\.)?(nv_)?debug_|\.note")
"""Names of sections with line tables and notes; that of a kernel's section ends with the kernel's name."""


class Unknown(Exception):
    """Something about the launch is not known."""


def known_codes() -> dict[int, Callable[[], bytes]]:
    """Return, by CUfunction, what reads the cubin of each function that ci_perf.cuda or Triton loaded.

    It is read only when it is needed: a cubin that no launch of the case uses may be unreadable.
    """
    codes: dict[int, Callable[[], bytes]] = {}
    own = sys.modules.get("ci_perf.cuda")
    if own is not None:
        codes.update({function: partial(bytes, code) for function, code in own.loaded_codes().items()})
    for kernel in triton_kernels():
        if isinstance(getattr(kernel, "function", None), int):
            codes[kernel.function] = partial(_triton_cubin, kernel)
    return codes


def _triton_cubin(kernel: Any) -> bytes:
    return bytes(kernel.asm["cubin"])


def triton_kernels() -> list[Any]:
    """Return every kernel that Triton compiled in this process; it keeps no list of them."""
    if "triton" not in sys.modules:
        return []
    return [found for found in gc.get_objects() if type(found).__name__ == "CompiledKernel"]


def code_hash(cubin: bytes) -> str:
    """Return the hash of what a cubin executes: its sections (ELF-64) without symbols, strings, line tables and notes.

    Those change when a comment moves the lines of a source. A truncated cubin raises Unknown.
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
