"""Attention is compared with a plain loop; its backends."""

import itertools
import math
import operator

import pytest

from ci_perf import store
from tests.kernels.helpers import KERNELS, cases_of, load_alternatives, load_kernel, read_toml, rng, worst_error

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch")


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


def test_the_27_shapes_of_attention_are_in_a_separate_folder():
    (spec,) = store.read_kernels(KERNELS / "sdpa", KERNELS.parent)
    shapes = {(case["seq"], case["batch"], case["heads"]) for case in spec.cases.values()}

    assert shapes >= set(itertools.product((448, 512, 640), (16, 32, 48), (4, 8, 16)))
    assert (len(shapes), spec.cpu_cases) == (28, ("smallest",))
    assert (KERNELS / "sdpa/shapes/kernel.py").samefile(KERNELS / "sdpa/kernel.py")
