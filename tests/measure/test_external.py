"""Programs instead of Python entries: compiled ones, benchmarks that write files, and a stand-in for nsys.

With CI_PERF_NSYS set on a machine with a GPU, the tests of tracing use the real nsys, too.
"""

import json
import os
import shutil
import sqlite3
import subprocess
import sysconfig
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from ci_perf import store
from ci_perf.guard.guard import Guard
from ci_perf.measure import gpu, lock
from ci_perf.measure.conditions import Conditions
from ci_perf.measure.program_counters import ProgramCounters
from ci_perf.measure.program_run import Launcher
from ci_perf.measure.program_trace import KeptTraces, Traced
from ci_perf.measure.programs import Programs
from ci_perf.measure.tools import find as find_tools
from ci_perf.traces import nsys
from ci_perf.values.job import Job
from ci_perf.values.kernel import Program
from ci_perf.values.measurement import Failure, Pair, Replicate, Verification
from tests import corpus
from tests.builders import a_device, a_spec
from tests.cli.test_run import ci_perf, settle, verdicts

pytestmark = pytest.mark.slow

SPIN_C = """
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int main(int argc, char **argv) {
    double seconds = atof(argv[1]) / 1e3;
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - begin.tv_sec) + (now.tv_nsec - begin.tv_nsec) / 1e9 < seconds);
    printf("spun for %s ms, %s\\n", argv[1], argv[2]);
    return 0;
}
"""
GOOGLE = """
import json, sys
name, nanoseconds, path = sys.argv[1:]
entry = {"name": name, "run_type": "iteration", "cpu_time": 1, "time_unit": "ns", "bytes_per_second": 2e9}
entries = [{**entry, "real_time": float(nanoseconds) + i} for i in range(3)]
json.dump({"context": {}, "benchmarks": [*entries, {**entry, "name": "BM_other", "real_time": 1}]}, open(path, "w"))
"""
TRITON = """
import os, pathlib, sys
os.makedirs(sys.argv[1])
rate = float(pathlib.Path("rate").read_text())
pathlib.Path(sys.argv[1], "softmax.csv").write_text(f"N,Triton,Torch\\n256.0,{rate},7\\n512.0,{2 * rate},8\\n")
"""
SIX = ("--processes", "6", "--json")


@pytest.fixture(autouse=True)
def repository(tmp_path, monkeypatch, bare_python):
    settle(monkeypatch, tmp_path, bare_python)
    return tmp_path


def a_program(root, toml, name="prog", **files):
    folder = root / "kernels" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.toml").write_text(toml)
    for file, text in files.items():
        (folder / f"{file}.py").write_text(text)


def measured(root):
    return store.read_run(root / "ci-perf-run").measurements


@pytest.mark.skipif(not shutil.which("gcc"), reason="no C compiler")
def test_a_compiled_program_is_timed_by_the_clock_where_there_is_no_gpu_and_the_report_says_so(repository):
    (repository / "spin.c").write_text(SPIN_C)
    subprocess.run(["gcc", "-O1", "-o", "spin", "spin.c"], cwd=repository, check=True)
    a_program(
        repository,
        'command = ["./spin", "{ms}", "{{fast}}={fast} in {folder}"]\n[cases.short]\nms = 20\nfast = true\n',
    )
    done = ci_perf("run", "--processes", "3", "--json")
    report = json.loads(done.stdout)
    (case,) = measured(repository)

    assert (done.exit_code, verdicts(done)) == (0, {"prog/short": ("NEW", "no-baseline")})
    assert {note["code"]: note["message"] for note in report["notes"]}["wall-time"] == (
        "prog: timed by the clock, the whole program with its start and end, for lack of a GPU"
    )
    assert [(r.method, r.launches, r.unit) for r in case.replicates] == [("wall", 1, "s")] * 3
    assert all(r.seconds[0] >= 0.02 for r in case.replicates)
    assert (case.target, case.verification) == ("launch", Verification(0.0, 0.0, "status"))
    log = (repository / "ci-perf-run/logs/program.prog.short.txt").read_text()
    assert log.count("spun for 20 ms, {fast}=true in kernels/prog") == 4
    assert "prog/short" in ci_perf("list").stdout


def test_a_benchmark_is_run_anew_for_each_replicate_and_its_samples_are_those_of_its_file(repository):
    a_program(
        repository,
        """
        google_benchmark = ["{python}", "{folder}/bench.py", "BM_copy/{n}", "{ns}", "{output}"]
        benchmark = "BM_copy/*"
        [cases.small]
        n = 64
        ns = 1000
        """,
        bench=GOOGLE,
    )
    done = ci_perf("run", "--processes", "2", "--json")
    (case,) = measured(repository)

    assert [(r.seconds, r.method, r.better) for r in case.replicates] == [
        ((1000e-9, 1001e-9, 1002e-9), "google-benchmark", "lower")
    ] * 2
    assert json.loads((repository / "ci-perf-run/benchmarks/prog.small.json").read_text())["context"] == {}
    assert (done.exit_code, json.loads(done.stdout)["cases"][0]["n"]) == (0, 6)


NVBENCH = """
import json, pathlib, struct, sys
path, named = sys.argv[1:]
folder = pathlib.Path(path + "-bin")
folder.mkdir()
(folder / "0.bin").write_bytes(struct.pack("<3f", 1e-6, 2e-6, 3e-6))
data = [{"name": "filename", "value": str(folder / named)}, {"name": "size", "value": "3"}]
mean = {"tag": "nv/cold/time/gpu/mean", "data": [{"name": "value", "value": "2e-6"}]}
state = {"summaries": [mean, {"tag": "nv/json/bin:nv/cold/sample_times", "data": data if named != "none" else []}]}
json.dump({"meta": {}, "benchmarks": [{"name": "copy", "states": [state]}]}, open(path, "w"))
"""


