"""out = A b for A in blocks (BSR) of 64 x 64 or 128 x 128 in long rows, on Hopper.

Bound by the tensor cores: at 4096^3 with half of the blocks, 68.7 GFLOP take 99 us at the 694 TFLOP/s of a dense
product, and 84 MB take 20 us at 4.2 TB/s.  Tiles of 256 columns are the largest that fit into the registers.  They
cause the least L2 traffic, but only one program fits on a multiprocessor.  The work once per tile must therefore
overlap with the products of another tile in the same program.  Warps are specialized in three roles:

- `draw`, one warp, takes tiles from a counter and loads their indices ahead of the other roles.  Rows differ in
  length; the longest come first, so that all multiprocessors finish at about the same time.
- `load`, one warp, loads blocks and the matching rows of b through TMA into a ring of stages, ahead of the products
  and across tiles.
- `multiply`, eight warps, sums a tile with wgmma, rounds it, and stores it through TMA during the products of the
  next tile.

Consecutive tiles belong to different rows and the same columns, so that b is read from memory once and then from L2.
Blocks of 64 x 64 read 320 values from L2 for each 64 x 256 products: 1.34 GB at 4096^3 with half of the blocks, or
8.9 TB/s over its 151 us, which is probably the limit (128 x 128: 805 MB, 113 us).

Rates and times are from baselines/h200/kernels.md. Written for Triton 3.6; its Gluon API may still change.
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

BLOCK_N, BLOCK_K, WARPS = 256, 64, 8
STAGES = {64: 4, 128: 3}
"""By block size: the number of stages that fit into 227 KB together with the output tile."""
GROUP = 8
"""The number of consecutive tiles of a block row, before the next row: these columns of b stay in L2."""
MOST_SORTED = 128
"""Block rows: more are not sorted, because the last tiles are then a small part of the time."""
TYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}
# Shared by the roles: number of tiles drawn but not started, 32-bit words of each, registers of the two small roles.
JOBS = gl.constexpr(2)
WORDS = gl.constexpr(8)
REGISTERS = gl.constexpr(40)
LANES = gl.constexpr(gl.BlockedLayout([1], [32], [1], [0]))


def launch(
    crow: torch.Tensor,
    col: torch.Tensor,
    values: torch.Tensor,
    dense: torch.Tensor,
    workspace: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Write the product to `out`."""
    rows, size, n = len(crow) - 1, values.shape[1], dense.shape[1]
    panels = -(-n // BLOCK_N)
    processors = torch.cuda.get_device_properties(dense.device).multi_processor_count
    bsr_gemm_sm90[(min(rows * panels, processors),)](
        crow,
        col,
        descriptor(values.view(-1, size), [size, BLOCK_K]),
        descriptor(dense, [BLOCK_K, BLOCK_N]),
        descriptor(out, [size, BLOCK_N]),
        workspace,
        rows,
        panels,
        STAGES=STAGES[size],
        GROUP=GROUP,
        SORTED=max(16, 1 << (rows - 1).bit_length()) if rows <= MOST_SORTED else 0,
        num_warps=WARPS,
    )


def descriptor(tensor: torch.Tensor, block: list[int]) -> TensorDescriptor:
    """Return the TMA descriptor of a matrix, encoded on the host and passed by value."""
    return TensorDescriptor.from_tensor(tensor, block, gl.NVMMASharedLayout.get_default_for(block, TYPES[tensor.dtype]))


@gluon.jit
def bsr_gemm_sm90(
    crow,
    col,
    values,
    dense,
    out,
    workspace,
    rows,
    panels,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    SORTED: gl.constexpr,
):
    """Start the roles. Barrier `full`: a stage or job is ready; barrier `empty`: it may be overwritten."""
    a_ring = gl.allocate_shared_memory(values.dtype, [STAGES] + values.block_shape, values.layout)
    b_ring = gl.allocate_shared_memory(dense.dtype, [STAGES] + dense.block_shape, dense.layout)
    tile = gl.allocate_shared_memory(out.dtype, out.block_shape, out.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    scalars: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    jobs = gl.allocate_shared_memory(gl.int32, [JOBS * WORDS, 1], scalars)
    jobs_full = gl.allocate_shared_memory(gl.int64, [JOBS, 1], mbarrier.MBarrierLayout())
    jobs_empty = gl.allocate_shared_memory(gl.int64, [JOBS, 1], mbarrier.MBarrierLayout())
    order = gl.allocate_shared_memory(gl.int32, [max(SORTED, 1), 1], scalars)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), 1)
        mbarrier.init(empty.index(stage), 1)
    for slot in gl.static_range(JOBS):
        mbarrier.init(jobs_full.index(slot), 1)
        mbarrier.init(jobs_empty.index(slot), 2)
    if SORTED > 0:
        sort_rows(crow, order, rows, SORTED)
    fence_async_shared()
    gl.warp_specialize(
        [
            (multiply, (out, a_ring, b_ring, tile, full, empty, jobs, jobs_full, jobs_empty)),
            (load, (col, values, dense, a_ring, b_ring, full, empty, jobs, jobs_full, jobs_empty)),
            (draw, (crow, col, workspace, order, jobs, jobs_full, jobs_empty, rows, panels, GROUP, SORTED)),
        ],
        [1, 1],
        [REGISTERS, REGISTERS],
    )


