"""Resampling and fusion are compared with a plain loop."""

import bisect
import math
import re
from types import SimpleNamespace

import pytest

from ci_perf.values.occupancy import occupancy_pct
from tests.kernels.helpers import load_alternatives, load_kernel, read_toml, rng, worst_error

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch")


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


def test_resampling_at_nan_gives_nan_and_outside_the_end_values():
    kernel = load_kernel("trajectory_resample")
    time, target = torch.tensor([[0.0, 1.0]]), torch.tensor([[math.nan, math.inf, -math.inf]])
    x = torch.tensor([[[2.0], [3.0]]])
    streams = [load_kernel("multimodal_fusion").Stream(x, time)] * 3
    fused = load_kernel("multimodal_fusion").reference(SimpleNamespace(streams=streams, target=target))

    assert kernel.reference(kernel.Inputs(x, time, target)).isnan().flatten().tolist() == [True, False, False]
    assert kernel.reference(kernel.Inputs(x, time, target))[0, 1:, 0].tolist() == [3.0, 2.0]
    assert fused.isnan().all(2).flatten().tolist() == [True, False, False]


@pytest.mark.parametrize("name", ["trajectory_resample", "multimodal_fusion"])
def test_resampling_without_samples_is_refused_unless_there_are_no_targets(name, monkeypatch):
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


def test_fusion_in_pytorch_meets_the_tolerance():
    described, kernel = read_toml("multimodal_fusion"), load_kernel("multimodal_fusion")
    for case in (described["cases"][case] for case in described["cpu_cases"]):
        inputs = kernel.make_inputs(rng(), "cpu", **case)
        out = load_kernel("multimodal_fusion", "alternatives.py").ALTERNATIVES["PyTorch"](inputs)
        assert worst_error(out, kernel.reference(inputs)) < described["tolerance"][case["dtype"]]


@pytest.mark.parametrize("name", ["PyTorch"])
@pytest.mark.parametrize("case", ["b8-s250", "ragged", "repeated"])
def test_an_alternative_to_resampling_gives_the_same(name, case):
    kernel, described = load_kernel("trajectory_resample"), read_toml("trajectory_resample")
    inputs = kernel.make_inputs(rng(), "cpu", **described["cases"][case])
    out = load_alternatives("trajectory_resample")[name](inputs)

    assert worst_error(out, kernel.reference(inputs)) < described["tolerance"]["bfloat16"]
