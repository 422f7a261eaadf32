"""Base and head in turns: real pairs of processes on the CPU, whose kernels log their calls."""

import os
from collections import Counter
from contextlib import ExitStack, closing

import pytest

from ci_perf.measure import gpu, turns
from ci_perf.measure.conditions import Conditions
from ci_perf.measure.side import Side, SideFailure
from ci_perf.measure.turns import TurnTaking
from ci_perf.measure.watch import Watch
from ci_perf.measure.worker_process import Worker
from ci_perf.values.job import select_jobs
from ci_perf.values.measurement import Failure, Pair
from tests.builders import a_spec

pytestmark = pytest.mark.slow

NOTES = """
import os
def make_inputs(rng, device, name="", fails=False):
    with open("{notes}", "a") as notes:
        print("{side}", name, os.getpid(), file=notes)
    if fails:
        raise ValueError("this case fails")
    return 1.0

def launch(inputs):
    return sum(range(1000))

reference = launch
"""
ALONE = """
import fcntl
def make_inputs(rng, device, **case):
    held = open("{notes}", "w")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise {error}
    return held

def launch(held):
    return sum(range(1000))

reference = launch
"""
FAST = """
def make_inputs(rng, device, **case):
    return 150
def launch(n):
    return sum(range(n))
reference = launch
"""


class Telling(Worker):
    """A worker that appends its requests to a list, which several workers may share."""

    def __init__(self, *arguments, told):
        super().__init__(*arguments)
        self._told, self._name = told, arguments[3]

    def send(self, request):
        self._told.append((self._name, request["op"]))
        super().send(request)


@pytest.fixture
def table(tmp_path, bare_python, monkeypatch):
    """Return what seats two sides, each with a folder of kernels and a worker; `told` is what they heard."""
    monkeypatch.setattr(turns, "WARM_UP_S", {"cpu": 0.0})
    monkeypatch.setattr(turns, "STILL_WARM_S", {"cpu": 0.0})
    with ExitStack() as stack:

        def seat(base, head=None, *, kernels=("sdpa",), told=None, **more):
            specs = {name: a_spec(name) for name in kernels}
            sides = []
            for name, source in (("base", base), ("head", head or base)):
                root = tmp_path / name
                for spec in specs.values():
                    (root / spec.folder).mkdir(parents=True)
                    text = source.replace("{side}", name).replace("{notes}", str(tmp_path / "notes"))
                    (root / spec.folder / spec.entry).write_text(text)
                made = Telling(bare_python, dict(os.environ), tmp_path, name, told=[] if told is None else told)
                sides.append(Side(name, root, specs, stack.enter_context(made)))
            return TurnTaking(tuple(sides), Conditions(bare_python, tmp_path, {}, 30, 300.0, **more))

        yield seat


@pytest.fixture
def notes(tmp_path):
    """Return the lines that kernels logged: side, case and pid."""

    def read():
        lines = (line.split() for line in (tmp_path / "notes").read_text().splitlines())
        return [(side, case, int(pid)) for side, case, pid in lines]

    return read


def jobs(*kernels, **cases):
    """Return a job for each case of each kernel, its parameters being the name of the case and what a test adds."""
    params = {case: {"name": case, **more} for case, more in (cases or {"a": {}}).items()}
    specs = tuple(a_spec(kernel, cases=params, devices=("cpu",)) for kernel in kernels or ("sdpa",))
    return select_jobs(specs, [], ["cpu"])


def is_alive(pid):
    return os.path.exists(f"/proc/{pid}")  # noqa: PTH110


@pytest.mark.parametrize(
    "error",
    [
        "MemoryError('the other side fills the device')",
        "RuntimeError('CUDA error: CUDA-capable device(s) is/are busy or unavailable')",
    ],
    ids=["memory", "exclusive-mode"],
)
def test_if_the_device_allows_one_process_the_sides_alternate_and_later_pairs_start_that_way(table, error):
    told = []
    seated = table(ALONE.replace("{error}", error), told=told)

    ((_, first),) = seated.pairs(jobs(), 0)
    asked = list(told)
    told.clear()
    ((_, second),) = seated.pairs(jobs(), 1)

    assert [pair.method for pair in (first, second)] == ["perf-counter/alternating"] * 2
    assert len(second.shapes) == 2
    assert second.shapes[0] == second.shapes[1]
    assert Counter(asked)["base", "ready"] == 1
    assert {op for _, op in told} == {"time", "rest"}
    assert [side for side, op in told if op == "time"] == ["head", "base"]