@gluon.jit
def sort_rows(crow, order, rows, SORTED: gl.constexpr):
    """Write the block rows to `order`, those with the most blocks first: each row counts the rows before it."""
    square: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [gl.num_warps(), 1], [1, 0])
    i = gl.arange(0, SORTED, gl.SliceLayout(1, square))
    j = gl.arange(0, SORTED, gl.SliceLayout(0, square))
    before = gl.sum(
        (sort_key(crow, i, rows, SORTED)[:, None] > sort_key(crow, j, rows, SORTED)[None, :]).to(gl.int32), 0
    )
    row = gl.sum(gl.where(before[None, :] == i[:, None], j[None, :], 0), 1)
    order._reinterpret(gl.int32, [SORTED], gl.SwizzledSharedLayout(1, 1, 1, [0])).store(row)


@gluon.jit
def sort_key(crow, row, rows, SORTED: gl.constexpr):
    """Return a unique number that is larger for more blocks, and for equal numbers of blocks for earlier rows."""
    first = gl.load(crow + row, mask=row < rows, other=0)
    last = gl.load(crow + row + 1, mask=row < rows, other=-1)
    return (last - first) * SORTED - row


@gluon.jit
def draw(
    crow,
    col,
    workspace,
    order,
    jobs,
    jobs_full,
    jobs_empty,
    rows,
    panels,
    GROUP: gl.constexpr,
    SORTED: gl.constexpr,
):
    """Distribute tiles until none is left, then a job of -1 blocks."""
    turn = 0
    tile = gl.program_id(0)
    while tile < rows * panels:
        group = tile // (GROUP * rows) * GROUP
        wide = gl.minimum(GROUP, panels - group)
        within = tile % (GROUP * rows)
        row = within // wide
        if SORTED > 0:
            row = gl.sum(order.index(row).load(LANES), 0)
        first = gl.load(crow + row)
        last = gl.load(crow + row + 1)
        band = gl.load(col + first, mask=first < last, other=0)
        hand_out(jobs, jobs_full, jobs_empty, turn, row, group + within % wide, first, last - first, band)
        turn += 1
        tile = gl.num_programs(0) + gl.atomic_add(workspace, 1)
    hand_out(jobs, jobs_full, jobs_empty, turn, 0, 0, 0, -1, 0)
    # The last program that gets here resets the counters.
    if gl.atomic_add(workspace + 1, 1) == gl.num_programs(0) - 1:
        gl.store(workspace, 0)
        gl.store(workspace + 1, 0)


