"""Total variation distance of two distributions, forward."""

import torch
from liger_kernel.ops.tvd import LigerTVDLossFunction


def make_inputs(rng, device, *, rows, vocab, dtype):
    """Return two tensors of shape (rows, vocab), each row a distribution."""
    return tuple(
        torch.randn(rows, vocab, generator=rng, device=rng.device).softmax(-1).to(device, getattr(torch, dtype))
        for _ in range(2)
    )


def launch(inputs):
    with torch.no_grad():
        return LigerTVDLossFunction.apply(*inputs, None, "batchmean", -100)


def reference(inputs):
    p, q = (x.double() for x in inputs)
    return 0.5 * (p - q).abs().sum() / len(p)


def cost(*, rows, vocab, dtype):
    """Three operations for each element; both inputs are read once."""
    return {"flop": 3 * rows * vocab, "bytes": 2 * rows * vocab * getattr(torch, dtype).itemsize}
