"""Division of each row by its Euclidean norm, forward."""

import torch
from fla.modules.l2norm import l2norm


def make_inputs(rng, device, *, rows, width, dtype):
    """Return x of shape (rows, width)."""
    return (torch.randn(rows, width, generator=rng, device=rng.device).to(device, getattr(torch, dtype)),)


def launch(inputs):
    with torch.no_grad():
        return l2norm(*inputs)


def reference(inputs):
    (x,) = (tensor.double() for tensor in inputs)
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6)


def cost(*, rows, width, dtype):
    """Three operations for each element, which is read once and written once."""
    return {"flop": 3 * rows * width, "bytes": 2 * rows * width * getattr(torch, dtype).itemsize}
