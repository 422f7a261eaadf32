"""The bundled kernels without a GPU: references against plain loops, launches on the CPU, and real compiles."""

import bisect
import ctypes
import functools
import importlib.util
import itertools
import json
import math
import operator
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from ci_perf import cuda, store
from ci_perf.checks.random_cases import draw
from ci_perf.traces.occupancy import occupancy_pct
from ci_perf.userside import compilers
from ci_perf.userside.strides import VIEWS, rearranged
from ci_perf.userside.verify import leaves

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
TorchDispatchMode = pytest.importorskip("torch.utils._python_dispatch").TorchDispatchMode

KERNELS = Path(__file__).parents[2] / "kernels"
NAMES = sorted(path.parent.name for path in KERNELS.glob("*/kernel.py"))
SOURCES = sorted(path for path in KERNELS.glob("*/*.cu") if path.parent.name in NAMES)
PROGRAM = KERNELS / "pipeline"
INTERPRETED = Path(__file__).with_name("interpreted.py")
TOOLKIT = str(Path(sysconfig.get_path("purelib")) / "nvidia/cu13")
NO_TRITON = "needs Triton, which has no wheel for this machine"


def load_kernel(name, file="kernel.py"):
    """Import a kernel.py (or its neighbour) as the worker does: by path, under a name of its own."""
    spec = importlib.util.spec_from_file_location(f"{Path(file).stem}_{name}", KERNELS / name / file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def read_toml(name):
    return tomllib.loads((KERNELS / name / "kernel.toml").read_text())


def cases_of(described):
    return {name: {**described.get("defaults", {}), **case} for name, case in described["cases"].items()}


def load_alternatives(name):
    spec = importlib.util.spec_from_file_location(f"alternatives_{name}", KERNELS / name / "alternatives.py")
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings(action="ignore"):  # torch.compile deprecates parts of torch
        spec.loader.exec_module(module)
    return module.ALTERNATIVES


def worst_error(out, expected):
    """Return the error that [tolerance] bounds."""
    out, expected = out.double(), expected.double()
    return ((out - expected).abs() / (expected.abs() + expected.square().mean().sqrt())).max().item()


def rng():
    return torch.Generator().manual_seed(7)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CI_PERF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def compiler():
    try:
        return cuda.find_compiler()
    except cuda.CompileError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", NAMES)
def test_every_case_has_a_tolerance_and_a_cost(name):
    described, kernel = read_toml(name), load_kernel(name)
    assert set(described["cpu_cases"]) <= set(described["cases"])
    for case in cases_of(described).values():
        assert case["dtype"] in described["tolerance"]
        assert min(kernel.cost(**case).values()) > 0


class Asked(Exception):
    """Which kernel would be launched."""


@pytest.fixture
def hopper(monkeypatch):
    """Return a function that says which kernel of a folder an H200 would launch; None: the library's."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda *_: SimpleNamespace(multi_processor_count=132))

    def ask(name):
        raise Asked(name)

    def launched(kernel, inputs):
        monkeypatch.setattr(kernel, "_module", ask)
        if hasattr(kernel, "has_fp8"):
            monkeypatch.setattr(kernel, "has_fp8", lambda *_: False)  # a CPU does not multiply in fp8
        try:
            kernel.launch(inputs)
        except Asked as asked:
            return str(asked)
        return None

    return launched


def packets(spec, params):
    """Say whether the kernel loads several elements at a time, as only some sizes let it."""
    packet = 8 // getattr(torch, params["dtype"]).itemsize
    sizes = [params[f"dim{i}"] for i in (1, 2, 3)] if spec.name == "multimodal_fusion" else [params["dim"] // 2]
    return not any(size % packet for size in sizes)


@pytest.mark.parametrize(
    ("name", "ways"),
    [("matmul", {"sm90", "tma"}), ("bsr_gemm", {"tma", "sm90", "small", "any"})],
)
def test_forty_random_cases_get_to_each_kernel_that_takes_only_some_sizes(name, ways, hopper):
    kernel, (spec,) = load_kernel(name), (s for s in store.read_kernels(KERNELS, KERNELS.parent) if s.name == name)
    found = set()
    for number in range(40):
        params = draw(spec, 1, number)
        kind = params.pop("strides")
        found.add(hopper(kernel, rearranged(kernel.make_inputs(rng(), "cpu", **params), kind, 0)))
    assert found - {None} == {f"{name}_{way}" for way in ways}


@pytest.mark.parametrize("name", ["multimodal_fusion", "trajectory_resample"])
def test_forty_random_cases_get_to_the_loads_of_several_elements_and_of_one(name):
    (spec,) = (spec for spec in store.read_kernels(KERNELS, KERNELS.parent) if spec.name == name)
    assert {packets(spec, draw(spec, 1, number)) for number in range(40)} == {True, False}


@pytest.mark.parametrize(
    ("name", "case", "launched"),
    [
        *(("matmul", case, "matmul_tma") for case in ("n256", "n256-f8", "ragged", "ragged-wide", "ragged-both")),
        ("matmul", "ragged-large", "matmul_sm90"),
        *(("bsr_gemm", "small", "bsr_gemm_tma"), ("bsr_gemm", "small-b32", "bsr_gemm_small")),
        *(("bsr_gemm", case, "bsr_gemm_sm90") for case in ("small-b64", "tall-b64")),
        ("bsr_gemm", "ragged", "bsr_gemm_any"),
    ],
)
def test_every_kernel_has_a_case_of_moderate_size_that_launches_it(name, case, launched, hopper):
    kernel = load_kernel(name)
    assert hopper(kernel, kernel.make_inputs(rng(), "cpu", **read_toml(name)["cases"][case])) == launched


@pytest.mark.parametrize(
    ("values", "dense", "rows", "taken"),
    [
        *(((1, 32, 32), (64, 8), 32, True), ((1, 32, 32), (64, 12), 32, False)),
        *(((1 << 27, 16, 16), (64, 8), 32, False), ((1, 32, 32), (1 << 31, 8), 32, False)),
        *(((1, 32, 32), (64, 1 << 31), 32, False), ((1, 32, 32), (64, 8), 1 << 31, False)),
    ],
)
def test_tma_is_asked_only_for_blocks_and_rows_that_it_can_address(values, dense, rows, taken):
    kernel = load_kernel("bsr_gemm")
    shapes = (values, dense, (rows, dense[1]))
    assert kernel.has_tma(*(torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in shapes)) is taken


@pytest.mark.parametrize("name", NAMES)
def test_launch_meets_the_tolerance_on_a_cpu(name):
    described, kernel = read_toml(name), load_kernel(name)
    for case in (cases_of(described)[case] for case in described["cpu_cases"]):
        inputs = kernel.make_inputs(rng(), "cpu", **case)
        expected = kernel.reference(inputs)
        assert expected.dtype == torch.float64
        assert expected.isfinite().all()
        if "cpu" in described["devices"]:
            assert worst_error(kernel.launch(inputs), expected) < described["tolerance"][case["dtype"]]


def resample_slowly(x, times, targets):
    """Interpolate one trajectory with bisect and Python floats."""
    rows = []
    for target in targets:
        after = bisect.bisect_right(times, target)
        if after in {0, len(times)}:
            rows.append(x[min(after, len(times) - 1)])
            continue
        start, end = times[after - 1], times[after]
        weight = (target - start) / (end - start)
        rows.append([a + weight * (b - a) for a, b in zip(x[after - 1], x[after], strict=True)])
    return rows


@pytest.mark.parametrize(
    ("times", "targets"),
    [
        pytest.param([0.0, 1.0, 3.0], [0.5, 2.0, 2.9], id="inside"),
        pytest.param([0.0, 1.0, 3.0], [0.0, 1.0, 3.0], id="on-the-samples"),
        pytest.param([0.0, 1.0, 3.0], [-9.0, 3.1, 9.0], id="outside"),
        pytest.param([0.0, 1.0, 3.0], [2.0, -1.0, 0.5], id="in-any-order"),
        pytest.param([0.0, 1.0, 1.0, 1.0, 2.0], [0.999, 1.0, 1.001], id="equal-times"),
        pytest.param([1.0, 1.0, 2.0, 2.0], [0.0, 1.0, 2.0, 3.0], id="equal-end-times"),
        pytest.param([1.0], [0.0, 1.0, 2.0], id="one-sample"),
    ],
)
def test_resampling_agrees_with_a_plain_loop(times, targets):
    kernel = load_kernel("trajectory_resample")
    x = torch.randn(2, len(times), 3, generator=rng())
    inputs = kernel.Inputs(x, torch.tensor([times, times]), torch.tensor([targets, targets]))
    # Through the tensors, so that both sides see the times as float32 holds them.
    expected = [
        resample_slowly(*(tensor[batch].tolist() for tensor in (x, inputs.time, inputs.target))) for batch in (0, 1)
    ]
    torch.testing.assert_close(kernel.reference(inputs), torch.tensor(expected, dtype=torch.float64))


def test_resampling_at_a_time_that_is_not_a_number_gives_none_and_far_ones_the_end_values():
    kernel = load_kernel("trajectory_resample")
    time, target = torch.tensor([[0.0, 1.0]]), torch.tensor([[math.nan, math.inf, -math.inf]])
    x = torch.tensor([[[2.0], [3.0]]])
    streams = [load_kernel("multimodal_fusion").Stream(x, time)] * 3
    fused = load_kernel("multimodal_fusion").reference(SimpleNamespace(streams=streams, target=target))

    assert kernel.reference(kernel.Inputs(x, time, target)).isnan().flatten().tolist() == [True, False, False]
    assert kernel.reference(kernel.Inputs(x, time, target))[0, 1:, 0].tolist() == [3.0, 2.0]
    assert fused.isnan().all(2).flatten().tolist() == [True, False, False]


@pytest.mark.parametrize("name", ["trajectory_resample", "multimodal_fusion"])
def test_no_samples_are_refused_where_a_value_is_wanted_and_nothing_is_read(name, monkeypatch):
    kernel, launched = load_kernel(name), []
    monkeypatch.setattr(kernel.SOURCE, "launch", lambda *args: launched.append(args))
    case = read_toml(name)["cases"]["repeated"]
    inputs = kernel.make_inputs(rng(), "cpu", **case)
    streams = [(inputs.x, inputs.time)] if name == "trajectory_resample" else inputs.streams
    none = [(x[:, :0], time[:, :0]) for x, time in streams]
    without = none[0] if name == "trajectory_resample" else ([kernel.Stream(*none[0]), *inputs.streams[1:]],)
    with pytest.raises(ValueError, match="without samples has no value"):
        kernel.launch(type(inputs)(*without, inputs.target))

    kernel.launch(type(inputs)(*without, inputs.target[:, :0]))
    assert launched == []


def registers(code):
    """Return the registers of each kernel of machine code, from its EIATTR_REGCOUNT records."""
    return {int.from_bytes(count, "little") for count in re.findall(rb"\x04\x2f\x08\x00.{4}(.{4})", code, re.DOTALL)}


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(("arch", "capability"), [("sm_89", "8.9"), ("sm_90a", "9.0")])
def test_every_warp_slot_is_resident_while_resampling(arch, capability):
    kernel = load_kernel("trajectory_resample")
    found = registers(kernel.SOURCE.cubin(arch))

    assert found
    assert all(occupancy_pct(capability, kernel.WARPS * 32, count, 0) == 100 for count in found)
    assert read_toml("trajectory_resample")["gates"]["theoretical_occupancy_pct"] == ">= 100"


def test_resampling_inputs_are_what_their_layout_says():
    case = read_toml("trajectory_resample")["cases"]["b8-s250"]
    kernel = load_kernel("trajectory_resample")
    shuffled, repeated = (kernel.make_inputs(rng(), "cpu", **case, layout=name) for name in ("shuffled", "repeated"))
    assert (shuffled.time.diff() > 0).all()
    assert (shuffled.target.diff() < 0).any()
    assert (repeated.time.diff() >= 0).all()
    assert (repeated.time.diff() == 0).any()
    assert len(repeated.target[0].unique()) < len(repeated.target[0])
    assert torch.isin(repeated.target, repeated.time).any()


def test_resampling_inputs_reach_past_both_ends():
    case = read_toml("trajectory_resample")["cases"]["b8-s250"]
    inputs = load_kernel("trajectory_resample").make_inputs(rng(), "cpu", **case)
    assert (inputs.time.diff() > 0).all()
    assert (inputs.target.diff() >= 0).all()
    assert (inputs.target < inputs.time[:, :1]).any()
    assert (inputs.target > inputs.time[:, -1:]).any()


def test_resampling_cost_counts_each_byte_once():
    case = read_toml("trajectory_resample")["cases"]["b32-s500"]
    times, values = 32 * (500 + 256) * 4, 32 * (500 + 256) * 256 * 2
    assert load_kernel("trajectory_resample").cost(**case)["bytes"] == times + values


def test_three_quarters_of_the_bytes_that_resampling_counts_are_moved():
    kernel, case = load_kernel("trajectory_resample"), read_toml("trajectory_resample")["cases"]["b32-s500"]
    x, time, target = kernel.make_inputs(rng(), "cpu", **case)
    count = torch.searchsorted(time, target, right=True)
    read = torch.zeros_like(time, dtype=torch.bool)
    read.scatter_(1, (count - 1).clamp(min=0), 1).scatter_(1, count.clamp(max=time.shape[1] - 1), 1)
    moved = (int(read.sum()) + target.numel()) * x.shape[2] * x.element_size() + 4 * (time.numel() + target.numel())

    assert read.double().mean() == pytest.approx(0.62, abs=0.01)
    assert moved / kernel.cost(**case)["bytes"] == pytest.approx(0.75, abs=0.01)


@pytest.mark.parametrize("layout", ["ascending", "shuffled", "repeated"])
def test_fusion_puts_interpolated_streams_side_by_side(layout):
    kernel = load_kernel("multimodal_fusion")
    sizes = {"samples1": 5, "dim1": 3, "samples2": 40, "dim2": 2, "samples3": 1, "dim3": 4}
    inputs = kernel.make_inputs(rng(), "cpu", batch=2, targets=9, layout=layout, dtype="float32", **sizes)
    expected = []
    for batch in (0, 1):
        targets = inputs.target[batch].tolist()
        streams = [resample_slowly(x[batch].tolist(), time[batch].tolist(), targets) for x, time in inputs.streams]
        expected.append([first + second + third for first, second, third in zip(*streams, strict=True)])
    torch.testing.assert_close(kernel.reference(inputs), torch.tensor(expected, dtype=torch.float64))


def test_fusion_inputs_are_what_their_layout_says():
    case = {**read_toml("multimodal_fusion")["cases"]["b4-t50"], "targets": 500}
    kernel = load_kernel("multimodal_fusion")
    ascending, shuffled, repeated = (
        kernel.make_inputs(rng(), "cpu", **{**case, "layout": layout})
        for layout in ("ascending", "shuffled", "repeated")
    )
    assert (ascending.target.diff() >= 0).all()
    assert (ascending.target < ascending.streams[0].time[:, :1]).any()
    assert (ascending.target > 1).any()
    assert (shuffled.target.diff() < 0).any()
    assert all((stream.time.diff() > 0).all() for stream in shuffled.streams)
    assert all((stream.time.diff() >= 0).all() and (stream.time.diff() == 0).any() for stream in repeated.streams)
    assert torch.isin(repeated.target, repeated.streams[2].time).any()


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
def test_the_estimate_of_a_voxel_decides_only_where_it_cannot_err(layout, monkeypatch):
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


@pytest.mark.parametrize("kind", VIEWS)
@pytest.mark.parametrize(
    ("name", "case"),
    [
        *(("trajectory_resample", "ragged"), ("multimodal_fusion", "repeated"), ("bsr_gemm", "small-b64")),
        *(("voxelize", "odd-mean"), ("voxelize", "odd-max")),
    ],
)
def test_a_kernel_that_knows_no_strides_is_launched_on_contiguous_copies(name, case, kind, monkeypatch):
    kernel, launched = load_kernel(name), []
    if name == "bsr_gemm":
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
        monkeypatch.setattr(kernel, "has_tma", lambda *_: True)
        monkeypatch.setattr(kernel, "_module", lambda _: SimpleNamespace(launch=lambda *args: launched.extend(args)))
    else:
        monkeypatch.setattr(kernel.SOURCE, "launch", lambda *args: launched.extend(args[3]))
    inputs = kernel.make_inputs(rng(), "cpu", **read_toml(name)["cases"][case])
    kernel.launch(rearranged(inputs, kind, 0))
    passed = tensors_of(launched)

    assert all(tensor.is_contiguous() for tensor in passed)
    for made in tensors_of(inputs):
        assert any(made.shape == tensor.shape and torch.equal(made, tensor) for tensor in passed)


def tensors_of(inputs):
    return [leaf for leaf in leaves(inputs) if isinstance(leaf, torch.Tensor)]


@pytest.mark.parametrize(("kind", "taken"), [("contiguous", True), ("padded", True), ("offset", False)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_the_product_for_hopper_is_asked_only_for_matrices_that_tma_can_address(dtype, kind, taken, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    kernel = load_kernel("matmul")
    a, b, *_ = rearranged(kernel.make_inputs(rng(), "cpu", m=32, k=48, n=64, dtype=dtype, backend="gluon"), kind, 0)
    fp8 = dtype != "bfloat16"

    assert kernel.has_tma(a, b) is taken
    assert kernel.has_tma(a.t().contiguous().t(), b) is False
    assert kernel.has_tma(a, b.contiguous() if fp8 else b.t().contiguous().t()) is False, "b in the other order"
    assert kernel.has_tma(a[:1].expand(32, -1), b) is False, "one row, again and again"
    assert kernel.has_fp8(a, b) is (taken and fp8)


@pytest.mark.parametrize("kind", [*VIEWS, "mixed"])
def test_products_of_matrices_in_any_order_of_memory_are_right_where_the_library_multiplies(kind):
    kernel = load_kernel("matmul")
    # With a tail of k and padded rows of a, oneDNN multiplies the NaN between them by zero where a CPU has AMX, until
    # its pull request 5603 of July 2026.
    k = 64 if kind in {"padded", "mixed"} else 50
    inputs = kernel.make_inputs(rng(), "cpu", m=33, k=k, n=41, dtype="bfloat16", backend="cublas")
    out = kernel.launch(rearranged(inputs, kind, 0))
    assert worst_error(out, kernel.reference(inputs)) < read_toml("matmul")["tolerance"]["bfloat16"]


class Divisions(TorchDispatchMode):
    """Keeps what is divided by."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        del types
        if func is torch.ops.aten.div.Tensor:
            self.divisors = [*getattr(self, "divisors", []), args[1]]
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("what", ["reference", "PyTorch scatter"])
def test_positions_are_divided_by_a_tensor_of_which_a_gpu_takes_no_reciprocal(what):
    kernel = load_kernel("voxelize")
    divide = kernel.reference if what == "reference" else load_alternatives("voxelize")[what]
    inputs = kernel.make_inputs(rng(), "cpu", mode="count", layout="borders", **VOXELS)
    with Divisions() as seen:
        divide(inputs)

    assert [divisor.item() for divisor in seen.divisors] == [0.1]


def test_fusion_in_pytorch_meets_the_tolerance():
    described, kernel = read_toml("multimodal_fusion"), load_kernel("multimodal_fusion")
    for case in (described["cases"][case] for case in described["cpu_cases"]):
        inputs = kernel.make_inputs(rng(), "cpu", **case)
        out = load_kernel("multimodal_fusion", "alternatives.py").ALTERNATIVES["PyTorch"](inputs)
        assert worst_error(out, kernel.reference(inputs)) < described["tolerance"][case["dtype"]]


def test_attention_agrees_with_a_plain_loop():
    kernel = load_kernel("sdpa")
    inputs = kernel.make_inputs(rng(), "cpu", batch=2, heads=2, seq=5, dim=4, dtype="float16")
    expected = torch.zeros(2, 2, 5, 4, dtype=torch.float64)
    for batch, head, row in torch.cartesian_prod(torch.arange(2), torch.arange(2), torch.arange(5)).tolist():
        q, keys, values = (tensor[batch, head].double().tolist() for tensor in inputs)
        weights = [math.exp(sum(map(operator.mul, q[row], key)) / 2) for key in keys]
        for d in range(4):
            expected[batch, head, row, d] = sum(w * v[d] for w, v in zip(weights, values, strict=True)) / sum(weights)
    torch.testing.assert_close(kernel.reference(inputs), expected)


def test_every_size_of_attention_has_a_case_for_each_backend():
    offered = set(torch.nn.attention.SDPBackend.__members__) - {"ERROR", "OVERRIDEABLE"}  # the latter: other devices
    assert set(load_kernel("sdpa", "alternatives.py").BACKENDS.values()) == offered
    sizes = {case["seq"] for case in read_toml("sdpa")["cases"].values()}
    described = read_toml("sdpa_backends")
    cases = {(case["seq"], case["backend"]) for case in cases_of(described).values()}

    assert cases == set(itertools.product(sizes, load_alternatives("sdpa")))
    assert all(name.endswith(f"-{case['backend']}") for name, case in described["cases"].items())


@pytest.mark.parametrize("backend", ["flash", "math"])  # a CPU has no others
def test_a_backend_of_attention_is_the_one_that_is_named(backend):
    kernel = load_kernel("sdpa_backends")
    shape = {"batch": 2, "heads": 2, "seq": 33, "dim": 8, "dtype": "float16"}
    inputs = kernel.make_inputs(rng(), "cpu", backend=backend, **shape)
    with torch.profiler.profile() as profiler:
        out = kernel.launch(inputs)
    ran = {event.key for event in profiler.key_averages()}

    assert worst_error(out, kernel.reference(inputs)) < read_toml("sdpa_backends")["tolerance"]["float16"]
    assert any(backend in name for name in ran if name.startswith("aten::_scaled_dot_product"))


def test_the_27_shapes_of_attention_are_a_folder_of_their_own():
    (spec,) = store.read_kernels(KERNELS / "sdpa", KERNELS.parent)
    shapes = {(case["seq"], case["batch"], case["heads"]) for case in spec.cases.values()}

    assert shapes >= set(itertools.product((448, 512, 640), (16, 32, 48), (4, 8, 16)))
    assert (len(shapes), spec.cpu_cases) == (28, ("smallest",))
    assert (KERNELS / "sdpa/shapes/kernel.py").samefile(KERNELS / "sdpa/kernel.py")


@pytest.mark.parametrize("name", ["PyTorch"])
@pytest.mark.parametrize("case", ["b8-s250", "ragged", "repeated"])
def test_an_alternative_to_resampling_gives_the_same(name, case):
    kernel, described = load_kernel("trajectory_resample"), read_toml("trajectory_resample")
    inputs = kernel.make_inputs(rng(), "cpu", **described["cases"][case])
    out = load_alternatives("trajectory_resample")[name](inputs)

    assert worst_error(out, kernel.reference(inputs)) < described["tolerance"]["bfloat16"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the program once and return the cache that holds it."""
    folder = tmp_path_factory.mktemp("cache")
    done = run_program(PROGRAM, folder, "--build")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


def run_program(folder, cache, *arguments):
    """Run it, built by the nvcc of PyPI where the machine has none."""
    argv = [sys.executable, str(folder / "run.py"), *arguments]
    environ = {"CUDA_HOME": TOOLKIT, **os.environ, "CI_PERF_CACHE": str(cache)}
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)


def test_the_program_compiles_once_for_an_l4_and_an_h100_and_again_when_its_source_changes(built, tmp_path):
    (program,) = built.glob("programs/*")
    assert all(f"-gencode=arch=compute_{n},code=sm_{n}" in load_program().FLAGS for n in (89, 90))

    before = program.stat().st_mtime_ns
    run_program(PROGRAM, built, "--build")
    assert program.stat().st_mtime_ns == before

    shutil.copytree(PROGRAM, tmp_path / "pipeline")
    with (tmp_path / "pipeline/pipeline.cu").open("a") as source:
        source.write("int broken(\n")
    broken = run_program(tmp_path / "pipeline", built, "--build")
    assert broken.returncode == 3
    assert "pipeline.cu: does not compile: nvcc ended with exit status" in broken.stderr
    assert "error: " in broken.stdout
    assert list(built.glob("programs/*")) == [program]


@pytest.mark.parametrize("argument", ["--rows=0", "--rows=", "--rows=3x", "--row=3", "3"])
def test_the_program_refuses_arguments_that_make_no_sense(built, argument):
    done = run_program(PROGRAM, built, argument)

    assert done.returncode == 2
    assert done.stderr.startswith(f"pipeline: {argument}: expected --rows=N")


@pytest.mark.skipif(torch.cuda.device_count() > 0, reason="there is a GPU")
def test_the_program_fails_where_cuda_does(built):
    done = run_program(PROGRAM, built)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("pipeline: cudaMallocHost(")


@pytest.mark.gpu
@pytest.mark.parametrize("columns", [1, 2, 3, 33, 1000])
def test_the_program_is_right_for_rows_of_any_length(built, columns):
    done = run_program(PROGRAM, built, "--rows=1024", f"--columns={columns}", "--steps=1")

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("columns", [1, 2, 3, 33, 1000])
def test_the_programs_arithmetic_meets_its_tolerance_where_values_of_a_row_are_nearly_equal(columns):
    allowed = float(re.search(r"kTolerance = (\S+);", (PROGRAM / "pipeline.cu").read_text())[1])
    drawn = torch.randint(1 << 24, (1024, columns), generator=rng()).float() * 2.0**-24
    x = drawn + (torch.arange(1024) % 7)[:, None]
    distance = x - x[:, :1]
    mean = distance.mean(1, keepdim=True)
    scale = ((distance.square().mean(1, keepdim=True) - mean.square()).clamp(min=0) + 1e-5).rsqrt()
    expected = x.double() - x.double().mean(1, keepdim=True)
    expected /= (expected.square().mean(1, keepdim=True) + 1e-5).sqrt()

    def worst(out):
        return ((out - expected).abs() / (expected.abs() + 1)).max()

    assert worst((distance - mean) * scale) < allowed / 5
    assert columns != 2 or worst((x - (x[:, :1] + mean)) * scale) > allowed, "a mean as it is loses too much"


def test_without_nvcc_the_program_says_what_it_needs(monkeypatch, capsys):
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)

    with pytest.raises(SystemExit) as ended:
        load_program().find_nvcc()

    assert ended.value.code == 3
    assert "put that of a CUDA toolkit on the PATH, or name the toolkit with CUDA_HOME" in capsys.readouterr().err


def load_program():
    spec = importlib.util.spec_from_file_location("run_pipeline", PROGRAM / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sparse_inputs(kernel, **changes):
    case = {"rows": 3, "columns": 4, "n": 5, "block": 2, "density": 0.5, "dtype": "float16"}
    return kernel.make_inputs(rng(), "cpu", **case | changes)


@pytest.mark.parametrize("density", [0.0, 0.2, 0.5, 1.0])
def test_a_sparse_product_agrees_with_a_plain_loop(density):
    kernel = load_kernel("bsr_gemm")
    inputs = sparse_inputs(kernel, density=density)
    expected = [[0.0] * 5 for _ in range(3 * 2)]
    crow, col, values, dense = (tensor.tolist() for tensor in inputs[:4])
    for row in range(3):
        for at in range(crow[row], crow[row + 1]):
            for i, j, n in itertools.product(range(2), range(2), range(5)):
                expected[row * 2 + i][n] += values[at][i][j] * dense[col[at] * 2 + j][n]
    torch.testing.assert_close(kernel.reference(inputs), torch.tensor(expected, dtype=torch.float64))


def test_blocks_are_as_many_as_stated_and_their_columns_ascend():
    kernel = load_kernel("bsr_gemm")
    inputs = sparse_inputs(kernel, rows=40, columns=30, density=0.25)
    assert len(inputs.values) == len(inputs.col_indices) == inputs.crow_indices[-1] == 300
    rows = [inputs.col_indices[a:b] for a, b in itertools.pairwise(inputs.crow_indices.tolist())]
    assert all((row.diff() > 0).all() for row in rows)
    assert len({len(row) for row in rows}) > 1


def test_sparse_cost_counts_what_is_stored():
    cost = load_kernel("bsr_gemm").cost(**read_toml("bsr_gemm")["cases"]["n8192-6"])
    assert cost["flop"] == 2 * 256 * 128 * 128 * 8192
    assert cost["bytes"] == (256 * 128 * 128 + 2 * 8192 * 8192) * 2 + (65 + 256) * 4


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_a_dense_product_agrees_with_a_plain_loop(dtype):
    kernel = load_kernel("matmul")
    inputs = kernel.make_inputs(rng(), "cpu", m=3, k=4, n=2, dtype=dtype, backend="gluon")
    a, b = ((inputs.a.double() * inputs.a_scale).tolist(), (inputs.b.double() * inputs.b_scale).tolist())
    expected = [[sum(a[m][k] * b[k][n] for k in range(4)) for n in range(2)] for m in range(3)]
    torch.testing.assert_close(kernel.reference(inputs), torch.tensor(expected, dtype=torch.float64))


def summed_like_hopper(a, b, step=32, bits=13):
    """Sum products in steps, each cut off below so many bits of its largest number, the sum so far among these."""
    total = torch.zeros(len(a), b.shape[1], dtype=torch.float64)
    for k in range(0, a.shape[1], step):
        products = a[:, k : k + step].double()[:, :, None] * b[k : k + step].double()[None]
        numbers = torch.cat([products, total[:, None]], 1)
        unit = 2.0 ** (numbers.abs().amax(1).clamp(min=1e-300).log2().floor() - bits)
        total = ((numbers / unit[:, None]).trunc() * unit[:, None]).sum(1)
    return total


@pytest.mark.parametrize("k", [1, 512, 4096])
def test_sums_of_the_tensor_cores_in_fp8_meet_the_tolerance(k):
    kernel, allowed = load_kernel("matmul"), read_toml("matmul")["tolerance"]["float8_e4m3fn"]
    inputs = kernel.make_inputs(rng(), "cpu", m=32, k=k, n=32, dtype="float8_e4m3fn", backend="cublas")
    scale = (inputs.a_scale * inputs.b_scale).double()
    out = (summed_like_hopper(inputs.a, inputs.b) * scale).bfloat16()
    assert worst_error(out, kernel.reference(inputs)) < allowed / 2


@pytest.mark.parametrize("parts", [1, 2, 4, 8])
def test_parts_of_a_sum_that_are_rounded_to_bfloat16_meet_the_tolerance(parts):
    sums = torch.randn(parts, 1000, 1000, generator=rng(), dtype=torch.float64)
    out = sums.bfloat16().float().sum(0).bfloat16()
    assert worst_error(out, sums.sum(0)) < read_toml("matmul")["tolerance"]["bfloat16"]


def test_a_product_that_leaves_out_one_of_512_fails_the_tolerance():
    kernel, allowed = load_kernel("matmul"), read_toml("matmul")["tolerance"]["bfloat16"]
    inputs = kernel.make_inputs(rng(), "cpu", m=64, k=512, n=64, dtype="bfloat16", backend="cublas")
    short = (inputs.a[:, 1:].double() @ inputs.b[1:].double()).bfloat16()
    assert worst_error(short, kernel.reference(inputs)) > 10 * allowed


def test_fp8_matrices_use_the_range_of_the_format():
    kernel = load_kernel("matmul")
    inputs = kernel.make_inputs(rng(), "cpu", m=64, k=64, n=64, dtype="float8_e4m3fn", backend="cublas")
    assert inputs.a.double().abs().max() == inputs.b.double().abs().max() == torch.finfo(kernel.FP8).max
    assert inputs.b.stride(0) == 1
    assert 0.9 < (inputs.a.double() * inputs.a_scale).std() < 1.1


@pytest.mark.parametrize("name", ["bsr_gemm", "matmul"])
def test_alternatives_agree_with_the_reference(name):
    alternatives, described, kernel = load_kernel(name, "alternatives.py"), read_toml(name), load_kernel(name)
    case = described["cases"][described["cpu_cases"][0]]
    inputs = kernel.make_inputs(rng(), "cpu", **case)
    plain = {"bsr_gemm": "dense (cuBLAS)", "matmul": "torch"}[name]
    out = alternatives.ALTERNATIVES[plain](inputs)
    assert worst_error(out, kernel.reference(inputs)) < described["tolerance"][case["dtype"]]


def test_the_sparse_matrix_of_pytorch_is_ours():
    """In float32: for others a CPU has no such product."""
    alternatives, kernel = load_kernel("bsr_gemm", "alternatives.py"), load_kernel("bsr_gemm")
    case = read_toml("bsr_gemm")["cases"]["ragged"] | {"dtype": "float32"}
    inputs = kernel.make_inputs(rng(), "cpu", **case)
    for name in ("torch BSR", "dense (cuBLAS)"):
        assert worst_error(alternatives.ALTERNATIVES[name](inputs), kernel.reference(inputs)) < 1e-5


def test_rows_of_blocks_that_are_padded_to_one_length_hold_the_same_matrix():
    cusparse, kernel = load_kernel("bsr_gemm", "cusparse.py"), load_kernel("bsr_gemm")
    case = read_toml("bsr_gemm")["cases"]["ragged"] | {"dtype": "float32"}
    inputs = kernel.make_inputs(rng(), "cpu", **case)
    columns, values = cusparse.padded(inputs)
    size = case["block"]

    matrix = torch.zeros(case["rows"] * size, case["columns"] * size)
    for row, of_row in enumerate(columns.tolist()):
        for place, column in enumerate(of_row):
            if column >= 0:
                block = values[row * size :, place * size :][:size, :size]
                matrix[row * size :, column * size :][:size, :size] = block
    assert (columns == -1).any()
    assert worst_error(matrix @ inputs.dense, kernel.reference(inputs)) < 1e-5


def compile_triton(source, arch, **options):
    """Compile for a GPU that need not be here."""
    compiler = pytest.importorskip("triton.backends.compiler", reason=NO_TRITON)
    import triton

    return triton.compile(source, target=compiler.GPUTarget("cuda", arch, 32), options=options)


def triton_code(source, arch, **options):
    return compile_triton(source, arch, **options).asm["ptx"]


SHARED_MEMORY = {89: 99 << 10, 90: 227 << 10}
"""Bytes that a program may have, by architecture: CUDA C++ Programming Guide, compute capabilities."""


@pytest.mark.parametrize("arch", [89, 90])
@pytest.mark.parametrize(("size", "n"), [(16, 77), (16, 4096), (32, 77), (32, 4096), (64, 4096), (128, 4096)])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_the_sparse_kernel_for_any_gpu_compiles(dtype, size, n, arch):
    compiler = pytest.importorskip("triton.compiler", reason=NO_TRITON)
    kernel = load_kernel("bsr_gemm", "bsr_gemm_any.py")
    types = {"crow": "*i32", "col": "*i32", "values": f"*{dtype}", "dense": f"*{dtype}", "out": f"*{dtype}"}
    types |= {"rows": "i32", "n": "i32"}
    block_n, warps = kernel.shape(size, n)
    sizes = {"SIZE": size, "BLOCK_N": block_n, "SLICE": min(size, 32)}
    source = compiler.ASTSource(kernel.bsr_gemm_any, types | dict.fromkeys(sizes, "constexpr"), sizes)
    compiled = compile_triton(source, arch, num_warps=warps, num_stages=kernel.STAGES)
    assert "mma" in compiled.asm["ptx"]
    assert compiled.metadata.shared <= SHARED_MEMORY[arch]


@pytest.mark.parametrize("n", [128, 256])
@pytest.mark.parametrize("size", [16, 32])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_the_sparse_kernel_for_small_blocks_compiles(dtype, size, n):
    compiler = pytest.importorskip("triton.compiler", reason=NO_TRITON)
    kernel = load_kernel("bsr_gemm", "bsr_gemm_small.py")
    types = {"crow": "*i32", "col": "*i32", "rows": "i32", "values": f"tensordesc<{dtype}[{size}, {size}]>"}
    types |= dict.fromkeys(("dense", "out"), f"tensordesc<{dtype}[{size}, {n}]>")
    sizes = {"SIZE": size, "BLOCK_N": n}
    source = compiler.ASTSource(kernel.bsr_gemm_small, types | dict.fromkeys(sizes, "constexpr"), sizes)
    compiled = compile_triton(source, 90, num_warps=kernel.WARPS, num_stages=kernel.STAGES)
    assert "wgmma" in compiled.asm["ptx"]
    assert "cp.async.bulk.tensor" in compiled.asm["ptx"]
    assert compiled.metadata.shared <= SHARED_MEMORY[90]


def gluon_source(kernel, function, types, matrices, sizes):
    runtime = pytest.importorskip("triton.experimental.gluon._runtime", reason=NO_TRITON)
    names = {"bfloat16": "bf16", "float16": "fp16", "float8_e4m3fn": "fp8e4nv"}
    for name, (dtype, block) in matrices.items():
        layout = kernel.gl.NVMMASharedLayout.get_default_for(block, kernel.TYPES[getattr(torch, dtype)])
        types |= {name: f"tensordesc<{names[dtype]}{block},{layout!r}>"}
    return runtime.GluonASTSource(function, types | dict.fromkeys(sizes, "constexpr"), sizes)


class Arrival(NamedTuple):
    line: int
    multiplies: bool
    """Whether its role is the one of several warps, with wgmma."""
    barrier: int | None
    """The line of the barrier between it and the last use of shared memory, in its basic block."""


def arrivals(ptx):
    """Return where a stage or job is handed over: one thread arrives for all, so a barrier of all has to come before.

    Without it the thread would speak for its own accesses alone.  racecheck cannot say, as it does not follow the
    roles' barriers.  `barrier.sync 1` separates the roles, and a barrier of one warp is one of all in a role of one
    warp only.  What the blocks that lead to another have touched is not followed: each begins as if they had.
    An arrival that expects bytes is not meant: it hands nothing over, TMA does.
    """
    lines, found = ptx.splitlines(), []
    switches = [at for at, line in enumerate(lines) if re.search(r"\bbarrier\.sync\s+1;", line)]
    for first, last in itertools.pairwise([0, *switches, len(lines)]):
        multiplies = any("wgmma.mma_async" in line for line in lines[first:last])
        whole = r"\bbar\.sync\s+0, (128|256);" if multiplies else r"\bbar\.(warp\.)?sync\b"
        barrier = None
        for at in range(first, last):
            if re.search(r"^\$L__BB|\b(ld|st|atom|red|cp)\S*\.shared|\bwgmma\.(mma_async|wait_group)", lines[at]):
                barrier = None
            elif re.search(whole, lines[at]):
                barrier = at
            elif re.search(r"\bmbarrier\.arrive\b(?!\S*expect_tx)", lines[at]):
                found.append(Arrival(at, multiplies, barrier))
    return found


@pytest.mark.gpu
@pytest.mark.parametrize("block", [16, 32])
@pytest.mark.parametrize("more", [8, 1], ids=["tma", "any"])
def test_a_sparse_product_may_have_more_columns_than_a_grid_has_rows_of_tiles(block, more):
    kernel, n = load_kernel("bsr_gemm"), (1 << 16) * 256 + more
    inputs = kernel.make_inputs(rng(), "cuda", rows=1, columns=1, n=n, block=block, density=1.0, dtype="bfloat16")
    assert worst_error(kernel.launch(inputs)[:, -300:], kernel.reference(inputs)[:, -300:]) < 8e-3


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_a_product_of_few_tiles_is_right_where_only_rows_of_memory_are_whole(dtype):
    kernel = load_kernel("matmul")
    inputs = kernel.make_inputs(rng(), "cuda", m=100, k=96, n=136, dtype=dtype, backend="gluon")
    cut = inputs._replace(a=inputs.a[:, :77], b=inputs.b[:77])
    assert kernel.has_tma(cut.a, cut.b)
    assert worst_error(kernel.launch(cut), kernel.reference(cut)) < 1.5e-2


@functools.cache
def sparse_code(dtype, size, in_order):
    pytest.importorskip("triton.experimental.gluon", reason=NO_TRITON)
    kernel = load_kernel("bsr_gemm", "bsr_gemm_sm90.py")
    blocks = {
        "values": [size, kernel.BLOCK_K],
        "dense": [kernel.BLOCK_K, kernel.BLOCK_N],
        "out": [size, kernel.BLOCK_N],
    }
    types = {"crow": "*i32", "col": "*i32", "workspace": "*i32", "rows": "i32", "panels": "i32"}
    sizes = {"STAGES": kernel.STAGES[size], "GROUP": kernel.GROUP, "SORTED": in_order}
    source = gluon_source(
        kernel, kernel.bsr_gemm_sm90, types, {name: (dtype, block) for name, block in blocks.items()}, sizes
    )
    return triton_code(source, 90, num_warps=kernel.WARPS)


def test_the_sparse_kernel_for_short_rows_compiles():
    compiler = pytest.importorskip("triton.compiler", reason=NO_TRITON)
    kernel = load_kernel("bsr_gemm", "bsr_gemm_tma.py")
    size, n, k = 128, kernel.BLOCK_N, kernel.BLOCK_K
    types = {"crow": "*i32", "col": "*i32", "rows": "i32", "panels": "i32", "values": f"tensordesc<bf16[{size}, {k}]>"}
    types |= {"dense": f"tensordesc<bf16[{k}, {n}]>", "out": f"tensordesc<bf16[{size}, {n}]>"}
    sizes = {"SIZE": size, "BLOCK_N": n, "BLOCK_K": k, "GROUP": kernel.GROUP}
    source = compiler.ASTSource(kernel.bsr_gemm_tma, types | dict.fromkeys(sizes, "constexpr"), sizes)
    code = triton_code(source, 90, num_warps=kernel.WARPS, num_stages=kernel.STAGES)
    assert "wgmma" in code
    assert "cp.async.bulk.tensor" in code


@functools.cache
def dense_code(dtype):
    pytest.importorskip("triton.experimental.gluon", reason=NO_TRITON)
    kernel = load_kernel("matmul", "matmul_sm90.py")
    transposed, block_k = dtype != "bfloat16", kernel.BLOCK_K_BYTES // getattr(torch, dtype).itemsize
    m, n = kernel.BLOCK_M, kernel.BLOCK_N
    matrices = {"a": (dtype, [m, block_k]), "b": (dtype, [n, block_k] if transposed else [block_k, n])}
    types = {"a_scale": "*fp32", "b_scale": "*fp32", "M": "i32", "N": "i32", "K": "i32"}
    sizes = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": block_k, "STAGES": kernel.STAGES, "GROUP": kernel.GROUP}
    matrices["c"] = ("bfloat16", [m, n])
    source = gluon_source(kernel, kernel.matmul_sm90, types, matrices, sizes | {"TRANSPOSED": transposed})
    return triton_code(source, 90, num_warps=kernel.WARPS)


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_the_dense_kernel_without_roles_compiles(dtype, at):
    compiler = pytest.importorskip("triton.compiler", reason=NO_TRITON)
    kernel = load_kernel("matmul", "matmul_tma.py")
    tile, element = kernel.TILES[at], {"bfloat16": "bf16", "float8_e4m3fn": "fp8e4nv"}[dtype]
    transposed, k = dtype != "bfloat16", tile.k_bytes // getattr(torch, dtype).itemsize
    types = {"a": f"tensordesc<{element}{[tile.m, k]}>", "c": f"tensordesc<bf16{[tile.m, tile.n]}>"}
    types |= {"b": f"tensordesc<{element}{[tile.n, k] if transposed else [k, tile.n]}>"}
    types |= {"a_scale": "*fp32", "b_scale": "*fp32", "M": "i32", "K": "i32"}
    sizes = {"BLOCK_M": tile.m, "BLOCK_N": tile.n, "BLOCK_K": k, "TRANSPOSED": transposed}
    source = compiler.ASTSource(kernel.matmul_tma, types | dict.fromkeys(sizes, "constexpr"), sizes)
    compiled = compile_triton(source, 90, num_warps=kernel.WARPS, num_stages=tile.stages)
    assert "wgmma" in compiled.asm["ptx"]
    assert re.search(r"cp\.async\.bulk\.tensor\.2d\.shared::(cta|cluster)\.global", compiled.asm["ptx"])
    assert "cp.async.bulk.tensor.2d.global.shared::cta" in compiled.asm["ptx"]
    assert compiled.metadata.shared * (2 if at == 0 else 1) <= SHARED_MEMORY[90]


def test_each_tile_of_the_dense_kernel_without_roles_has_a_ragged_case():
    pytest.importorskip("triton", reason=NO_TRITON)
    kernel, cases = load_kernel("matmul", "matmul_tma.py"), read_toml("matmul")["cases"]
    ragged = [case for name, case in cases.items() if name.startswith("ragged") and name != "ragged-large"]
    assert {kernel.tile_for(case["m"], case["n"], 132) for case in ragged} == set(kernel.TILES)
    assert {case["dtype"] for case in ragged} == set(read_toml("matmul")["tolerance"])


def test_the_dense_kernel_with_roles_is_chosen_where_each_multiprocessor_gets_one_of_its_tiles():
    pytest.importorskip("triton.experimental.gluon", reason=NO_TRITON)
    kernel, roles = load_kernel("matmul"), load_kernel("matmul", "matmul_sm90.py")
    m, n = 12 * roles.BLOCK_M, 11 * roles.BLOCK_N
    assert [kernel.hopper_kernel(*size, 132) for size in ((m, n), (m - roles.BLOCK_M, n), (m, n - roles.BLOCK_N))] == [
        "matmul_sm90",
        "matmul_tma",
        "matmul_tma",
    ]


@pytest.mark.parametrize(
    ("k", "n", "dtype", "taken"),
    [
        *((64, 8, "bfloat16", True), (64, 12, "bfloat16", False), (64, 77, "float8_e4m3fn", False)),
        *((77, 8, "bfloat16", False), (64, 8, "float8_e4m3fn", True), (24, 8, "float8_e4m3fn", False)),
        *(((1 << 31) - 256, 8, "bfloat16", True), ((1 << 31) - 128, 8, "bfloat16", False)),
    ],
)
def test_the_dense_kernels_for_hopper_take_what_tma_can_address(k, n, dtype, taken):
    kernel, dtype = load_kernel("matmul"), getattr(torch, dtype)
    a = torch.empty(8, k, dtype=dtype, device="meta")
    b = torch.empty(n, k, dtype=dtype, device="meta").t() if dtype == kernel.FP8 else a.new_empty(k, n)
    assert kernel.has_tma(a, b) is taken


@pytest.mark.parametrize(
    ("m", "n", "expected"),
    [
        *((2048, 2048, 0), (1408, 768, 0), (1040, 2056, 0), (1024, 1024, 1), (520, 1544, 1), (512, 1024, 2)),
        *((512, 512, 3), (1, 8, 3)),
    ],
)
def test_tiles_are_as_large_as_leaves_half_of_the_multiprocessors_with_one(m, n, expected):
    pytest.importorskip("triton", reason=NO_TRITON)
    kernel = load_kernel("matmul", "matmul_tma.py")
    assert kernel.tile_for(m, n, 132) == kernel.TILES[expected]


def test_the_triton_kernels_are_right_by_its_interpreter():
    """The numbers alone: what the compiler makes of them only a GPU can tell."""
    pytest.importorskip("triton", reason=NO_TRITON)
    pytest.importorskip("numpy")
    done = subprocess.run([sys.executable, str(INTERPRETED)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 23
    wrong = [row for row in rows if not row[2] <= (1e-2 if row[0].startswith("matmul") else 1e-3)]  # NaN is wrong, too
    assert wrong == []


ARRIVALS = {sparse_code: (4, 3), dense_code: (2, 0)}
"""In the role that multiplies, and in the others: what is not found is not checked. A loader leaves it to TMA."""
ROLES = pytest.mark.parametrize(
    ("make", "args"),
    [
        *((sparse_code, args) for args in itertools.product(("bfloat16", "float16"), (64, 128), (64, 0))),
        *((dense_code, (dtype,)) for dtype in ("bfloat16", "float8_e4m3fn")),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, tuple) else value.__name__,
)


@ROLES
def test_the_roles_for_hopper_hand_over_only_after_a_barrier(make, args):
    code = make(*args)
    found = arrivals(code)
    multiplies = sum(arrival.multiplies for arrival in found)
    assert "wgmma.mma_async" in code
    assert (multiplies, len(found) - multiplies) == ARRIVALS[make]
    assert [arrival for arrival in found if arrival.barrier is None] == []


@ROLES
def test_a_barrier_that_is_missing_or_of_one_warp_is_noticed(make, args):
    lines = make(*args).splitlines()
    for number, arrival in enumerate(arrivals("\n".join(lines))):
        for instead in ("", "bar.warp.sync -1;", "bar.sync 3, 32;") if arrival.multiplies else ("",):
            changed = "\n".join([*lines[: arrival.barrier], instead, *lines[arrival.barrier + 1 :]])
            assert arrivals(changed)[number].barrier is None


@pytest.mark.parametrize("arch", ["sm_89", "sm_90"])
@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_source_compiles_once(path, arch, compiler, monkeypatch):
    code = cuda.CudaSource(path).cubin(arch)
    assert code.startswith(b"\x7fELF")
    assert path.stem.encode() in code

    monkeypatch.setattr(type(compiler), "compile", lambda *_: pytest.fail("compiled again"))
    assert cuda.CudaSource(path).cubin(arch) == code


@pytest.mark.usefixtures("compiler")
def test_a_change_of_header_or_options_compiles_again(tmp_path, cache):
    source, header = tmp_path / "fill.cu", tmp_path / "value.cuh"
    source.write_text('#include "value.cuh"\nextern "C" __global__ void fill(int* out) { *out = VALUE; }\n')
    header.write_text("#define VALUE 1\n")
    first = cuda.CudaSource(source).cubin("sm_90")
    header.write_text("#define VALUE 2\n")
    assert cuda.CudaSource(source).cubin("sm_90") != first
    cuda.CudaSource(source, options=["-DUNUSED"]).cubin("sm_90")
    assert len(list(cache.rglob("*.cubin"))) == 3


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("header", ["cuda.h", "cub/version.cuh"])
def test_other_headers_of_the_toolkit_compile_again(tmp_path, cache, monkeypatch, header):
    """They come in a package of their own, which may be newer than it was while the compiler is the same."""
    source = tmp_path / "nothing.cu"
    source.write_text('extern "C" __global__ void nothing() {}\n')
    include = tmp_path / "toolkit" / "include"
    (include / header).parent.mkdir(parents=True)
    monkeypatch.setattr(compilers, "_toolkit_includes", lambda: iter([include]))
    for text in ("// 13.0\n", "// 13.0\n", "// 13.1\n"):
        (include / header).write_text(text)
        cuda.CudaSource(source).cubin("sm_90")

    assert len(list(cache.rglob("*.cubin"))) == 2


def test_what_nvcc_reads_from_the_environment_tells_its_output_apart(tmp_path, monkeypatch):
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho release 13.0\n")
    nvcc.chmod(0o755)
    before = compilers.Nvcc(str(nvcc)).identity
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "--use_fast_math")

    assert compilers.Nvcc(str(nvcc)).identity != before


@pytest.mark.usefixtures("compiler")
def test_an_empty_cache_entry_is_replaced(tmp_path, cache):
    source = tmp_path / "nothing.cu"
    source.write_text('extern "C" __global__ void nothing() {}\n')
    code = cuda.CudaSource(source).cubin("sm_90")
    (entry,) = cache.rglob("*.cubin")
    entry.write_bytes(b"")
    assert cuda.CudaSource(source).cubin("sm_90")
    assert entry.read_bytes().startswith(code[:4])


@pytest.mark.usefixtures("compiler")
def test_a_folder_that_cannot_be_written_costs_only_the_cache(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CI_PERF_CACHE", str(tmp_path / "file"))
    source = tmp_path / "nothing.cu"
    source.write_text('extern "C" __global__ void nothing() {}\n')
    assert cuda.CudaSource(source).cubin("sm_90").startswith(b"\x7fELF")


@pytest.mark.usefixtures("compiler")
def test_a_compile_error_is_the_compilers_log(tmp_path):
    source = tmp_path / "broken.cu"
    source.write_text('extern "C" __global__ void broken(int* out) {\n    *out = missing;\n}\n')
    with pytest.raises(cuda.CompileError, match=r'broken\.cu\(2\): error: identifier "missing" is undefined'):
        cuda.CudaSource(source).cubin("sm_90")


def test_arguments_have_a_stated_width():
    tensor = torch.zeros(1)
    assert cuda._argument(tensor) == tensor.data_ptr()
    assert isinstance(cuda._argument(3), ctypes.c_int32)
    double = ctypes.c_double(0.5)
    assert cuda._argument(double) is double
    with pytest.raises(OverflowError, match="c_int64"):
        cuda._argument(2**31)
    with pytest.raises(TypeError, match="c_float or"):
        cuda._argument(0.5)