def test_the_samples_of_nvbench_are_those_of_the_replicate_and_are_kept(repository):
    toml = 'nvbench = ["{python}", "{folder}/bench.py", "{output}", "{file}"]\n[cases]\na.file = "0.bin"\n'
    a_program(repository, toml + 'b.file = "1.bin"\nc.file = "none"\n', bench=NVBENCH)
    done = ci_perf("run", "--processes", "1", "--json")
    case, without, unwritten = measured(repository)

    assert [r.seconds for r in case.replicates] == [pytest.approx((1e-6, 2e-6, 3e-6))]
    assert case.methods == ("nvbench-json/samples",)
    assert (repository / "ci-perf-run/benchmarks/prog.a.json-bin/0.bin").stat().st_size == 12
    assert verdicts(done)["prog/b"] == ("FAILED", "wrong-format")
    assert without.failure.message == (
        "benchmarks/prog.b.json: names the samples results.json-bin/1.bin, which are not beside it"
    )
    assert unwritten.failure.message == "benchmarks/prog.c.json: nvbench could not write all samples"
    assert ci_perf("run", "--processes", "1").exit_code == done.exit_code  # what is there already may be a folder
    assert without.failure.detail == "let nvbench write `--jsonbin {output}`, or `--json {output}` for the mean alone"


def test_a_rate_that_falls_is_a_regression_and_one_that_rises_a_speedup(repository, monkeypatch):
    a_gpu_without_torch(repository, monkeypatch, H200)
    a_program(
        repository,
        """
        triton_csv = ["{python}", "{folder}/bench.py", "{output}"]
        benchmark = "Triton"
        unit = "GB/s"
        better = "higher"
        [cases.n256]
        N = 256
        """,
        bench=TRITON,
    )
    rate = repository / "rate"
    rate.write_text("800")
    first = ci_perf("run", *SIX)
    assert verdicts(first) == {"prog/n256": ("NEW", "no-baseline")}
    assert json.loads(first.stdout)["cases"][0]["head_byte_per_s"] == 8e11
    assert ci_perf("baseline", "accept", "ci-perf-run").exit_code == 0
    assert ci_perf("baseline", "check").stdout == "1 baseline file, 0 problems\n"

    assert verdicts(ci_perf("run", *SIX)) == {"prog/n256": ("UNCHANGED", "within-noise")}
    rate.write_text("2000")
    assert verdicts(ci_perf("run", *SIX)) == {"prog/n256": ("SPEEDUP", "faster")}
    assert "does it still do the same work" in (repository / "ci-perf-run/report.md").read_text()
    rate.write_text("400")
    slower = ci_perf("run", *SIX)
    assert (slower.exit_code, verdicts(slower)) == (1, {"prog/n256": ("REGRESSION", "slower")})

    comment = (repository / "ci-perf-run/report.md").read_text()
    assert "800\u00a0GB/s" in comment
    assert "400\u00a0GB/s" in comment
    table = (repository / "ci-perf-run/key_metrics.csv").read_text().splitlines()
    line = dict(zip(table[0].split(","), table[1].split(","), strict=True))
    assert (line["base_s"], line["base_byte_per_s"], line["head_byte_per_s"], line["ratio"]) == (
        "",
        "8e+11",
        "4e+11",
        "2",
    )
    assert "800 GB/s  400 GB/s" in ci_perf("baseline", "diff", "ci-perf-run").stdout

    planted = ci_perf("run", *SIX, "--plant-slowdown", "25%")
    assert json.loads(planted.stdout)["cases"][0]["head_byte_per_s"] == pytest.approx(3.2e11)


TABLES = """
import pathlib, sys
for plot, rate in (("fp16", 2.0), ("fp8", 3.0)):
    text = f"dtype,N,Triton (GB/s)\\ntorch.bfloat16,256,{rate}\\n"
    pathlib.Path(sys.argv[1], f"{plot}.csv").write_text(text)
"""


def test_triton_saves_a_table_for_each_benchmark_into_a_folder_that_exists(repository):
    toml = 'triton_csv = ["{python}", "{folder}/bench.py", "{output_folder}"]\nbetter = "higher"\n'
    toml += 'benchmark = "{plot}/Triton"\n[defaults]\nN = 256\ndtype = "torch.bfloat16"\n'
    a_program(repository, toml + '[cases]\na.plot = "fp8"\nb.plot = "*"\n', bench=TABLES)
    done = ci_perf("run", "--processes", "1", "--json")
    case, ambiguous = measured(repository)

    assert [(r.seconds, r.unit) for r in case.replicates] == [((3e9,), "byte/s")]
    assert (repository / "ci-perf-run/benchmarks/prog.a.fp8.csv").is_file()
    assert verdicts(done)["prog/b"] == ("FAILED", "no-benchmark")
    assert "2 benchmarks of the file fit, expected one: fp16/Triton [" in ambiguous.failure.message


def git(*arguments):
    who = ("-c", "user.name=a developer", "-c", "user.email=developer@users.noreply.github.com")
    subprocess.run(["git", *who, *arguments], capture_output=True, check=True)


