"""The Triton kernels are compiled, and their results computed by Triton's interpreter."""

import functools
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kernels.helpers import NO_TRITON, load_kernel, read_toml

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch")
INTERPRETED = Path(__file__).with_name("interpreted.py")


def compile_triton(source, arch, **options):
    """Compile for a GPU that need not exist on this machine."""
    compiler = pytest.importorskip("triton.backends.compiler", reason=NO_TRITON)
    import triton

    return triton.compile(source, target=compiler.GPUTarget("cuda", arch, 32), options=options)


def triton_code(source, arch, **options):
    return compile_triton(source, arch, **options).asm["ptx"]


SHARED_MEMORY = {89: 99 << 10, 90: 227 << 10}
"""Bytes that a program may have, by architecture: CUDA C++ Programming Guide, compute capabilities."""


@pytest.mark.parametrize("arch", [89, 90])
@pytest.mark.parametrize(("size", "n"), [(16, 77), (16, 4096), (32, 77), (32, 4096), (64, 4096), (128, 4096)])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_the_sparse_kernel_for_any_gpu_compiles(dtype, size, n, arch):
    compiler = pytest.importorskip("triton.compiler", reason=NO_TRITON)
    kernel = load_kernel("bsr_gemm", "bsr_gemm_any.py")
    types = {"crow": "*i32", "col": "*i32", "values": f"*{dtype}", "dense": f"*{dtype}", "out": f"*{dtype}"}
    types |= {"rows": "i32", "n": "i32"}
    block_n, warps = kernel.shape(size, n)
    sizes = {"SIZE": size, "BLOCK_N": block_n, "SLICE": min(size, 32)}
    source = compiler.ASTSource(kernel.bsr_gemm_any, types | dict.fromkeys(sizes, "constexpr"), sizes)
    compiled = compile_triton(source, arch, num_warps=warps, num_stages=kernel.STAGES)
    assert "mma" in compiled.asm["ptx"]
    assert compiled.metadata.shared <= SHARED_MEMORY[arch]


@pytest.mark.parametrize("n", [128, 256])
@pytest.mark.parametrize("size", [16, 32])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_the_sparse_kernel_for_small_blocks_compiles(dtype, size, n):
    compiler = pytest.importorskip("triton.compiler", reason=NO_TRITON)
    kernel = load_kernel("bsr_gemm", "bsr_gemm_small.py")
    types = {"crow": "*i32", "col": "*i32", "rows": "i32", "values": f"tensordesc<{dtype}[{size}, {size}]>"}
    types |= dict.fromkeys(("dense", "out"), f"tensordesc<{dtype}[{size}, {n}]>")
    sizes = {"SIZE": size, "BLOCK_N": n}
    source = compiler.ASTSource(kernel.bsr_gemm_small, types | dict.fromkeys(sizes, "constexpr"), sizes)
    compiled = compile_triton(source, 90, num_warps=kernel.WARPS, num_stages=kernel.STAGES)
    assert "wgmma" in compiled.asm["ptx"]
    assert "cp.async.bulk.tensor" in compiled.asm["ptx"]
    assert compiled.metadata.shared <= SHARED_MEMORY[90]


def gluon_source(kernel, function, types, matrices, sizes):
    runtime = pytest.importorskip("triton.experimental.gluon._runtime", reason=NO_TRITON)
    names = {"bfloat16": "bf16", "float16": "fp16", "float8_e4m3fn": "fp8e4nv"}
    for name, (dtype, block) in matrices.items():
        layout = kernel.gl.NVMMASharedLayout.get_default_for(block, kernel.TYPES[getattr(torch, dtype)])
        types |= {name: f"tensordesc<{names[dtype]}{block},{layout!r}>"}
    return runtime.GluonASTSource(function, types | dict.fromkeys(sizes, "constexpr"), sizes)


class Arrival(NamedTuple):
    line: int
    multiplies: bool
    """Whether its role is the one of several warps, with wgmma."""
    barrier: int | None
    """The line of the barrier between it and the last use of shared memory, in its basic block."""


def arrivals(ptx):
    """Return where a stage or job is handed over: one thread arrives for all, so a barrier of all has to come before.

    Without it the thread would speak for its own accesses alone.  racecheck cannot say, as it does not follow the
    roles' barriers.  `barrier.sync 1` separates the roles, and a barrier of one warp is one of all in a role of one
    warp only.  What the blocks that lead to another have touched is not followed: each begins as if they had.
    An arrival that expects bytes is not meant: it hands nothing over, TMA does.
    """
    lines, found = ptx.splitlines(), []
    switches = [at for at, line in enumerate(lines) if re.search(r"\bbarrier\.sync\s+1;", line)]
    for first, last in itertools.pairwise([0, *switches, len(lines)]):
        multiplies = any("wgmma.mma_async" in line for line in lines[first:last])
        whole = r"\bbar\.sync\s+0, (128|256);" if multiplies else r"\bbar\.(warp\.)?sync\b"
        barrier = None
        for at in range(first, last):
            if re.search(r"^\$L__BB|\b(ld|st|atom|red|cp)\S*\.shared|\bwgmma\.(mma_async|wait_group)", lines[at]):
                barrier = None
            elif re.search(whole, lines[at]):
                barrier = at
            elif re.search(r"\bmbarrier\.arrive\b(?!\S*expect_tx)", lines[at]):
                found.append(Arrival(at, multiplies, barrier))
    return found


