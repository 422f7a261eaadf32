"""The wall clock as a timer, what prevents a CUDA graph, and peak memory: on a simulated GPU, and on a real one."""

import importlib.util
import os
import re
import sys
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from ci_perf.judge.pairs import decide_pairs
from ci_perf.judge.ratios import log_ratio
from ci_perf.measure.conditions import Conditions
from ci_perf.measure.side import Side
from ci_perf.measure.turns import TurnTaking
from ci_perf.measure.worker_process import Worker
from ci_perf.userside import timers
from ci_perf.userside.error_line import what_broke
from ci_perf.values.job import select_jobs
from ci_perf.values.kernel import Gate
from ci_perf.values.kernel_toml import parse_kernel
from ci_perf.values.measurement import MemoryPeaks, Pair
from ci_perf.values.run import Policy
from tests.builders import a_spec
from tests.project.test_project import ROOT


class SimulatedGpu:
    """A host that queues one kernel for each launch; all times are in microseconds, and the clock is simulated."""

    def __init__(self, monkeypatch, *, host, kernel, synchronizes=False, latency=5):
        self.host, self.kernel, self.synchronizes, self.latency = host, kernel, synchronizes, latency
        self.now = self.idle_from = 0
        monkeypatch.setattr(timers, "time", SimpleNamespace(perf_counter=lambda: self.now))

    def launch(self):
        self.now += self.host
        self.idle_from = max(self.now, self.idle_from) + self.kernel
        if self.synchronizes:
            self.synchronize()

    def synchronize(self):
        self.now = max(self.now, self.idle_from) + self.latency

    def per_launch(self, count):
        """Return the time of one launch, and of one in samples of `count`."""
        timer = timers.WallTimer(self)
        timer.prepare(count)
        (sample,) = timer.samples(1)
        return timer.seconds(1), sample / count


SMALL, LARGE = {"host": 8, "kernel": 5}, {"host": 8, "kernel": 100}


@pytest.mark.parametrize(
    ("before", "change", "rise"),
    [
        (SMALL, {}, 0.0),
        (SMALL, {"host": 10}, 0.154),  # 8 + 8 + 5 + 5 us for two launches; 10 + 10 + 5 + 5
        (SMALL, {"synchronizes": True}, 0.577),
        (SMALL, {"kernel": 7}, 0.077),
        (LARGE, {"host": 10}, 0.009),  # of the host's work half is behind the kernel before it
        (LARGE, {"synchronizes": True}, 0.085),
        (LARGE, {"kernel": 110}, 0.094),
    ],
)
def test_the_wall_clock_sees_the_work_of_the_host_a_synchronisation_and_the_kernel(monkeypatch, before, change, rise):
    base = SimulatedGpu(monkeypatch, **before).per_launch(20)
    head = SimulatedGpu(monkeypatch, **{**before, **change}).per_launch(20)

    assert base[0] == base[1]
    assert head[1] / base[1] - 1 == pytest.approx(rise, abs=6e-4)


