"""Group normalisation, forward."""

import torch
from liger_kernel.ops.group_norm import LigerGroupNormFunction


def make_inputs(rng, device, *, batch, channels, groups, hidden, dtype):
    """Return x of shape (batch, channels, hidden), weight and bias of shape (channels,), and two sizes."""
    kind = getattr(torch, dtype)
    x = torch.randn(batch, channels, hidden, generator=rng, device=rng.device).to(device, kind)
    weight, bias = (torch.randn(channels, generator=rng, device=rng.device).to(device, kind) for _ in range(2))
    return x, weight, bias, channels, groups


def launch(inputs):
    with torch.no_grad():
        return LigerGroupNormFunction.apply(*inputs, 1e-6)


def reference(inputs):
    x, weight, bias, _, groups = inputs
    return torch.nn.functional.group_norm(x.double(), groups, weight.double(), bias.double(), 1e-6)


def cost(*, batch, channels, groups, hidden, dtype):
    """Eight operations for each element, which is read once and written once."""
    del groups
    elements = batch * channels * hidden
    return {"flop": 8 * elements, "bytes": 2 * elements * getattr(torch, dtype).itemsize}