@functools.cache
def sparse_code(dtype, size, in_order):
    pytest.importorskip("triton.experimental.gluon", reason=NO_TRITON)
    kernel = load_kernel("bsr_gemm", "bsr_gemm_sm90.py")
    blocks = {
        "values": [size, kernel.BLOCK_K],
        "dense": [kernel.BLOCK_K, kernel.BLOCK_N],
        "out": [size, kernel.BLOCK_N],
    }
    types = {"crow": "*i32", "col": "*i32", "workspace": "*i32", "rows": "i32", "panels": "i32"}
    sizes = {"STAGES": kernel.STAGES[size], "GROUP": kernel.GROUP, "SORTED": in_order}
    source = gluon_source(
        kernel, kernel.bsr_gemm_sm90, types, {name: (dtype, block) for name, block in blocks.items()}, sizes
    )
    return triton_code(source, 90, num_warps=kernel.WARPS)


def test_the_sparse_kernel_for_short_rows_compiles():
    compiler = pytest.importorskip("triton.compiler", reason=NO_TRITON)
    kernel = load_kernel("bsr_gemm", "bsr_gemm_tma.py")
    size, n, k = 128, kernel.BLOCK_N, kernel.BLOCK_K
    types = {"crow": "*i32", "col": "*i32", "rows": "i32", "panels": "i32", "values": f"tensordesc<bf16[{size}, {k}]>"}
    types |= {"dense": f"tensordesc<bf16[{k}, {n}]>", "out": f"tensordesc<bf16[{size}, {n}]>"}
    sizes = {"SIZE": size, "BLOCK_N": n, "BLOCK_K": k, "GROUP": kernel.GROUP}
    source = compiler.ASTSource(kernel.bsr_gemm_tma, types | dict.fromkeys(sizes, "constexpr"), sizes)
    code = triton_code(source, 90, num_warps=kernel.WARPS, num_stages=kernel.STAGES)
    assert "wgmma" in code
    assert "cp.async.bulk.tensor" in code


@functools.cache
def dense_code(dtype):
    pytest.importorskip("triton.experimental.gluon", reason=NO_TRITON)
    kernel = load_kernel("matmul", "matmul_sm90.py")
    transposed, block_k = dtype != "bfloat16", kernel.BLOCK_K_BYTES // getattr(torch, dtype).itemsize
    m, n = kernel.BLOCK_M, kernel.BLOCK_N
    matrices = {"a": (dtype, [m, block_k]), "b": (dtype, [n, block_k] if transposed else [block_k, n])}
    types = {"a_scale": "*fp32", "b_scale": "*fp32", "M": "i32", "N": "i32", "K": "i32"}
    sizes = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": block_k, "STAGES": kernel.STAGES, "GROUP": kernel.GROUP}
    matrices["c"] = ("bfloat16", [m, n])
    source = gluon_source(kernel, kernel.matmul_sm90, types, matrices, sizes | {"TRANSPOSED": transposed})
    return triton_code(source, 90, num_warps=kernel.WARPS)


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_the_dense_kernel_without_roles_compiles(dtype, at):
    compiler = pytest.importorskip("triton.compiler", reason=NO_TRITON)
    kernel = load_kernel("matmul", "matmul_tma.py")
    tile, element = kernel.TILES[at], {"bfloat16": "bf16", "float8_e4m3fn": "fp8e4nv"}[dtype]
    transposed, k = dtype != "bfloat16", tile.k_bytes // getattr(torch, dtype).itemsize
    types = {"a": f"tensordesc<{element}{[tile.m, k]}>", "c": f"tensordesc<bf16{[tile.m, tile.n]}>"}
    types |= {"b": f"tensordesc<{element}{[tile.n, k] if transposed else [k, tile.n]}>"}
    types |= {"a_scale": "*fp32", "b_scale": "*fp32", "M": "i32", "K": "i32"}
    sizes = {"BLOCK_M": tile.m, "BLOCK_N": tile.n, "BLOCK_K": k, "TRANSPOSED": transposed}
    source = compiler.ASTSource(kernel.matmul_tma, types | dict.fromkeys(sizes, "constexpr"), sizes)
    compiled = compile_triton(source, 90, num_warps=kernel.WARPS, num_stages=tile.stages)
    assert "wgmma" in compiled.asm["ptx"]
    assert re.search(r"cp\.async\.bulk\.tensor\.2d\.shared::(cta|cluster)\.global", compiled.asm["ptx"])
    assert "cp.async.bulk.tensor.2d.global.shared::cta" in compiled.asm["ptx"]
    assert compiled.metadata.shared * (2 if at == 0 else 1) <= SHARED_MEMORY[90]


