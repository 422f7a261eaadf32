"""compute-sanitizer: what its output means, and `ci-perf run --sanitize` as a whole with a stand-in for the tool."""

import json
import sys
from pathlib import Path

import pytest

from ci_perf import store
from ci_perf.checks import sanitizer
from ci_perf.judge.checks import defect_line
from tests.cli.test_run import SPIN
from tests.guard.test_canary import FAKES, ci_perf, machine  # noqa: F401 # a fixture
from tests.measure.test_external import H200, fake_nsys

pytestmark = pytest.mark.slow

DATA = Path(__file__).parents[1] / "data/sanitizer"


def found(name):
    findings = sanitizer.read((DATA / f"{name}.txt").read_text())
    return findings.errors, [defect_line(defect) for defect in findings.defects]


@pytest.mark.parametrize(
    ("name", "errors", "lines"),
    [
        ("clean", 0, []),
        ("racecheck-clean", 0, []),
        (
            "memcheck",
            130,
            [
                "Invalid __global__ write of size 4 bytes in scale(float *, int) at "
                "/repository/kernels/scale/scale.cu:12 by thread (33,0,0) of block (2,0,0), 2 times"
            ],
        ),
        (
            "memcheck-2022",
            2,
            [
                "Invalid __shared__ read of size 2 bytes in scale(float *, int) at "
                "/repository/kernels/scale/scale.cu:31 by thread (0,1,0) of block (0,0,0)",
                "Invalid __global__ read of size 16 bytes in _triton_kernel_0d1d2d by thread (1,0,0) of block (5,0,0)",
            ],
        ),
        (
            "racecheck",
            2,
            [
                "Race reported between Write access and Read access at sum.cu:51 in sum(int *, int *) at sum.cu:41",
                "Race reported between Read access and Write access at sum.cu:61 in sum(int *, int *) at sum.cu:60",
            ],
        ),
        (
            "initcheck",
            1,
            [
                "Uninitialized __global__ memory read of size 4 bytes in add(int *) at add.cu:41 "
                "by thread (31,0,0) of block (1,0,0)"
            ],
        ),
        (
            "synccheck",
            16,
            [
                "Barrier error detected. Invalid arguments in sum(int *, int *) at sum.cu:67 "
                "by thread (16,0,0) of block (0,0,0)"
            ],
        ),
        (
            "h100-memcheck",
            1,
            [
                "Invalid __global__ write of size 4 bytes in out_of_bounds at bad.cu:3 "
                "by thread (255,0,0) of block (3,0,0)"
            ],
        ),
        (
            "h100-racecheck",
            1,
            ["Race reported between Write access and Read access at bad.cu:9 in race at bad.cu:8"],
        ),
        (
            "h100-racecheck-cudnn",
            2,
            [
                "Race reported between Read access in cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_"
                "knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0, 2 times"
            ],
        ),
        (
            "h100-initcheck",
            1024,
            [
                "Uninitialized __global__ memory read of size 4 bytes in uninitialised at bad.cu:14 "
                "by thread (96,0,0) of block (0,0,0), 3 times"
            ],
        ),
        (
            "h100-synccheck",
            512,
            [
                "Barrier error detected. Invalid arguments in divergent at bad.cu:20 "
                "by thread (32,0,0) of block (0,0,0), 3 times"
            ],
        ),
        ("nothing-seen", None, []),
        ("device-refused", 2, []),
    ],
)
def test_there_is_one_finding_for_each_place_with_kernel_line_and_thread(name, errors, lines):
    assert found(name) == (errors, lines)


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ((DATA / "nothing-seen.txt").read_text(), "nothing-seen"),
        ((DATA / "device-refused.txt").read_text(), "device-refused"),
        ((DATA / "h100-synccheck-cudnn.txt").read_text(), "barriers-overflow"),
        ("========= Unable to find injection library libsanitizer-collection.so", "incomplete"),
        ("unrecognised option '--show-backtrace'", "bad-option"),
        ("========= Error: something new", "other"),
    ],
)
def test_the_reason_why_a_tool_checked_nothing_is_found(output, code):
    assert sanitizer.diagnose(output).code == code


@pytest.mark.parametrize("name", ["clean", "memcheck", "h100-racecheck-cudnn", "racecheck"])
def test_findings_are_no_problem_of_the_tool(name):
    assert sanitizer.diagnose((DATA / f"{name}.txt").read_text()) is None


