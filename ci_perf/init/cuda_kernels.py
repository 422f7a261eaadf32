"""`extern "C"` kernels of .cu files: their parameters, and how they divide the work. Pure.

C++ is read with patterns, not parsed: what they do not understand is left to a person.
"""

import re
from dataclasses import dataclass

from ci_perf.init.candidates import Candidate

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_KERNEL = re.compile(
    r"__global__\s+(?:void\s+)?(?:__launch_bounds__\s*\(([^()]*)\)\s*)?(?:void\s+)?(?:__launch_bounds__\s*\(([^()]*)\)\s*)?"
    r"(\w+)\s*\(([^()]*)\)\s*\{"
)
_TYPES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "__half": "float16",
    "__nv_bfloat16": "bfloat16",
    "nv_bfloat16": "bfloat16",
    "int": "int32",
    "int32_t": "int32",
    "long long": "int64",
    "int64_t": "int64",
    "uint8_t": "uint8",
    "unsigned char": "uint8",
    "int8_t": "int8",
}
_SCALARS = {
    "int": "int",
    "int32_t": "int",
    "unsigned": "int",
    "unsigned int": "int",
    "uint32_t": "int",
    "size_t": "size",
    "long long": "size",
    "int64_t": "size",
    "float": "float",
    "double": "double",
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a CUDA kernel."""

    name: str
    kind: str
    """`input`, `output`, `both`: pointers that are read, written, or both; else `int`, `size`, `float` or `double`."""
    dtype: str = ""
    """Of the values of a pointer, as torch calls it."""


@dataclass(frozen=True, slots=True)
class CudaKernel:
    """A kernel as its source declares it."""

    name: str
    parameters: tuple[Parameter, ...]
    body: str
    threads: int
    """In a block."""

    @property
    def reads(self) -> tuple[Parameter, ...]:
        """What it reads from memory."""
        return self.of_kind("input", "both")

    @property
    def writes(self) -> tuple[Parameter, ...]:
        """What it writes to memory."""
        return self.of_kind("output", "both")

    def of_kind(self, *kinds: str) -> tuple[Parameter, ...]:
        """Return the parameters of these kinds."""
        return tuple(one for one in self.parameters if one.kind in kinds)


def find_kernels(text: str, path: str) -> list[Candidate]:
    """Return the `extern "C"` kernels of a file; the names of others are mangled."""
    plain = _COMMENTS.sub(_blank, text)
    return [
        Candidate("cuda", path, found[3], plain.count("\n", 0, found.start(3)) + 1)
        for found in _KERNEL.finditer(plain)
        if _is_extern_c(plain, found.start())
    ]


def kernel_of(text: str, name: str) -> CudaKernel | None:
    """Return a kernel; None if one of its parameters has a type that is not known here."""
    plain = _COMMENTS.sub(_blank, text)
    found = next((one for one in _KERNEL.finditer(plain) if one[3] == name), None)
    if found is None:
        return None
    body = _block(plain, found.end() - 1)
    parameters = [_parameter(one, body) for one in found[4].split(",") if one.strip()]
    if not all(parameters):
        return None
    bound = re.match(r"\s*(\w+)", found[1] or found[2] or "")
    threads = _number(plain, bound[1]) if bound else None
    return CudaKernel(name, tuple(filter(None, parameters)), body, threads or 256)


def _blank(comment: re.Match[str]) -> str:
    return "\n" * comment[0].count("\n") or " "


def _is_extern_c(text: str, start: int) -> bool:
    """Return whether what begins there is declared `extern "C"`, by itself or in a block."""
    before = text[:start]
    if re.search(r'extern\s*"C"\s*$', before):
        return True
    return any(
        start < opened.end() + len(_block(text, opened.end() - 1))
        for opened in re.finditer(r'extern\s*"C"\s*\{', before)
    )


def _block(text: str, start: int) -> str:
    """Return what stands in the braces that open at `start`."""
    depth = 0
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start + 1 : place]
    return text[start + 1 :]


def _number(text: str, word: str) -> int | None:
    """Return a number, or the one that a macro or a constant stands for."""
    if word.isdecimal():
        return int(word)
    found = re.search(rf"#\s*define\s+{word}\s+(\d+)|\b{word}\s*=\s*(\d+)", text)
    return int(found[1] or found[2]) if found else None


def _is_read(name: str, body: str) -> bool:
    """Return whether an array is used otherwise than on the left of a plain assignment."""
    stored = re.findall(rf"\b{name}\s*\[[^\]]*\]\s*=(?!=)", body)
    return len(re.findall(rf"\b{name}\b", body)) > len(stored)


def _parameter(text: str, body: str) -> Parameter | None:
    words = re.sub(r"\b(__restrict__|__restrict|restrict|volatile)\b|__grid_constant__", " ", text)
    constant = bool(re.search(r"\bconst\b", words))
    pointer = re.fullmatch(r"\s*([\w\s]+?)\s*\*\s*(\w+)\s*", re.sub(r"\bconst\b", " ", words))
    if pointer:
        dtype = _TYPES.get(" ".join(pointer[1].split()))
        kind = "input" if constant else "both" if _is_read(pointer[2], body) else "output"
        return Parameter(pointer[2], kind, dtype) if dtype else None
    value = re.fullmatch(r"\s*([\w\s]+?)\s+(\w+)\s*", re.sub(r"\bconst\b", " ", words))
    scalar = _SCALARS.get(" ".join(value[1].split())) if value else None
    return Parameter(value[2], scalar) if value and scalar else None