class WorkerOnGpu:
    """A worker on a GPU; if `captured` is False, its kernel cannot be captured in a graph."""

    error = "RuntimeError: not permitted, raised by `x.item()` at {root}/kernels/sdpa/kernel.py:7"
    is_begun = False

    def __init__(self, *, captured, code=None, root="", at_once=True, memory_bytes=None, has_threads=False):
        self.memory_bytes, self.has_threads = memory_bytes, has_threads
        self.captured, self.code, self.at_once, self.asked = captured, code, at_once, []
        self.error = self.error.replace("{root}", str(root))

    def send(self, request):
        self.asked.append(request)

    def receive(self, timeout_s):
        del timeout_s
        request = self.asked[-1]
        if request["op"] == "ready" and not self.at_once:
            return Failure("ready", "out-of-memory", "the other side fills the device")
        if request["op"] == "turn":
            return {"seconds": [1e-5], "window": [0.0, 0.0], "waited": 0.0, "instructions": None}
        if request["op"] in {"alike", "check"}:
            return {}
        facts = {"launches": 100, "step": 1, "placements": 1, "pid": 7, "code": self.code, "inputs": None, "shapes": ""}
        facts |= {
            "memory_bytes": self.memory_bytes,
            "has_threads": self.has_threads,
            "planted": 0.0,
            "files": [],
            "installed": {},
            "seconds": [1e-5],
            "window": [0.0, 0.0],
            "waited": 0.0,
            "instructions": None,
        }
        if request["time"] == "wall":
            return {**facts, "method": "wall-two-launches", "not_captured": ""}
        facts["kernels"] = [LAUNCHED]
        method = "cuda-graph" if self.captured else "cupti"
        return {**facts, "method": method, "not_captured": "" if self.captured else self.error}

    def ask(self, request, timeout_s):
        self.send(request)
        return self.receive(timeout_s)


LAUNCHED = {
    "grid": [132, 1, 1],
    "block": [256, 1, 1],
    "registers_per_thread": 32,
    "static_shared_bytes": 0,
    "dynamic_shared_bytes": 0,
    "local_bytes": 0,
}
"""What a worker tells of a GPU kernel."""
REASON = "RuntimeError: not permitted, raised by `x.item()` at kernels/sdpa/kernel.py:7"


@pytest.mark.parametrize("at_once", [True, False], ids=["resident", "alternating"])
@pytest.mark.parametrize(
    ("captured", "method", "not_captured", "asked"),
    [
        pytest.param((True, True), "cuda-graph", (), ["gpu", "gpu"], id="both"),
        pytest.param((True, False), "wall-two-launches", ("", REASON), ["gpu", "wall", "wall"], id="head-no-longer"),
        pytest.param((False, True), "wall-two-launches", (REASON, ""), ["gpu", "wall", "wall"], id="head-now"),
        pytest.param((False, False), "cupti", (), ["gpu", "gpu"], id="neither"),
    ],
)
def test_if_only_one_side_can_be_captured_the_wall_clock_times_both(
    monkeypatch, tmp_path, captured, method, not_captured, asked, at_once
):
    monkeypatch.setattr(turns, "WARM_UP_S", {"cuda": 0.0})
    spec = a_spec("sdpa")
    sides = [
        Side(name, tmp_path, {"sdpa": spec}, WorkerOnGpu(captured=can, root=tmp_path, at_once=at_once))
        for name, can in zip(("base", "head"), captured, strict=True)
    ]
    job = select_jobs((spec,), [], ["cuda"])[0]
    taking = TurnTaking(tuple(sides), Conditions("python3", tmp_path, {}, 30, 60.0))
    first, second = (pair for number in (0, 1) for _, pair in taking.pairs([job], number))

    for pair in (first, second):
        assert pair.method == (method if at_once else f"{method}/alternating")
        assert pair.not_captured == not_captured
    prepared = [r["time"] for r in sides[0].worker.asked if r["op"] == ("ready" if at_once else "time")]
    assert prepared == asked
    known = [kernel.registers_per_thread for kernel in (*first.base_kernels, *first.head_kernels)]
    assert known == [32, 32] * at_once, "of what the clock times too"


@pytest.mark.parametrize(("base", "head"), [(False, False), (False, True), (True, False)])
def test_if_one_side_has_threads_the_times_of_both_include_their_waits_for_a_core(monkeypatch, tmp_path, base, head):
    """How long these threads wait is not known: without the waits of the other side alone, they would seem slower."""
    monkeypatch.setattr(turns, "WARM_UP_S", {"cuda": 0.0})
    spec = a_spec("sdpa")
    workers = [WorkerOnGpu(captured=True, has_threads=threads) for threads in (base, head)]
    sides = [Side(name, tmp_path, {"sdpa": spec}, w) for name, w in zip(("base", "head"), workers, strict=True)]
    taking = TurnTaking(tuple(sides), Conditions("python3", tmp_path, {}, 30, 60.0))
    list(taking.pairs(select_jobs((spec,), [], ["cuda"]), 0))

    asked = [request["keeps_waits"] for worker in workers for request in worker.asked if request["op"] == "alike"]
    assert asked == [base or head] * 2


