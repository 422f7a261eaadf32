"""Hard to time: three tensors more in each launch."""

import torch


def make_inputs(rng, device, n):
    return torch.randn(n, generator=rng).to(device)


def launch(x):
    parts = [x + i for i in range(4)]
    return torch.stack(parts).sum(0)


def reference(x):
    return 4 * x.double() + 6
