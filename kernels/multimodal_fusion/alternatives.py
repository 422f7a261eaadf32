"""The same in PyTorch: search, gather and interpolate each stream, concatenate; as it is and compiled."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel import Inputs


def resample(x: torch.Tensor, time: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Interpolate between the neighbours of each target in float32."""
    count = torch.searchsorted(time, target, right=True)
    before, after = (count - 1).clamp(min=0), count.clamp(max=time.shape[1] - 1)
    start, end = time.gather(1, before), time.gather(1, after)
    weight = torch.where(end > start, (target - start) / (end - start), 0.0).unsqueeze(2)
    row = torch.arange(len(x), device=x.device).unsqueeze(1)
    return torch.lerp(x[row, before].float(), x[row, after].float(), weight).to(x.dtype)


def fuse(inputs: Inputs) -> torch.Tensor:
    return torch.cat([resample(x, time, inputs.target) for x, time in inputs.streams], 2)


@functools.cache
def compiled() -> Callable[[Inputs], torch.Tensor]:
    """Import the compiler only when needed: it takes seconds."""
    return torch.compile(fuse)


def fuse_compiled(inputs: Inputs) -> torch.Tensor:
    return compiled()(inputs)


ALTERNATIVES: dict[str, Callable[[Inputs], object]] = {
    "PyTorch": fuse,
    "compiled PyTorch": fuse_compiled,
}
