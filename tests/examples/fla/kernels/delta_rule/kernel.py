"""Delta rule of linear attention, step by step, forward."""

import torch
from fla.ops.delta_rule import fused_recurrent_delta_rule


def make_inputs(rng, device, *, batch, length, heads, width, dtype):
    """Return q, k, v of shape (batch, length, heads, width) and beta of (batch, length, heads); keys are normalised."""
    kind = getattr(torch, dtype)
    shape = (batch, length, heads, width)
    q, k, v = (torch.randn(shape, generator=rng, device=rng.device).to(device) for _ in range(3))
    beta = torch.rand(shape[:3], generator=rng, device=rng.device).to(device)
    normal = torch.nn.functional.normalize
    return tuple(x.to(kind) for x in (normal(q, dim=-1), normal(k, dim=-1), v, beta))


def launch(inputs):
    with torch.no_grad():
        return fused_recurrent_delta_rule(*inputs)[0]


def reference(inputs):
    """Follow the recurrence step by step: each key's value in the state is corrected towards the new one."""
    q, k, v, beta = (x.double() for x in inputs)
    state = q.new_zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3])
    outputs = []
    for step in range(q.shape[1]):
        key, value = k[:, step], v[:, step]
        change = (value - (key.unsqueeze(-2) @ state).squeeze(-2)) * beta[:, step].unsqueeze(-1)
        state = state + key.unsqueeze(-1) * change.unsqueeze(-2)
        outputs.append((q[:, step].unsqueeze(-2) @ state).squeeze(-2))
    return torch.stack(outputs, dim=1) * q.shape[-1] ** -0.5


def cost(*, batch, length, heads, width, dtype):
    """Three products with the state for each step; q, k, v are read and the output is written once."""
    steps = batch * length * heads
    return {"flop": 6 * steps * width * width, "bytes": steps * (4 * width + 1) * getattr(torch, dtype).itemsize}
