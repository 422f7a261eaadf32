"""Compiles the `.cu` source beside a kernel.py and launches its kernels on torch's stream.

Runs under the interpreter of the user's kernels: Python 3.9 syntax, the standard library at import, torch and cuda.core
at the first launch. Compiling needs neither of them nor a GPU, but NVRTC (the wheel nvidia-cuda-nvrtc or a toolkit) or
nvcc.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from ci_perf.userside.compilers import CompileError, find_compiler, toolkit_versions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cuda.core import Kernel, LaunchConfig, Stream

    from ci_perf.userside.compilers import Nvcc, Nvrtc

__all__ = ["CompileError", "CudaSource", "device_arch", "find_compiler"]

# Line tables cost no instruction; a profiler needs them to name source lines.
_DEFAULT_OPTIONS = ("-std=c++17", "-lineinfo")
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)


class CudaSource:
    """One `.cu` file: compiled once per content, its `extern "C"` kernels launched by name."""

    def __init__(self, path: str | os.PathLike[str], *, options: Iterable[str] = ()) -> None:
        """`options` are understood by NVRTC and nvcc, such as -DNAME=1; -I is relative to the folder of the source."""
        self.path = Path(path).resolve()
        self.options = tuple(options)
        self._kernels: dict[tuple[int, str], Kernel] = {}
        self._shared_limits: dict[tuple[int, str], int] = {}

    def cubin(self, arch: str) -> bytes:
        """Return the machine code for `arch` ("sm_90"), from the cache if nothing that it depends on has changed."""
        compiler = find_compiler()
        cached = _cache_folder() / f"{self._digest(compiler, arch)}.cubin"
        # A cache that cannot be read or written, as in the home of a container, costs only time.
        with contextlib.suppress(OSError):
            code = cached.read_bytes()
            if code.startswith(b"\x7fELF"):  # after a power loss the file may be empty
                return code
        options = [option for option in self.options if not option.startswith("-I")]
        includes = [f"-I{folder}" for folder in self._include_folders()]
        code = compiler.compile(self.path, arch, (*_DEFAULT_OPTIONS, *options, *includes))
        with contextlib.suppress(OSError):
            _write_atomically(cached, code)
        return code

    def _include_folders(self) -> list[Path]:
        folder = self.path.parent
        return [folder, *(folder / option[2:] for option in self.options if option.startswith("-I"))]

    def _digest(self, compiler: Nvrtc | Nvcc, arch: str) -> str:
        """Return a hash of all that the machine code depends on: sources, options, target, compiler, headers."""
        parts = [text.encode() for text in (compiler.identity, arch, *_DEFAULT_OPTIONS, *self.options)]
        parts += toolkit_versions()
        for file in _local_files(self.path, self._include_folders()):
            parts += [os.path.relpath(file, self.path.parent).encode(), file.read_bytes()]
        return hashlib.sha256(b"".join(b"%d:%s" % (len(part), part) for part in parts)).hexdigest()

    def kernel(self, name: str) -> Kernel:
        """Return the kernel `name`, loaded on torch's current device."""
        return self._loaded(_runtime().current_device(), name)

    def launch(
        self,
        name: str,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        args: Iterable[object],
        *,
        shared_bytes: int = 0,
    ) -> None:
        """Launch `name` on torch's current stream, without allocating or waiting, so that a graph can capture it.

        A tensor is passed as its data pointer, a Python int as 32 bits, a ctypes or numpy scalar as its own type.
        """
        runtime = _runtime()
        index = runtime.current_device()
        kernel = self._loaded(index, name)
        if shared_bytes > self._shared_limits.get((index, name), 0):
            self._allow_shared(index, name, shared_bytes)
        config = _launch_config(grid, block, shared_bytes)
        runtime.launch(_stream(runtime.current_stream(index)), config, kernel, *map(_argument, args))

    def _loaded(self, index: int, name: str) -> Kernel:
        kernel = self._kernels.get((index, name))
        if kernel is None:
            from cuda.core import Device, ObjectCode

            Device(index).set_current()
            code = self.cubin(device_arch(index))
            if f".text.{name}\0".encode() not in code:
                raise ValueError(f'{self.path.name}: no extern "C" kernel named {name}')
            kernel = ObjectCode.from_cubin(code).get_kernel(name)
            self._kernels[index, name] = kernel
            _LOADED[name] = kernel
            _CODES[int(kernel.handle)] = code
        return kernel

    def _allow_shared(self, index: int, name: str, shared_bytes: int) -> None:
        """Raise the kernel's limit of dynamic shared memory: a launch with more than 48 KiB needs that."""
        from cuda.bindings import driver

        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        handle = self._loaded(index, name).handle
        (status,) = driver.cuKernelSetAttribute(attribute, shared_bytes, handle, driver.CUdevice(index))
        if status != driver.CUresult.CUDA_SUCCESS:
            raise ValueError(f"{self.path.name}: {name}: {shared_bytes} bytes of shared memory: {status.name}")
        self._shared_limits[index, name] = shared_bytes


