"""Points counted in the cells of a grid, or their features reduced: [N, 3] and [N, F] -> [X, Y, Z] or [X, Y, Z, F]."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path
from typing import NamedTuple

import torch

from ci_perf.cuda import CudaSource

SOURCE = CudaSource(Path(__file__).with_name("voxelize.cu"))
BLOCK = 256
CLUSTERS = 64
SPREAD = 2.0
"""Standard deviation of a cluster's points, in cells."""


class Lattice(NamedTuple):
    """Cubes of one size; the corner of the first is (origin, origin, origin)."""

    cells: tuple[int, int, int]
    origin: float
    size: float


class Inputs(NamedTuple):
    mode: str
    """The value of a cell: "occupancy", "count", or of each feature "mean" or "max"; 0 if it contains no point."""
    points: torch.Tensor
    """[N, 3] float32: x, y, z."""
    features: torch.Tensor
    """[N, F] float32."""
    lattice: Lattice


def make_inputs(
    rng: torch.Generator,
    device: str,
    *,
    mode: str,
    points: int,
    x: int,
    y: int,
    z: int,
    origin: float,
    size: float,
    features: int,
    layout: str,
    dtype: str,
) -> Inputs:
    """Return points in one of five layouts, and features from -0.5 to 1.5.

    "uniform": over the grid and 1 % of its edges more on each side; "clustered": about 64 centres, and in any order;
    "scan": the same, one cluster after the other; "borders": on the borders between cells and the float32 numbers next
    to them; "outside": far from the grid, infinite or NaN, and every eighth inside.
    """
    edges = torch.tensor([x, y, z], dtype=torch.float64)
    inside = torch.rand(points, 3, generator=rng, dtype=torch.float32)
    if layout in {"clustered", "scan"}:
        centre = torch.randint(CLUSTERS, (points,), generator=rng)
        centre = centre.sort().values if layout == "scan" else centre
        places = torch.rand(CLUSTERS, 3, generator=rng)[centre] * edges
        cells = places + SPREAD * torch.randn(points, 3, generator=rng)
    elif layout == "borders":
        cells = (inside * (edges + 3)).floor() - 1
    else:
        cells = (inside * 1.02 - 0.01) * edges
    xyz = (origin + size * cells).float()
    if layout == "borders":
        side = torch.randint(-1, 2, xyz.shape, generator=rng)
        xyz = torch.where(side == 0, xyz, xyz.nextafter(side * torch.inf))
    if layout == "outside":
        far = torch.tensor([torch.nan, torch.inf, -torch.inf, 1e30, -1e30, 1e4, -1e4])
        axis = torch.randint(3, (points, 1), generator=rng)
        value = far[torch.randint(len(far), (points, 1), generator=rng)]
        xyz = torch.where((torch.arange(points) % 8 > 0)[:, None], xyz.scatter(1, axis, value), xyz)
    drawn = torch.rand(points, features, generator=rng, dtype=getattr(torch, dtype)).mul_(2).sub_(0.5)
    return Inputs(mode, xyz.to(device), drawn.to(device), Lattice((x, y, z), origin, size))


def launch(inputs: Inputs) -> torch.Tensor:
    mode, points, features, lattice = inputs
    points, features = (
        points.contiguous(),
        features.contiguous(),
    )  # copies only if necessary
    cells, width = math.prod(lattice.cells), features.shape[1]
    if cells >= 1 << 31:
        raise ValueError(f"a grid of {' x '.join(map(str, lattice.cells))} cells: fewer than 2^31 can be numbered")
    if mode == "occupancy":
        grid = points.new_zeros(lattice.cells)
        _scatter("voxelize_occupancy", points, lattice, (grid,))
        return grid
    if mode == "count":
        grid = torch.zeros(lattice.cells, dtype=torch.int32, device=points.device)
        _scatter("voxelize_count", points, lattice, (grid,))
        return grid
    grid = points.new_zeros(*lattice.cells, width)
    if not grid.numel():
        return grid
    if mode == "mean":
        fours = -(-cells // 4)
        counts = torch.zeros(fours, 4, dtype=torch.int32, device=points.device)
        _scatter("voxelize_sum", points, lattice, (features, width, grid, counts))
        SOURCE.launch("voxelize_divide", -(-fours // BLOCK), BLOCK, (counts, grid, width, fours))
    else:
        _scatter("voxelize_max", points, lattice, (features, width, grid))
        fours = -(-grid.numel() // 4)
        SOURCE.launch("voxelize_decode", -(-fours // BLOCK), BLOCK, (grid, ctypes.c_int64(grid.numel())))
    return grid


def _scatter(name: str, points: torch.Tensor, lattice: Lattice, args: tuple[object, ...]) -> None:
    cells, origin, size = lattice
    if len(points):
        # Three roundings: each error is 2^-24 of at most twice the distances of origin and far corner, in cells.
        margin = 1.5 * 2.0**-23 * (abs(origin) / size + max(cells))
        estimate = (ctypes.c_float(value) for value in (1 / size, -origin / size, margin))
        numbers = (*cells, ctypes.c_double(origin), ctypes.c_double(size), *estimate)
        SOURCE.launch(name, -(-len(points) // BLOCK), BLOCK, (points, len(points), *numbers, *args))


def reference(inputs: Inputs) -> torch.Tensor:
    """Find each point's cell and reduce, all in float64."""
    mode, points, features, lattice = inputs
    shape = torch.tensor(lattice.cells, device=points.device)
    # Divide by a tensor: a number is replaced by its reciprocal on a GPU, where (0.5 + 0.7) / 0.1 is 12, not 11.99...
    size = torch.tensor(lattice.size, dtype=torch.float64, device=points.device)
    index = ((points.double() - lattice.origin) / size).floor()
    inside = ((index >= 0) & (index < shape)).all(1)
    x, y, z = index[inside].long().unbind(1)
    cell = (x * shape[1] + y) * shape[2] + z
    cells = lattice.cells[0] * lattice.cells[1] * lattice.cells[2]
    count = torch.bincount(cell, minlength=cells).double()
    if mode in {"occupancy", "count"}:
        return (count.clamp(max=1) if mode == "occupancy" else count).view(lattice.cells)
    values = features[inside].double()
    grid = values.new_zeros(cells, features.shape[1])
    if mode == "mean":
        grid.index_add_(0, cell, values).div_(count.clamp(min=1)[:, None])
    else:
        grid.scatter_reduce_(0, cell[:, None].expand_as(values), values, "amax", include_self=False)
    return grid.view(*lattice.cells, -1)


def cost(*, mode: str, points: int, x: int, y: int, z: int, features: int, **_: object) -> dict[str, int]:
    """Count a subtraction and a division per coordinate; every point, feature and cell of the result once."""
    read, written = (features, features) if mode in {"mean", "max"} else (0, 1)
    return {"flop": points * (6 + read), "bytes": 4 * (points * (3 + read) + x * y * z * written)}
