"""Three streams with different sample times, interpolated to the same target times and concatenated."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch

from ci_perf.cuda import CudaSource

SOURCE = CudaSource(Path(__file__).with_name("multimodal_fusion.cu"))
LANES, PACKET = 32, 8  # threads per warp, bytes per packet
MOST_WARPS, MOST_ROWS = 8, 65535  # of a block, of the second dimension of a grid


class Stream(NamedTuple):
    x: torch.Tensor
    """[B, S, D]: samples."""
    time: torch.Tensor
    """[B, S] float32: the time of each sample in seconds, ascending."""


class Inputs(NamedTuple):
    streams: tuple[Stream, Stream, Stream]
    target: torch.Tensor
    """[B, T] float32: the target times, in any order; NaN gives NaN."""


def make_inputs(
    rng: torch.Generator,
    device: str,
    *,
    batch: int,
    samples1: int,
    dim1: int,
    samples2: int,
    dim2: int,
    samples3: int,
    dim3: int,
    targets: int,
    layout: str,
    dtype: str,
) -> Inputs:
    """Return streams over one second and targets from 0.02 s before it until 0.02 s after.

    `layout`: "ascending" targets among samples at uneven steps; the same in any order, "shuffled"; or both kinds of
    time rounded to 1/16 s, "repeated", so that samples share a time and targets meet samples.
    """
    target = torch.rand(batch, targets, generator=rng).mul_(1.04).sub_(0.02)
    if layout == "ascending":
        target = target.sort(1).values

    def draw(samples: int, dim: int) -> Stream:
        x = torch.randn(batch, samples, dim, generator=rng).to(device, getattr(torch, dtype))
        time = torch.rand(batch, samples, generator=rng).add_(0.5).cumsum(1)
        time /= time[:, -1:].clone()
        return Stream(x, (_rounded(time) if layout == "repeated" else time).to(device))

    streams = draw(samples1, dim1), draw(samples2, dim2), draw(samples3, dim3)
    return Inputs(streams, (_rounded(target) if layout == "repeated" else target).to(device))


def _rounded(time: torch.Tensor) -> torch.Tensor:
    return (time * 16).round() / 16


def launch(inputs: Inputs) -> torch.Tensor:
    # Copies only if necessary.
    streams = [Stream(*(tensor.contiguous() for tensor in stream)) for stream in inputs.streams]
    target = inputs.target.contiguous()
    batch, targets = target.shape
    x = streams[0].x
    out = x.new_empty(batch, targets, sum(stream.x.shape[2] for stream in streams))
    if out.numel():
        if any(stream.x.shape[2] and not stream.x.shape[1] for stream in streams):
            raise ValueError("a stream without samples has no value at any time: at least one is needed")
        item = x.element_size()
        tensors = [stream.x for stream in streams]
        packed = not any(number % PACKET for t in tensors for number in (t.data_ptr(), t.shape[2] * item))
        kind, step = ("packets", PACKET // item) if packed else ("elements", 1)
        sizes = [t.shape[2] // step for t in tensors]
        warps = sum(-(-size // LANES) for size in sizes)
        block = min(warps, MOST_WARPS)
        args: list[object] = []
        for i, (samples, time) in enumerate(streams):
            args += [samples, time, time.shape[1], sizes[i]]
        name = f"multimodal_fusion_{str(x.dtype).partition('.')[2]}_{kind}"
        grid = (targets, min(batch, MOST_ROWS), -(-warps // block))
        SOURCE.launch(name, grid, (LANES, block), (*args, target, out, batch))
    return out


def reference(inputs: Inputs) -> torch.Tensor:
    """Interpolate in float64; of samples with equal times the last one counts, and the end values are used outside."""
    return torch.cat([_resample(x.double(), time.double(), inputs.target.double()) for x, time in inputs.streams], 2)


def _resample(x: torch.Tensor, time: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    count = torch.searchsorted(time, target, right=True)
    before = (count - 1).clamp_(min=0)
    after = count.clamp(max=time.shape[1] - 1)
    span = time.gather(1, after) - time.gather(1, before)
    weight = torch.where((span > 0) | target.isnan(), (target - time.gather(1, before)) / span, 0.0).unsqueeze(2)
    index = before.unsqueeze(2).expand(-1, -1, x.shape[2])
    low = x.gather(1, index)
    return low + weight * (x.gather(1, after.unsqueeze(2).expand_as(index)) - low)


def cost(
    *,
    batch: int,
    samples1: int,
    dim1: int,
    samples2: int,
    dim2: int,
    samples3: int,
    dim3: int,
    targets: int,
    dtype: str,
    **_: object,
) -> dict[str, int]:
    """Count a subtraction and a fused multiply-add per element; every sample and time once, every value once."""
    width = dim1 + dim2 + dim3
    samples = samples1 * dim1 + samples2 * dim2 + samples3 * dim3
    times = samples1 + samples2 + samples3 + targets
    return {
        "flop": 3 * batch * targets * width,
        "bytes": batch * ((samples + targets * width) * getattr(torch, dtype).itemsize + times * 4),
    }
