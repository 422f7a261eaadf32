"""c = a b for Hopper, for outputs too small to give each multiprocessor a tile of matmul_sm90.py.

Bound by latency: 256^3 in bfloat16 is 0.03 GFLOP and 0.4 MB, 0.1 us at the speed of memory, and takes 2.3 us, where a
copy of the same bytes takes 1.1 us (baselines/h100-80gb-hbm3/kernels.md).  So each program computes one tile, without
warp specialization: that took 1 us longer, probably to set up its warps and barriers.  The tiles are the largest that
give at least half of the multiprocessors one: a larger tile loads less for each product, but fewer multiprocessors
share the loads.  There are few stages, because each needs a barrier to be set up; small tiles have longer stages
instead.  Programs that run at the same time share columns of b.

If rows do not begin at L2's lines of 128 bytes, the requests to L2 are probably part of the limit: kernels/README.md
counts them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


class Tile(NamedTuple):
    m: int
    n: int
    k_bytes: int
    stages: int


TILES = (Tile(128, 128, 128, 3), Tile(64, 128, 128, 5), Tile(64, 64, 256, 3), Tile(64, 32, 256, 3))
"""Found by trial on an H200: two programs with the first tile share a multiprocessor."""
WARPS = 4


def matmul(a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor) -> torch.Tensor:
    """Return a b in bfloat16, in fp8 times both scales; b is row-major in bfloat16 and column-major in fp8."""
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n, dtype=torch.bfloat16)
    tile = tile_for(m, n, torch.cuda.get_device_properties(a.device).multi_processor_count)
    block_k, transposed = tile.k_bytes // a.itemsize, a.itemsize == 1
    b_block = [tile.n, block_k] if transposed else [block_k, tile.n]
    matmul_tma[(tiles(m, n, tile),)](
        TensorDescriptor.from_tensor(a, [tile.m, block_k]),
        TensorDescriptor.from_tensor(b.t() if transposed else b, b_block),
        TensorDescriptor.from_tensor(out, [tile.m, tile.n]),
        a_scale,
        b_scale,
        m,
        k,
        BLOCK_M=tile.m,
        BLOCK_N=tile.n,
        BLOCK_K=block_k,
        TRANSPOSED=transposed,
        num_warps=WARPS,
        num_stages=tile.stages,
    )
    return out


def tile_for(m: int, n: int, processors: int) -> Tile:
    """Return the largest tile that gives at least half of the multiprocessors one, else the smallest."""
    return next((tile for tile in TILES if 2 * tiles(m, n, tile) >= processors), TILES[-1])


def tiles(m: int, n: int, tile: Tile) -> int:
    return -(-m // tile.m) * -(-n // tile.n)


@triton.jit
def matmul_tma(
    a,
    b,
    c,
    a_scale,
    b_scale,
    M,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    TRANSPOSED: tl.constexpr,
):
    rows = tl.cdiv(M, BLOCK_M)
    m = tl.program_id(0) % rows * BLOCK_M
    n = tl.program_id(0) // rows * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        a_part = a.load([m, k])
        b_part = tl.trans(b.load([n, k])) if TRANSPOSED else b.load([k, n])
        acc = tl.dot(a_part, b_part, acc)
    if TRANSPOSED:
        acc = acc * (tl.load(a_scale) * tl.load(b_scale))
    c.store([m, n], acc.to(tl.bfloat16))
