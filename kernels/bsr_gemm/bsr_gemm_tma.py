"""out = A b for A in blocks (BSR) of 128 x 128 in short rows, on Hopper.

Bound by memory and by the tensor cores about equally: at 8192^3 with 6.25 % of the blocks, reading b and writing the
output, 268 MB, takes 90 us at 3.0 TB/s, and 68.7 GFLOP take 102 us at the 673 TFLOP/s of a dense product.  A value of
the output is a sum of only about 512 products, so the work once per tile matters as much as the products: finding the
blocks, filling the pipeline, storing.

One program computes one tile of 128 x 128 with 98 KB of shared memory, so that two programs share a multiprocessor:
while one starts or stores, the other multiplies.  The hardware schedules a new tile when one ends, which balances rows
of different lengths.  This outweighs the L2 traffic of small tiles, 256 KB per tile, 1.07 GB in all: tiles of
128 x 256, one at a time as in bsr_gemm_sm90.py, need three quarters of that, which matters more in long rows.

The loop iterates over slices of blocks and loads the block column one slice ahead: a load that depends on another load
of the same iteration would cost the pipeline a stage.  Two tiles of a block row are followed by two of the next row:
programs that run at the same time share columns of b, which is read from memory once and then from L2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

if TYPE_CHECKING:
    import torch

BLOCK_N, BLOCK_K, GROUP, STAGES, WARPS = 128, 64, 2, 3, 4


def launch(crow: torch.Tensor, col: torch.Tensor, values: torch.Tensor, dense: torch.Tensor, out: torch.Tensor) -> None:
    """Write the product to `out`."""
    rows, size = len(crow) - 1, values.shape[1]
    panels = triton.cdiv(dense.shape[1], BLOCK_N)
    bsr_gemm_tma[(rows * panels,)](
        crow,
        col,
        TensorDescriptor.from_tensor(values.view(-1, size), [size, BLOCK_K]),
        TensorDescriptor.from_tensor(dense, [BLOCK_K, BLOCK_N]),
        TensorDescriptor.from_tensor(out, [size, BLOCK_N]),
        rows,
        panels,
        SIZE=size,
        BLOCK_N=BLOCK_N,
        BLOCK_K=BLOCK_K,
        GROUP=GROUP,
        num_warps=WARPS,
        num_stages=STAGES,
    )


@triton.jit
def bsr_gemm_tma(
    crow,
    col,
    values,
    dense,
    out,
    rows,
    panels,
    SIZE: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    tile = tl.program_id(0)
    group = tile // (GROUP * rows) * GROUP
    wide = min(GROUP, panels - group)
    row = tile % (GROUP * rows) // wide
    column = (group + tile % (GROUP * rows) % wide) * BLOCK_N
    SLICES: tl.constexpr = SIZE // BLOCK_K
    first = tl.load(crow + row)
    last = tl.load(crow + row + 1)
    acc = tl.zeros((SIZE, BLOCK_N), tl.float32)
    following = tl.load(col + first, mask=first < last, other=0)
    for i in range(first * SLICES, last * SLICES):
        band = following
        after = (i + 1) // SLICES
        following = tl.load(col + after, mask=after < last, other=0)
        k = i % SLICES * BLOCK_K
        a = values.load([i // SLICES * SIZE, k])
        b = dense.load([band * SIZE + k, column])
        acc = tl.dot(a, b, acc)
    out.store([row * SIZE, column], acc.to(out.dtype))
