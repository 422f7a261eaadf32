"""The same with PyTorch's scatter operations, as they are and compiled.

Points outside the grid go to one additional cell, which is cut off: a mask that drops them would wait for the GPU.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel import Inputs


def scatter(inputs: Inputs) -> torch.Tensor:
    mode, points, features, lattice = inputs
    x, y, z = lattice.cells
    cells = x * y * z
    # Divide by a tensor, as in `reference`: on a GPU torch multiplies by the reciprocal of a number, which can move
    # points on borders to another cell.
    # Filled by a kernel, because a CUDA graph cannot capture a copy from the host.
    size = points.new_full((), lattice.size, dtype=torch.float64)
    i, j, k = ((points.double() - lattice.origin) / size).floor().unbind(1)
    inside = (i >= 0) & (i < x) & (j >= 0) & (j < y) & (k >= 0) & (k < z)
    cell = torch.where(inside, (i * y + j) * z + k, cells).long()
    if mode == "occupancy":
        grid = points.new_zeros(cells + 1).scatter_(0, cell, 1.0)
    elif mode == "count":
        grid = torch.zeros(cells + 1, dtype=torch.int32, device=points.device)
        grid.scatter_add_(0, cell, torch.ones_like(cell, dtype=torch.int32))
    else:
        grid = points.new_zeros(cells + 1, features.shape[1])
        reduce = "mean" if mode == "mean" else "amax"
        grid.scatter_reduce_(0, cell[:, None].expand_as(features), features, reduce, include_self=False)
    return grid[:cells].view(*lattice.cells, *grid.shape[1:])


@functools.cache
def compiled() -> Callable[[Inputs], torch.Tensor]:
    """Import the compiler only when needed: it takes seconds."""
    return torch.compile(scatter)


def scatter_compiled(inputs: Inputs) -> torch.Tensor:
    return compiled()(inputs)


ALTERNATIVES: dict[str, Callable[[Inputs], object]] = {
    "PyTorch scatter": scatter,
    "compiled PyTorch scatter": scatter_compiled,
}
