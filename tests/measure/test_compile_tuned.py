"""All configurations of a tuned kernel are compiled ahead: real workers, real Triton, with and without a GPU."""

import importlib
import os
import sys

import pytest

from ci_perf.measure.compile_ahead import STAGE, CompileAhead
from ci_perf.measure.conditions import Conditions
from ci_perf.measure.side import Side
from ci_perf.measure.worker_process import Worker
from ci_perf.userside.fork_server import hash_triton
from ci_perf.values.job import select_jobs
from ci_perf.values.kernel import Package
from tests.builders import a_spec

pytest.importorskip("triton", reason="needs Triton, whose compiler for CUDA needs no GPU")
pytestmark = pytest.mark.slow

DRIVER = """
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver


class Utils:
    def get_device_properties(self, device):
        return {"max_shared_mem": 232448}

    def load_binary(self, name, code, shared, device):
        assert code[:4] == b"\\x7fELF"
        return None, None, 16, 0, 1024


class Driver:
    '''Reports an H100. A launch is a line of output.'''

    utils = Utils()

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def get_benchmarker(self):
        return lambda call, quantiles: (call(), [1.0, 1.0, 1.0])[1]

    def launcher_cls(self, source, metadata):
        return lambda *_: os.write(1, f"launched {source.fn.__name__} in {os.getpid()}\\n".encode())


driver.set_active(Driver())
torch.cuda.synchronize = lambda: None
PLACE, FACTOR = "cpu", 0  # nothing is computed
"""
GPU = """
import torch

PLACE, FACTOR = "cuda", 2
"""
CONFIGURATIONS = 6
"""Of the kernel below; one more does not compile."""
KERNEL = """
import os
import triton
import triton.language as tl
{driver}

def listener(*, cache_hit, **_):
    if not cache_hit:
        os.write(1, f"compiled in {{os.getpid()}}\\n".encode())


triton.knobs.compilation.listener = listener


CONFIGURATIONS = [(4096, 4), *((block, warps) for block in (64, 128, 256) for warps in (4, 8))]


def hook(arguments):
    os.write(1, f"hook of {{arguments['BLOCK']}} for {{arguments['n']}}\\n".encode())


def configuration(block, warps):
    return triton.Config({{"BLOCK": block}}, num_warps=warps, pre_hook=hook if block == {hooked} else None)


@triton.autotune([configuration(*chosen) for chosen in CONFIGURATIONS], ["n"])
@triton.heuristics({{"EVEN": lambda args: args["n"] % args["BLOCK"] == 0}})
@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    tl.static_assert(BLOCK < 4096)  # the first configuration does not compile
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = place < n if not EVEN else place >= 0
    tl.store(y + place, 2 * tl.load(x + place, mask=mask), mask=mask)


def make_inputs(rng, device, *, n):
    return torch.rand(n, generator=rng).to(PLACE), torch.zeros(n, device=PLACE)


def launch(inputs):
    n = len(inputs[0])
    scale[lambda chosen: (triton.cdiv(n, chosen["BLOCK"]),)](*inputs, n)
    return inputs[1]


def reference(inputs):
    return FACTOR * inputs[0]
"""


COMPILED = """
import os
import torch

torch.cuda.synchronize = lambda: None


def backend(graph, inputs):
    os.write(1, b"compiled\\n")
    return graph.forward


@torch.compile(backend=backend)
def double(x):
    return 2 * x


def make_inputs(rng, device):
    return torch.ones(4)


def launch(x):
    y = double(x)
    os.write(1, b"launched\\n")
    return y


def reference(x):
    return 2 * x
"""
"""A function of torch.compile that says when it is compiled."""


@pytest.fixture(params=["entry", "package"])
def spec(request):
    """A kernel whose code is in its entry, or in a package that is imported once for several entries."""
    return a_spec(
        "scale",
        cases={"even": {"n": 1024}, "odd": {"n": 1000}},
        devices=("cuda",),
        package=Package(("../../src",), ("scales",)) if request.param == "package" else Package(),
    )