@pytest.mark.parametrize(
    ("rate", "verdict"),
    [("400", ("REGRESSION", "slower")), ("1600", ("SPEEDUP", "faster")), ("800", ("UNCHANGED", "within-noise"))],
)
def test_a_program_takes_turns_with_that_of_its_base_commit(repository, monkeypatch, rate, verdict):
    for name in [name for name in os.environ if name.startswith("GITHUB_")]:
        monkeypatch.delenv(name)
    toml = 'triton_csv = ["{python}", "{folder}/bench.py", "{output}"]\nbenchmark = "Triton"\n'
    a_program(repository, f'{toml}unit = "GB/s"\nbetter = "higher"\n[cases.a]\nN = 256\n', bench=TRITON)
    (repository / "rate").write_text("800")
    git("init", "--quiet")
    git("add", "kernels", "rate")
    git("commit", "--quiet", "--message", "base")
    (repository / "rate").write_text(rate)
    done = ci_perf("run", "--against", "HEAD", "--json")
    (case,) = measured(repository)

    assert verdicts(done) == {"prog/a": verdict}
    assert {(p.base, p.head, p.method, p.unit) for p in case.pairs} == {
        ((8e11,), (float(rate) * 1e9,), "triton-csv", "byte/s")
    }
    assert json.loads(done.stdout)["cases"][0]["base_byte_per_s"] == 8e11
    assert (repository / "ci-perf-run/logs/program-base.prog.a.txt").is_file()


def test_a_program_that_fails_in_the_base_only_is_not_comparable(repository, monkeypatch):
    for name in [name for name in os.environ if name.startswith("GITHUB_")]:
        monkeypatch.delenv(name)
    a_program(repository, f"command = {PYTHON}open('rate').close()\"]\n[cases.a]\n")
    git("init", "--quiet")
    git("add", "kernels")
    git("commit", "--quiet", "--message", "base")
    (repository / "rate").write_text("1")

    assert verdicts(ci_perf("run", "--against", "HEAD", "--json")) == {"prog/a": ("NOT_COMPARABLE", "base-failed")}


def test_a_baseline_in_another_unit_is_not_comparable(repository):
    toml = 'triton_csv = ["{python}", "{folder}/bench.py", "{output}"]\nbenchmark = "Triton"\nbetter = "higher"\n'
    for unit in ("GB/s", "TFLOPS"):
        a_program(repository, f'{toml}unit = "{unit}"\n[cases.a]\nN = 256\n', bench=TRITON)
        (repository / "rate").write_text("800")
        done = ci_perf("run", *SIX)
        ci_perf("baseline", "accept", "ci-perf-run")

        assert verdicts(done) == {
            "prog/a": ("NEW", "no-baseline") if unit == "GB/s" else ("NOT_COMPARABLE", "other-unit")
        }


PYTHON = '["{python}", "-c", "'


@pytest.mark.parametrize(
    ("toml", "code", "message"),
    [
        ('command = ["./gone"]', "not-started", "cannot start `./gone`: No such file or directory; programs are start"),
        (f'command = {PYTHON}print(1); exit(3)"]', "exited", "ended with exit status 3: 1"),
        (f'command = {PYTHON}import os; os.kill(os.getpid(), 11)"]', "crashed", "ended with SIGSEGV"),
        (f'command = {PYTHON}import time; time.sleep(600)"]', "timeout", "no end within 0.1 s; the program was"),
        (f'nvbench = {PYTHON}1", "{{output}}"]', "no-output", "the program ended well and wrote nothing to {output}"),
        (
            f"nvbench = {PYTHON}import sys; open(sys.argv[1], 'w').write('hello')\", \"{{output}}\"]",
            "wrong-format",
            "benchmarks/prog.a.json: not a benchmark's results: it looks like text",
        ),
        (
            'nvbench = ["{python}", "{folder}/bench.py", "BM", "7", "{output}"]',
            "wrong-format",
            "kernel.toml says `nvbench`, but the program wrote google-benchmark",
        ),
        (
            'google_benchmark = ["{python}", "{folder}/bench.py", "BM", "7", "{output}"]',
            "no-benchmark",
            "2 benchmarks of the file fit, expected one: BM real_time; BM_other real_time; tell them apart by the key",
        ),
        (
            'google_benchmark = ["{python}", "{folder}/bench.py", "BM", "7", "{output}"]\nbenchmark = "BN"',
            "no-benchmark",
            "no `real_time` of a benchmark `BN` has this case's parameters; the file holds BM real_time; BM cpu_time",
        ),
        (
            'google_benchmark = ["{python}", "{folder}/bench.py", "BM", "nan", "{output}"]\nbenchmark = "BM"',
            "skipped",
            "BM real_time: the file says nan",
        ),
        (
            'google_benchmark = ["{python}", "{folder}/bench.py", "BM", "7", "{output}"]\n'
            'benchmark = "BM"\nunit = "GB/s"',
            "wrong-format",
            "key `unit` of kernel.toml says byte/s, the file says s",
        ),
    ],
)
def test_a_program_that_goes_wrong_is_a_failed_row_with_its_reason(repository, toml, code, message):
    limit = 0.1 if code == "timeout" else 600
    a_program(repository, f"{toml}\n[cases.a]\n[policy]\ntimeout = {limit}\n", bench=GOOGLE)
    done = ci_perf("run", "--processes", "1", "--json")
    (case,) = measured(repository)

    assert (done.exit_code, verdicts(done)) == (1, {"prog/a": ("FAILED", code)})
    assert case.failure.stage == "verify"
    assert message in case.failure.message


def test_a_program_that_only_sometimes_fails_fails_while_it_is_timed(repository):
    once = "import pathlib, sys; p = pathlib.Path('ran'); n = p.exists(); p.touch(); sys.exit(n)"
    a_program(repository, f'command = {PYTHON}{once}"]\n[cases.a]\n')
    ci_perf("run", "--processes", "1")

    assert measured(repository)[0].failure.stage == "time"


