"""Each backend of PyTorch; in `launch` PyTorch chooses one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Callable

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

if TYPE_CHECKING:
    import torch
    from kernel import Inputs

BACKENDS = {"flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "cudnn": "CUDNN_ATTENTION", "math": "MATH"}
"""The backends by the names that the cases use."""


def attend(inputs: Inputs, backend: str) -> torch.Tensor:
    """Compute attention by one backend; a RuntimeError if it does not support the inputs or the device."""
    with sdpa_kernel(getattr(SDPBackend, BACKENDS[backend])):
        return scaled_dot_product_attention(inputs.q, inputs.k, inputs.v)


ALTERNATIVES: dict[str, Callable[[Inputs], object]] = {name: partial(attend, backend=name) for name in BACKENDS}
