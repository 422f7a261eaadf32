"""RMS normalisation, forward."""

import torch
from liger_kernel.ops.rms_norm import LigerRMSNormFunction


def make_inputs(rng, device, *, rows, hidden, dtype):
    """Return x of shape (rows, hidden) and weight of shape (hidden,)."""
    kind = getattr(torch, dtype)
    return tuple(
        torch.randn(*shape, generator=rng, device=rng.device).to(device, kind) for shape in ((rows, hidden), (hidden,))
    )


def launch(inputs):
    with torch.no_grad():
        return LigerRMSNormFunction.apply(*inputs, 1e-6, 0.0, "llama", False)


def reference(inputs):
    x, weight = (tensor.double() for tensor in inputs)
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def cost(*, rows, hidden, dtype):
    """Four operations for each element, which is read once and written once."""
    return {"flop": 4 * rows * hidden, "bytes": 2 * rows * hidden * getattr(torch, dtype).itemsize}