def test_without_a_gpu_programs_for_gpus_are_left_out_and_the_others_run(repository):
    a_program(repository, 'command = ["./gone"]\ndevices = ["cuda"]\n[cases.a]\n', "gpu")
    a_program(repository, f'command = {PYTHON}1"]\n[cases.a]\n', "any")
    done = ci_perf("run", "--processes", "1", "--json")

    assert verdicts(done) == {"any/a": ("NEW", "no-baseline")}
    assert "gpu on cpu: the program does not run there" in done.stdout


def test_if_no_program_runs_no_useless_advice_is_given(repository):
    a_program(
        repository, 'command = ["./gone"]\ndevices = ["cuda"]\ncpu_cases = ["a"]\n[cases.a]\n[cases.b]\nn = 1\n', "gpu"
    )
    done = ci_perf("run", "--json")

    assert done.exit_code == 3
    assert json.loads(done.stdout)["next_step"] == "No case ran: see why, and choose others."
    assert "--all-cases" not in done.stdout


def test_secrets_are_not_passed_to_programs(repository, monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", "hunter2")
    a_program(repository, f'command = {PYTHON}import os; print(os.environ)"]\n[cases.a]\n')
    ci_perf("run", "--processes", "1")

    assert "hunter2" not in (repository / "ci-perf-run/logs/program.prog.a.txt").read_text()


NSYS = """#!/bin/sh
case $1 in
--version) echo "NVIDIA Nsight Systems version 2025.3.2.367-253236389321v0" ;;
profile)
    echo "$@" >>"$(dirname "$0")/calls"
    while [ "$1" != -o ]; do shift; done
    report=$2
    shift 2
    "$@"
    status=$?
    {more}
    echo "Generated: $report"
    echo a-report >"$report"
    exit $status ;;
export)
    while [ "$1" != --output ]; do shift; done
    cp "{capture}" "$2" ;;
esac
"""


def fake_nsys(folder, capture, more=""):
    """Write a fake nsys that runs the program and returns a recorded trace; it executes `more` before it reports."""
    path = folder / "nsys"
    path.write_text(NSYS.replace("{capture}", str(capture)).replace("{more}", more))
    path.chmod(0o755)
    return path


NCU = """#!/bin/sh
case $1 in
--version) echo "Version 2025.3.1.0 (build 36398880) (public-release)"; exit ;;
esac
echo "$@" >>"$(dirname "$0")/ncu-calls"
while [ "$1" != --export ]; do shift; done
report=$2
shift 4
while [ "${1#--}" != "$1" ]; do shift 2; done
"$@" || exit $?
{more}
cp "{report}" "$report"
"""
"""Runs the program that follows its options and returns a recorded report."""


def fake_ncu(folder, more=""):
    path = folder / "ncu"
    path.write_text(NCU.replace("{report}", str(H200_COUNTERS)).replace("{more}", more))
    path.chmod(0o755)
    return path


def a_counting_runner(root, more=""):
    """Return a runner whose fake nsys and ncu return recordings of the same program on an H200."""
    guard = Guard(root / "out", ())
    guard.open()
    limit_s = 0.2 if "STOP" in more else 20.0
    counters = ProgramCounters(str(fake_ncu(root, more)), conditions(root, limit_s), guard)
    return a_runner(root, fake_nsys(root, H200), counters=counters)


def a_runner(root, nsys, **changes):
    launcher = Launcher(conditions(root), root / "out")
    return Programs(launcher, nsys_path=str(nsys) if nsys else None, base_root=root / "base", **changes)


def conditions(root, timeout_s=20.0):
    return Conditions("python3", root, dict(os.environ), 30, timeout_s)


def a_job(*argv, ranges=(), kernels=(), device="cuda"):
    program = Program("command", argv or ("true",))
    spec = a_spec("app", entry="", program=program, ranges=ranges, kernels=kernels, cases={"a": {}})
    return Job(spec, "a", {}, device)


H200 = corpus.CAPTURES / "h200-nsys-2025.3.2-torch.sqlite"
H200_COUNTERS = corpus.CAPTURES / "h200-ncu-2025.3.1-min.ncu-rep"


@pytest.mark.parametrize(
    ("ranges", "kernels", "nanoseconds"),
    [
        ((), (), 1_072_667),
        (("sdpa_*",), (), 231_134),
        (("sdpa_s512", "matmul*"), (), 1_072_667),
        ((), ("nvjet",), 841_533),
    ],
)
def test_a_program_is_timed_by_the_selected_kernels_of_its_trace(tmp_path, ranges, kernels, nanoseconds):
    runner, job = a_runner(tmp_path, fake_nsys(tmp_path, H200)), a_job(ranges=ranges, kernels=kernels)
    replicate = runner.time(job, 1)

    assert replicate == Replicate((nanoseconds / 1e9,), 1, "nsys-kernel-sum", 1)
    timeline = profiled(runner).timelines[job.label]
    assert (timeline.launches, sum(k.total_ns for k in timeline.kernels)) == (1, nanoseconds)
    assert "--cuda-graph-trace=node" in (tmp_path / "calls").read_text()
    assert not list(tmp_path.rglob("*.nsys-rep"))
    assert not list(tmp_path.rglob("*.sqlite"))


def a_keeping_runner(root, nsys):
    """Return a runner that keeps the traces."""
    guard = Guard(root / "out", ())
    guard.open()
    return a_runner(root, nsys, traces=KeptTraces(guard))


def profiled(runner):
    """Return the content of the traces that timed the programs."""
    (found,) = runner.profile([], [])
    return found


def kept(root):
    return sorted(path.relative_to(root / "out").as_posix() for path in (root / "out/traces").glob("*"))


def test_the_last_trace_of_each_case_is_kept_and_of_the_base_too(tmp_path):
    runner, job = a_keeping_runner(tmp_path, fake_nsys(tmp_path, H200)), a_job()
    (tmp_path / "base").mkdir()
    runner.time(job, 0)
    ((_, pair),) = runner.pairs([job], 0)
    runner.control(job, 0)

    assert isinstance(pair, Pair)
    assert kept(tmp_path) == []
    assert profiled(runner).notes == ()
    assert kept(tmp_path) == [f"traces/app.a{side}.{kind}" for side in ("", "@base") for kind in ("nsys-rep", "sqlite")]
    assert nsys.read_timeline(tmp_path / "out/traces/app.a.sqlite").kernel_total_ns == 1_072_667
    assert [path.name for path in (tmp_path / "out.withheld").iterdir()] == [".gitignore"]


def test_the_trace_of_a_failed_case_is_kept(tmp_path):
    runner, job = a_keeping_runner(tmp_path, fake_nsys(tmp_path, H200)), a_job(kernels=("conv",))

    assert isinstance(runner.time(job, 0), Failure)
    assert dict(profiled(runner).timelines) == {}
    assert kept(tmp_path) == ["traces/app.a.nsys-rep", "traces/app.a.sqlite"]


def test_a_trace_that_cannot_be_cleaned_is_not_kept_and_the_report_says_so(tmp_path):
    (tmp_path / "broken").write_bytes(b"SQLite format 3\0" + bytes(100))
    runner = a_keeping_runner(tmp_path, fake_nsys(tmp_path, tmp_path / "broken"))
    runner.time(a_job(), 0)
    (note,) = profiled(runner).notes

    assert note.message == "nsys: app.a.sqlite is not kept: it cannot be cleaned"
    assert kept(tmp_path) == ["traces/app.a.nsys-rep"]
    assert [path.name for path in (tmp_path / "out.withheld").iterdir()] == [".gitignore"]


def test_ranges_and_kernels_may_be_selected_by_case(tmp_path):
    runner = a_runner(tmp_path, fake_nsys(tmp_path, H200))
    for phase, nanoseconds in (("sdpa", 231_134), ("matmul", 841_533)):
        job = replace(a_job(ranges=("{phase}_*",)), params={"phase": phase})

        assert runner.time(job, 0).seconds == (nanoseconds / 1e9,)


@pytest.mark.parametrize(
    ("ranges", "kernels", "filters", "registers", "nanoseconds"),
    [
        (("sdpa_*",), (), ["--nvtx-include sdpa_s512 --nvtx-include sdpa_s512/ true"], 168, 235_200),
        ((), ("NVJET",), ["--kernel-name regex:^(nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT)$ true"], 168, 877_376),
        ((), (), ["--launch-count 20 true"], 168, 235_200 + 877_376),
    ],
)
def test_the_counters_of_a_program_are_those_of_its_first_selected_kernels_in_two_runs(
    tmp_path, ranges, kernels, filters, registers, nanoseconds
):
    runner, job = a_counting_runner(tmp_path), a_job(ranges=ranges, kernels=kernels)
    runner.time(job, 0)
    (found,) = list(runner.profile([job], []))[1:]
    first, second = found.counters[job.label]

    assert first == second
    assert (first["registers_per_thread"].value, first["duration_ns"].value) == (registers, nanoseconds)
    assert [f for f in filters if f not in (tmp_path / "ncu-calls").read_text()] == []
    assert found.notes == ()
    assert (tmp_path / "out/counters/app.a.ncu-rep").is_file()
    assert "$ " in (tmp_path / "out/logs/ncu.app.a.log").read_text()


def test_a_program_that_changed_is_counted_on_both_sides_for_what_explains_it(tmp_path):
    (tmp_path / "base").mkdir()
    runner, job = a_counting_runner(tmp_path), a_job()
    runner.pairs([job], 0).__next__()
    traces, _, compared = runner.profile([job], [job])
    _, _, base, head = (tmp_path / "ncu-calls").read_text().splitlines()

    assert traces.base_profiles[job.label].timeline.kernels == traces.timelines[job.label].kernels
    assert compared.counters == {}, "what is judged stays as it was"
    assert compared.base_profiles[job.label].counters == compared.head_profiles[job.label].counters
    assert compared.base_profiles[job.label].opcodes == compared.head_profiles[job.label].opcodes != {}
    assert all("--set full" not in call and "l1tex__t_sectors_pipe" in call for call in (base, head))
    assert "app.a@explain-base.ncu-rep" in base
    assert sorted(path.name for path in (tmp_path / "out/counters").iterdir()) == [
        "app.a.ncu-rep",
        "app.a@explain-base.ncu-rep",
        "app.a@explain.ncu-rep",
    ]


@pytest.mark.parametrize("changed", [True, False])
def test_a_benchmark_that_changed_is_traced_on_both_sides(tmp_path, changed):
    (tmp_path / "base").mkdir()
    runner = a_runner(tmp_path, fake_nsys(tmp_path, H200), trace_benchmarks=True)
    job = replace(a_job(), spec=a_spec("app", entry="", program=Program("triton_csv", ("true",)), cases={"a": {}}))
    found = list(runner.profile([job], [job] if changed else []))

    assert [sorted(traces.base_profiles) for traces in found if traces.base_profiles] == [[job.label]] * changed
    assert [sorted(traces.timelines) for traces in found if traces.timelines] == [[job.label]] * changed


def a_benchmark(kind, **changes):
    spec = a_spec("app", entry="", program=Program(kind, ("true",)), cases={"a": {}}, **changes)
    return replace(a_job(), spec=spec)


def test_a_command_that_the_clock_times_is_traced_if_it_changed(tmp_path):
    (tmp_path / "base").mkdir()
    runner = a_runner(tmp_path, fake_nsys(tmp_path, H200), trace_benchmarks=True)
    job = a_job()
    job = replace(job, spec=replace(job.spec, time="wall"))
    (traces,) = (found for found in runner.profile([job], [job]) if found.timelines)

    assert (sorted(traces.base_profiles), sorted(traces.timelines)) == ([job.label], [job.label])


@pytest.mark.parametrize(
    ("kind", "more", "profiled"),
    [
        ("nvbench", "", [True, True]),
        ("nvbench", 'case "$*" in *--profile) exit 1;; esac', [True, False, True, False]),
        ("google_benchmark", "", [False, False]),
    ],
    ids=["nvbench", "an nvbench that refuses the option", "google-benchmark"],
)
def test_the_kernels_of_a_benchmark_that_changed_count_once_each(tmp_path, kind, more, profiled):
    (tmp_path / "base").mkdir()
    runner, job = a_counting_runner(tmp_path, more), a_benchmark(kind)
    _, compared = runner.profile([job], [job])
    calls = (tmp_path / "ncu-calls").read_text().splitlines()
    (launch,) = compared.head_profiles[job.label].counters

    assert [call.endswith(" --profile") for call in calls] == profiled
    assert launch["grid_size"].value == 132 + 132  # of five launches of each of two kernels


def test_the_kernels_of_a_program_without_a_trace_are_selected_after_profiling(tmp_path):
    job = a_job(ranges=("sdpa_*",))
    (found,) = a_counting_runner(tmp_path).profile([job], [])

    assert found.counters[job.label][0]["duration_ns"].value == 235_200
    assert "nvtx-include" not in (tmp_path / "ncu-calls").read_text()


@pytest.mark.parametrize(
    ("more", "kernels", "code", "message"),
    [
        ("echo '==ERROR== ERR_NVGPUCTRPERM'; exit 1", (), "ncu-no-permission", "may not read the GPU's performance"),
        ("exit 9", (), "ncu-no-report", "ncu ended with exit status 9 and wrote no report"),
        ("", ("conv",), "ncu-no-range", "the first 10 GPU kernels counts; there ran `cudnn_gen"),
        ("kill -STOP $$", (), "ncu-no-report", "ncu ran into its time limit"),
    ],
)
def test_a_note_says_why_a_program_has_no_counters(tmp_path, more, kernels, code, message):
    (found,) = a_counting_runner(tmp_path, more).profile([a_job(kernels=kernels)], [])

    assert (dict(found.counters), [note.code for note in found.notes]) == ({}, [code])
    assert message in found.notes[0].message


def test_a_note_says_that_only_some_kernels_of_a_program_were_profiled(tmp_path):
    counters = a_counting_runner(tmp_path)._counters
    (note,) = counters.run(a_job(), ("true",), Traced(count=1234)).notes

    assert note.message == "ncu: app/a: the counters are those of the first 20 of 1,234 GPU kernels that count"


def corpus_capture(name):
    return next((p.values[0] for p in corpus.files("nsys-sqlite") if p.values[0].name == name), None)


def test_a_kernel_in_two_selected_ranges_counts_once(tmp_path):
    capture = corpus_capture("gtx1650-windows-2025-3-2.sqlite")
    if capture is None:
        pytest.skip("no corpus")
    runner = a_runner(tmp_path, fake_nsys(tmp_path, capture))

    assert runner.time(a_job(ranges=("MatrixMul*", "Kernel Execution")), 0).seconds == (0.009932539,)


@pytest.mark.parametrize(
    ("capture", "ranges", "kernels", "message"),
    [
        (
            "h200",
            ("train",),
            (),
            "no NVTX range is called `train`; the trace has `sdpa_s512`, `h2d`, `h2d_pinned`, `mat",
        ),
        ("h200", ("h2d",), (), "no kernel inside `h2d` is called `*`; there ran none"),
        ("h200", (), ("conv",), "no kernel is called `conv`; there ran `"),
        ("wsl-rtx3060-2023-2-3-nokerneltable.sqlite", (), (), "192 kernels were launched but none was traced"),
        ("a100-cudagraph-2024-6-2.sqlite", (), (), "10 CUDA graphs were traced as a whole, so kernels are missing"),
    ],
)
def test_a_trace_without_a_selected_kernel_is_a_failure_and_not_a_time_of_zero(
    tmp_path, capture, ranges, kernels, message
):
    path = H200 if capture == "h200" else corpus_capture(capture)
    if path is None:
        pytest.skip("no corpus")
    failure = a_runner(tmp_path, fake_nsys(tmp_path, path)).time(a_job(ranges=ranges, kernels=kernels), 0)

    assert isinstance(failure, Failure)
    assert (failure.stage, failure.code) == ("time", "no-kernels")
    assert failure.message.startswith(message)


@pytest.mark.parametrize(
    ("more", "argv", "code", "message"),
    [
        ("", ("false",), "exited", "`false` ended with exit status 1 under nsys"),
        ("status=139", ("true",), "crashed", "`true` ended with SIGSEGV under nsys"),
        ("exit 1", ("true",), "profiler", "nsys ended with exit status 1 and wrote no report"),
        (
            "echo 'The target application returned non-zero exit code 3'",
            ("true",),
            "exited",
            "the traced program failed",
        ),
        ("echo 'unrecognised option -x'; exit 1", ("true",), "profiler", "nsys refused its command line"),
        ("echo CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED", ("true",), "profiler", "another profiler"),
        ("echo 'raw.qdstrm'; exit 0", ("true",), "profiler", "its importer is missing or broken"),
    ],
)
def test_failures_under_nsys_have_a_reason(tmp_path, more, argv, code, message):
    failure = a_runner(tmp_path, fake_nsys(tmp_path, H200, more)).time(a_job(*argv), 0)

    assert failure.code == code
    assert message in failure.message


def test_under_nsys_an_end_by_sigterm_is_a_normal_end(tmp_path):
    nsys = fake_nsys(tmp_path, H200, "status=143")

    assert a_runner(tmp_path, nsys).time(a_job(), 0).method == "nsys-kernel-sum"


def test_output_of_a_program_is_not_taken_for_an_error_of_nsys(tmp_path):
    runner = a_runner(tmp_path, fake_nsys(tmp_path, H200))

    assert runner.time(a_job("echo", "warning: unrecognized option --fast"), 0).method == "nsys-kernel-sum"


def test_a_broken_export_is_a_failure(tmp_path):
    (tmp_path / "broken").write_bytes(b"SQLite format 3\0" + bytes(100))
    failure = a_runner(tmp_path, fake_nsys(tmp_path, tmp_path / "broken")).time(a_job(), 0)

    assert failure.code == "profiler"
    assert failure.message.startswith("the trace cannot be read: ")


def test_a_note_says_that_runs_ran_different_kernels(tmp_path):
    capture = corpus_capture("rtx5060ti-2025-3-2.sqlite")
    if capture is None:
        pytest.skip("no corpus")
    runner = a_runner(tmp_path, fake_nsys(tmp_path, H200))
    runner.time(a_job(), 0)
    fake_nsys(tmp_path, capture)
    runner.time(a_job(), 0)
    (note,) = [note for note in profiled(runner).notes if note.code == "kernels-differ"]

    assert note.message.startswith("app/a: 1 of 2 runs ran other GPU kernels than the first: ")


def test_a_program_on_a_cpu_or_without_nsys_or_on_request_is_timed_by_the_clock(tmp_path):
    nsys = fake_nsys(tmp_path, H200)

    assert a_runner(tmp_path, nsys).time(a_job(device="cpu"), 0).method == "wall"
    assert a_runner(tmp_path, None).time(a_job(), 0).method == "wall"
    asked = a_job()
    asked = replace(asked, spec=replace(asked.spec, time="wall"))
    assert a_runner(tmp_path, nsys).time(asked, 0).method == "wall"
    assert a_runner(tmp_path, nsys).notes([asked]) == ()


def a_gpu_without_torch(root, monkeypatch, capture):
    device = replace(a_device(), compute_capability="9.0", sm_count=132)
    monkeypatch.setattr(lock, "FOLDER", root)  # other tests may hold the lock of a GPU of this name
    monkeypatch.setattr(gpu, "query_gpus", lambda: (gpu.Gpu(0, "GPU-1", device),))
    monkeypatch.setattr(gpu, "query_state", lambda *_: gpu.State(temperature_c=40.0))
    monkeypatch.setenv("CI_PERF_NSYS", str(fake_nsys(root, capture)))
    monkeypatch.setenv("CI_PERF_NCU", str(fake_ncu(root)))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def a_capture(path, sdpa, matmul, slower=1.0):
    """Write the trace of an H200 with other names for its two kernels, the second one slower."""
    shutil.copyfile(H200, path)
    path.chmod(0o644)
    with closing(sqlite3.connect(path)) as database, database:
        for number, name in ((23, sdpa), (24, matmul)):
            database.execute("UPDATE StringIds SET value = ? WHERE id = ?", (name, number))
        lasts = 'CAST(("end" - start) * ? AS INTEGER)'
        kernels = "CUPTI_ACTIVITY_KIND_KERNEL"
        database.execute(f'UPDATE {kernels} SET "end" = start + {lasts} WHERE demangledName = 24', (slower,))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("triton_poi_fused_add_0", "triton_poi_fused_add_1"),
        ("void <unnamed>::mm<(int)128>(T1 *)", "void (anonymous namespace)::mm<128>(T1*)"),
        ("mm<f()::{lambda(int)#1}>(T1)", "mm<f()::{lambda(int)#2}>(T1)"),
    ],
)
def test_a_renamed_kernel_is_matched_with_the_baseline(repository, monkeypatch, before, now):
    a_gpu_without_torch(repository, monkeypatch, repository / "capture")
    a_program(repository, 'command = ["true"]\n[cases.a]\n')
    a_capture(repository / "capture", "sdpa", before)
    ci_perf("run", *SIX, "--profile", "none")
    assert ci_perf("baseline", "accept", "ci-perf-run").exit_code == 0
    a_capture(repository / "capture", "sdpa", now, slower=1.5)
    done = ci_perf("run", *SIX, "--profile", "none")
    (case,) = json.loads(done.stdout)["cases"]

    assert verdicts(done) == {"prog/a": ("REGRESSION", "slower")}
    assert case["kernels_changed"] == {"renamed": [[before, now]], "added": [], "removed": []}
    assert case["sentence"].endswith(f"; GPU kernel `{now}`: 841.5 us -> 1.262 ms")
    assert [(part["names"], part["base_names"]) for part in case["parts"]] == [([now], [before]), (["sdpa"], ["sdpa"])]


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("void mm<(int)128>(T1 *)", "void mm<(int)64>(T1 *)"),
        ("reduce_0d", "reduce_1d"),
    ],
)
def test_a_replaced_kernel_is_reported_as_gone_and_new(repository, monkeypatch, before, now):
    a_gpu_without_torch(repository, monkeypatch, repository / "capture")
    a_program(repository, 'command = ["true"]\n[cases.a]\n')
    a_capture(repository / "capture", "sdpa", before)
    ci_perf("run", *SIX, "--profile", "none")
    ci_perf("baseline", "accept", "ci-perf-run")
    a_capture(repository / "capture", "sdpa", now)
    (case,) = json.loads(ci_perf("run", *SIX, "--profile", "none").stdout)["cases"]

    assert case["kernels_changed"] == {"renamed": [], "added": [now], "removed": [before]}
    assert {(*part["names"], part["base_s"] is None, part["head_s"] is None) for part in case["parts"]} == {
        ("sdpa", False, False),
        (before, False, True),
        (now, True, False),
    }


