"""The base is compiled while the head is verified: real workers, and a torch that believes in a GPU."""

import os
import time
from contextlib import ExitStack

import pytest

from ci_perf.measure.compile_ahead import CompileAhead
from ci_perf.measure.conditions import Conditions
from ci_perf.measure.side import Side
from ci_perf.measure.worker_process import Worker
from ci_perf.values.job import select_jobs
from tests.builders import a_spec
from tests.project.test_project import ROOT

pytestmark = pytest.mark.slow

KERNEL = """
def make_inputs(rng, device, **case):
    return case

def launch(case):
    print("launched", case)
    {line}
    return 1.0

reference = launch
"""
HANGS = 'if case["number"] == 1: import time; time.sleep(600)'
TUNES = 'import triton.runtime.autotuner as tuner; tuner.Autotuner().run(); print("tuned")'


@pytest.fixture
def base(bare_python, tmp_path):
    """Return what makes the jobs of a kernel with two cases, its side, and what it printed."""
    (tmp_path / "torch.py").write_text((ROOT / "tests/data/fakes/torch").read_text())
    tuner = tmp_path / "triton/runtime/autotuner.py"
    tuner.parent.mkdir(parents=True)
    tuner.write_text("class Autotuner:\n    def run(self):\n        pass\n")
    spec = a_spec("k", cases={"first": {"number": 1}, "second": {"number": 2}}, devices=("cuda",))
    (tmp_path / spec.folder).mkdir(parents=True)
    with ExitStack() as stack:

        def make(line, *, above=""):
            (tmp_path / spec.folder / spec.entry).write_text(above + KERNEL.format(line=line))
            env = {**os.environ, "PYTHONPATH": str(tmp_path)}
            worker = stack.enter_context(Worker(bare_python, env, tmp_path, "base"))
            conditions = Conditions(bare_python, tmp_path, {}, 5, 300.0)
            jobs = select_jobs((spec,), [], ["cuda"])
            return CompileAhead(Side("base", tmp_path, {"k": spec}, worker), jobs, conditions)

        yield make, lambda: (tmp_path / "base.stdout.txt").read_text().splitlines()


def test_each_case_is_launched_once_on_the_base(base):
    make, printed = base
    with make("") as ahead:
        pass

    assert printed() == ["launched {'number': 1}", "launched {'number': 2}"]
    assert not ahead.stop()


def test_a_failure_of_the_base_is_ignored_and_the_next_case_is_launched(base):
    make, printed = base
    with make('raise ValueError("no")'):
        pass

    assert len(printed()) == 2


def test_a_kernel_that_is_tuned_waits_until_it_has_the_gpu_for_itself(base):
    make, printed = base
    with make(TUNES, above="import triton.runtime.autotuner\n"):
        pass

    assert printed() == ["launched {'number': 1}", "launched {'number': 2}"]


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, GeneratorExit])
def test_the_base_can_be_stopped_at_any_time(base, error):
    """Where base and head do not fit on the GPU at once, and when the run is stopped."""
    make, printed = base
    ahead = make(HANGS)
    with ExitStack() as stack:
        stack.enter_context(pytest.raises(error) if error else ExitStack())
        with ahead:
            while not printed_yet(printed):
                time.sleep(0.01)
            if error:
                raise error
            assert ahead.stop()

    assert len(printed()) == 1
    assert not ahead.stop()


def printed_yet(printed):
    try:
        return bool(printed())
    except FileNotFoundError:
        return False