@pytest.mark.parametrize(
    ("codes", "timed", "more"),
    [
        pytest.param(("a", "a"), 3, {}, id="same-code"),
        pytest.param(("a", "a"), 5, {"time_identical": True}, id="same-code-timed-all-the-same"),
        pytest.param(("a", "b"), 5, {}, id="other-code"),
        pytest.param((None, None), 5, {}, id="code-not-known"),
    ],
)
def test_only_a_few_cases_with_identical_machine_code_are_timed(monkeypatch, tmp_path, codes, timed, more):
    monkeypatch.setattr(turns, "WARM_UP_S", {"cuda": 0.0})
    monkeypatch.setattr(turns, "STILL_WARM_S", {"cuda": 0.0})
    spec = a_spec(cases={f"s{number}": {} for number in range(5)})
    sides = tuple(
        Side(name, tmp_path, {"sdpa": spec}, WorkerOnGpu(captured=True, code=code))
        for name, code in zip(("base", "head"), codes, strict=True)
    )
    conditions = Conditions("python3", tmp_path, {}, 30, 60.0, **more)
    taking = TurnTaking(sides, conditions, skip_same=True)
    jobs = select_jobs((spec,), [], ["cuda"])
    first, second = (
        {job.case for job, found in taking.pairs(jobs, number) if isinstance(found, Pair)} for number in (0, 1)
    )

    assert len(first) == timed
    assert first == second


@pytest.mark.parametrize("source", [FAST, ALONE.replace("{error}", "MemoryError")], ids=["resident", "alternating"])
def test_a_pair_records_programs_that_were_idle_before_and_used_the_gpu_during_it(table, monkeypatch, source):
    asked = []

    def working(uuid, since_us, pids):
        del since_us
        asked.append((uuid, pids))
        return (gpu.Process(5, "python"),)

    monkeypatch.setattr(gpu, "query_state", lambda *_: gpu.State())
    monkeypatch.setattr(gpu, "query_working", working)
    monkeypatch.setattr(Conditions, "watch", lambda self, _: Watch("GPU-1", self.other_programs))  # as on a GPU
    other_programs = frozenset({5})
    ((_, pair),) = table(source, other_programs=other_programs).pairs(jobs(), 0)

    assert pair.disturbed == ("python (5), which had been idle",)
    assert set(asked) == {("GPU-1", other_programs)}


def test_only_cases_of_the_same_kernel_share_a_pair_of_processes(table, notes):
    seated = table(NOTES, kernels=("one", "two"))
    for number in (0, 1):
        assert all(isinstance(pair, Pair) for _, pair in seated.pairs(jobs("one", "two", a={}, b={}), number))

    processes = Counter((side, pid) for side, _, pid in notes())
    cases = Counter((side, case) for side, case, _ in notes())
    assert len(processes) == 8  # two sides of two kernels, twice
    assert set(processes.values()) == {2}  # both cases
    assert set(cases.values()) == {4}
    assert [case for side, case, _ in notes() if side == "base"] == ["a", "b"] * 2 + ["b", "a"] * 2


def test_the_case_after_one_that_failed_has_a_fresh_pair_of_processes(table, notes):
    found = list(table(NOTES).pairs(jobs(a={}, b={"fails": True}, c={}, d={}), 0))

    failures = [answer for _, answer in found if isinstance(answer, SideFailure)]
    assert [(failure.side, failure.failure.code) for failure in failures] == [("base", "raised")]
    for side in ("base", "head"):
        processes = {case: pid for named, case, pid in notes() if named == side}
        assert processes["a"] == processes["b"] != processes["c"] == processes["d"]


@pytest.mark.parametrize(("number", "sides"), [(0, ["base", "head"]), (1, ["head", "base"]), (2, ["base", "head"])])
def test_the_side_that_goes_first_changes_with_each_round_and_with_each_pair(table, number, sides):
    told = []
    list(table(NOTES, told=told).pairs(jobs(), number))

    took_turns = [side for side, op in told if op == "turn"]
    assert [side for side, op in told if op == "ready"] == sides
    assert took_turns == (sides + sides[::-1]) * (turns.ROUNDS // 2)


def test_the_processes_of_a_case_end_after_its_pairs_and_when_the_rest_is_not_needed(table, notes):
    seated = table(NOTES)
    list(seated.pairs(jobs(a={}, b={}), 0))
    with closing(seated.pairs(jobs(a={}, b={}), 1)) as wanted:
        next(wanted)
        assert [is_alive(pid) for _, _, pid in notes()] == [False] * 4 + [True] * 2

    assert not any(is_alive(pid) for _, _, pid in notes())


def test_a_planted_slowdown_is_exact_even_if_the_base_would_use_another_number_of_launches(table):
    slow = FAST.replace("150", "1500")  # alone it would make fewer launches than the base
    ((_, pair),) = table(FAST, slow, planted=0.035).pairs(jobs(), 0)

    assert (pair.launches % 57, pair.planted) == (0, pytest.approx(2 / 57, abs=1e-6))
    assert pair.launches > 57