def test_kernels_whose_names_differ_only_in_a_number_are_separate_with_a_note(repository, monkeypatch):
    a_gpu_without_torch(repository, monkeypatch, repository / "capture")
    a_program(repository, 'command = ["true"]\n[cases.a]\n')
    a_capture(repository / "capture", "triton_poi_fused_add_0", "triton_poi_fused_add_1")
    done = ci_perf("run", *SIX, "--profile", "none")
    ci_perf("baseline", "accept", "ci-perf-run")
    a_capture(repository / "capture", "triton_poi_fused_add_1", "triton_poi_fused_add_2")
    (case,) = json.loads(ci_perf("run", *SIX, "--profile", "none").stdout)["cases"]

    assert "2 GPU kernels differ only in a changing part of their names" in done.stdout
    assert case["kernels_changed"]["added"] == []
    assert [len(part["names"]) for part in case["parts"]] == [2]
    assert case["parts"][0]["base_s"] == case["parts"][0]["head_s"] == pytest.approx(1_072_667e-9)


def test_the_times_of_program_and_base_are_split_by_range_and_kernel(tmp_path):
    runner, job = a_runner(tmp_path, fake_nsys(tmp_path, H200)), a_job(ranges=("sdpa_*", "matmul*"))
    (tmp_path / "base").mkdir()
    list(runner.pairs([job], 0))
    found = profiled(runner)
    parts = found.parts[job.label]

    assert [(part.kind, part.name[:12], part.count, part.seconds) for part in parts] == [
        ("range", "matmul_4096", 5, 841_533e-9),
        ("range", "sdpa_s512", 5, 231_134e-9),
        ("kernel", "nvjet_sm90_t", 5, 841_533e-9),
        ("kernel", "cudnn_genera", 5, 231_134e-9),
    ]
    assert found.base_parts == found.parts


