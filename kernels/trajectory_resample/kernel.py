"""Linear interpolation of sampled trajectories at new times: [B, S, D] at times [B, S] -> [B, T, D]."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch

from ci_perf.cuda import CudaSource

SOURCE = CudaSource(Path(__file__).with_name("trajectory_resample.cu"))
WARPS = 4  # kWarps of the source
DRAWN = (1 << 22) + 3
"""The largest number of random values; larger inputs repeat them to save time on a CPU. Odd, so that rows differ."""


class Inputs(NamedTuple):
    x: torch.Tensor
    """[B, S, D]: samples."""
    time: torch.Tensor
    """[B, S] float32: the time of each sample, ascending."""
    target: torch.Tensor
    """[B, T] float32: the target times, in any order; NaN gives NaN."""


STEP = 4.0
"""The step of the times in the layout "repeated", which is also the average number of samples with equal times."""


def make_inputs(
    rng: torch.Generator,
    device: str,
    *,
    batch: int,
    samples: int,
    targets: int,
    dim: int,
    dtype: str,
    layout: str = "ascending",
) -> Inputs:
    """Return samples at uneven steps and targets, some of which lie before the first or after the last.

    `layout`: "ascending" targets; the same in any order, "shuffled"; or "repeated", so that samples share a time,
    targets come more than once, in any order, and meet samples.
    """
    size = batch * samples * dim
    drawn = torch.randn(min(size, DRAWN), generator=rng).to(device, getattr(torch, dtype))
    x = drawn.repeat(-(-size // DRAWN))[:size].view(batch, samples, dim)
    time = torch.rand(batch, samples, generator=rng).add_(0.5).cumsum(1)
    target = torch.rand(batch, targets, generator=rng)
    if layout == "ascending":
        target = target.sort(1).values
    target = target.mul_(1.04).sub_(0.02) * time[:, -1:]
    if layout == "repeated":
        time, target = ((times / STEP).round() * STEP for times in (time, target))
    return Inputs(x, time.to(device), target.to(device))


def launch(inputs: Inputs) -> torch.Tensor:
    x, time, target = (tensor.contiguous() for tensor in inputs)  # as the kernel takes them; a copy only where not
    samples, dim = x.shape[1:]
    targets = target.shape[1]
    out = x.new_empty(x.shape[0], targets, dim)
    rows = x.shape[0] * targets
    if out.numel():
        if not samples:
            raise ValueError("a trajectory without samples has no value at any time: at least one is needed")
        name = "trajectory_resample_" + str(x.dtype).partition(".")[2]
        SOURCE.launch(name, -(-rows // WARPS), WARPS * 32, (x, time, target, out, rows, samples, targets, dim))
    return out


def reference(inputs: Inputs) -> torch.Tensor:
    """Interpolate in float64; of samples with equal times the last one counts, and the end values are used outside."""
    x, time, target = inputs.x.double(), inputs.time.double(), inputs.target.double()
    count = torch.searchsorted(time, target, right=True)
    before = (count - 1).clamp_(min=0)
    after = count.clamp(max=time.shape[1] - 1)
    span = time.gather(1, after) - time.gather(1, before)
    weight = torch.where((span > 0) | target.isnan(), (target - time.gather(1, before)) / span, 0.0).unsqueeze(2)
    index = before.unsqueeze(2).expand(-1, -1, x.shape[2])
    low = x.gather(1, index)
    return low + weight * (x.gather(1, after.unsqueeze(2).expand_as(index)) - low)


def cost(*, batch: int, samples: int, targets: int, dim: int, dtype: str, **_: object) -> dict[str, int]:
    """Count a subtraction and a fused multiply-add per element; every sample and time once, every value once.

    This is more than is moved: about 38 % of the samples of the cases are not next to a target and are never read,
    which leaves three quarters of these bytes.
    """
    size = getattr(torch, dtype).itemsize
    return {
        "flop": 3 * batch * targets * dim,
        "bytes": batch * ((samples + targets) * dim * size + (samples + targets) * 4),
    }
