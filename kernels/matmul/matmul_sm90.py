"""c = a b for Hopper: one warp loads through TMA, eight warps multiply with wgmma and store.

Bound by the tensor cores, and in repeated launches by the power limit: 4096^3 in bfloat16 is 137 GFLOP, which takes
an H100 194 us, 709 TFLOP/s (baselines/h100-80gb-hbm3/kernels.md), and 101 MB, 33 us at 3 TB/s; in fp8 twice the rate
for half the bytes read. The design keeps a wgmma ready to start at all times:

- A tile of 128 x 256 gives each of the two warpgroups 64 x 256 of it: 128 accumulators per thread, the largest wgmma.
  Each byte read from L2 serves 85 FLOP in bfloat16; with tiles of 128 x 128 it would be 64 FLOP.
- The loading warp runs ahead by a ring of three stages of 48 KB, across tiles: it loads the next tile while this one
  is rounded and stored. The other 64 KB of shared memory hold the output tile, so that its store overlaps with the
  products of the next tile.
- One program per multiprocessor iterates over the tiles, eight rows of tiles at a time, so that tiles that are
  computed at the same time share their operands in L2.

It is not designed for small products: 2048^3 has 128 tiles, fewer than there are multiprocessors. matmul_tma.py
computes those.

It uses Gluon of Triton 3.6: the pipeline of plain Triton has no separate warp for the loads.
"""

from __future__ import annotations

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

BLOCK_M, BLOCK_N, STAGES, WARPS = 128, 256, 3, 8
BLOCK_K_BYTES = 128  # bytes of a row of the swizzle
GROUP = 8
LOADER_REGISTERS = gl.constexpr(24)
TYPES = {torch.bfloat16: gl.bfloat16, torch.float8_e4m3fn: gl.float8e4nv}


def matmul(a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor) -> torch.Tensor:
    """Return a b in bfloat16, in fp8 times both scales; b is row-major in bfloat16 and column-major in fp8."""
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n, dtype=torch.bfloat16)
    processors = torch.cuda.get_device_properties(a.device).multi_processor_count
    tiles = -(-m // BLOCK_M) * -(-n // BLOCK_N)
    block_k = BLOCK_K_BYTES // a.itemsize
    transposed = a.itemsize == 1
    matmul_sm90[(min(tiles, processors),)](
        descriptor(a, [BLOCK_M, block_k]),
        descriptor(b.t(), [BLOCK_N, block_k]) if transposed else descriptor(b, [block_k, BLOCK_N]),
        descriptor(out, [BLOCK_M, BLOCK_N]),
        a_scale,
        b_scale,
        m,
        n,
        k,
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        BLOCK_K=block_k,
        STAGES=STAGES,
        GROUP=GROUP,
        TRANSPOSED=transposed,
        num_warps=WARPS,
    )
    return out


def descriptor(tensor: torch.Tensor, block: list[int]) -> TensorDescriptor:
    """Return the TMA descriptor of a matrix, encoded on the host and passed by value."""
    return TensorDescriptor.from_tensor(tensor, block, gl.NVMMASharedLayout.get_default_for(block, TYPES[tensor.dtype]))


@gluon.jit
def matmul_sm90(
    a,
    b,
    c,
    a_scale,
    b_scale,
    M,
    N,
    K,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    TRANSPOSED: gl.constexpr,
):
    """Start the roles. Barrier `full`: a stage is loaded; barrier `empty`: it may be overwritten."""
    a_ring = gl.allocate_shared_memory(a.dtype, [STAGES, BLOCK_M, BLOCK_K], a.layout)
    b_ring = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout)
    c_tile = gl.allocate_shared_memory(c.dtype, [BLOCK_M, BLOCK_N], c.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), 1)
        mbarrier.init(empty.index(stage), 1)
    fence_async_shared()
    rows = gl.cdiv(M, BLOCK_M)
    columns = gl.cdiv(N, BLOCK_N)
    gl.warp_specialize(
        [
            (multiply, (c, a_scale, b_scale, a_ring, b_ring, c_tile, full, empty, rows, columns, K, GROUP, TRANSPOSED)),
            (load, (a, b, a_ring, b_ring, full, empty, rows, columns, K, GROUP, TRANSPOSED)),
        ],
        [1],
        [LOADER_REGISTERS],
    )


