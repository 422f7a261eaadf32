"""out = A b for A in blocks (BSR), on any GPU and of any size: for what the Hopper kernels do not support.

Large blocks are bound by the tensor cores, small ones probably by L2: a block of size s reads s rows of b for only s
rows of the output.  A program computes one tile of a block row.  Its loop iterates over slices of blocks, two at a
time, each with its own loads.  The block column of a slice is loaded one iteration ahead: a load that depends on
another load of the same iteration would leave the pipeline only one stage.  Small blocks use tiles of 256 columns, so
that each block is read half as often as with 128.  Programs are ordered by block row first, then by tile in the row,
so that programs that run at the same time share columns of b in L2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

if TYPE_CHECKING:
    import torch

STAGES = 3


def launch(crow: torch.Tensor, col: torch.Tensor, values: torch.Tensor, dense: torch.Tensor, out: torch.Tensor) -> None:
    """Write the product to `out`."""
    rows, size, n = len(crow) - 1, values.shape[1], dense.shape[1]
    block_n, warps = shape(size, n)
    bsr_gemm_any[(rows * triton.cdiv(n, block_n),)](
        crow,
        col,
        values,
        dense,
        out,
        rows,
        n,
        SIZE=size,
        BLOCK_N=block_n,
        SLICE=min(size, 32),
        num_warps=warps,
        num_stages=STAGES,
    )


def shape(size: int, n: int) -> tuple[int, int]:
    """Return the columns of a tile and the number of its warps, so that each thread has at most 64 sums."""
    return (256 if size <= 32 and n > 128 else 128, 4 if size <= 64 else 8)


@triton.jit
def bsr_gemm_any(
    crow, col, values, dense, out, rows, n, SIZE: tl.constexpr, BLOCK_N: tl.constexpr, SLICE: tl.constexpr
):
    row = tl.program_id(0) % rows
    first = tl.load(crow + row).to(tl.int64)
    last = tl.load(crow + row + 1).to(tl.int64)
    m = tl.arange(0, SIZE)
    k = tl.arange(0, SLICE)
    column = (tl.program_id(0) // rows).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (column < n)[None, :]
    a_at = values + m[:, None] * SIZE + k[None, :]
    b_at = dense + k[:, None].to(tl.int64) * n + column[None, :]
    SLICES: tl.constexpr = SIZE // SLICE
    acc = tl.zeros((SIZE, BLOCK_N), tl.float32)
    following = tl.load(col + first, mask=first < last, other=0)
    after = first + 1 // SLICES
    following_odd = tl.load(col + after, mask=after < last, other=0)
    for i in range(first * SLICES, last * SLICES, 2):
        band, odd_band = following.to(tl.int64), following_odd.to(tl.int64)
        after = (i + 2) // SLICES
        following = tl.load(col + after, mask=after < last, other=0)
        after = (i + 3) // SLICES
        following_odd = tl.load(col + after, mask=after < last, other=0)
        block, at = i // SLICES, i % SLICES * SLICE
        a = tl.load(a_at + (block * SIZE * SIZE + at))
        b = tl.load(b_at + (band * SIZE + at) * n, mask=inside, other=0.0)
        acc = tl.dot(a, b, acc)
        more = i + 1 < last * SLICES
        block, at = (i + 1) // SLICES, (i + 1) % SLICES * SLICE
        a = tl.load(a_at + (block * SIZE * SIZE + at), mask=more, other=0.0)
        b = tl.load(b_at + (odd_band * SIZE + at) * n, mask=inside & more, other=0.0)
        acc = tl.dot(a, b, acc)
    at = (row.to(tl.int64) * SIZE + m)[:, None] * n + column[None, :]
    tl.store(out + at, acc.to(out.dtype.element_ty), mask=inside)
