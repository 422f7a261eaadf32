"""Softmax of each row."""

import torch
from row_ops import softmax


def make_inputs(rng, device, *, rows, columns):
    """Return a matrix of normal values."""
    return torch.randn(rows, columns, generator=rng, device=rng.device).to(device)


def launch(x):
    return softmax(x)


def reference(x):
    return x.double().softmax(-1)


def cost(*, rows, columns):
    """Five operations for each element, which is read once and written once."""
    return {"flop": 5 * rows * columns, "bytes": 8 * rows * columns}
