"""`ci-perf init` in a fresh repository: the whole program, with real torch and real processes."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from ci_perf import store
from tests.project.test_project import ROOT

pytestmark = pytest.mark.slow

BIN = Path(sys.executable).parent
NORM = """
import time

import torch
from ci_perf.userside import core_wait

now = 0.0
time.perf_counter = lambda: now  # a clock that only calls move: a busy machine changes no verdict
core_wait.waited = lambda: 0.0  # nor does the time for which it waits for a core


def gated(x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    global now
    now += 1e-3 * FACTOR
    return x * torch.sigmoid(gate) * weight
"""
SOFTMAX = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(out_ptr, x_ptr, columns, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * columns + offsets, mask=offsets < columns, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + tl.program_id(0) * columns + offsets, e / tl.sum(e, axis=0), mask=offsets < columns)


def triton_softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    kernel[(x.shape[0],)](out, x, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


def mystery(x: torch.Tensor) -> torch.Tensor:
    return triton_softmax(x).cumsum(-1)


def relu(x: torch.Tensor) -> torch.Tensor:  # by its name torch.relu, which it is not
    return triton_softmax(x)
"""
SCALE = """
extern "C" __global__ void scale(const float* x, float* out, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i];
}
"""
SUMS = f"""#!{sys.executable}
import google_benchmark as benchmark


@benchmark.register
@benchmark.option.arg(512)
@benchmark.option.arg(4096)
def BM_sum(state):
    while state:
        sum(range(state.range(0)))


benchmark.main()
"""


CMAKE = """
cmake_minimum_required(VERSION 3.18)
project(bench CXX)
add_library(benchmark INTERFACE) # google-benchmark has no package for pip that a compiler could use
add_executable(sums bench.cpp)
target_link_libraries(sums PRIVATE benchmark)
"""
BENCH = r"""
#include <cstdio>
#include <cstring>
int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--benchmark_list_tests=true")) std::puts("BM_sum/8");
    if (std::strncmp(argv[i], "--benchmark_out=", 16)) continue;
    std::FILE* file = std::fopen(argv[i] + 16, "w");
    std::fputs("{\"context\": {},"
               "\"benchmarks\": [{\"name\": \"BM_sum/8\", \"run_type\": \"iteration\", \"iterations\": 9,"
               "\"real_time\": 5.0, \"cpu_time\": 5.0, \"time_unit\": \"ns\"}]}", file);
    std::fclose(file);
  }
}
"""


class Repository:
    """A user's repository without any file of ci-perf."""

    def __init__(self, root):
        self.root = root
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "CI"))}
        self.environ |= {"PATH": f"{BIN}:{os.environ['PATH']}", "CI_PERF_CACHE": str(root.parent / "cache")}
        self.environ |= {"GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "a developer"}
        self.environ |= {"GIT_CONFIG_KEY_1": "user.email", "GIT_CONFIG_VALUE_1": "dev@users.noreply.github.com"}
        root.mkdir()
        self.shell("git init --quiet --initial-branch=trunk")

    def write(self, path, text, mode=0o644):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def shell(self, command, **more):
        options = {"cwd": self.root, "env": self.environ, "capture_output": True, "text": True, **more}
        return subprocess.run(["bash", "-c", command], check=False, **options)

    def files(self):
        ours = self.root.rglob("*")
        return {path.relative_to(self.root).as_posix() for path in ours if path.is_file() and ".git/" not in str(path)}


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path / "repository")


def commands(printed):
    """Return the commands that init proposes: the indented lines."""
    return re.findall(r"^  (\S.*)$", printed[printed.index("\nNext,") :], re.MULTILINE)