@gluon.jit
def place(tile, rows, columns, GROUP: gl.constexpr):
    """Return row and column of a tile; the rows of a group come first."""
    first = tile // (GROUP * columns) * GROUP
    high = gl.minimum(rows - first, GROUP)
    within = tile % (GROUP * columns)
    return first + within % high, within // high


@gluon.jit
def load(a, b, a_ring, b_ring, full, empty, rows, columns, K, GROUP: gl.constexpr, TRANSPOSED: gl.constexpr):
    STAGES: gl.constexpr = a_ring.shape[0]
    BLOCK_M: gl.constexpr = a_ring.shape[1]
    BLOCK_K: gl.constexpr = a_ring.shape[2]
    BLOCK_N: gl.constexpr = b_ring.shape[1] if TRANSPOSED else b_ring.shape[2]
    BYTES: gl.constexpr = (BLOCK_M + BLOCK_N) * BLOCK_K * a.dtype.primitive_bitwidth // 8
    at = 0
    for tile in range(gl.program_id(0), rows * columns, gl.num_programs(0)):
        row, column = place(tile, rows, columns, GROUP)
        for k in range(0, K, BLOCK_K):
            stage = at % STAGES
            mbarrier.wait(empty.index(stage), (at // STAGES & 1) ^ 1)
            mbarrier.expect(full.index(stage), BYTES)
            tma.async_copy_global_to_shared(a, [row * BLOCK_M, k], full.index(stage), a_ring.index(stage))
            if TRANSPOSED:
                tma.async_copy_global_to_shared(b, [column * BLOCK_N, k], full.index(stage), b_ring.index(stage))
            else:
                tma.async_copy_global_to_shared(b, [k, column * BLOCK_N], full.index(stage), b_ring.index(stage))
            at += 1


@gluon.jit
def multiply(
    c,
    a_scale,
    b_scale,
    a_ring,
    b_ring,
    c_tile,
    full,
    empty,
    rows,
    columns,
    K,
    GROUP: gl.constexpr,
    TRANSPOSED: gl.constexpr,
):
    STAGES: gl.constexpr = a_ring.shape[0]
    BLOCK_K: gl.constexpr = a_ring.shape[2]
    BLOCK_M: gl.constexpr = c_tile.shape[0]
    BLOCK_N: gl.constexpr = c_tile.shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        [3, 0], [gl.num_warps(), 1], [16, BLOCK_N, 256 // a_ring.dtype.primitive_bitwidth]
    )
    at = 0
    for tile in range(gl.program_id(0), rows * columns, gl.num_programs(0)):
        row, column = place(tile, rows, columns, GROUP)
        acc = gl.zeros((BLOCK_M, BLOCK_N), gl.float32, layout)
        for k in range(0, K, BLOCK_K):
            stage = at % STAGES
            mbarrier.wait(full.index(stage), at // STAGES & 1)
            b_stage = b_ring.index(stage)
            if TRANSPOSED:
                b_stage = b_stage.permute((1, 0))
            acc = warpgroup_mma(a_ring.index(stage), b_stage, acc, is_async=True)
            acc = warpgroup_mma_wait(1, deps=(acc,))  # the products of the previous stage are done
            mbarrier.arrive(empty.index((at + STAGES - 1) % STAGES), count=1, pred=k > 0)
            at += 1
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(empty.index((at + STAGES - 1) % STAGES), count=1)
        if TRANSPOSED:
            acc = acc * (gl.load(a_scale) * gl.load(b_scale))
        tma.store_wait(0)  # the previous tile has been read from shared memory
        c_tile.store(acc.to(c.dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(c, [row * BLOCK_M, column * BLOCK_N], c_tile)
    tma.store_wait(0)
