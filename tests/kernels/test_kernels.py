"""All bundled kernels without a GPU: their cases, their launches on a CPU, and the kernel chosen for each size."""

from types import SimpleNamespace

import pytest

from ci_perf import store
from ci_perf.checks.random_cases import draw
from ci_perf.userside.outputs import leaves
from ci_perf.userside.strides import VIEWS, rearranged
from tests.kernels.helpers import KERNELS, NAMES, cases_of, load_kernel, read_toml, rng, worst_error

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch")


@pytest.mark.parametrize("name", NAMES)
def test_every_case_has_a_tolerance_and_a_cost(name):
    described, kernel = read_toml(name), load_kernel(name)
    assert set(described["cpu_cases"]) <= set(described["cases"])
    for case in cases_of(described).values():
        assert case["dtype"] in described["tolerance"]
        assert min(kernel.cost(**case).values()) > 0


class Asked(Exception):
    """The kernel that would be launched."""


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
    """Return whether the kernel loads several elements at a time, which only some sizes allow."""
    packet = 8 // getattr(torch, params["dtype"]).itemsize
    sizes = [params[f"dim{i}"] for i in (1, 2, 3)] if spec.name == "multimodal_fusion" else [params["dim"] // 2]
    return not any(size % packet for size in sizes)


@pytest.mark.parametrize(
    ("name", "ways"),
    [("matmul", {"sm90", "tma"}), ("bsr_gemm", {"tma", "sm90", "small", "any"})],
)
def test_forty_random_cases_reach_each_kernel_for_special_sizes(name, ways, hopper):
    kernel, (spec,) = load_kernel(name), (s for s in store.read_kernels(KERNELS, KERNELS.parent) if s.name == name)
    found = set()
    for number in range(40):
        params = draw(spec, 1, number)
        kind = params.pop("strides")
        found.add(hopper(kernel, rearranged(kernel.make_inputs(rng(), "cpu", **params), kind, 0)))
    assert found - {None} == {f"{name}_{way}" for way in ways}


@pytest.mark.parametrize("name", ["multimodal_fusion", "trajectory_resample"])
def test_forty_random_cases_reach_vector_loads_and_scalar_loads(name):
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
def test_tma_is_used_only_for_blocks_and_rows_that_it_can_address(values, dense, rows, taken):
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


@pytest.mark.parametrize("kind", VIEWS)
@pytest.mark.parametrize(
    ("name", "case"),
    [
        *(("trajectory_resample", "ragged"), ("multimodal_fusion", "repeated"), ("bsr_gemm", "small-b64")),
        *(("voxelize", "odd-mean"), ("voxelize", "odd-max")),
    ],
)
def test_a_kernel_without_strides_is_launched_on_contiguous_copies(name, case, kind, monkeypatch):
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
