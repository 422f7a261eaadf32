"""Scaled dot product attention as PyTorch dispatches it: softmax(q k^T / sqrt(D)) v for [B, H, S, D]."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention

DRAWN = (1 << 22) + 3
"""The largest number of random values: a CPU takes a second for the largest case. Odd, so that heads differ."""

ALIGNMENT = 16
"""Bytes that fused kernels read at a time. PyTorch chooses a kernel by sizes and strides, not by the address of a
tensor: in float32 with dim = 4 the memory-efficient one fails with "misaligned address" (torch 2.11, H200)."""


class Inputs(NamedTuple):
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor


def make_inputs(rng: torch.Generator, device: str, *, batch: int, heads: int, seq: int, dim: int, dtype: str) -> Inputs:
    """Return normally distributed q, k and v; large ones repeat the random values, shifted for each head."""
    torch.set_float32_matmul_precision("highest")  # no TF32, even if the environment enables it
    size = batch * heads * seq * dim
    drawn = (torch.randn(min(size, DRAWN), generator=rng).to(device, getattr(torch, dtype)) for _ in range(3))
    return Inputs(*(d.repeat(-(-size // DRAWN))[:size].view(batch, heads, seq, dim) for d in drawn))


def launch(inputs: Inputs) -> torch.Tensor:
    if any(tensor.is_cuda and tensor.data_ptr() % ALIGNMENT for tensor in inputs):
        raise ValueError(
            f"q, k and v must begin at multiples of {ALIGNMENT} bytes: PyTorch does not look, and may fail"
        )
    return scaled_dot_product_attention(*inputs)


def reference(inputs: Inputs) -> torch.Tensor:
    """Attend in float64, one batch entry at a time: the scores of all would take 9 GB at S = 2048."""
    return torch.stack([_attend(*(tensor[entry].double() for tensor in inputs)) for entry in range(len(inputs.q))])


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q * q.shape[-1] ** -0.5 @ k.mT, -1) @ v


def cost(*, batch: int, heads: int, seq: int, dim: int, dtype: str) -> dict[str, int]:
    """Count the two matrix products, and q, k, v and the output once each."""
    return {
        "flop": 4 * batch * heads * seq**2 * dim,
        "bytes": 4 * batch * heads * seq * dim * getattr(torch, dtype).itemsize,
    }
