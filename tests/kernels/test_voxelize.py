"""Voxelization is compared with a plain loop."""

import itertools
import math

import pytest

from tests.kernels.helpers import load_alternatives, load_kernel, read_toml, rng

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch")
TorchDispatchMode = pytest.importorskip("torch.utils._python_dispatch").TorchDispatchMode


def voxelize_slowly(inputs):
    """Reduce with dictionaries and Python floats, which are float64."""
    mode, points, features, (shape, origin, size) = inputs
    found = {}
    for point, row in zip(points.tolist(), features.tolist(), strict=True):
        index = [(p - origin) / size for p in point]
        if all(0 <= i < n for i, n in zip(index, shape, strict=True)):
            found.setdefault(tuple(map(math.floor, index)), []).append(row)
    if mode in {"occupancy", "count"}:
        grid = torch.zeros(*shape, dtype=torch.float64)
        for cell, rows in found.items():
            grid[cell] = 1 if mode == "occupancy" else len(rows)
        return grid
    grid = torch.zeros(*shape, features.shape[1], dtype=torch.float64)
    for cell, rows in found.items():
        columns = list(zip(*rows, strict=True))
        grid[cell] = torch.tensor([sum(c) / len(c) if mode == "mean" else max(c) for c in columns], dtype=torch.float64)
    return grid


VOXELS = {"points": 300, "x": 7, "y": 4, "z": 5, "origin": -0.7, "size": 0.1, "features": 2, "dtype": "float32"}


@pytest.mark.parametrize("mode", ["occupancy", "count", "mean", "max"])
@pytest.mark.parametrize("layout", ["uniform", "clustered", "scan", "borders", "outside"])
def test_voxels_agree_with_a_plain_loop(mode, layout):
    kernel = load_kernel("voxelize")
    inputs = kernel.make_inputs(rng(), "cpu", mode=mode, layout=layout, **VOXELS)
    expected = voxelize_slowly(inputs)
    assert expected.any()
    torch.testing.assert_close(kernel.reference(inputs), expected)


@pytest.mark.parametrize("mode", ["occupancy", "count", "mean", "max"])
def test_voxels_of_no_point_are_zero(mode):
    kernel = load_kernel("voxelize")
    inputs = kernel.make_inputs(rng(), "cpu", mode=mode, layout="uniform", **{**VOXELS, "points": 0})
    assert not kernel.reference(inputs).any()


@pytest.mark.parametrize("mode", ["occupancy", "count", "mean", "max"])
@pytest.mark.parametrize("features", [0, 3])
def test_voxel_cost_counts_what_is_read_and_the_cells_of_the_output(mode, features):
    kernel, case = load_kernel("voxelize"), {**VOXELS, "features": features, "mode": mode, "layout": "uniform"}
    inputs = kernel.make_inputs(rng(), "cpu", **case)
    read = inputs.points.numel() + (inputs.features.numel() if mode in {"mean", "max"} else 0)

    assert kernel.cost(**case)["bytes"] == 4 * (read + kernel.reference(inputs).numel())


def test_points_of_the_layout_borders_lie_on_both_sides_of_them():
    kernel = load_kernel("voxelize")
    inputs = kernel.make_inputs(rng(), "cpu", mode="count", layout="borders", **{**VOXELS, "points": 3000})
    offset = (inputs.points.double() + 0.7) / 0.1
    near = offset - offset.round()
    assert near.abs().max() < 1e-5
    assert (near < 0).any()
    assert (near >= 0).any()


@pytest.mark.parametrize("layout", ["borders", "outside", "uniform"])
def test_the_float32_estimate_of_a_voxel_decides_only_if_its_error_cannot_matter(layout, monkeypatch):
    kernel, passed = load_kernel("voxelize"), []
    monkeypatch.setattr(kernel.SOURCE, "launch", lambda *args: passed.append(args[3]))
    fuzzed, n, decided = read_toml("voxelize")["fuzz"], 70, 0
    for origin, size in itertools.product(fuzzed["origin"], fuzzed["size"]):
        case = {**VOXELS, "points": 3000, "x": n, "y": n, "z": n, "origin": origin, "size": size, "layout": layout}
        inputs = kernel.make_inputs(rng(), "cpu", mode="count", **case)
        kernel.launch(inputs)
        scale, bias, margin = (value.value for value in passed.pop()[7:10])
        estimate = (inputs.points.double() * scale + bias).float()  # as fmaf: the product is exact in float64
        sure = (estimate - estimate.round()).abs() > margin
        inside = sure & (estimate >= 0) & (estimate < n)
        index = ((inputs.points.double() - origin) / torch.tensor(size, dtype=torch.float64)).floor()
        decided += int(sure.sum())
        assert torch.equal(estimate.floor().double()[inside], index[inside])
        assert ((index < 0) | (index >= n))[sure & ~inside].all()
    assert layout != "uniform" or decided > 0.8 * 9000 * len(fuzzed["origin"]) * len(fuzzed["size"])


@pytest.mark.parametrize("mode", ["occupancy", "count", "mean", "max"])
def test_scatter_puts_points_into_the_same_voxels(mode):
    inputs = load_kernel("voxelize").make_inputs(rng(), "cpu", mode=mode, layout="borders", **VOXELS)
    scatter = load_kernel("voxelize", "alternatives.py").ALTERNATIVES["PyTorch scatter"]
    torch.testing.assert_close(scatter(inputs).double(), load_kernel("voxelize").reference(inputs))


class Divisions(TorchDispatchMode):
    """Keeps what is divided by."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        del types
        if func is torch.ops.aten.div.Tensor:
            self.divisors = [*getattr(self, "divisors", []), args[1]]
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("what", ["reference", "PyTorch scatter"])
def test_positions_are_divided_by_a_tensor_and_not_multiplied_by_a_reciprocal(what):
    kernel = load_kernel("voxelize")
    divide = kernel.reference if what == "reference" else load_alternatives("voxelize")[what]
    inputs = kernel.make_inputs(rng(), "cpu", mode="count", layout="borders", **VOXELS)
    with Divisions() as seen:
        divide(inputs)

    assert [divisor.item() for divisor in seen.divisors] == [0.1]
