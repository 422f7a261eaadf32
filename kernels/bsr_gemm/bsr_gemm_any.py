"""out = A b for A in blocks (BSR), on any GPU and of any size: what bsr_gemm_sm90.py does not take.

Bound by the tensor cores where blocks are large, else by L2: a block of size s asks for s rows of b, for the sake of
only s rows of the output.  A program makes one tile of a block row.  Its loop goes over all columns of its blocks,
64 at a time, so that several small blocks fill one step of the tensor cores; which row of b a column meets is looked up
for each.  Block rows come before tiles along them: programs that run at a time share columns of b in L2.

At 4096^3 with a quarter of the blocks of 32 x 32 it takes 219 us on an H200, where a dense product of four times the
FLOP takes 179 us (baselines/h200/kernels.md).  Its tiles ask L2 for 1.34 GB, which is 6.1 TB/s; blocks of 64 x 64 get
8.7 TB/s there, so L2 is not what bounds it.  Latency seems to: tensor cores are 25 % active and DRAM 6 %, 94 % of the
loads that miss L1 are found in L2 (baselines/h200/bsr_gemm.json), and the compiler keeps one stage of each operand in
shared memory (20,736 bytes a program, the lookup of the next step among them), because which row of b to load depends
on a load of the same step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

if TYPE_CHECKING:
    import torch

BLOCK_N, BLOCK_K = 128, 64


def launch(crow: torch.Tensor, col: torch.Tensor, values: torch.Tensor, dense: torch.Tensor, out: torch.Tensor) -> None:
    """Write the product to `out`."""
    rows, size, n = len(crow) - 1, values.shape[1], dense.shape[1]
    bsr_gemm_any[(rows, triton.cdiv(n, BLOCK_N))](
        crow,
        col,
        values,
        dense,
        out,
        n,
        SIZE=size,
        BLOCK_N=BLOCK_N,
        BLOCK_K=BLOCK_K,
        num_warps=8,
        num_stages=3,
    )


@triton.jit
def bsr_gemm_any(crow, col, values, dense, out, n, SIZE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    row = tl.program_id(0)
    first = tl.load(crow + row)
    inner = (tl.load(crow + row + 1) - first) * SIZE
    m = tl.arange(0, SIZE)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((SIZE, BLOCK_N), tl.float32)
    for start in range(0, inner, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        block = first + k // SIZE
        band = tl.load(col + block, mask=k < inner, other=0)
        a_at = (block[None, :].to(tl.int64) * SIZE + m[:, None]) * SIZE + (k % SIZE)[None, :]
        b_at = (band * SIZE + k % SIZE)[:, None].to(tl.int64) * n + column[None, :]
        a = tl.load(values + a_at, mask=(k < inner)[None, :], other=0.0)
        b = tl.load(dense + b_at, mask=(k < inner)[:, None] & (column < n)[None, :], other=0.0)
        acc = tl.dot(a, b, acc)
    at = (row * SIZE + m)[:, None].to(tl.int64) * n + column[None, :]
    tl.store(out + at, acc.to(out.dtype.element_ty), mask=(column < n)[None, :])
