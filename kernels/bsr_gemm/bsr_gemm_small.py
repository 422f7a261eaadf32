"""out = A b for A in blocks (BSR) of 16 x 16 and 32 x 32, on Hopper.

Probably bound by L2: a block of size s reads s rows of b for only s rows of the output.  At 4096^3 with a quarter of
the blocks of 32 x 32, that is 1.07 GB of b and 0.13 GB of blocks for 34 GFLOP.  It takes 128 us on an H200, where a
dense product of four times the FLOP takes 175 us (baselines/h200/kernels.md): 9.4 TB/s, of which 93 % hit in L2, with
DRAM 11 % and the tensor cores 30 % busy (baselines/h200/bsr_gemm.json); blocks of 64 x 64 reach 8.9 TB/s.  Kernels that
merged block rows, which then share rows of b, were tried and were slower: a block that only one of the rows has is
multiplied for both.

A wgmma needs at least 64 rows, more than a small block has.  The kernel therefore computes the transposed tile,
b^T A^T: its rows are 256 columns of b (128 if there are no more), and the 16 or 32 rows of the block are the narrow
side.  An iteration is one block; TMA loads its rows of b at once.  The block column is loaded one iteration ahead: a
load that depends on another load of the same iteration would leave the pipeline only one stage.  Programs are ordered
by block row first, then by tile in the row, so that programs that run at the same time share columns of b in L2.
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
