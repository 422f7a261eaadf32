"""The dense and the block-sparse product are compared with plain loops."""

import itertools

import pytest

from ci_perf.userside.strides import VIEWS, rearranged
from tests.kernels.helpers import load_kernel, read_toml, rng, worst_error

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch")


@pytest.mark.parametrize(("kind", "taken"), [("contiguous", True), ("padded", True), ("offset", False)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_the_hopper_kernel_is_used_only_for_matrices_that_tma_can_address(dtype, kind, taken, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    kernel = load_kernel("matmul")
    a, b, *_ = rearranged(kernel.make_inputs(rng(), "cpu", m=32, k=48, n=64, dtype=dtype, backend="gluon"), kind, 0)
    fp8 = dtype != "bfloat16"

    assert kernel.has_tma(a, b) is taken
    assert kernel.has_tma(a.t().contiguous().t(), b) is False
    assert kernel.has_tma(a, b.contiguous() if fp8 else b.t().contiguous().t()) is False, "b in the other order"
    assert kernel.has_tma(a[:1].expand(32, -1), b) is False, "one row, again and again"
    assert kernel.has_fp8(a, b) is (taken and fp8)


@pytest.mark.parametrize("kind", [*VIEWS, "mixed"])
def test_the_library_multiplies_matrices_in_any_order_of_memory(kind):
    kernel = load_kernel("matmul")
    # With a tail of k and padded rows of a, oneDNN multiplies the NaN between them by zero where a CPU has AMX, until
    # its pull request 5603 of July 2026.
    k = 64 if kind in {"padded", "mixed"} else 50
    inputs = kernel.make_inputs(rng(), "cpu", m=33, k=k, n=41, dtype="bfloat16", backend="cublas")
    out = kernel.launch(rearranged(inputs, kind, 0))
    assert worst_error(out, kernel.reference(inputs)) < read_toml("matmul")["tolerance"]["bfloat16"]


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


def summed_like_hopper(a, b, step=32, bits=13):
    """Sum products in steps; a step keeps the given number of bits of its largest number, including the sum so far."""
    total = torch.zeros(len(a), b.shape[1], dtype=torch.float64)
    for k in range(0, a.shape[1], step):
        products = a[:, k : k + step].double()[:, :, None] * b[k : k + step].double()[None]
        numbers = torch.cat([products, total[:, None]], 1)
        unit = 2.0 ** (numbers.abs().amax(1).clamp(min=1e-300).log2().floor() - bits)
        total = ((numbers / unit[:, None]).trunc() * unit[:, None]).sum(1)
    return total


@pytest.mark.parametrize("k", [1, 512, 4096])
def test_sums_of_the_tensor_cores_in_fp8_meet_the_tolerance(k):
    kernel, allowed = load_kernel("matmul"), read_toml("matmul")["tolerance"]["float8_e4m3fn"]
    inputs = kernel.make_inputs(rng(), "cpu", m=32, k=k, n=32, dtype="float8_e4m3fn", backend="cublas")
    scale = (inputs.a_scale * inputs.b_scale).double()
    out = (summed_like_hopper(inputs.a, inputs.b) * scale).bfloat16()
    assert worst_error(out, kernel.reference(inputs)) < allowed / 2


@pytest.mark.parametrize("parts", [1, 2, 4, 8])
def test_parts_of_a_sum_that_are_rounded_to_bfloat16_meet_the_tolerance(parts):
    sums = torch.randn(parts, 1000, 1000, generator=rng(), dtype=torch.float64)
    out = sums.bfloat16().float().sum(0).bfloat16()
    assert worst_error(out, sums.sum(0)) < read_toml("matmul")["tolerance"]["bfloat16"]


def test_a_product_that_leaves_out_one_of_512_fails_the_tolerance():
    kernel, allowed = load_kernel("matmul"), read_toml("matmul")["tolerance"]["bfloat16"]
    inputs = kernel.make_inputs(rng(), "cpu", m=64, k=512, n=64, dtype="bfloat16", backend="cublas")
    short = (inputs.a[:, 1:].double() @ inputs.b[1:].double()).bfloat16()
    assert worst_error(short, kernel.reference(inputs)) > 10 * allowed


def test_fp8_matrices_use_the_range_of_the_format():
    kernel = load_kernel("matmul")
    inputs = kernel.make_inputs(rng(), "cpu", m=64, k=64, n=64, dtype="float8_e4m3fn", backend="cublas")
    assert inputs.a.double().abs().max() == inputs.b.double().abs().max() == torch.finfo(kernel.FP8).max
    assert inputs.b.stride(0) == 1
    assert 0.9 < (inputs.a.double() * inputs.a_scale).std() < 1.1


@pytest.mark.parametrize("name", ["bsr_gemm", "matmul"])
def test_alternatives_agree_with_the_reference(name):
    alternatives, described, kernel = load_kernel(name, "alternatives.py"), read_toml(name), load_kernel(name)
    case = described["cases"][described["cpu_cases"][0]]
    inputs = kernel.make_inputs(rng(), "cpu", **case)
    plain = {"bsr_gemm": "dense (cuBLAS)", "matmul": "torch"}[name]
    out = alternatives.ALTERNATIVES[plain](inputs)
    assert worst_error(out, kernel.reference(inputs)) < described["tolerance"][case["dtype"]]


def test_the_sparse_matrix_of_pytorch_equals_ours():
    """In float32: for others a CPU has no such product."""
    alternatives, kernel = load_kernel("bsr_gemm", "alternatives.py"), load_kernel("bsr_gemm")
    case = read_toml("bsr_gemm")["cases"]["ragged"] | {"dtype": "float32"}
    inputs = kernel.make_inputs(rng(), "cpu", **case)
    for name in ("torch BSR", "dense (cuBLAS)"):
        assert worst_error(alternatives.ALTERNATIVES[name](inputs), kernel.reference(inputs)) < 1e-5


def test_rows_of_blocks_padded_to_one_length_represent_the_same_matrix():
    cusparse, kernel = load_kernel("bsr_gemm", "cusparse.py"), load_kernel("bsr_gemm")
    case = read_toml("bsr_gemm")["cases"]["ragged"] | {"dtype": "float32"}
    inputs = kernel.make_inputs(rng(), "cpu", **case)
    columns, values = cusparse.padded(inputs)
    size = case["block"]

    matrix = torch.zeros(case["rows"] * size, case["columns"] * size)
    for row, of_row in enumerate(columns.tolist()):
        for place, column in enumerate(of_row):
            if column >= 0:
                block = values[row * size :, place * size :][:size, :size]
                matrix[row * size :, column * size :][:size, :size] = block
    assert (columns == -1).any()
    assert worst_error(matrix @ inputs.dense, kernel.reference(inputs)) < 1e-5


@pytest.mark.gpu
@pytest.mark.parametrize("block", [16, 32])
@pytest.mark.parametrize("more", [8, 1], ids=["tma", "any"])
def test_a_sparse_product_may_have_more_columns_than_a_grid_has_rows_of_tiles(block, more):
    kernel, n = load_kernel("bsr_gemm"), (1 << 16) * 256 + more
    inputs = kernel.make_inputs(rng(), "cuda", rows=1, columns=1, n=n, block=block, density=1.0, dtype="bfloat16")
    assert worst_error(kernel.launch(inputs)[:, -300:], kernel.reference(inputs)[:, -300:]) < 8e-3


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_a_product_of_few_tiles_is_correct_for_slices_of_larger_matrices(dtype):
    kernel = load_kernel("matmul")
    inputs = kernel.make_inputs(rng(), "cuda", m=100, k=96, n=136, dtype=dtype, backend="gluon")
    cut = inputs._replace(a=inputs.a[:, :77], b=inputs.b[:77])
    assert kernel.has_tma(cut.a, cut.b)
    assert worst_error(kernel.launch(cut), kernel.reference(cut)) < 1.5e-2
