"""Kernels are compiled before they are verified: real workers, and a torch that believes in a GPU."""

import os
import time
from contextlib import ExitStack
from dataclasses import replace

import pytest

from ci_perf.measure.compile_ahead import STAGE, CompileAhead
from ci_perf.measure.conditions import Conditions
from ci_perf.measure.side import Side
from ci_perf.measure.spent import Spent
from ci_perf.measure.worker_process import Worker
from ci_perf.values.job import select_jobs
from tests.builders import a_spec
from tests.project.test_project import ROOT

pytestmark = pytest.mark.slow

KERNEL = """
import os

def make_inputs(rng, device, **case):
    return case

def launch(case):
    os.write(1, f"{side} {{case['number']}}\\n".encode())
    {line}
    return 1.0

reference = launch
"""
HANGS = 'if case["number"] == 1: import time; time.sleep(600)'
TUNED = """
import os
import triton.runtime.autotuner as tuner
class Config:
    pre_hook = None
    def __init__(self, number):
        self.number = number
    def all_kwargs(self):
        return {"config": self.number}
class Function:
    def run(self, *args, config, warmup=False):
        os.write(1, f"{'compiles' if warmup else 'launches'} {config}\\n".encode())
kernel = tuner.Autotuner(Function(), [Config(1), Config(2)])
"""
TUNER = """
class Autotuner:
    def __init__(self, fn, configs):
        self.fn, self.configs, self.arg_names = fn, configs, []
    def run(self, *args, **kwargs):
        for config in self.configs:
            self._bench(*args, config=config, **kwargs)
    def _bench(self, *args, config, **kwargs):
        print("tunes")
    def prune_configs(self, kwargs):
        return self.configs
"""


@pytest.fixture
def spent():
    return Spent()


@pytest.fixture
def workers():
    """Those of the sides, by name."""
    return {}


@pytest.fixture
def sides(bare_python, tmp_path, spent, workers):
    """Return what makes head and base of kernels with three cases and one entry, and what a side printed."""
    (tmp_path / "torch.py").write_text((ROOT / "tests/data/fakes/torch").read_text())
    tuner = tmp_path / "triton/runtime/autotuner.py"
    tuner.parent.mkdir(parents=True)
    tuner.write_text(TUNER)
    cases = {name: {"number": number} for number, name in enumerate(("first", "second", "third"), 1)}
    spec = a_spec("k", cases=cases, devices=("cuda",))
    specs = (spec, replace(spec, name="l"))
    with ExitStack() as stack:

        def side(name, line, above):
            folder = tmp_path / name / spec.folder
            folder.mkdir(parents=True)
            (folder / spec.entry).write_text(above + KERNEL.format(line=line, side=name))
            env = {**os.environ, "PYTHONPATH": str(tmp_path)}
            worker = workers[name] = stack.enter_context(Worker(bare_python, env, tmp_path, name))
            return Side(name, tmp_path / name, {spec.name: spec for spec in specs}, worker)

        def make(
            line="pass",
            *,
            head_line="pass",
            above="",
            head_above="",
            processes=2,
            kernels="k",
            cases=("*",),
            base=True,
            timeout_s=300.0,
        ):
            conditions = Conditions(bare_python, tmp_path, {}, 5, timeout_s, spent=spent)
            jobs = select_jobs(specs, [f"{kernel}/{case}" for kernel in kernels for case in cases], ["cuda"])
            head = side("head", head_line, head_above)
            of_base = side("base", line, above) if base else None
            return CompileAhead(head, of_base, jobs, conditions, processes=processes), jobs

        def printed(name):
            file = tmp_path / f"{name}.stdout.txt"
            return sorted(file.read_text().splitlines()) if file.exists() else []

        yield make, printed


def run(ahead, jobs, then=lambda: None):
    with ahead:
        for job in jobs:
            ahead.before(job)
        then()


def test_the_cases_of_both_sides_are_launched_once_but_the_first_one_of_the_head(sides):
    """The first case is verified while the others are compiled."""
    make, printed = sides
    run(*make())

    assert printed("base") == ["base 1", "base 2", "base 3"]
    assert printed("head") == ["head 2", "head 3"]


