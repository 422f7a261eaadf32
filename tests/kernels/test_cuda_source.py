"""CudaSource: when a source is compiled again, and its error messages."""

import ctypes
import os
import subprocess
import sys

import pytest

from ci_perf import cuda
from ci_perf.userside import compilers
from tests.kernels.helpers import KERNELS, NAMES

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch")
SOURCES = sorted(path for path in KERNELS.glob("*/*.cu") if path.parent.name in NAMES)


@pytest.mark.parametrize("arch", ["sm_89", "sm_90"])
@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_source_compiles_once(path, arch, compiler, monkeypatch):
    code = cuda.CudaSource(path).cubin(arch)
    assert code.startswith(b"\x7fELF")
    assert path.stem.encode() in code

    monkeypatch.setattr(type(compiler), "compile", lambda *_: pytest.fail("compiled again"))
    assert cuda.CudaSource(path).cubin(arch) == code


@pytest.mark.usefixtures("compiler")
def test_a_change_of_header_or_options_compiles_again(tmp_path, cache):
    source, header = tmp_path / "fill.cu", tmp_path / "value.cuh"
    source.write_text('#include "value.cuh"\nextern "C" __global__ void fill(int* out) { *out = VALUE; }\n')
    header.write_text("#define VALUE 1\n")
    first = cuda.CudaSource(source).cubin("sm_90")
    header.write_text("#define VALUE 2\n")
    assert cuda.CudaSource(source).cubin("sm_90") != first
    cuda.CudaSource(source, options=["-DUNUSED"]).cubin("sm_90")
    assert len(list(cache.rglob("*.cubin"))) == 3


@pytest.mark.usefixtures("compiler")
def test_processes_that_compile_the_same_source_at_once_read_the_same_code(tmp_path, cache):
    """The cases of both sides are compiled at once: see `measure.compile_ahead`."""
    source = tmp_path / "fill.cu"
    source.write_text('extern "C" __global__ void fill(int* out) { *out = 1; }\n')
    script = "import sys; from ci_perf import cuda; print(cuda.CudaSource(sys.argv[1]).cubin('sm_90').hex())"
    env = {**os.environ, "CI_PERF_CACHE": str(cache)}
    argv = [sys.executable, "-c", script, str(source)]
    processes = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env) for _ in range(3)]
    codes = {process.communicate()[0].strip() for process in processes}

    assert codes == {cuda.CudaSource(source).cubin("sm_90").hex()}
    assert len([path for path in cache.rglob("*") if path.is_file()]) == 1


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("header", ["cuda.h", "cub/version.cuh"])
def test_other_headers_of_the_toolkit_compile_again(tmp_path, cache, monkeypatch, header):
    """They are in a separate package, which may be updated while the compiler stays the same."""
    source = tmp_path / "nothing.cu"
    source.write_text('extern "C" __global__ void nothing() {}\n')
    include = tmp_path / "toolkit" / "include"
    (include / header).parent.mkdir(parents=True)
    monkeypatch.setattr(compilers, "_toolkit_includes", lambda: iter([include]))
    for text in ("// 13.0\n", "// 13.0\n", "// 13.1\n"):
        (include / header).write_text(text)
        cuda.CudaSource(source).cubin("sm_90")

    assert len(list(cache.rglob("*.cubin"))) == 2


def test_environment_variables_of_nvcc_are_part_of_the_cache_key(tmp_path, monkeypatch):
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho release 13.0\n")
    nvcc.chmod(0o755)
    before = compilers.Nvcc(str(nvcc)).identity
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "--use_fast_math")

    assert compilers.Nvcc(str(nvcc)).identity != before


@pytest.mark.usefixtures("compiler")
def test_an_empty_cache_entry_is_replaced(tmp_path, cache):
    source = tmp_path / "nothing.cu"
    source.write_text('extern "C" __global__ void nothing() {}\n')
    code = cuda.CudaSource(source).cubin("sm_90")
    (entry,) = cache.rglob("*.cubin")
    entry.write_bytes(b"")
    assert cuda.CudaSource(source).cubin("sm_90")
    assert entry.read_bytes().startswith(code[:4])


@pytest.mark.usefixtures("compiler")
def test_without_a_writable_cache_folder_kernels_compile_each_time(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CI_PERF_CACHE", str(tmp_path / "file"))
    source = tmp_path / "nothing.cu"
    source.write_text('extern "C" __global__ void nothing() {}\n')
    assert cuda.CudaSource(source).cubin("sm_90").startswith(b"\x7fELF")


@pytest.mark.usefixtures("compiler")
def test_a_compile_error_contains_the_log_of_the_compiler(tmp_path):
    source = tmp_path / "broken.cu"
    source.write_text('extern "C" __global__ void broken(int* out) {\n    *out = missing;\n}\n')
    with pytest.raises(cuda.CompileError, match=r'broken\.cu\(2\): error: identifier "missing" is undefined'):
        cuda.CudaSource(source).cubin("sm_90")


def test_arguments_have_a_stated_width():
    tensor = torch.zeros(1)
    assert cuda._argument(tensor) == tensor.data_ptr()
    assert isinstance(cuda._argument(3), ctypes.c_int32)
    double = ctypes.c_double(0.5)
    assert cuda._argument(double) is double
    with pytest.raises(OverflowError, match="c_int64"):
        cuda._argument(2**31)
    with pytest.raises(TypeError, match="c_float or"):
        cuda._argument(0.5)