def test_a_gpu_without_torch_is_enough_for_programs(repository, monkeypatch):
    """The whole program on a machine whose driver lists a GPU, with an nsys that plays a recorded trace."""
    a_gpu_without_torch(repository, monkeypatch, H200)
    gates = '[gates]\ntensor_active_pct = ">= 40"\nwarps_active_pct = ">= 70"\ncuda_time_pct = ">= 99"\n'
    a_program(repository, f'command = ["true"]\nranges = ["sdpa_s512"]\n[cases.a]\n{gates}')
    done = ci_perf("run", "--processes", "2", "--json")
    (case,) = measured(repository)
    gated = {
        gate["gate"].split()[0]: (gate["state"], gate["value"]) for gate in json.loads(done.stdout)["cases"][0]["gates"]
    }

    assert (done.exit_code, verdicts(done)) == (1, {"prog/a": ("NEW", "no-baseline")})
    assert gated["tensor_active_pct"] == ("KEPT", pytest.approx(40.887569))
    assert gated["warps_active_pct"] == ("BROKEN", pytest.approx(14.101370))
    assert gated["cuda_time_pct"][0] == "BROKEN"
    assert [(r.method, r.seconds) for r in case.replicates] == [("nsys-kernel-sum", (231134e-9,))] * 2
    assert case.timeline.launches == 1
    assert {k.name.split("<")[0] for k in case.timeline.kernels}
    assert "wall-time" not in done.stdout
    assert (repository / "ci-perf-run/traces/prog.a.nsys-rep").is_file()
    comment = (repository / "ci-perf-run/report.md").read_text()
    assert "231.1\u00a0us" in comment


