"""The bundled kernels without a GPU: references against plain loops, launches on the CPU, and real compiles."""

import bisect
import ctypes
import importlib.util
import itertools
import math
import operator
import sys
import tomllib
from pathlib import Path

import pytest

from ci_perf import cuda

torch = pytest.importorskip("torch")

KERNELS = Path(__file__).parents[1] / "kernels"
NAMES = sorted(path.parent.name for path in KERNELS.glob("*/kernel.toml"))
SOURCES = sorted(KERNELS.glob("*/*.cu"))


def load_kernel(name):
    """Import a kernel.py as the worker does: by path, under a name of its own."""
    return load_file(name, "kernel")


def load_file(name, file):
    spec = importlib.util.spec_from_file_location(f"{file}_{name}", KERNELS / name / f"{file}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def read_toml(name):
    return tomllib.loads((KERNELS / name / "kernel.toml").read_text())


def worst_error(out, expected):
    """Return the error that [tolerance] bounds."""
    out, expected = out.double(), expected.double()
    return ((out - expected).abs() / (expected.abs() + expected.square().mean().sqrt())).max().item()


def rng():
    return torch.Generator().manual_seed(7)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CI_PERF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def compiler():
    try:
        return cuda.find_compiler()
    except cuda.CompileError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", NAMES)
def test_every_case_has_a_tolerance_and_a_cost(name):
    described, kernel = read_toml(name), load_kernel(name)
    assert set(described["cpu_cases"]) <= set(described["cases"])
    for case in described["cases"].values():
        assert case["dtype"] in described["tolerance"]
        assert min(kernel.cost(**case).values()) > 0


@pytest.mark.parametrize("name", NAMES)
def test_launch_meets_the_tolerance_on_a_cpu(name):
    described, kernel = read_toml(name), load_kernel(name)
    for case in (described["cases"][case] for case in described["cpu_cases"]):
        inputs = kernel.make_inputs(rng(), "cpu", **case)
        expected = kernel.reference(inputs)
        assert expected.dtype == torch.float64
        assert expected.isfinite().all()
        if "cpu" in described["devices"]:
            assert worst_error(kernel.launch(inputs), expected) < described["tolerance"][case["dtype"]]


def resample_slowly(x, times, targets):
    """Interpolate one trajectory with bisect and Python floats."""
    rows = []
    for target in targets:
        after = bisect.bisect_right(times, target)
        if after in {0, len(times)}:
            rows.append(x[min(after, len(times) - 1)])
            continue
        start, end = times[after - 1], times[after]
        weight = (target - start) / (end - start)
        rows.append([a + weight * (b - a) for a, b in zip(x[after - 1], x[after], strict=True)])
    return rows


@pytest.mark.parametrize(
    ("times", "targets"),
    [
        pytest.param([0.0, 1.0, 3.0], [0.5, 2.0, 2.9], id="inside"),
        pytest.param([0.0, 1.0, 3.0], [0.0, 1.0, 3.0], id="on-the-samples"),
        pytest.param([0.0, 1.0, 3.0], [-9.0, 3.1, 9.0], id="outside"),
        pytest.param([0.0, 1.0, 3.0], [2.0, -1.0, 0.5], id="in-any-order"),
        pytest.param([0.0, 1.0, 1.0, 1.0, 2.0], [0.999, 1.0, 1.001], id="equal-times"),
        pytest.param([1.0, 1.0, 2.0, 2.0], [0.0, 1.0, 2.0, 3.0], id="equal-end-times"),
        pytest.param([1.0], [0.0, 1.0, 2.0], id="one-sample"),
    ],
)
def test_resampling_agrees_with_a_plain_loop(times, targets):
    kernel = load_kernel("trajectory_resample")
    x = torch.randn(2, len(times), 3, generator=rng())
    inputs = kernel.Inputs(x, torch.tensor([times, times]), torch.tensor([targets, targets]))
    # Through the tensors, so that both sides see the times as float32 holds them.
    expected = [
        resample_slowly(*(tensor[batch].tolist() for tensor in (x, inputs.time, inputs.target))) for batch in (0, 1)
    ]
    torch.testing.assert_close(kernel.reference(inputs), torch.tensor(expected, dtype=torch.float64))


def test_resampling_inputs_reach_past_both_ends():
    case = read_toml("trajectory_resample")["cases"]["b8-s250"]
    inputs = load_kernel("trajectory_resample").make_inputs(rng(), "cpu", **case)
    assert (inputs.time.diff() > 0).all()
    assert (inputs.target < inputs.time[:, :1]).any()
    assert (inputs.target > inputs.time[:, -1:]).any()


def test_resampling_cost_counts_each_byte_once():
    case = read_toml("trajectory_resample")["cases"]["b32-s500"]
    times, values = 32 * (500 + 256) * 4, 32 * (500 + 256) * 256 * 2
    assert load_kernel("trajectory_resample").cost(**case)["bytes"] == times + values


def test_attention_agrees_with_a_plain_loop():
    kernel = load_kernel("sdpa")
    inputs = kernel.make_inputs(rng(), "cpu", batch=2, heads=2, seq=5, dim=4, dtype="float16")
    expected = torch.zeros(2, 2, 5, 4, dtype=torch.float64)
    for batch, head, row in torch.cartesian_prod(torch.arange(2), torch.arange(2), torch.arange(5)).tolist():
        q, keys, values = (tensor[batch, head].double().tolist() for tensor in inputs)
        weights = [math.exp(sum(map(operator.mul, q[row], key)) / 2) for key in keys]
        for d in range(4):
            expected[batch, head, row, d] = sum(w * v[d] for w, v in zip(weights, values, strict=True)) / sum(weights)
    torch.testing.assert_close(kernel.reference(inputs), expected)


def sparse_inputs(kernel, **changes):
    case = {"rows": 3, "columns": 4, "n": 5, "block": 2, "density": 0.5, "dtype": "float16"}
    return kernel.make_inputs(rng(), "cpu", **case | changes)


@pytest.mark.parametrize("density", [0.0, 0.2, 0.5, 1.0])
def test_a_sparse_product_agrees_with_a_plain_loop(density):
    kernel = load_kernel("bsr_gemm")
    inputs = sparse_inputs(kernel, density=density)
    expected = [[0.0] * 5 for _ in range(3 * 2)]
    crow, col, values, dense = (tensor.tolist() for tensor in inputs[:4])
    for row in range(3):
        for at in range(crow[row], crow[row + 1]):
            for i, j, n in itertools.product(range(2), range(2), range(5)):
                expected[row * 2 + i][n] += values[at][i][j] * dense[col[at] * 2 + j][n]
    torch.testing.assert_close(kernel.reference(inputs), torch.tensor(expected, dtype=torch.float64))


def test_blocks_are_as_many_as_stated_and_their_columns_ascend():
    kernel = load_kernel("bsr_gemm")
    inputs = sparse_inputs(kernel, rows=40, columns=30, density=0.25)
    assert len(inputs.values) == len(inputs.col_indices) == inputs.crow_indices[-1] == 300
    rows = [inputs.col_indices[a:b] for a, b in itertools.pairwise(inputs.crow_indices.tolist())]
    assert all((row.diff() > 0).all() for row in rows)
    assert len({len(row) for row in rows}) > 1


def test_sparse_cost_counts_what_is_stored():
    cost = load_kernel("bsr_gemm").cost(**read_toml("bsr_gemm")["cases"]["n8192-6"])
    assert cost["flop"] == 2 * 256 * 128 * 128 * 8192
    assert cost["bytes"] == (256 * 128 * 128 + 2 * 8192 * 8192) * 2 + (65 + 256) * 4


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_a_dense_product_agrees_with_a_plain_loop(dtype):
    kernel = load_kernel("matmul")
    inputs = kernel.make_inputs(rng(), "cpu", m=3, k=4, n=2, dtype=dtype, backend="gluon")
    a, b = ((inputs.a.double() * inputs.a_scale).tolist(), (inputs.b.double() * inputs.b_scale).tolist())
    expected = [[sum(a[m][k] * b[k][n] for k in range(4)) for n in range(2)] for m in range(3)]
    torch.testing.assert_close(kernel.reference(inputs), torch.tensor(expected, dtype=torch.float64))


def test_fp8_matrices_use_the_range_of_the_format():
    kernel = load_kernel("matmul")
    inputs = kernel.make_inputs(rng(), "cpu", m=64, k=64, n=64, dtype="float8_e4m3fn", backend="cublas")
    assert inputs.a.double().abs().max() == inputs.b.double().abs().max() == torch.finfo(kernel.FP8).max
    assert inputs.b.stride(0) == 1
    assert 0.9 < (inputs.a.double() * inputs.a_scale).std() < 1.1


@pytest.mark.parametrize("name", ["bsr_gemm", "matmul"])
def test_alternatives_agree_with_the_reference(name):
    alternatives, described, kernel = load_file(name, "alternatives"), read_toml(name), load_kernel(name)
    case = described["cases"][described["cpu_cases"][0]]
    inputs = kernel.make_inputs(rng(), "cpu", **case)
    plain = {"bsr_gemm": "dense (cuBLAS)", "matmul": "torch"}[name]
    out = alternatives.ALTERNATIVES[plain](inputs)
    assert worst_error(out, kernel.reference(inputs)) < described["tolerance"][case["dtype"]]


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
def test_an_empty_cache_entry_is_replaced(tmp_path, cache):
    source = tmp_path / "nothing.cu"
    source.write_text('extern "C" __global__ void nothing() {}\n')
    code = cuda.CudaSource(source).cubin("sm_90")
    (entry,) = cache.rglob("*.cubin")
    entry.write_bytes(b"")
    assert cuda.CudaSource(source).cubin("sm_90")
    assert entry.read_bytes().startswith(code[:4])


@pytest.mark.usefixtures("compiler")
def test_a_folder_that_cannot_be_written_costs_only_the_cache(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CI_PERF_CACHE", str(tmp_path / "file"))
    source = tmp_path / "nothing.cu"
    source.write_text('extern "C" __global__ void nothing() {}\n')
    assert cuda.CudaSource(source).cubin("sm_90").startswith(b"\x7fELF")


@pytest.mark.usefixtures("compiler")
def test_a_compile_error_is_the_compilers_log(tmp_path):
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
