"""The compilers of CUDA C++: NVRTC from NVIDIA's wheels or a toolkit, else nvcc; and what their output depends on."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_VERSION_HEADERS = ("cuda.h", "cuda_fp16.hpp", "cuda_fp8.hpp", "cuda/std/__cccl/version.h", "cub/version.cuh")
"""Headers that change with the version of the driver, the arithmetic types, libcu++ and CUB."""
_NVCC_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "CPATH", "CPLUS_INCLUDE_PATH")
"""Environment variables that nvcc and its host compiler read beside their options."""


class CompileError(RuntimeError):
    """A source that does not compile; the message is the compiler's log, with file and line."""


class Nvrtc:
    """NVIDIA's run-time compiler, called through ctypes: it needs no host compiler.

    `identity` changes whenever the machine code for a source might.
    """

    def __init__(self, library: Path) -> None:
        # NVRTC opens the library of its built-in functions by bare name, which works only if it is already loaded.
        self._builtins = [ctypes.CDLL(str(path)) for path in library.parent.glob("libnvrtc-builtins.so.*")]
        self._nvrtc = ctypes.CDLL(str(library))
        self._nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        # nvrtcVersion has no patch level; the size tells builds apart.
        self.identity = f"nvrtc {major.value}.{minor.value} of {library.stat().st_size} bytes"

    def compile(self, source: Path, arch: str, options: Sequence[str]) -> bytes:
        flags = [f"-arch={arch}", *options, *(f"-I{path}" for path in _toolkit_includes())]
        argv = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
        program = ctypes.c_void_p()
        # The bare name, as for nvcc: neither the log nor the line table may depend on the place of the worktree.
        text, name = source.read_bytes(), source.name.encode()
        self._check(self._nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, name, 0, None, None))
        try:
            if self._nvrtc.nvrtcCompileProgram(program, len(flags), argv):
                raise CompileError(self._output(program, "ProgramLog").rstrip(b"\0").decode(errors="replace").strip())
            return self._output(program, "CUBIN")
        finally:
            self._nvrtc.nvrtcDestroyProgram(ctypes.byref(program))

    def _output(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._nvrtc, f"nvrtcGet{what}")(program, buffer))
        return buffer.raw

    def _check(self, status: int) -> None:
        if status:
            raise CompileError(f"nvrtc: {self._nvrtc.nvrtcGetErrorString(status).decode()}")


class Nvcc:
    """The compiler driver of a toolkit, with the same interface; it also needs a host compiler."""

    def __init__(self, program: str) -> None:
        self._program = program
        version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
        variables = (f"{name}={os.environ[name]}" for name in _NVCC_VARIABLES if name in os.environ)
        self.identity = "\n".join((version, *variables))

    def compile(self, source: Path, arch: str, options: Sequence[str]) -> bytes:
        # The short form -arch=sm_90a also compiles for plain sm_90, which lacks the instructions of sm_90a.
        target = f"-gencode=arch={arch.replace('sm_', 'compute_')},code={arch}"
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder, "out.cubin")
            argv = [self._program, "-cubin", target, *options, "-o", str(output), source.name]
            done = subprocess.run(argv, cwd=source.parent, check=False, capture_output=True, text=True)
            if done.returncode:
                raise CompileError((done.stderr + done.stdout).strip())
            return output.read_bytes()


@functools.cache
def find_compiler() -> Nvrtc | Nvcc:
    """Return NVRTC from the wheels or a toolkit, else nvcc."""
    for root in (*wheel_roots(), *toolkit_roots()):
        for library in sorted(root.glob("lib*/libnvrtc.so.*")):
            with contextlib.suppress(OSError):
                return Nvrtc(library)
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path=os.pathsep.join(f"{r}/bin" for r in toolkit_roots()))
    if nvcc:
        return Nvcc(nvcc)
    raise CompileError("no CUDA compiler: pip install nvidia-cuda-nvrtc, or set CUDA_HOME to a CUDA toolkit")


def wheel_roots() -> Iterator[Path]:
    """Yield the folders of NVIDIA's wheels: nvidia/cu13, or nvidia/cuda_nvrtc and its neighbours before CUDA 13."""
    spec = importlib.util.find_spec("nvidia")
    for location in (spec and spec.submodule_search_locations) or ():
        yield from (path for path in sorted(Path(location).iterdir()) if path.is_dir())


def toolkit_roots() -> Iterator[Path]:
    """Yield the toolkits of CUDA_HOME, CUDA_PATH, the PATH and /usr/local/cuda, in this order."""
    nvcc = shutil.which("nvcc")
    named = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), nvcc and Path(nvcc).resolve().parents[1])
    for root in (*named, "/usr/local/cuda"):
        if root and Path(root, "include", "cuda.h").is_file():
            yield Path(root)


def _toolkit_includes() -> Iterator[Path]:
    """Yield the folders of CUDA's headers, such as cuda_fp16.h, which NVRTC itself does not bring."""
    for root in (*wheel_roots(), *toolkit_roots()):
        yield from (path for path in (root / "include", root / "include/cccl") if path.is_dir())


def toolkit_versions() -> list[bytes]:
    """Return the headers that change with the version of the toolkit, whose package may not be the compiler's."""
    headers = (folder / name for folder in _toolkit_includes() for name in _VERSION_HEADERS)
    return [header.read_bytes() for header in headers if header.is_file()]
