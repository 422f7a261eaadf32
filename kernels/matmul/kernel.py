"""Dense matrix product [M, K] x [K, N] -> [M, N] in bfloat16, or of float8_e4m3fn with a scale for each matrix."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch

DRAWN = (1 << 22) + 3
"""The largest number of random values; larger inputs repeat them to save time on a CPU. Odd, so that rows differ."""
FP8 = torch.float8_e4m3fn


class Inputs(NamedTuple):
    a: torch.Tensor
    """[M, K], row-major."""
    b: torch.Tensor
    """[K, N]: row-major in bfloat16, column-major in fp8, the only order that the tensor cores support."""
    a_scale: torch.Tensor
    """A float32: the represented values of a, divided by the stored ones."""
    b_scale: torch.Tensor
    own: bool
    """Whether a kernel of this folder multiplies; otherwise the library does."""


def make_inputs(rng: torch.Generator, device: str, *, m: int, k: int, n: int, dtype: str, backend: str) -> Inputs:
    """Return normally distributed matrices; in fp8 they are scaled to the largest value of the format."""
    a, a_scale = _drawn(rng, device, (m, k), getattr(torch, dtype))
    if getattr(torch, dtype) == FP8:
        b, b_scale = _drawn(rng, device, (n, k), FP8)
        b = b.t()
    else:
        b, b_scale = _drawn(rng, device, (k, n), getattr(torch, dtype))
    return Inputs(a, b, a_scale, b_scale, {"cublas": False, "gluon": True}[backend])


def _drawn(
    rng: torch.Generator, device: str, shape: tuple[int, int], dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    size = shape[0] * shape[1]
    drawn = torch.randn(min(size, DRAWN), generator=rng)
    scale = drawn.abs().max() / torch.finfo(FP8).max if dtype == FP8 and size else torch.ones(())
    values = (drawn / scale).to(dtype).to(device)
    if size > DRAWN:
        values = values.view(torch.uint8 if dtype == FP8 else dtype).repeat(-(-size // DRAWN))[:size].view(dtype)
    return values.view(shape), scale.to(device)


def launch(inputs: Inputs) -> torch.Tensor:
    a, b, a_scale, b_scale, own = inputs
    if own and a.numel() and b.numel() and has_tma(a, b) and torch.cuda.get_device_capability(a.device)[0] == 9:
        processors = torch.cuda.get_device_properties(a.device).multi_processor_count
        return _module(hopper_kernel(len(a), b.shape[1], processors)).matmul(a, b, a_scale, b_scale)
    if a.dtype != FP8:
        return a @ b
    if has_fp8(a, b):
        return torch._scaled_mm(a, b, a_scale, b_scale, out_dtype=torch.bfloat16, use_fast_accum=True)
    # For GPUs whose tensor cores have no fp8: bfloat16 represents each fp8 value.
    return (a.bfloat16() @ b.bfloat16() * (a_scale * b_scale)).bfloat16()


def hopper_kernel(m: int, n: int, processors: int) -> str:
    """Return the kernel for this size: matmul_sm90.py if each multiprocessor gets a tile of 128 x 256."""
    return "matmul_sm90" if -(-m // 128) * -(-n // 256) >= processors else "matmul_tma"


def has_tma(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether the kernels for Hopper support these: TMA can address the rows of inputs and output.

    TMA uses 32-bit offsets, also beyond the end of a matrix, up to the end of a tile.
    """
    near = max(*a.shape, b.shape[1]) <= (1 << 31) - 256
    return near and b.shape[1] * 2 % 16 == 0 and has_rows(a) and has_rows(b.t() if a.dtype == FP8 else b)


def has_rows(matrix: torch.Tensor) -> bool:
    """Return whether rows and their elements are contiguous, and rows begin at multiples of 16 bytes."""
    row, element = matrix.stride()
    aligned = row * matrix.itemsize % 16 == 0 and matrix.data_ptr() % 16 == 0
    return element == 1 and row >= matrix.shape[1] and aligned


def has_fp8(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether cuBLAS supports these: Ada or later, sizes in multiples of 16, a by rows and b by columns."""
    sizes = (a.shape[1], b.shape[1])
    return (
        min(*sizes, len(a)) > 0
        and not any(size % 16 for size in sizes)
        and has_rows(a)
        and has_rows(b.t())
        and (torch.cuda.get_device_capability(a.device) >= (8, 9))
    )


@functools.cache
def _module(name: str) -> Any:
    """Import a kernel only to launch it: torch for the CPU contains no Triton."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def reference(inputs: Inputs) -> torch.Tensor:
    """Multiply in float64 on the device of the inputs: 4096^3 takes half a minute on a CPU."""
    scale = inputs.a_scale.double() * inputs.b_scale.double()
    return inputs.a.double() @ inputs.b.double() * scale


def cost(*, m: int, k: int, n: int, dtype: str, backend: str) -> dict[str, int]:  # noqa: ARG001
    """Count a multiplication and an addition per product; both matrices once, the output in bfloat16 once."""
    return {"flop": 2 * m * k * n, "bytes": (m * k + k * n) * getattr(torch, dtype).itemsize + m * n * 2}