@pytest.fixture(params=[pytest.param(DRIVER, id="no-gpu"), pytest.param(GPU, id="gpu", marks=pytest.mark.gpu)])
def session(tmp_path, spec, request):
    """A head and its jobs, what its kernels printed, and the compiled kernels in the cache."""
    for folder in (spec.folder, "src"):
        (tmp_path / folder).mkdir(parents=True)
    code = KERNEL.format(driver=request.param, hooked=None)
    (tmp_path / "src/scales.py").write_text(code)
    entry = "from scales import launch, make_inputs, reference" if spec.package.imports else code
    (tmp_path / spec.folder / spec.entry).write_text(entry)
    cache = tmp_path / "cache"
    env = {**os.environ, "TRITON_CACHE_DIR": str(cache), "TRITON_CACHE_AUTOTUNING": "1"}
    conditions = Conditions(sys.executable, tmp_path, env, 5, 300.0)
    with Worker(sys.executable, env, tmp_path, "head") as worker:

        def lines():
            return (tmp_path / "head.stdout.txt").read_text().splitlines()

        yield (
            Side("head", tmp_path, {"scale": spec}, worker),
            select_jobs((spec,), [], ["cuda"]),
            conditions,
            lines,
            cache,
        )


def compiled(lines):
    return [line for line in lines() if line.startswith("compiled")]


def test_all_configurations_are_compiled_by_several_processes_and_the_tuning_finds_them(session):
    head, jobs, conditions, lines, cache = session
    with CompileAhead(head, None, jobs, conditions, processes=2) as ahead:
        ahead.before(jobs[0])
        ahead_of_time = compiled(lines)
        launched = [line for line in lines() if line.startswith("launched")]
        choices = list(cache.glob("*/*.autotune.json"))
        answers = [head.worker.ask(head.request(job, op="verify"), 300.0) for job in jobs]

    assert len(ahead_of_time) == len(jobs) * CONFIGURATIONS
    assert len(set(ahead_of_time)) == len(jobs), "each case in a process of its own"
    assert len(launched) in (len(jobs), 0), "no configuration is timed; a real launch prints nothing"
    assert choices == []
    assert [answer["error"] for answer in answers] == [0.0, 0.0]
    assert compiled(lines) == ahead_of_time, "the tuning compiles nothing"
    assert len(list(cache.glob("*/*.autotune.json"))) == len(jobs)
    assert all(conditions.spent.of(job.id, "cuda")["head"][STAGE] > 0.0 for job in jobs)


def test_the_hash_of_tritons_files_is_known_before_a_fork():
    """It is part of the key of all compiled code; Triton has moved the function before."""
    key = importlib.import_module("triton.runtime.cache").triton_key
    key.cache_clear()
    hash_triton()

    assert key.cache_info().currsize == 1


def compile_ahead(folder, code, cases):
    """Return what a kernel printed while all of its cases were compiled ahead, without a GPU, and afterwards."""
    spec = a_spec("scale", cases=cases, devices=("cuda",))
    (folder / spec.folder).mkdir(parents=True)
    (folder / spec.folder / spec.entry).write_text(code)
    jobs = select_jobs((spec,), [], ["cuda"])
    conditions = Conditions(sys.executable, folder, os.environ, 5, 300.0)
    with Worker(sys.executable, {**os.environ, "TRITON_CACHE_DIR": str(folder / "cache")}, folder, "head") as worker:
        head = Side("head", folder, {"scale": spec}, worker)
        with CompileAhead(head, None, jobs, conditions, processes=2) as ahead:
            ahead.before(jobs[0])
        printed = (folder / "head.stdout.txt").read_text()
        assert worker.ask(head.request(jobs[0], op="verify"), 300.0)["error"] == 0.0
        return printed, (folder / "head.stdout.txt").read_text().removeprefix(printed)


def test_the_hook_of_a_configuration_runs_before_each_of_its_compilations(tmp_path):
    """It may change the arguments, on which the compiled code depends."""
    ahead, _ = compile_ahead(
        tmp_path, KERNEL.format(driver=DRIVER, hooked=256), {"even": {"n": 1024}, "odd": {"n": 1000}}
    )

    hooks = sorted(line for line in ahead.splitlines() if line.startswith("hook"))
    assert hooks == ["hook of 256 for 1000"] * 2 + ["hook of 256 for 1024"] * 2, "with 4 and with 8 warps"


def test_torch_compile_compiles_nothing_ahead(tmp_path):
    """Its code would not be used: it is compiled again where it is timed."""
    ahead, later = compile_ahead(tmp_path, COMPILED, {"one": {}, "two": {}})

    assert ahead == "launched\n"
    assert "compiled" in later


def test_a_choice_that_is_known_is_used(session):
    head, jobs, conditions, lines, _ = session
    head.worker.ask(head.request(jobs[0], op="verify"), 300.0)
    before = len(lines())
    with CompileAhead(head, None, jobs[:1], conditions, processes=2) as ahead:
        ahead.before(jobs[0])

    shown = [line.partition(" in ")[0] for line in lines()[before:]]
    assert shown in (["launched scale"], []), "it is launched once; a real launch prints nothing"
