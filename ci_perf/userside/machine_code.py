"""The machine code of the kernels that are loaded, as a hash of what the GPU executes."""

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
"""Sections of line tables and notes; those of a kernel bear its name at the end, which may be any."""


class Unknown(Exception):
    """Something of the launch is not known."""


def known_codes() -> dict[int, Callable[[], bytes]]:
    """Return how to get at the cubin of each function that ci-perf or Triton loaded, by its CUfunction.

    Most are not launched by the case at hand; one of theirs that cannot be read must not matter.
    """
    codes: dict[int, Callable[[], bytes]] = {}
    own = sys.modules.get("ci_perf.cuda")
    if own is not None:
        codes.update({function: partial(bytes, code) for function, code in own.loaded_codes().items()})
    if "triton" in sys.modules:
        for found in gc.get_objects():
            if type(found).__name__ == "CompiledKernel" and isinstance(getattr(found, "function", None), int):
                codes[found.function] = partial(_triton_cubin, found)
    return codes


def _triton_cubin(kernel: Any) -> bytes:
    return bytes(kernel.asm["cubin"])


def code_hash(cubin: bytes) -> str:
    """Return the hash of what a cubin executes: its sections (ELF-64) without the tables of symbols, strings and lines.

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