_LOADED: dict[str, Kernel] = {}
"""Every kernel that this process loaded, by name."""


def local_bytes() -> dict[str, int]:
    """Return the local memory per thread, which holds spilled registers, of each loaded kernel."""
    sizes = {}
    for name, kernel in _LOADED.items():
        size: Any = getattr(kernel.attributes, "local_size_bytes", None)  # a method or a property, by version
        if size is not None:
            sizes[name] = int(size() if callable(size) else size)
    return sizes


_CODES: dict[int, bytes] = {}
"""The machine code of each loaded kernel, by its CUkernel."""


def loaded_codes() -> dict[int, bytes]:
    """Return the machine code of each loaded kernel, by its CUfunction in the current context."""
    driver = ctypes.CDLL("libcuda.so.1")
    codes = {}
    for kernel, code in _CODES.items():
        function = ctypes.c_void_p()
        if not driver.cuKernelGetFunction(ctypes.byref(function), ctypes.c_void_p(kernel)):
            codes[int(function.value or 0)] = code
    return codes


def device_arch(index: int | None = None) -> str:
    """Return the architecture of a torch device: "sm_89", "sm_90a".

    From 9.0 on with the suffix that enables the instructions of this chip alone (wgmma): the code runs on no other.
    """
    import torch

    major, minor = torch.cuda.get_device_capability(index)
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def _local_files(source: Path, folders: Iterable[Path]) -> list[Path]:
    """Return the source and all headers that it includes, found beside the including file or in `folders`."""
    files = [source]
    for file in files:
        for name in _INCLUDE.findall(file.read_bytes()):
            candidates = (folder / os.fsdecode(name) for folder in (file.parent, *folders))
            header = next((path.resolve() for path in candidates if path.is_file()), None)
            if header and header not in files:
                files.append(header)
    return files


def _cache_folder() -> Path:
    """Return the folder for compiled code: $CI_PERF_CACHE, else ci-perf in the XDG cache folder."""
    chosen = os.environ.get("CI_PERF_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    return (Path(chosen) if chosen else home / "ci-perf") / "cubin"


def _write_atomically(path: Path, content: bytes) -> None:
    """Write a file that other processes see complete or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=path.stem)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink()
        raise


class _Runtime(NamedTuple):
    """The functions that each launch calls: to import them each time would double the time of a launch in Python."""

    current_device: Callable[[], int]
    current_stream: Callable[[int], int]
    launch: Callable[..., None]


@functools.cache
def _runtime() -> _Runtime:
    import torch
    from cuda.core import launch

    # torch.cuda.current_stream() builds an object at each call; this returns the handle alone, and Triton uses it too.
    return _Runtime(torch.cuda.current_device, torch._C._cuda_getCurrentRawStream, launch)


@functools.lru_cache(maxsize=64)
def _stream(handle: int) -> Stream:
    from cuda.core import Stream

    return Stream.from_handle(handle or 1)  # 1 is CU_STREAM_LEGACY, the explicit name of torch's default stream


@functools.lru_cache(maxsize=256)
def _launch_config(grid: int | tuple[int, ...], block: int | tuple[int, ...], shared_bytes: int) -> LaunchConfig:
    from cuda.core import LaunchConfig

    return LaunchConfig(grid=grid, block=block, shmem_size=shared_bytes)


def _argument(value: object) -> object:
    """Return an argument for cuda.core, which takes a plain int as a pointer and a plain float as a double."""
    if type(value) is int:
        if not -(2**31) <= value < 2**31:
            raise OverflowError(f"{value} does not fit 32 bits: pass ctypes.c_int64")
        return ctypes.c_int32(value)
    if type(value) is float:
        raise TypeError("the width of a Python float is ambiguous: pass ctypes.c_float or ctypes.c_double")
    pointer = getattr(value, "data_ptr", None)
    return value if pointer is None else pointer()
