"""Compiles the `.cu` source beside a kernel.py and launches its kernels on torch's stream.

Runs under the interpreter of the user's kernels: Python 3.9 syntax, the standard library at import, torch and
cuda.core only once something is launched. Compiling needs neither of them, nor a GPU: NVRTC (the wheel
nvidia-cuda-nvrtc or a toolkit) or else nvcc.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cuda.core import Kernel, LaunchConfig, Stream

# Line tables cost no instruction, and a profiler needs them to name the source line of a stall.
_DEFAULT_OPTIONS = ("-std=c++17", "-lineinfo")
_VERSION_HEADERS = ("cuda.h", "cuda_fp16.hpp", "cuda_fp8.hpp", "cuda/std/__cccl/version.h", "cub/version.cuh")
"""Of the driver, the arithmetic types, libcu++ and CUB; to read all that they include would take a second."""
_NVCC_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "CPATH", "CPLUS_INCLUDE_PATH")
"""What nvcc and its host compiler read beside their options."""
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)


class CompileError(RuntimeError):
    """A source that does not compile; the message is the compiler's log, with file and line."""


class CudaSource:
    """One `.cu` file: compiled once per content, its `extern "C"` kernels launched by name."""

    def __init__(self, path: str | os.PathLike[str], *, options: Iterable[str] = ()) -> None:
        """`options` are those that NVRTC and nvcc share, such as -DNAME=1; -I is relative to the source's folder."""
        self.path = Path(path).resolve()
        self.options = tuple(options)
        self._kernels: dict[tuple[int, str], Kernel] = {}
        self._shared_limits: dict[tuple[int, str], int] = {}

    def cubin(self, arch: str) -> bytes:
        """Return the machine code for `arch` ("sm_90"), from the cache where nothing that made it has changed."""
        compiler = find_compiler()
        cached = _cache_folder() / f"{self._digest(compiler, arch)}.cubin"
        # A cache that cannot be read or written (a container's home, say) costs time, not the run.
        with contextlib.suppress(OSError):
            code = cached.read_bytes()
            if code.startswith(b"\x7fELF"):  # a machine that lost power may have left an empty file
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

    def _digest(self, compiler: Compiler, arch: str) -> str:
        """Return a hash of all that the machine code depends on: texts, options, target, compiler and its headers."""
        parts = [text.encode() for text in (compiler.identity, arch, *_DEFAULT_OPTIONS, *self.options)]
        parts += _toolkit_versions()
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
        """Launch `name` on torch's current stream; it allocates and waits for nothing, so a graph can capture it.

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
        """Raise the kernel's limit on dynamic shared memory, as a launch with more than 48 KiB in all needs."""
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
    """Return the local memory of a thread, where spilled registers go, of each kernel loaded; the driver knows it."""
    sizes = {}
    for name, kernel in _LOADED.items():
        size: Any = getattr(kernel.attributes, "local_size_bytes", None)  # a method or a property, by version
        if size is not None:
            sizes[name] = int(size() if callable(size) else size)
    return sizes


_CODES: dict[int, bytes] = {}
"""The machine code that holds it, of each kernel loaded, by its CUkernel."""


def loaded_codes() -> dict[int, bytes]:
    """Return the machine code of each kernel loaded, by the CUfunction that the current context runs."""
    driver = ctypes.CDLL("libcuda.so.1")
    codes = {}
    for kernel, code in _CODES.items():
        function = ctypes.c_void_p()
        if not driver.cuKernelGetFunction(ctypes.byref(function), ctypes.c_void_p(kernel)):
            codes[int(function.value or 0)] = code
    return codes


class Compiler(Protocol):
    """Turns a source into machine code; `identity` changes whenever its output might."""

    identity: str

    def compile(self, source: Path, arch: str, options: Sequence[str]) -> bytes: ...


class Nvrtc:
    """NVIDIA's run-time compiler, called through ctypes: it needs no host compiler."""

    def __init__(self, library: Path) -> None:
        # NVRTC opens its built-in functions by bare name, which finds them only if they are loaded already.
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
        # The bare name, as nvcc sees it too: neither the log nor the line table shall depend on where a worktree lies.
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
    """The toolkit's compiler driver; it needs a host compiler too."""

    def __init__(self, program: str) -> None:
        self._program = program
        said = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
        told = (f"{name}={os.environ[name]}" for name in _NVCC_VARIABLES if name in os.environ)
        self.identity = "\n".join((said, *told))

    def compile(self, source: Path, arch: str, options: Sequence[str]) -> bytes:
        # The short form -arch=sm_90a also compiles for plain sm_90, which lacks what sm_90a is named for.
        target = f"-gencode=arch={arch.replace('sm_', 'compute_')},code={arch}"
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder, "out.cubin")
            argv = [self._program, "-cubin", target, *options, "-o", str(output), source.name]
            done = subprocess.run(argv, cwd=source.parent, check=False, capture_output=True, text=True)
            if done.returncode:
                raise CompileError((done.stderr + done.stdout).strip())
            return output.read_bytes()


