"""Hard to time: a copy to the host in each launch, which no graph can hold."""

import torch


def make_inputs(rng, device, n):
    return torch.randn(n, generator=rng).to(device)


def launch(x):
    if x[0].item() > 1e9:
        return x
    return x + 1


def reference(x):
    return x.double() + 1