def test_from_a_fresh_repository_to_the_verdict_on_a_planted_slowdown_by_the_commands_that_are_printed(repository):
    repository.write("src/ops/__init__.py", "")
    repository.write("src/ops/norm.py", NORM.replace("FACTOR", "1"))

    done = repository.shell("ci-perf init --yes")
    assert done.returncode == 0, done.stderr
    committed, compared = commands(done.stdout)
    assert repository.shell(committed).returncode == 0
    repository.write("src/ops/norm.py", NORM.replace("FACTOR", "3"))
    slower = repository.shell(compared)

    assert slower.returncode == 1, slower.stderr
    report = repository.shell("ci-perf report ci-perf-run --json").stdout
    assert re.search(r'"verdict": "REGRESSION"', report)
    assert re.search(r"\+200\.\d %", slower.stdout)
    assert repository.shell("git status --porcelain -- kernels baselines .github").stdout == ""
    kernel = (repository.root / "kernels/gated/kernel.py").read_text()
    assert '"weight": torch.randn(columns,' in kernel
    assert "branches: [trunk]" in (repository.root / ".github/workflows/perf.yml").read_text()
    assert [path.name for path in repository.root.glob("baselines/*/*")] == ["gated.json"]


def test_the_reference_of_a_triton_kernel_is_tried_in_the_interpreter_and_a_wrong_guess_is_not_written(repository):
    repository.write("softmax.py", SOFTMAX)

    known = repository.shell("ci-perf init softmax.py:triton_softmax --no-baseline --device cpu")
    wrong = repository.shell("ci-perf init softmax.py:relu --device cpu")

    assert known.returncode == 0, known.stderr
    assert "torch.softmax(x, dim=-1)" in (repository.root / "kernels/triton_softmax/kernel.py").read_text()
    assert wrong.returncode == 0, wrong.stderr
    assert "NotImplementedError" in (repository.root / "kernels/relu/kernel.py").read_text()


def test_a_file_that_cannot_be_imported_without_a_gpu_is_imported_by_launch(repository):
    device = "DEVICE = triton.runtime.driver.active.get_active_torch_device()\n"
    repository.write(
        "tutorial.py", SOFTMAX.replace("import triton.language as tl\n", f"import triton.language as tl\n{device}")
    )

    done = repository.shell("ci-perf init tutorial.py:triton_softmax --device cpu")

    assert done.returncode == 0, done.stderr
    assert (
        "def launch(inputs):\n    from tutorial import"
        in (repository.root / "kernels/triton_softmax/kernel.py").read_text()
    )


def test_what_cannot_be_guessed_is_refused_by_run_with_file_and_line_until_it_is_written(repository):
    repository.write("softmax.py", SOFTMAX)
    repository.write("norm.py", NORM.replace("FACTOR", "1"))

    done = repository.shell("ci-perf init softmax.py:mystery --device cpu")
    [command] = commands(done.stdout)
    refused = repository.shell(command)
    entry = repository.root / "kernels/mystery/kernel.py"
    line = entry.read_text().splitlines().index('    raise NotImplementedError("mystery has no reference yet")') + 1

    assert f"write `reference` in kernels/mystery/kernel.py, line {line}" in done.stdout
    assert (refused.returncode, command) == (2, "ci-perf run mystery")
    assert f"error: kernels/mystery/kernel.py:{line}: `reference` is not written yet" in refused.stderr
    repository.shell("ci-perf init norm.py:gated --no-baseline")
    other = repository.shell("ci-perf run gated --processes 1 --device cpu")
    assert other.returncode == 0, other.stderr
    entry.write_text(entry.read_text().replace("raise NotImplementedError", "return torch.relu(inputs['x'])  # "))
    assert repository.shell(f"{command} --processes 1 --device cpu").returncode == 0


def test_a_cuda_kernel_runs_at_once_and_has_no_baseline_from_a_cpu(repository):
    repository.write("csrc/scale.cu", SCALE)

    done = repository.shell("ci-perf init --yes --device cpu")

    assert done.returncode == 0, done.stderr
    assert "no baseline was written: the kernel runs on a GPU only" in done.stderr
    assert (repository.root / "kernels/scale/kernel.py").exists()
    assert not (repository.root / "baselines").exists()