@gluon.jit
def hand_out(jobs, jobs_full, jobs_empty, turn, row, panel, first, blocks, band):
    slot = turn % JOBS
    mbarrier.wait(jobs_empty.index(slot), (turn // JOBS & 1) ^ 1)
    write(jobs, slot, 0, row)
    write(jobs, slot, 1, panel)
    write(jobs, slot, 2, blocks)
    write(jobs, slot, 3, first)
    write(jobs, slot, 4, band)
    mbarrier.arrive(jobs_full.index(slot), count=1)


@gluon.jit
def write(jobs, slot, word: gl.constexpr, value):
    jobs.index(slot * WORDS + word).store(gl.full([1], value, gl.int32, LANES))


@gluon.jit
def read(jobs, slot, word: gl.constexpr):
    return gl.sum(jobs.index(slot * WORDS + word).load(gl.BlockedLayout([1], [32], [gl.num_warps()], [0])), 0)


@gluon.jit
def load(col, values, dense, a_ring, b_ring, full, empty, jobs, jobs_full, jobs_empty):
    """Load the blocks of each job into the ring, one by one."""
    STAGES: gl.constexpr = a_ring.shape[0]
    SIZE: gl.constexpr = a_ring.shape[1]
    BLOCK_K: gl.constexpr = a_ring.shape[2]
    BLOCK_N: gl.constexpr = b_ring.shape[2]
    BYTES: gl.constexpr = (SIZE + BLOCK_N) * BLOCK_K * 2
    at = 0
    turn = 0
    blocks = 0
    while blocks >= 0:
        slot = turn % JOBS
        mbarrier.wait(jobs_full.index(slot), turn // JOBS & 1)
        panel = read(jobs, slot, 1)
        blocks = read(jobs, slot, 2)
        first = read(jobs, slot, 3)
        band = read(jobs, slot, 4)
        mbarrier.arrive(jobs_empty.index(slot), count=1)
        turn += 1
        for block in range(first, first + blocks):
            following = gl.load(col + block + 1, mask=block + 1 < first + blocks, other=0)
            for k in gl.static_range(0, SIZE, BLOCK_K):
                stage = at % STAGES
                ready = full.index(stage)
                mbarrier.wait(empty.index(stage), (at // STAGES & 1) ^ 1)
                mbarrier.expect(ready, BYTES)
                tma.async_copy_global_to_shared(values, [block * SIZE, k], ready, a_ring.index(stage))
                tma.async_copy_global_to_shared(dense, [band * SIZE + k, panel * BLOCK_N], ready, b_ring.index(stage))
                at += 1
            band = following


@gluon.jit
def take(jobs, jobs_full, jobs_empty, turn):
    slot = turn % JOBS
    mbarrier.wait(jobs_full.index(slot), turn // JOBS & 1)
    row = read(jobs, slot, 0)
    panel = read(jobs, slot, 1)
    blocks = read(jobs, slot, 2)
    mbarrier.arrive(jobs_empty.index(slot), count=1)
    return row, panel, blocks


@gluon.jit
def multiply(out, a_ring, b_ring, tile, full, empty, jobs, jobs_full, jobs_empty):
    """Sum and store the tile of each job; one without blocks is zeros."""
    STAGES: gl.constexpr = a_ring.shape[0]
    SIZE: gl.constexpr = tile.shape[0]
    BLOCK_N: gl.constexpr = tile.shape[1]
    STEPS: gl.constexpr = SIZE // a_ring.shape[2]
    DOWN: gl.constexpr = min(SIZE // 16, gl.num_warps())
    ALONG: gl.constexpr = gl.num_warps() // DOWN
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [DOWN, ALONG], [16, BLOCK_N // ALONG, 16])
    at = 0
    turn = 0
    row, panel, blocks = take(jobs, jobs_full, jobs_empty, turn)
    while blocks >= 0:
        acc = gl.zeros((SIZE, BLOCK_N), gl.float32, layout)
        for i in range(blocks * STEPS):
            stage = at % STAGES
            mbarrier.wait(full.index(stage), at // STAGES & 1)
            acc = warpgroup_mma(a_ring.index(stage), b_ring.index(stage), acc, is_async=True)
            acc = warpgroup_mma_wait(1, deps=(acc,))  # the products of the previous stage are done
            mbarrier.arrive(empty.index((at + STAGES - 1) % STAGES), count=1, pred=i > 0)
            at += 1
        turn += 1
        next_row, next_panel, next_blocks = take(jobs, jobs_full, jobs_empty, turn)
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(empty.index((at + STAGES - 1) % STAGES), count=1, pred=blocks > 0)
        tma.store_wait(0)  # the previous tile has been read from shared memory
        tile.store(acc.to(out.dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(out, [row * SIZE, panel * BLOCK_N], tile)
        row = next_row
        panel = next_panel
        blocks = next_blocks
    tma.store_wait(0)
