"""Block-sparse (BSR) matrix [M, K] times dense matrix [K, N] -> [M, N], summed in float32."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch

DRAWN = (1 << 22) + 3
"""The largest number of random values; larger inputs repeat them to save time on a CPU. Odd, so that rows differ."""

SHORT = 1024
"""The average number of products for each value of the output. With fewer, the work once per tile matters most, and
many small programs hide it better than the specialized warps of bsr_gemm_sm90.py."""


class Inputs(NamedTuple):
    crow_indices: torch.Tensor
    """[R + 1] int32: where each block row starts in `columns` and `blocks`."""
    col_indices: torch.Tensor
    """[blocks] int32: the block column of each, ascending within a row."""
    values: torch.Tensor
    """[blocks, size, size], size a power of two from 16 to 128."""
    dense: torch.Tensor
    """[K, N], row-major."""
    workspace: torch.Tensor
    """[2] int32 zeros, which a launch resets: launches that run at the same time need separate counters."""


def make_inputs(
    rng: torch.Generator, device: str, *, rows: int, columns: int, n: int, block: int, density: float, dtype: str
) -> Inputs:
    """Return `rows` x `columns` blocks; a share of `density`, at random places, is non-zero: rows differ in length."""
    here = torch.randperm(rows * columns, generator=rng)[: stored_blocks(rows, columns, density)].sort().values
    crow = torch.bincount(here // columns, minlength=rows).cumsum(0)
    values = _drawn(rng, device, (len(here), block, block), dtype)
    return Inputs(
        torch.cat([crow.new_zeros(1), crow]).to(device, torch.int32),
        (here % columns).to(device, torch.int32),
        values,
        _drawn(rng, device, (columns * block, n), dtype),
        torch.zeros(2, dtype=torch.int32, device=device),
    )


def stored_blocks(rows: int, columns: int, density: float) -> int:
    return round(rows * columns * density)


def _drawn(rng: torch.Generator, device: str, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    size = torch.Size(shape).numel()
    drawn = torch.randn(min(size, DRAWN), generator=rng).to(device, getattr(torch, dtype))
    return drawn.repeat(-(-size // DRAWN))[:size].view(shape)


def launch(inputs: Inputs) -> torch.Tensor:
    inputs = Inputs(*(tensor.contiguous() for tensor in inputs))  # copies only if necessary
    values, dense = inputs.values, inputs.dense
    rows, block, n = len(inputs.crow_indices) - 1, values.shape[1], dense.shape[1]
    out = dense.new_empty(rows * block, n)
    if not len(values) or not out.numel():
        return out.zero_()
    hopper = torch.cuda.get_device_capability(dense.device)[0] == 9
    name = hopper_kernel(values, rows) if hopper and has_tma(values, dense, out) else "bsr_gemm_any"
    _module(name).launch(*(inputs if name == "bsr_gemm_sm90" else inputs[:-1]), out)
    return out


def hopper_kernel(values: torch.Tensor, rows: int) -> str:
    """Return the kernel for blocks of this size and this average number of blocks per row."""
    block = values.shape[1]
    if block < 64:
        return "bsr_gemm_small"
    return "bsr_gemm_tma" if block == 128 and len(values) * block < SHORT * rows else "bsr_gemm_sm90"


def has_tma(values: torch.Tensor, dense: torch.Tensor, out: torch.Tensor) -> bool:
    """Return whether TMA can address all rows: they begin at multiples of 16 bytes.

    TMA uses 32-bit offsets, also beyond the end of a matrix, up to the end of a tile.
    """
    aligned = not (dense.shape[1] * dense.itemsize % 16 or dense.data_ptr() % 16 or values.data_ptr() % 16)
    return aligned and max(values.shape[0] * values.shape[1], *dense.shape, len(out)) <= (1 << 31) - 256


@functools.cache
def _module(name: str) -> Any:
    """Import a kernel only to launch it: torch for the CPU contains no Triton."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def reference(inputs: Inputs) -> torch.Tensor:
    """Multiply in float64, one block row at a time: its blocks side by side, times the rows of the dense matrix."""
    crow, col, values, dense, _ = inputs
    size = values.shape[1]
    out = dense.new_zeros(((len(crow) - 1) * size, dense.shape[1]), dtype=torch.float64)
    bands = dense.unflatten(0, (-1, size))
    ends = crow.tolist()
    for row, (first, last) in enumerate(zip(ends, ends[1:])):
        if last > first:
            blocks = values[first:last].double().transpose(0, 1).flatten(1)
            out[row * size : (row + 1) * size] = blocks @ bands[col[first:last].long()].double().flatten(0, 1)
    return out


def cost(*, rows: int, columns: int, n: int, block: int, density: float, dtype: str) -> dict[str, int]:
    """Count a multiplication and an addition per stored value and column; every value, index and output once."""
    stored = stored_blocks(rows, columns, density)
    size = getattr(torch, dtype).itemsize
    return {
        "flop": 2 * stored * block**2 * n,
        "bytes": (stored * block**2 + (columns + rows) * block * n) * size + (rows + 1 + stored) * 4,
    }
