"""Random cases: the draws, the smaller cases in place of a failing one, and `run --fuzz` as a whole."""

import json
import sys
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci_perf import store
from ci_perf.checks.flow import MOST_TRIES, fuzz
from ci_perf.checks.random_cases import draw, fuzz_jobs, smaller
from ci_perf.judge.report import build_report
from ci_perf.userside import strides
from ci_perf.values.codec import dump_run, load_run
from ci_perf.values.errors import ConfigError, FormatError
from ci_perf.values.job import Job
from ci_perf.values.kernel import STRIDE_KINDS, FuzzRange
from ci_perf.values.kernel_toml import parse_kernel
from ci_perf.values.measurement import Failure
from ci_perf.values.reasons import Verdict
from tests.builders import a_cpu, a_run, a_spec
from tests.cli.test_run import ci_perf, repository  # noqa: F401 # a fixture for every test here
from tests.measure.test_flow import SOUND, Disk, Quiet
from tests.project.test_project import ROOT

SIZES = a_spec("k", cases={"a": {"n": 8, "m": 16, "dtype": "f16"}})


def ranged(**ranges):
    return replace(SIZES, fuzz=ranges)


ranges = st.builds(
    lambda least, more, step: FuzzRange(min=least, max=(least // step + 1) * step + more, multiple_of=step),
    st.integers(0, 5000),
    st.integers(0, 5000),
    st.integers(1, 64),
)


@given(found=ranges, seed=st.integers(0, 10**18 - 1), number=st.integers(0, 10**6))
def test_a_size_keeps_its_range_and_multiple_and_the_case_is_a_function_of_its_name(found, seed, number):
    (job,) = fuzz_jobs([ranged(n=found)], [f"k/fuzz-{seed}-{number}"], ["cpu"], seed=0, count=0)
    params = draw(ranged(n=found), seed, number)

    assert found.min <= params["n"] <= found.max
    assert params["n"] % found.multiple_of == 0
    assert (params["m"], params["dtype"]) == (16, "f16")
    assert (job.case, {**job.params, "strides": job.strides}) == (f"fuzz-{seed}-{number}", params)


@pytest.mark.parametrize(
    ("seed", "number", "n", "m", "dtype", "strides"),
    [
        (7, 0, 0, 504, "f32", "stepped"),
        (7, 1, 256, 488, "f32", "mixed"),
        (7, 2, 807, 8, "f16", "mixed"),
        (7, 3, 3, 88, "f16", "mixed"),
        (8, 0, 721, 16, "f32", "mixed"),
        (123456789, 41, 133, 128, "f16", "mixed"),
    ],
)
def test_a_name_stands_for_the_same_case_in_every_version(seed, number, n, m, dtype, strides):
    spec = ranged(
        n=FuzzRange(min=0, max=4096),
        m=FuzzRange(min=8, max=512, multiple_of=8),
        dtype=FuzzRange(values=("f16", "f32")),
    )
    assert draw(spec, seed, number) == {"n": n, "m": m, "dtype": dtype, "strides": strides}


def test_ends_neighbours_of_powers_of_two_and_odd_sizes_are_frequent():
    drawn = [draw(ranged(n=FuzzRange(min=0, max=4096)), 1, i)["n"] for i in range(400)]

    assert {0, 1, 4095, 4096} <= set(drawn)
    assert sum(n in {0, 1, 4095, 4096} for n in drawn) > 80
    assert sum(n % 2 for n in drawn) > 200
    assert sum(0 < n < 64 for n in drawn) > 60, "small sizes are as likely as large ones"


def test_every_value_of_a_list_is_drawn_and_other_seeds_give_other_cases():
    spec = ranged(dtype=FuzzRange(values=("f16", "f32")), n=FuzzRange(min=1, max=10**6))
    of = {seed: [draw(spec, seed, i) for i in range(30)] for seed in (1, 2)}

    assert {params["dtype"] for params in of[1]} == {"f16", "f32"}
    assert of[1] != of[2]


def test_every_other_case_has_inputs_that_are_not_contiguous_in_all_ways_or_as_listed():
    any_way, named = ranged(n=FuzzRange(min=1, max=9)), ranged(strides=FuzzRange(values=("padded",)))
    drawn = Counter(draw(any_way, 1, i)["strides"] for i in range(400))

    assert set(drawn) == set(STRIDE_KINDS)
    assert 160 < drawn["contiguous"] < 240
    assert min(drawn.values()) > 20
    assert {draw(named, 1, i)["strides"] for i in range(20)} == {"padded"}


def test_the_worker_knows_every_order_of_memory_that_is_drawn():
    assert {*strides.VIEWS, "mixed"} == set(STRIDE_KINDS)
    schema = json.loads((ROOT / "ci_perf/schemas/kernel.schema.json").read_text())
    _, listed = schema["properties"]["fuzz"]["properties"]["strides"]["oneOf"]
    assert tuple(listed["items"]["enum"]) == STRIDE_KINDS


def test_contiguous_inputs_are_tried_before_smaller_ones():
    job = Job(ranged(n=FuzzRange(min=1, max=64)), "fuzz-1-0", {"n": 9, "m": 16}, "cpu", strides="padded")
    first, *others = smaller(job)

    assert first == replace(job, strides="contiguous")
    assert all(candidate.params["n"] < 9 for candidate in others)


@given(found=ranges, seed=st.integers(0, 99))
def test_smaller_cases_are_smaller_and_in_range_and_finite(found, seed):
    (job,) = fuzz_jobs([ranged(n=found, m=FuzzRange(min=1, max=64))], [], ["cpu"], seed=seed, count=1)
    for candidate in smaller(job):
        assert candidate.params["m"] <= job.params["m"]
        assert found.min <= candidate.params["n"] <= job.params["n"]
        assert candidate.params["n"] % found.multiple_of == 0
    least = {"n": -(-found.min // found.multiple_of) * found.multiple_of, "m": 1}
    assert not list(smaller(replace(job, params={**job.params, **least}, strides="contiguous")))


class WrongFrom:
    """Verifies, and finds the output of every case of at least a size wrong."""

    def __init__(self, size, code="wrong-output"):
        self.size, self.code, self.asked = size, code, []

    def verify(self, jobs):
        for job in jobs:
            self.asked.append(job.params["n"])
            yield job, Failure("verify", self.code, "far off") if job.params["n"] >= self.size else SOUND

    def seconds_used(self):
        return 0.0


def fuzzed(machine, count=12):
    spec = ranged(n=FuzzRange(min=0, max=4096))
    blank = a_run(kernels=(spec,), devices=(a_cpu(),), finished=False)
    jobs = fuzz_jobs([spec], [], ["cpu"], seed=7, count=count)
    return fuzz(replace(blank, measurements=()), jobs, machine, save=Disk().save, progress=Quiet())


def test_a_failing_case_is_a_row_with_the_command_to_run_it_again_and_a_smaller_case():
    run = fuzzed(WrongFrom(100))
    report = build_report(load_run(dump_run(run), "run.json"))
    (of,) = run.fuzzed
    row = report.rows[0].finding

    assert report == build_report(run)
    assert (of.cases, len(report.rows)) == (12, len(of.failures))
    assert (row.verdict, row.code, report.exit_status) == (Verdict.FAILED, "wrong-output", 1)
    assert row.sentence.startswith("fuzz: far off; with dtype=f16, m=16, n=")
    assert f"run it again with `ci-perf run k/{of.failures[0].case}`" in row.sentence
    assert all(100 <= failure.smallest["n"] < 200 for failure in of.failures if failure.params["n"] >= 200)


def test_a_forged_device_is_refused_with_its_key():
    text = dump_run(fuzzed(WrongFrom(100))).replace('"device": "cpu"', '"device": "cuda"')
    with pytest.raises(FormatError, match=r"key `fuzzed\[0\].device`"):
        load_run(text, "run.json")


def test_the_search_for_a_smaller_case_is_bounded_and_a_hang_is_not_repeated():
    wrong, hangs = WrongFrom(100), WrongFrom(100, "timeout")
    failures = len(fuzzed(wrong).fuzzed[0].failures)
    fuzzed(hangs)

    assert len(wrong.asked) <= 12 + failures * MOST_TRIES
    assert len(hangs.asked) == 12


class FailsOtherwiseBelow(WrongFrom):
    """Verifies; every case fails, and below a size in another way."""

    def verify(self, jobs):
        for job in jobs:
            self.asked.append(job.params["n"])
            yield job, Failure("verify", "wrong-output" if job.params["n"] >= self.size else "raised", "far off")


def test_a_smaller_case_that_fails_with_another_code_is_not_taken():
    (of,) = fuzzed(FailsOtherwiseBelow(100)).fuzzed
    smallest = {failure.failure.code: failure.smallest for failure in of.failures if failure.params["n"] > 200}

    assert {failure.failure.code for failure in of.failures} == {"wrong-output", "raised"}
    assert smallest["wrong-output"]["n"] >= 100


def test_patterns_choose_kernels_or_name_one_case():
    specs = [ranged(n=FuzzRange(min=1, max=9)), a_spec("other")]
    ids = [job.id for job in fuzz_jobs(specs, ["k"], ["cpu"], seed=1, count=2)]

    assert ids == ["k/fuzz-1-0", "k/fuzz-1-1"]
    assert [job.id for job in fuzz_jobs(specs, ["k/fuzz-7-3"], ["cpu"], seed=1, count=0)] == ["k/fuzz-7-3"]
    for pattern in ("other", "k/s128", "other/fuzz-1-1"):
        with pytest.raises(ConfigError, match=r"\[fuzz\] table"):
            fuzz_jobs(specs, [pattern], ["cpu"], seed=1, count=2)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("sequence = [1]", "key `fuzz.sequence`: no case has this parameter"),
        ("n = { min = 5, max = 4 }", "key `fuzz.n`: no number lies from 5 to 4"),
        ("n = { min = 5, max = 7, multiple_of = 8 }", "key `fuzz.n`: no multiple of 8 lies from 5 to 7"),
        ("n = 3", "key `fuzz.n`"),
        ('strides = ["diagonal"]', "key `fuzz.strides"),
        ('strides = "sometimes"', "key `fuzz.strides"),
        ("strides = { min = 0, max = 3 }", "key `fuzz.strides"),
        ("n = { min = -1, max = 7 }", "key `fuzz.n"),
    ],
)
def test_a_wrong_table_is_refused_with_file_and_key(table, message):
    toml = f'entry = "kernel.py"\n[cases.a]\nn = 1\n[fuzz]\n{table}\n'
    with pytest.raises(ConfigError) as error:
        parse_kernel(toml, name="k", folder="kernels/k")
    assert message in str(error.value)
    assert str(error.value).startswith("kernels/k/kernel.toml")


def test_a_parameter_called_strides_is_refused_only_beside_a_fuzz_table():
    toml = 'entry = "kernel.py"\n[cases.a]\nstrides = 1\n'
    assert parse_kernel(toml, name="k", folder="k").cases == {"a": {"strides": 1}}
    with pytest.raises(ConfigError, match=r"key `cases.a.strides`"):
        parse_kernel(toml + "n = 1\n[fuzz]\nn = [1]\n", name="k", folder="k")


SUM = """
def make_inputs(rng, device, n):
    return [rng.random() for _ in range(n)]

def launch(values):
    return sum(values) if len(values) % 32 else 0.0

def reference(values):
    return sum(values)
"""
TOML = 'entry = "kernel.py"\ndevices = ["cpu"]\n[cases.a]\nn = 5\n[fuzz]\nn = { min = 0, max = 600 }\n'


@pytest.mark.slow
def test_fuzz_finds_the_sizes_that_a_kernel_forgets_and_runs_one_again_by_name(tmp_path):
    folder = tmp_path / "kernels/sum"
    folder.mkdir(parents=True)
    (folder / "kernel.toml").write_text(TOML)
    (folder / "kernel.py").write_text(SUM)
    done = ci_perf("run", "--fuzz", "60", "--seed", "7", "--json")
    rows = json.loads(done.stdout)["cases"]
    run = store.read_run(tmp_path / "ci-perf-run")

    assert done.exit_code == 1
    assert rows
    assert all(row["verdict"] == "FAILED" for row in rows)
    assert all(failure.params["n"] % 32 == 0 and failure.params["n"] for failure in run.fuzzed[0].failures)
    assert (run.measurements, run.fuzzed[0].cases) == ((), 60)
    for rerun in ((), ("--earlier", "ci-perf-run-1-numbers")):  # a check is done again as a whole
        again = ci_perf("run", f"sum/{rows[0]['case']}", "--json", *rerun)
        assert json.loads(again.stdout)["cases"][0]["code"] == "wrong-output"
    for command in (("baseline", "accept", "ci-perf-run"), ("merge", "ci-perf-run")):
        assert ci_perf(*command).exit_code == 2


DOUBLE = """
import torch

def make_inputs(rng, device, n):
    return {"x": torch.rand(n, 7, generator=rng)}

def launch(inputs):
    x = inputs["x"]
    LOOK
    return 2 * torch.as_strided(x, x.shape, (7, 1), x.storage_offset())  # as if its elements lay one after another

def reference(inputs):
    return 2 * inputs["x"].double()
"""
REFUSES = "if not x.is_contiguous(): raise ValueError('x must be contiguous')"


@pytest.mark.slow
def test_fuzz_finds_a_kernel_that_ignores_strides_and_accepts_one_that_may_refuse(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("CI_PERF_PYTHON", sys.executable)
    toml = TOML.replace("max = 600", "max = 9")
    for name, table, look in (
        ("ignores", "", "pass"),
        ("copies", "", "x = x.contiguous()"),
        ("refuses", 'strides = "refused"', REFUSES),
        ("raises", "", REFUSES),
    ):
        (tmp_path / "kernels" / name).mkdir(parents=True)
        (tmp_path / "kernels" / name / "kernel.toml").write_text(toml + table + "\n")
        (tmp_path / "kernels" / name / "kernel.py").write_text(DOUBLE.replace("LOOK", look))
    done = ci_perf("run", "--fuzz", "5", "--seed", "7", "--json")
    run = store.read_run(tmp_path / "ci-perf-run")
    of = {fuzzed.kernel: fuzzed for fuzzed in run.fuzzed}
    failed = {name: {(f.params["strides"], f.failure.code) for f in one.failures} for name, one in of.items()}

    assert done.exit_code == 1
    assert {name for name, kinds in failed.items() if kinds} == {"ignores", "raises"}
    assert {code for _, code in failed["ignores"]} == {"wrong-output"}
    assert {code for _, code in failed["raises"]} == {"raised"}
    assert {"padded", "stepped", "transposed"} & {kind for kind, _ in failed["ignores"]}
    assert "contiguous" not in {kind for kinds in failed.values() for kind, _ in kinds}
    assert (of["refuses"].refused > 0, of["copies"].refused) == (True, 0)
    assert f"{of['refuses'].refused} of them refused" in json.loads(done.stdout)["headline"]
    first = of["ignores"].failures[0]
    assert all((f.smallest or f.params)["strides"] == f.params["strides"] for f in of["ignores"].failures)
    again = ci_perf("run", f"ignores/{first.case}", "--json")
    assert f"strides={first.params['strides']}" in json.loads(again.stdout)["cases"][0]["sentence"]
