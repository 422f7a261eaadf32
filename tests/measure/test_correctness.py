"""What a kernel may do with its inputs, and when its outputs are compared."""

import os
import re
import sys
from pathlib import Path

import pytest

from ci_perf.measure.worker_process import Worker

pytestmark = pytest.mark.slow
pytest.importorskip("torch")

TORCH = """
import torch

def make_inputs(rng, device, **case):
    return {"x": torch.rand(8, generator=rng), "out": torch.zeros(8)}

def reference(inputs):
    return 2 * inputs["x"].double()
"""


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    with Worker(sys.executable, dict(os.environ), tmp_path_factory.mktemp("logs")) as started:
        yield started


@pytest.fixture
def ask(worker, tmp_path):
    """Ask for an operation on a kernel.py of this text."""

    def answer(source, op="time", **more):
        path = tmp_path / "kernel.py"
        path.write_text(source)
        request = {"op": op, "entry": str(path), "params": {}, "device": "cpu", "target": "launch", "samples": 5}
        return worker.ask({**request, "check": op == "time", **more}, 300.0)

    return answer


EVERY_20TH = """
COUNT = 0
def launch(inputs):
    global COUNT
    COUNT += 1
    return 2 * inputs["x"] + (FAULT if COUNT % 20 == 0 else 0)
"""


@pytest.mark.parametrize(("fault", "is_wrong"), [("1", True), ("1e-8", False), ("float('nan')", True)])
def test_a_kernel_that_is_wrong_in_some_launches_fails_after_the_timing(ask, fault, is_wrong):
    answer = ask(TORCH + EVERY_20TH.replace("FAULT", fault))

    if is_wrong:
        assert (answer.stage, answer.code) == ("time", "wrong-output")
        assert answer.message.startswith(("wrong in 3 of 64 launches", "wrong in 4 of 64 launches"))
    else:
        assert answer["method"] == "perf-counter"


def test_a_wrong_first_launch_is_counted_as_the_wrong_one(ask):
    once = "FIRST = [True]\ndef launch(inputs):\n    return 2 * inputs['x'] + (FIRST.pop() if FIRST else 0)\n"

    assert ask(TORCH + once)["method"] == "perf-counter"


WORKS = {
    "doubles": ("return inputs['x'].mul_(2)", True),
    "sorts": ("inputs['x'].copy_(inputs['x'].sort()[0]); return inputs['x']", True),
    "accumulates": ("return inputs['out'].add_(inputs['x'])", True),
    "writes its output": ("return torch.mul(inputs['x'], 2, out=inputs['out'])", False),
    "changes nothing": ("return 2 * inputs['x']", False),
}


@pytest.mark.parametrize("how", WORKS)
def test_inputs_that_a_launch_changes_and_reads_are_restored_before_each_launch(ask, how):
    body, restored = WORKS[how]
    source = f"{TORCH}\ndef launch(inputs):\n    {body}\n"

    # Without restored inputs, the outputs of later launches would differ from that of the first.
    assert ask(source)["method"] == ("perf-counter-restored" if restored else "perf-counter")


def test_both_sides_can_be_timed_in_the_way_of_a_kernel_that_works_in_place(ask):
    source = TORCH + "\ndef launch(inputs):\n    return 2 * inputs['x']\n"

    assert ask(source, restore=True)["method"] == "perf-counter-restored"


BACKWARD = """
import torch

gradients = {"dx": "x", "dw": "w"}
FORWARDS = 0

def make_inputs(rng, device, **case):
    x, w = torch.rand(4, 8, generator=rng), torch.rand(8, generator=rng)
    return {"x": x, "w": w, "dy": torch.rand(4, 8, generator=rng)}

def reference(inputs):
    return (inputs["x"].double() * inputs["w"].double()).sin()

def prepare(inputs):
    global FORWARDS
    FORWARDS += 1
    x, w = (inputs[name].requires_grad_() for name in ("x", "w"))
    return x, w, (x * w).sin(), inputs["dy"]

def launch(prepared):
    x, w, y, dy = prepared
    if FORWARDS > 3:
        raise RuntimeError("the forward pass ran again")
    dx, dw = torch.autograd.grad(y, (x, w), dy, retain_graph=True)
    return RETURNED
"""


@pytest.mark.parametrize("returned", ["{'dx': dx, 'dw': dw}", "(dx, dw)"])
def test_gradients_are_compared_with_those_of_the_reference_and_timed_without_the_forward_pass(ask, returned):
    source = BACKWARD.replace("RETURNED", returned)

    assert ask(source, "verify")["checked"] == "launch"
    assert ask(source)["method"] == "perf-counter"


@pytest.mark.parametrize("returned", ["{'dx': dx, 'dw': dw + 1}", "(dx, dw + 1)"])
def test_a_wrong_gradient_is_named(ask, returned):
    failure = ask(BACKWARD.replace("RETURNED", returned), "verify")

    assert failure.code == "wrong-output"
    assert "`dw`[" in failure.message
    assert "8 of 8 elements are wrong" in failure.message


@pytest.mark.parametrize(
    ("text", "instead", "message"),
    [
        ('"dw": "w"', '"dw": "v"', "gradients: make_inputs returns no `v`, but `dy`, `w`, `x`"),
        ('"dy":', '"grad":', "gradients: make_inputs returns no `dy`"),
        ('gradients = {"dx": "x", "dw": "w"}', 'gradients = ["x"]', "gradients is ['x'], not a dictionary"),
    ],
)
def test_gradients_that_cannot_be_meant_are_an_error_that_says_so(ask, text, instead, message):
    failure = ask(BACKWARD.replace("RETURNED", "(dx, dw)").replace(text, instead), "verify")

    assert failure.code == "raised"
    assert message in failure.message


def test_the_example_of_a_backward_pass_on_the_page_works(ask):
    page = (Path(__file__).parents[2] / ".github/docs/writing-kernels.md").read_text()
    (example,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "gradients = " in block]
    case = {"params": {"rows": 16, "columns": 8}}

    assert ask(example, "verify", **case)["checked"] == "launch"
    assert ask(example, **case)["method"] == "perf-counter"


def test_a_kernel_that_changes_what_cannot_be_restored_is_not_checked_after_the_timing(ask):
    source = TORCH.replace('"out":', '"steps": [0.0], "out":') + (
        "\ndef launch(inputs):\n    inputs['steps'][0] += 1\n    return 2 * inputs['x'] * inputs['steps'][0]\n"
    )

    assert ask(source)["method"] == "perf-counter"
