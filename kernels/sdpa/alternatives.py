"""The backends of PyTorch, each alone: `launch` leaves the choice to PyTorch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Callable

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

if TYPE_CHECKING:
    import torch
    from kernel import Inputs

BACKENDS = {"flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "cudnn": "CUDNN_ATTENTION", "math": "MATH"}
"""The names of our cases, and PyTorch's."""


def attend(inputs: Inputs, backend: str) -> torch.Tensor:
    """Attend by one backend; a RuntimeError where it does not take the inputs or the device."""
    with sdpa_kernel(getattr(SDPBackend, BACKENDS[backend])):
        return scaled_dot_product_attention(inputs.q, inputs.k, inputs.v)


ALTERNATIVES: dict[str, Callable[[Inputs], object]] = {name: partial(attend, backend=name) for name in BACKENDS}
