"""Linear attention with a decay for each head and step, step by step, forward."""

import torch
from fla.ops.simple_gla import fused_recurrent_simple_gla


def make_inputs(rng, device, *, batch, length, heads, width, dtype):
    """Return q, k, v of shape (batch, length, heads, width) and log decays of shape (batch, length, heads)."""
    kind = getattr(torch, dtype)
    shape = (batch, length, heads, width)
    q, k, v = (torch.randn(shape, generator=rng, device=rng.device).to(device, kind) for _ in range(3))
    decay = torch.nn.functional.logsigmoid(torch.randn(shape[:3], generator=rng, device=rng.device).to(device))
    return q, k, v, decay


def launch(inputs):
    with torch.no_grad():
        return fused_recurrent_simple_gla(*inputs)[0]


def reference(inputs):
    """Follow the recurrence step by step."""
    q, k, v, decay = (x.double() for x in inputs)
    state = q.new_zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3])
    outputs = []
    for step in range(q.shape[1]):
        added = k[:, step].unsqueeze(-1) * v[:, step].unsqueeze(-2)
        state = state * decay[:, step].exp()[..., None, None] + added
        outputs.append((q[:, step].unsqueeze(-2) @ state).squeeze(-2))
    return torch.stack(outputs, dim=1) * q.shape[-1] ** -0.5


def cost(*, batch, length, heads, width, dtype):
    """Two products with the state for each step; q, k, v are read and the output is written once."""
    steps = batch * length * heads
    return {"flop": 4 * steps * width * width, "bytes": steps * 4 * (width * getattr(torch, dtype).itemsize + 1)}