def test_each_tile_of_the_dense_kernel_without_roles_has_a_ragged_case():
    pytest.importorskip("triton", reason=NO_TRITON)
    kernel, cases = load_kernel("matmul", "matmul_tma.py"), read_toml("matmul")["cases"]
    ragged = [case for name, case in cases.items() if name.startswith("ragged") and name != "ragged-large"]
    assert {kernel.tile_for(case["m"], case["n"], 132) for case in ragged} == set(kernel.TILES)
    assert {case["dtype"] for case in ragged} == set(read_toml("matmul")["tolerance"])


def test_the_dense_kernel_with_roles_is_chosen_where_each_multiprocessor_gets_one_of_its_tiles():
    pytest.importorskip("triton.experimental.gluon", reason=NO_TRITON)
    kernel, roles = load_kernel("matmul"), load_kernel("matmul", "matmul_sm90.py")
    m, n = 12 * roles.BLOCK_M, 11 * roles.BLOCK_N
    assert [kernel.hopper_kernel(*size, 132) for size in ((m, n), (m - roles.BLOCK_M, n), (m, n - roles.BLOCK_N))] == [
        "matmul_sm90",
        "matmul_tma",
        "matmul_tma",
    ]


@pytest.mark.parametrize(
    ("k", "n", "dtype", "taken"),
    [
        *((64, 8, "bfloat16", True), (64, 12, "bfloat16", False), (64, 77, "float8_e4m3fn", False)),
        *((77, 8, "bfloat16", False), (64, 8, "float8_e4m3fn", True), (24, 8, "float8_e4m3fn", False)),
        *(((1 << 31) - 256, 8, "bfloat16", True), ((1 << 31) - 128, 8, "bfloat16", False)),
    ],
)
def test_the_dense_kernels_for_hopper_take_what_tma_can_address(k, n, dtype, taken):
    kernel, dtype = load_kernel("matmul"), getattr(torch, dtype)
    a = torch.empty(8, k, dtype=dtype, device="meta")
    b = torch.empty(n, k, dtype=dtype, device="meta").t() if dtype == kernel.FP8 else a.new_empty(k, n)
    assert kernel.has_tma(a, b) is taken


@pytest.mark.parametrize(
    ("m", "n", "expected"),
    [
        *((2048, 2048, 0), (1408, 768, 0), (1040, 2056, 0), (1024, 1024, 1), (520, 1544, 1), (512, 1024, 2)),
        *((512, 512, 3), (1, 8, 3)),
    ],
)
def test_tiles_are_the_largest_that_give_half_of_the_multiprocessors_one(m, n, expected):
    pytest.importorskip("triton", reason=NO_TRITON)
    kernel = load_kernel("matmul", "matmul_tma.py")
    assert kernel.tile_for(m, n, 132) == kernel.TILES[expected]


def test_the_triton_kernels_are_right_by_its_interpreter():
    """Only the numbers of the source are tested: the code that the compiler generates can only be tested on a GPU."""
    pytest.importorskip("triton", reason=NO_TRITON)
    pytest.importorskip("numpy")
    done = subprocess.run([sys.executable, str(INTERPRETED)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 23
    wrong = [row for row in rows if not row[2] <= (1e-2 if row[0].startswith("matmul") else 1e-3)]  # NaN is wrong, too
    assert wrong == []


ARRIVALS = {sparse_code: (4, 3), dense_code: (2, 0)}
"""In the multiplying role and in the others; a use that is not found is not checked. A loader only uses TMA."""


ROLES = pytest.mark.parametrize(
    ("make", "args"),
    [
        *((sparse_code, args) for args in itertools.product(("bfloat16", "float16"), (64, 128), (64, 0))),
        *((dense_code, (dtype,)) for dtype in ("bfloat16", "float8_e4m3fn")),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, tuple) else value.__name__,
)


@ROLES
def test_in_the_warp_specialized_kernels_a_barrier_precedes_each_arrival(make, args):
    code = make(*args)
    found = arrivals(code)
    multiplies = sum(arrival.multiplies for arrival in found)
    assert "wgmma.mma_async" in code
    assert (multiplies, len(found) - multiplies) == ARRIVALS[make]
    assert [arrival for arrival in found if arrival.barrier is None] == []


@ROLES
def test_a_missing_barrier_or_one_of_a_single_warp_is_detected(make, args):
    lines = make(*args).splitlines()
    for number, arrival in enumerate(arrivals("\n".join(lines))):
        for instead in ("", "bar.warp.sync -1;", "bar.sync 3, 32;") if arrival.multiplies else ("",):
            changed = "\n".join([*lines[: arrival.barrier], instead, *lines[arrival.barrier + 1 :]])
            assert arrivals(changed)[number].barrier is None
