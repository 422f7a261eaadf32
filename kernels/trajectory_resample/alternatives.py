"""The same in PyTorch: search, gather, interpolate; as it is and compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

import torch

if TYPE_CHECKING:
    from kernel import Inputs


def resample(x: torch.Tensor, time: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Interpolate between the neighbours of each target in float32."""
    count = torch.searchsorted(time, target, right=True)
    before, after = (count - 1).clamp(min=0), count.clamp(max=time.shape[1] - 1)
    start, end = time.gather(1, before), time.gather(1, after)
    weight = torch.where(end > start, (target - start) / (end - start), 0.0).unsqueeze(2)
    row = torch.arange(len(x), device=x.device).unsqueeze(1)
    return torch.lerp(x[row, before].float(), x[row, after].float(), weight).to(x.dtype)


compiled = torch.compile(resample)

ALTERNATIVES: dict[str, Callable[[Inputs], object]] = {
    "PyTorch": lambda inputs: resample(inputs.x, inputs.time, inputs.target),
    "compiled PyTorch": lambda inputs: compiled(inputs.x, inputs.time, inputs.target),
}