@pytest.fixture
def sanitized(machine, tmp_path):  # noqa: F811 # the fixture
    """Return a backend that runs the program with a fake compute-sanitizer, which prints the given output."""
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(f"#!{sys.executable}\n" + (FAKES / "compute-sanitizer").read_text())
    tool.chmod(0o755)

    def run(*arguments, environ=None, **says):
        said = ",".join(f"{tool}={DATA / name}.txt" for tool, name in says.items())
        more = {"CI_PERF_COMPUTE_SANITIZER": str(tool), "SANITIZER_SAYS": said, **(environ or {})}
        return ci_perf(machine, "run", "--json", "--pass-env=SANITIZER_SAYS", *arguments, **more)

    return run


def rows(done):
    return [
        (f"{case['kernel']}/{case['case']}", case["verdict"], case["code"]) for case in json.loads(done.stdout)["cases"]
    ]


def test_each_case_is_run_under_each_tool_and_a_finding_is_a_red_row(sanitized, machine):  # noqa: F811
    done = sanitized("--sanitize", "memcheck,racecheck", memcheck="memcheck")
    run = store.read_run(machine[0] / "ci-perf-run")

    assert done.returncode == 1, done.stderr
    assert rows(done) == [(f"spin/{case}", "FAILED", "sanitizer-memcheck") for case in "ab"]
    assert "scale.cu:12 by thread (33,0,0)" in json.loads(done.stdout)["cases"][0]["sentence"]
    assert [(s.tool, s.case, s.errors) for s in run.sanitized] == [
        ("memcheck", "a", 130),
        ("memcheck", "b", 130),
        ("racecheck", "a", 0),
        ("racecheck", "b", 0),
    ]
    assert run.measurements == ()
    assert "racecheck: 2 cases clean" in json.loads(done.stdout)["headline"]


def test_a_named_case_that_is_clean_passes(sanitized):
    done = sanitized("--sanitize", "memcheck,synccheck", "spin/a")

    assert (done.returncode, rows(done)) == (0, []), done.stderr
    assert json.loads(done.stdout)["headline"] == "memcheck: 1 case clean, synccheck: 1 case clean"


def test_kernel_toml_can_exclude_a_tool_and_the_report_says_so(sanitized, machine):  # noqa: F811
    toml = machine[0] / "kernels/spin/kernel.toml"
    toml.write_text('sanitize = ["memcheck"]\n' + toml.read_text())
    done = sanitized("--sanitize", "memcheck,racecheck", "spin/a", racecheck="racecheck")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["headline"] == "memcheck: 1 case clean"
    assert "spin: not run under racecheck" in (machine[0] / "ci-perf-run/report.md").read_text()

    refused = sanitized("--sanitize", "racecheck", "spin/a")
    assert refused.returncode == 2
    assert "no case can run under --sanitize: spin: not run under racecheck" in refused.stderr


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("racecheck/c*", "key `sanitize`: `racecheck/c*`: no case matches `c*`"),
        ("racechek", "key `sanitize[0]`"),
    ],
)
def test_an_unknown_tool_or_case_is_refused(sanitized, machine, entry, message):  # noqa: F811
    toml = machine[0] / "kernels/spin/kernel.toml"
    toml.write_text(f'sanitize = ["{entry}"]\n' + toml.read_text())
    done = sanitized("--sanitize", "memcheck")

    assert done.returncode == 2
    assert message in done.stderr


def test_a_tool_that_refuses_the_device_or_saw_no_cuda_call_is_inconclusive(sanitized):
    done = sanitized("--sanitize", "racecheck,memcheck", "spin/a", racecheck="device-refused", memcheck="nothing-seen")

    assert done.returncode == 3
    assert rows(done) == [("spin/a", "INCONCLUSIVE", "sanitizer-not-checked")] * 2
    assert "refuses this device" in done.stdout


def test_a_case_that_launches_no_kernel_is_inconclusive(sanitized, tmp_path):
    torch = tmp_path / "packages/torch.py"
    torch.write_text(torch.read_text().replace('"cat": "kernel"', '"cat": "cpu_op"'))
    done = sanitized("--sanitize", "memcheck", "spin/a")

    assert (done.returncode, rows(done)) == (3, [("spin/a", "INCONCLUSIVE", "sanitizer-not-checked")])