def test_a_single_case_of_the_head_is_not_launched_twice(sides):
    make, printed = sides
    run(*make(cases=["second"]))

    assert printed("base") == ["base 2"]
    assert printed("head") == []


def test_all_cases_of_the_head_are_compiled_without_a_base(sides):
    make, printed = sides
    run(*make(base=False))

    assert printed("head") == ["head 2", "head 3"]


def test_with_one_process_only_the_base_is_compiled(sides):
    make, printed = sides
    run(*make(processes=1))

    assert printed("base") == ["base 1", "base 2", "base 3"]
    assert printed("head") == []


@pytest.mark.parametrize("line", ['raise ValueError("no")', "os._exit(3)", "os.kill(os.getpid(), 9)"])
@pytest.mark.parametrize("processes", [1, 2])
def test_a_failure_is_ignored_and_the_other_cases_are_launched(sides, line, processes):
    make, printed = sides
    run(*make(line, processes=processes))

    assert printed("base") == ["base 1", "base 2", "base 3"]


def test_the_worker_that_compiled_stays(sides, workers):
    make, _ = sides
    run(*make())

    assert workers["base"].ask({"op": "rest"}, 300.0) == {"ok": True}


def test_no_worker_starts_in_place_of_one_that_died_while_it_compiled(sides, workers):
    """It would be of the thread that compiles, and end with it."""
    make, printed = sides
    ahead, jobs = make(above="import os; os.kill(os.getppid(), 9)\n", kernels="kl", processes=1)
    run(ahead, jobs)

    assert not workers["base"].is_begun
    assert printed("base") == []


def test_all_code_of_a_tuned_kernel_is_there_before_its_first_case_is_verified(sides):
    make, printed = sides
    ahead, jobs = make("kernel.run()", above=TUNED, head_above=TUNED, cases=["first", "second"])
    with ahead:
        ahead.before(jobs[0])
        of_head, of_base = printed("head"), printed("base")

    assert of_head == ["head 1", "head 2"]
    assert of_base == ["base 1", "base 2", *["compiles 1"] * 2, *["compiles 2"] * 2, *["launches 1"] * 2]


def test_a_kernel_is_neither_tuned_nor_compiled_while_the_head_is_verified(sides):
    make, printed = sides
    run(*make("kernel.run()", above=TUNED, processes=1))

    assert printed("base") == ["base 1", "base 2", "base 3"]


def test_an_entry_whose_process_cannot_fork_is_imported_once_and_not_compiled_ahead(sides):
    make, printed = sides
    threads = (
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\nprint('imported')\n"
    )
    ahead, jobs = make(head_above=threads, above=threads)
    run(ahead, jobs)

    assert printed("head") == printed("base") == ["imported"]


def test_a_case_that_hangs_is_given_up(sides):
    make, _ = sides
    ahead, jobs = make(HANGS, timeout_s=2.0)
    run(ahead, jobs)

    assert not ahead.stop()


def test_a_case_waits_for_its_own_code_alone(sides):
    make, printed = sides
    ahead, jobs = make(head_line=HANGS.replace("1", "3"), base=False)

    def interrupt():
        assert "head 2" in printed("head")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # it ends without waiting for the third case
        run(ahead, jobs[:2], interrupt)


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("processes", [1, 2])
def test_the_base_can_be_stopped_at_any_time(sides, error, processes):
    """Where base and head do not fit on the GPU at once, and when the run is stopped."""
    make, printed = sides
    ahead, jobs = make(HANGS, cases=["first"], processes=processes)
    with ExitStack() as stack:
        stack.enter_context(pytest.raises(error) if error else ExitStack())
        with ahead:
            ahead.before(jobs[0])
            while not printed("base"):
                time.sleep(0.01)
            if error:
                raise error
            assert ahead.stop()

    assert printed("base") == ["base 1"]
    assert not ahead.stop()


def test_the_time_of_each_case_is_counted(sides, spent):
    make, _ = sides
    ahead, jobs = make("import time; time.sleep(0.01)")
    run(ahead, jobs)

    for job in jobs:
        assert spent.of(job.id, "cuda")["base"][STAGE] >= 0.01