def test_the_benchmarks_of_a_program_are_its_cases(repository):
    repository.write("bench/sums", SUMS, mode=0o755)

    done = repository.shell("ci-perf init --yes --device cpu")

    assert done.returncode == 0, done.stderr
    [path] = repository.root.glob("baselines/*/sums.json")
    assert set(store.read_baseline(path).cases) == {"bm_sum-512", "bm_sum-4096"}


def test_a_target_of_cmake_is_built_by_a_setup_command_for_both_commits(repository):
    if not shutil.which("cmake") or not shutil.which("c++"):
        pytest.skip("needs cmake and a C++ compiler")
    repository.write("CMakeLists.txt", CMAKE)
    repository.write("bench.cpp", BENCH)

    done = repository.shell("ci-perf init --yes --device cpu")

    assert done.returncode == 0, done.stderr
    assert "cmake --build build --target sums" in (repository.root / "ci-perf.toml").read_text()
    [path] = repository.root.glob("baselines/*/sums.json")
    assert set(store.read_baseline(path).cases) == {"bm_sum-8"}


def test_no_file_is_overwritten_and_print_writes_none(repository):
    repository.write("norm.py", NORM.replace("FACTOR", "1"))
    repository.write(".github/workflows/perf.yml", "name: mine\n")
    before = repository.files()

    printed = repository.shell("ci-perf init --print")
    unchanged = repository.files() - {path for path in repository.files() if "__pycache__" in path}
    first = repository.shell("ci-perf init --yes --no-baseline")
    second = repository.shell("ci-perf init --yes --no-baseline")

    assert "--- kernels/gated/kernel.toml ---" in printed.stdout
    assert unchanged == before
    assert "kept .github/workflows/perf.yml, which exists" in first.stderr
    assert (repository.root / ".github/workflows/perf.yml").read_text() == "name: mine\n"
    assert second.returncode == 2
    assert "error: kernels/gated exists, and init overwrites nothing" in second.stderr


def test_one_question_is_asked_on_a_terminal_where_several_things_were_found(repository):
    repository.write("softmax.py", SOFTMAX)
    repository.write("norm.py", NORM.replace("FACTOR", "1"))
    control, terminal = os.openpty()
    os.write(control, b"4\n")

    done = repository.shell("ci-perf init --print", stdin=terminal)

    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Which one is measured first?") == 1
    assert "found norm.py:gated (function of torch)" in done.stderr


def test_a_repository_without_anything_to_measure_says_what_would_be_found(repository):
    repository.write("main.py", "print('hello')\n")

    done = repository.shell("ci-perf init")

    assert done.returncode == 2
    assert "nothing was found that init can set up" in done.stderr
    assert 'extern "C"' in done.stderr


def test_the_workflow_is_that_of_the_docs_and_passes_the_checks_of_the_project(repository):
    repository.write("norm.py", NORM.replace("FACTOR", "1"))
    repository.shell("git checkout --quiet -b main; ci-perf init --yes --no-baseline")
    written = repository.root / ".github/workflows/perf.yml"
    # The tag of ci-perf stands for the commit that a user pins.
    policies = {"unpinned-uses": {"config": {"policies": {"org/ci-perf/*": "ref-pin", "*": "hash-pin"}}}}
    YAML().dump({"rules": policies}, repository.root / "zizmor.yml")

    for page in (".github/docs/on-github.md", "README.md"):
        shown = re.findall(r"^```yaml\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        assert written.read_text() == shown[0]
    for check in (
        f"zizmor --offline --quiet --persona=pedantic --config zizmor.yml {written}",
        f"check-jsonschema --builtin-schema vendor.github-workflows {written}",
    ):
        done = repository.shell(check)
        assert done.returncode == 0, done.stdout + done.stderr