def test_a_launch_that_raises_is_a_failed_row(sanitized, machine):  # noqa: F811
    broken = SPIN.replace("def launch(seconds):", "def launch(seconds):\n    raise RuntimeError('no such device')")
    (machine[0] / "kernels/spin/kernel.py").write_text(broken)
    done = sanitized("--sanitize", "memcheck", "spin/a")

    assert (done.returncode, rows(done)) == (1, [("spin/a", "FAILED", "sanitizer-memcheck")])
    assert "no such device" in done.stdout


PROGRAM = """command = ["{python}", "{folder}/app.py", "{n}"]
cpu_cases = ["small"]
[cases.small]
n = 1
[cases.large]
n = 2
"""


@pytest.fixture
def application(sanitized, machine, tmp_path):  # noqa: F811 # the fixture
    """Return what runs a program under the stand-in, traced by an nsys that plays a recorded capture."""
    folder = machine[0] / "kernels/app"
    folder.mkdir()
    (folder / "kernel.toml").write_text(PROGRAM)

    def run(*arguments, app="print('done')", nsys=H200, **says):
        (folder / "app.py").write_text(app)
        nsys = fake_nsys(tmp_path, nsys) if nsys else tmp_path / "gone"
        return sanitized("--sanitize", "memcheck", *arguments, environ={"CI_PERF_NSYS": str(nsys)}, **says)

    return run


def test_a_program_is_run_under_the_tool_with_all_that_it_starts(application, machine):  # noqa: F811
    done = application("app", app="import os, sys; print('n', sys.argv[1], 'in', os.getcwd())")
    (log,) = (machine[0] / "ci-perf-run/logs").glob("sanitizer-*.log")

    assert (done.returncode, rows(done)) == (0, []), done.stderr
    assert json.loads(done.stdout)["headline"] == "memcheck: 1 case clean"
    assert log.name == "sanitizer-memcheck-app.small.log"
    assert f"n 1 in {machine[0]}" in log.read_text()
    assert "--target-processes all" in log.read_text()
    named = application("app/large")
    assert json.loads(named.stdout)["headline"] == "memcheck: 1 case clean"


def test_a_finding_in_a_program_is_a_red_row_beside_those_of_kernels(application):
    done = application("app", "spin/a", memcheck="h100-memcheck")

    assert done.returncode == 1
    assert rows(done) == [(case, "FAILED", "sanitizer-memcheck") for case in ("app/small", "spin/a")]
    assert "bad.cu:3 by thread (255,0,0)" in json.loads(done.stdout)["cases"][0]["sentence"]


def test_a_program_that_fails_under_the_tool_is_a_failed_row(application):
    done = application("app", app="raise SystemExit(4)")

    assert (done.returncode, rows(done)) == (1, [("app/small", "FAILED", "sanitizer-memcheck")])
    assert "ended with exit status 4" in json.loads(done.stdout)["cases"][0]["sentence"]


@pytest.mark.parametrize(
    ("nsys", "ranges", "why"),
    [(None, "", "there is no nsys to see"), (H200, 'ranges = ["gone"]\n', "no NVTX range is called `gone`")],
)
def test_a_program_without_a_known_kernel_is_inconclusive(application, machine, nsys, ranges, why):  # noqa: F811
    (machine[0] / "kernels/app/kernel.toml").write_text(ranges + PROGRAM)
    done = application("app", nsys=nsys)

    assert (done.returncode, rows(done)) == (3, [("app/small", "INCONCLUSIVE", "sanitizer-not-checked")])
    assert why in json.loads(done.stdout)["cases"][0]["sentence"]


def test_benchmarks_are_excluded(sanitized, machine):  # noqa: F811
    (machine[0] / "kernels/bench").mkdir()
    toml = 'triton_csv = ["{output}"]\nunit = "s"\nbetter = "lower"\n[cases.a]\n'
    (machine[0] / "kernels/bench/kernel.toml").write_text(toml)
    refused = sanitized("--sanitize", "memcheck", "bench")

    assert (refused.returncode, "no case matches `bench`" in refused.stderr) == (2, True)


def test_without_the_tool_the_exit_status_is_that_of_a_machine_error(machine, tmp_path):  # noqa: F811
    done = ci_perf(machine, "run", "--sanitize", "memcheck", CI_PERF_COMPUTE_SANITIZER=str(tmp_path / "gone"))

    assert done.returncode == 3
    assert "compute-sanitizer was asked for and cannot be used" in done.stderr
    assert "CI_PERF_COMPUTE_SANITIZER" in done.stderr
