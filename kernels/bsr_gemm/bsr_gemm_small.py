"""out = A b for A in blocks (BSR) of 16 x 16 and 32 x 32, on Hopper.

Bound by L2, as it seems: a block of size s asks for s rows of b, for the sake of only s rows of the output.  At
4096^3 with a quarter of the blocks of 32 x 32, that is 1.07 GB of b and 0.13 GB of blocks for 34 GFLOP.  It takes
128 us on an H200, where a dense product of four times the FLOP takes 175 us (baselines/h200/kernels.md): 9.4 TB/s,
of which 93 % are found in L2, while DRAM is 11 % busy and tensor cores 30 % (baselines/h200/bsr_gemm.json); blocks
of 64 x 64 get 8.9 TB/s.  Kernels that joined block rows, which then share bands of b, were tried and were slower:
what only one of them has is multiplied for both.

A wgmma takes at least 64 rows, which a small block does not have.  So the tile is the transposed one, b^T A^T: its
rows are 256 columns of b, 128 where there are no more, and the 16 or 32 rows of the block become the narrow side.  A
step is one block, whose band of b TMA fetches at once.  Its column is looked up one step ahead: a load that depends
on another one of the same step would leave the pipeline one stage.  Block rows come before tiles along them:
programs that run at a time share columns of b in L2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

if TYPE_CHECKING:
    import torch

BLOCK_N, STAGES, WARPS = 256, 4, 4


def launch(crow: torch.Tensor, col: torch.Tensor, values: torch.Tensor, dense: torch.Tensor, out: torch.Tensor) -> None:
    """Write the product to `out`."""
    rows, size, n = len(crow) - 1, values.shape[1], dense.shape[1]
    block_n = min(BLOCK_N, max(128, triton.next_power_of_2(n)))
    bsr_gemm_small[(rows * triton.cdiv(n, block_n),)](
        crow,
        col,
        TensorDescriptor.from_tensor(values.view(-1, size), [size, size]),
        TensorDescriptor.from_tensor(dense, [size, block_n]),
        TensorDescriptor.from_tensor(out, [size, block_n]),
        rows,
        SIZE=size,
        BLOCK_N=block_n,
        num_warps=WARPS,
        num_stages=STAGES,
    )


@triton.jit
def bsr_gemm_small(crow, col, values, dense, out, rows, SIZE: tl.constexpr, BLOCK_N: tl.constexpr):
    row = tl.program_id(0) % rows
    column = tl.program_id(0) // rows * BLOCK_N
    first = tl.load(crow + row)
    last = tl.load(crow + row + 1)
    acc = tl.zeros((BLOCK_N, SIZE), tl.float32)
    following = tl.load(col + first, mask=first < last, other=0)
    for block in range(first, last):
        band = following
        following = tl.load(col + block + 1, mask=block + 1 < last, other=0)
        a = values.load([block * SIZE, 0])
        b = dense.load([band * SIZE, column])
        acc = tl.dot(tl.trans(b), tl.trans(a), acc)
    out.store([row * SIZE, column], tl.trans(acc.to(out.dtype)))