@pytest.mark.parametrize(("profile", "asked"), [("auto", False), ("full", True)])
def test_costly_counters_without_a_gate_are_collected_only_by_a_full_profile(repository, monkeypatch, profile, asked):
    a_gpu_without_torch(repository, monkeypatch, H200)
    a_program(repository, 'command = ["true"]\nranges = ["sdpa_s512"]\n[cases.a]\n')
    ci_perf("run", "--processes", "1", "--profile", profile)
    (calls,) = repository.rglob("ncu-calls")
    (case,) = measured(repository)

    assert ("sm__throughput" in calls.read_text()) == asked
    assert ("sm_throughput_pct" in case.counters[0]) == asked


@pytest.mark.gpu
def test_the_real_nsys_traces_a_compiled_program(tmp_path):
    (tmp_path / "k.cu").write_text(
        "__global__ void k(float *x) { for (int i = 0; i < 10000; i++) x[threadIdx.x] += i; }\n"
        "int main() { float *x; cudaMalloc(&x, 4096); for (int i = 0; i < 5; i++) k<<<1, 64>>>(x);\n"
        "return cudaDeviceSynchronize(); }\n"
    )
    nvcc = shutil.which("nvcc") or Path(sysconfig.get_path("purelib"), "nvidia/cu13/bin/nvcc")
    subprocess.run([nvcc, "-o", "k", "k.cu"], cwd=tmp_path, check=True)
    runner, job = a_runner(tmp_path, find_tools("nsys", os.environ)[0].path), a_job("./k")
    replicate = runner.time(job, 0)

    assert replicate.method == "nsys-kernel-sum"
    assert profiled(runner).timelines[job.label].kernels[0].count == 5


def test_the_error_for_a_missing_program_names_its_folder(tmp_path):
    ((_, failure),) = a_runner(tmp_path, None).verify([a_job("./gone", device="cpu")])

    assert failure.message.endswith(f"programs are started in {Path(tmp_path)}")
