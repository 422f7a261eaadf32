"""c = a b of few tiles for Hopper, where the tiles of matmul_sm90.py would leave most multiprocessors without one.

Bound by latency: 256^3 in bfloat16 is 0.03 GFLOP and 0.4 MB, 0.1 us at the speed of memory, where a copy of as much
takes 1 us.  So tiles are as low as wgmma takes, and narrow, for many programs; a step is long, so that few follow each
other, and the next ones are loaded meanwhile.  Plain loads: to fetch a descriptor of TMA is one latency more, and roles
that hand stages over are another: matmul_sm90.py took 3.3 us, where cuBLAS takes 2.75 us (baselines/h200/kernels.md).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl


class Tile(NamedTuple):
    m: int
    n: int
    k: int
    stages: int
    warps: int


TILES = {torch.bfloat16: Tile(64, 32, 128, 3, 4), torch.float8_e4m3fn: Tile(64, 16, 256, 2, 4)}
"""Chosen by trial on an H200."""


def matmul(a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor) -> torch.Tensor:
    """Return a b in bfloat16, in fp8 times both scales; b is row-major in bfloat16 and column-major in fp8."""
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n, dtype=torch.bfloat16)
    tile, transposed = TILES[a.dtype], a.itemsize == 1
    matmul_small[(triton.cdiv(m, tile.m), triton.cdiv(n, tile.n))](
        a,
        b,
        out,
        a_scale,
        b_scale,
        m,
        n,
        k,
        a.stride(0),
        b.stride(1 if transposed else 0),
        PACKET=16 // a.itemsize,
        WHOLE=not k * a.itemsize % 16,
        BLOCK_M=tile.m,
        BLOCK_N=tile.n,
        BLOCK_K=tile.k,
        TRANSPOSED=transposed,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return out


@triton.jit
def matmul_small(
    a,
    b,
    c,
    a_scale,
    b_scale,
    M,
    N,
    K,
    a_row,
    b_row,
    PACKET: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    TRANSPOSED: tl.constexpr,
):
    """Rows begin at multiples of 16 bytes, PACKET elements of the inputs; they end there, too, if WHOLE."""
    # To divide and to multiply tells the compiler so, which loads and stores 16 bytes at a time then.
    a_row = a_row // PACKET * PACKET
    b_row = b_row // PACKET * PACKET
    N = N // 8 * 8
    if WHOLE:
        K = K // PACKET * PACKET
    m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_at = a + m[:, None] * a_row + k[None, :]
    across, down = n[None, :], k[:, None].to(tl.int64)
    b_at = b + (across * b_row + down if TRANSPOSED else down * b_row + across)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        inside = k < K - start
        a_part = tl.load(a_at, mask=(m < M)[:, None] & inside[None, :], other=0.0)
        b_part = tl.load(b_at, mask=inside[:, None] & (n < N)[None, :], other=0.0)
        acc = tl.dot(a_part, b_part, acc)
        a_at += BLOCK_K
        b_at += BLOCK_K if TRANSPOSED else b_row.to(tl.int64) * BLOCK_K
    if TRANSPOSED:
        acc = acc * (tl.load(a_scale) * tl.load(b_scale))
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.bfloat16), mask=(m < M)[:, None] & (n < N)[None, :])