@functools.cache
def find_compiler() -> Compiler:
    """Return NVRTC from the wheels or a toolkit, else nvcc."""
    for root in (*_wheel_roots(), *_toolkit_roots()):
        for library in sorted(root.glob("lib*/libnvrtc.so.*")):
            with contextlib.suppress(OSError):
                return Nvrtc(library)
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path=os.pathsep.join(f"{r}/bin" for r in _toolkit_roots()))
    if nvcc:
        return Nvcc(nvcc)
    raise CompileError("no CUDA compiler: pip install nvidia-cuda-nvrtc, or set CUDA_HOME to a CUDA toolkit")


def device_arch(index: int | None = None) -> str:
    """Return what to compile for on a device of torch's: "sm_89", "sm_90a".

    From 9.0 on with the suffix that unlocks the chip's own instructions (wgmma), as the code runs on no other chip.
    """
    import torch

    major, minor = torch.cuda.get_device_capability(index)
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def _local_files(source: Path, folders: Iterable[Path]) -> list[Path]:
    """Return the source and all headers that it reaches beside the file that includes them or in `folders`."""
    files = [source]
    for file in files:
        for name in _INCLUDE.findall(file.read_bytes()):
            candidates = (folder / os.fsdecode(name) for folder in (file.parent, *folders))
            header = next((path.resolve() for path in candidates if path.is_file()), None)
            if header and header not in files:
                files.append(header)
    return files


def _wheel_roots() -> Iterator[Path]:
    """Yield the folders of NVIDIA's wheels: nvidia/cu13, or nvidia/cuda_nvrtc and its neighbours before CUDA 13."""
    spec = importlib.util.find_spec("nvidia")
    for location in (spec and spec.submodule_search_locations) or ():
        yield from (path for path in sorted(Path(location).iterdir()) if path.is_dir())


def _toolkit_roots() -> Iterator[Path]:
    """Yield the toolkits that the environment, the PATH and the usual place name, in this order."""
    nvcc = shutil.which("nvcc")
    named = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), nvcc and Path(nvcc).resolve().parents[1])
    for root in (*named, "/usr/local/cuda"):
        if root and Path(root, "include", "cuda.h").is_file():
            yield Path(root)


def _toolkit_includes() -> Iterator[Path]:
    """Yield the folders in which NVRTC, which brings no header, looks for cuda_fp16.h and its kin."""
    for root in (*_wheel_roots(), *_toolkit_roots()):
        yield from (path for path in (root / "include", root / "include/cccl") if path.is_dir())


def _toolkit_versions() -> list[bytes]:
    """Return the headers of the toolkit that change with its version: they are not of the compiler's own package."""
    headers = (folder / name for folder in _toolkit_includes() for name in _VERSION_HEADERS)
    return [header.read_bytes() for header in headers if header.is_file()]


def _cache_folder() -> Path:
    """Return the folder for compiled code: $CI_PERF_CACHE, else ci-perf in the XDG cache folder."""
    chosen = os.environ.get("CI_PERF_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    return (Path(chosen) if chosen else home / "ci-perf") / "cubin"


def _write_atomically(path: Path, content: bytes) -> None:
    """Write a file that other processes see whole or not at all."""
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
    """What each launch calls, looked up once: an import statement costs as much as the rest of a launch's Python."""

    current_device: Callable[[], int]
    current_stream: Callable[[int], int]
    launch: Callable[..., None]


@functools.cache
def _runtime() -> _Runtime:
    import torch
    from cuda.core import launch

    # torch.cuda.current_stream() builds an object for each call; this is its handle alone, as Triton reads it too.
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
    """Return what cuda.core shall pass: it would take a bare int as a pointer and a bare float as a double."""
    if type(value) is int:
        if not -(2**31) <= value < 2**31:
            raise OverflowError(f"{value} does not fit 32 bits: pass ctypes.c_int64")
        return ctypes.c_int32(value)
    if type(value) is float:
        raise TypeError("the width of a Python float is ambiguous: pass ctypes.c_float or ctypes.c_double")
    pointer = getattr(value, "data_ptr", None)
    return value if pointer is None else pointer()