@pytest.mark.parametrize("count", [2, 5, 57])
def test_each_launch_of_a_sample_of_the_wall_clock_counts(monkeypatch, count):
    gpu = SimulatedGpu(monkeypatch, host=8, kernel=5)

    assert gpu.per_launch(count)[1] * count == 26 * (count // 2) + 18 * (count % 2)


KERNEL = """
import json

def helper(x):
    return json.loads(x)

def launch(x):
    return helper(x)
"""


def raised_by(tmp_path, package=""):
    """Return the error of a kernel whose file lies in a folder."""
    folder = tmp_path / package
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "kernel.py"
    path.write_text(KERNEL)
    spec = importlib.util.spec_from_file_location("kernel_that_raises", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 # its message is Python's
        module.launch("{")
    return caught.value, path


@pytest.mark.parametrize(
    ("package", "shown"),
    [
        ("kernels/sdpa", "{path}"),
        ("lib/site-packages/fla/ops", "fla/ops/kernel.py"),
        ("lib/site-packages/torch/cuda", None),
    ],
)
def test_what_broke_a_capture_is_the_innermost_line_that_is_not_of_a_library(tmp_path, package, shown):
    error, path = raised_by(tmp_path, package)
    error.__traceback__ = error.__traceback__.tb_next  # that of the test itself
    found = what_broke(error)

    assert found.startswith("JSONDecodeError: Expecting property name")
    if shown is None:
        assert found.endswith("(no line of Python raised it: the call is in compiled code)")
    else:
        assert found.endswith(f", raised by `return json.loads(x)` at {shown.format(path=path)}:5")


BASE = """
import torch

def make_inputs(rng, device):
    return torch.rand(1 << 16, generator=rng).to(device)

def launch(x):
    return x.mul(2).add(1)

reference = launch
"""
ADDED = {
    "nothing": "",
    "allocation": "\n    torch.empty(4 << 20, device=x.device)",
    "synchronisation": "\n    torch.cuda.synchronize()",
    "copy to the host": "\n    x[0].item()",
}


@pytest.fixture
def on_gpu(tmp_path):
    """Return five pairs of a kernel in turns with the same kernel after an addition."""
    with ExitStack() as stack:

        def pairs(added, **changes):
            spec = a_spec("k", cases={"c": {}}, **changes)
            sides = []
            for name, text in (("base", ""), ("head", ADDED[added])):
                folder = tmp_path / name / spec.folder
                folder.mkdir(parents=True)
                (folder / spec.entry).write_text(BASE.replace("launch(x):", f"launch(x):{text}", 1))
                worker = stack.enter_context(Worker(sys.executable, dict(os.environ), tmp_path, name))
                sides.append(Side(name, tmp_path / name, {"k": spec}, worker))
            taking = TurnTaking(tuple(sides), Conditions(sys.executable, tmp_path, {}, 30, 300.0))
            jobs = select_jobs((spec,), [], ["cuda"])
            found = [pair for number in range(5) for _, pair in taking.pairs(jobs, number)]
            assert all(isinstance(pair, Pair) for pair in found), found
            return found

        yield pairs


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize(("added", "is_slower"), [("nothing", False), ("allocation", True), ("synchronisation", True)])
def test_by_the_wall_clock_faults_of_the_host_are_regressions(on_gpu, added, is_slower):
    pairs = on_gpu(added, time="wall")

    assert {pair.method for pair in pairs} == {"wall-two-launches"}
    outcome = decide_pairs([log_ratio(pair) for pair in pairs], Policy(), last=True)
    assert (outcome.code == "slower") == is_slower, outcome


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("added", ["synchronisation", "copy to the host"])
def test_a_head_that_cannot_be_captured_any_more_is_timed_by_the_wall_clock_and_says_what_broke_it(on_gpu, added):
    pairs = on_gpu(added)

    assert {pair.method for pair in pairs} == {"wall-two-launches"}
    for pair in pairs:
        base, head = pair.not_captured
        assert not base
        assert head.endswith(f"raised by `{ADDED[added].strip()}` at kernels/k/kernel.py:8")
    assert decide_pairs([log_ratio(pair) for pair in pairs], Policy(), last=True).code == "slower"


def test_the_examples_of_the_docs_are_read():
    page = (ROOT / ".github/docs/writing-kernels.md").read_text(encoding="utf-8")
    clock, memory = (
        next(block for block in re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL) if key in block)
        for key in ('time = "wall"', "peak_memory_bytes")
    )
    spec = parse_kernel(clock + memory, name="k", folder="kernels/k")

    assert (spec.time, spec.memory) == ("wall", 0.05)
    assert spec.gates == (Gate("peak_memory_bytes", "<=", 2e9),)


@pytest.mark.gpu
@pytest.mark.slow
def test_the_peak_of_memory_of_a_launch_includes_what_it_allocates(on_gpu):
    floats = 4 << 16  # bytes of one tensor: the input, the product and the sum
    freed = 16 << 20  # before the product is made
    peaks = [pair.memory for pair in on_gpu("allocation")]

    assert peaks == [MemoryPeaks(3 * floats, floats + freed)] * 5
