"""The examples: in a repository of each, ci-perf finds a planted change, on the CPU and on a GPU where there is one.

And the script that measures a real project at two releases.
"""

import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "tests/examples"
TOOLKIT = Path(sysconfig.get_path("purelib")) / "nvidia/cu13"
"""Of PyPI: its nvcc is used if the machine has none."""


@dataclass(frozen=True)
class Change:
    """A change of one file of an example, and what ci-perf must say of it."""

    file: str
    old: str
    new: str
    verdict: str
    code: str
    needs: tuple[str, ...] = ()
    """Modules that the example imports; without them its test is skipped."""


SLOWER, WRONG, EXITED = ("REGRESSION", "slower"), ("FAILED", "wrong-output"), ("FAILED", "exited")
CHANGES = {  # by example and kernel
    "triton_package/softmax": Change(
        "src/row_ops/softmax.py", 'float("-inf")', "0.0", *WRONG, needs=("torch", "triton")
    ),
    "triton_package/softmax_rate": Change(
        "src/row_ops/softmax.py", 'float("-inf")', "0.0", *EXITED, needs=("torch", "triton", "pandas", "matplotlib")
    ),
    "torch_extension/row_norm": Change(
        "csrc/row_norm.cpp",
        "double squares = 0;",
        "double squares = 0;\n"
        "        for (int64_t c = 0; c < 20 * columns; ++c) squares += double(from[c % columns]) / 1e30;",
        *SLOWER,
        needs=("torch", "setuptools"),
    ),
    "cupy/row_norm": Change("kernels/row_norm/program.py", "(x * x).mean(", "(x * x).sum(", *EXITED, needs=("numpy",)),
    "jax/row_norm": Change("kernels/row_norm/program.py", "lax.rsqrt", "lax.sqrt", *EXITED, needs=("jax",)),
    "torchrun/all_reduce": Change(
        "kernels/all_reduce/program.py", "float(rank + 1)", "float(rank)", *EXITED, needs=("torch",)
    ),
}


@pytest.fixture
def example(tmp_path):
    """Return a function that makes a git repository of an example, with its content as the only commit."""

    def make(name):
        shutil.copytree(EXAMPLES / name, tmp_path / name)
        git(tmp_path / name, "init", "--quiet")
        commit(tmp_path / name, "base")
        return tmp_path / name

    return make


def git(folder, *arguments):
    who = ("-c", "user.name=a developer", "-c", "user.email=developer@users.noreply.github.com")
    subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, check=True)


def commit(folder, message):
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", message)


def ci_perf(folder, *arguments, device="cpu"):
    """Run the command line on a device; return its exit status, its cases and its messages."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "CI_PERF_"))}
    environ |= {"CI_PERF_PYTHON": sys.executable, "PATH": f"{Path(sys.executable).parent}:{environ['PATH']}"}
    environ |= {"CFLAGS": "-O1 -g0"}  # the headers of torch compile in two thirds of the time
    if device == "cpu":
        environ |= {"TRITON_INTERPRET": "1", "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    flags = ("--device", device, "--profile", "none", "--wait", "60", "--json")
    argv = [sys.executable, "-m", "ci_perf", "run", *flags, *arguments]
    ran = subprocess.run(argv, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert ran.stdout.startswith("{"), ran.stderr
    return ran.returncode, json.loads(ran.stdout)["cases"], ran.stderr


ON_GPU = [name for name in CHANGES if not name.startswith("torch_extension")]
"""The examples of CHANGES that use a GPU."""


@pytest.mark.parametrize(
    ("name", "device"),
    [(name, "cpu") for name in CHANGES] + [pytest.param(name, "cuda", marks=pytest.mark.gpu) for name in ON_GPU],
)
def test_an_example_is_measured_and_a_change_of_it_is_found(example, name, device):
    change = CHANGES[name]
    if lacking := [module for module in change.needs if importlib.util.find_spec(module) is None]:
        pytest.skip(f"needs {', '.join(lacking)}")
    if (name, device) == ("torchrun/all_reduce", "cuda") and importlib.import_module("torch").cuda.device_count() < 2:
        pytest.skip("needs two GPUs: NCCL gives each process its own")
    project, kernel = name.split("/")
    folder = example(project)

    status, cases, messages = ci_perf(folder, kernel, "--processes", "1", device=device)
    assert (status, {case["code"] for case in cases}) == (0, {"no-baseline"}), messages

    source = folder / change.file
    assert source.read_text().count(change.old) == 1
    source.write_text(source.read_text().replace(change.old, change.new))
    commit(folder, "head")
    status, cases, messages = ci_perf(folder, kernel, "--against", "HEAD~1", device=device)
    assert (status, {(case["verdict"], case["code"]) for case in cases}) == (1, {(change.verdict, change.code)}), (
        messages
    )


RECORDED = """
import json, sys
from importlib.metadata import distribution
name, device = {name!r}, {device}
text = distribution("cuda-bench").locate_file("cuda/bench/scripts/" + name).read_text()
document = json.loads(text)
for benchmark in document["benchmarks"]:
    benchmark["states"] = [state | {{"device": 0}} for state in benchmark["states"] if state["device"] == device]
open(sys.argv[sys.argv.index("--jsonbin") + 1], "w").write(json.dumps(document))
"""
"""Stands for the program where there is no GPU: writes what NVIDIA recorded of a benchmark of this name and these axes.

The package has two recordings, on a Quadro GV100 (device 0) and on a slower Quadro GP100 (device 1).
"""


def stand_in(folder, recorded, device):
    """Let `make` write a program that writes what was recorded."""
    (folder / "recorded.py").write_text(RECORDED.format(name=recorded, device=device))
    (folder / "stand-in").write_text(f'#!/bin/sh\nexec {sys.executable} "${{0%/*}}/../recorded.py" "$@"\n')
    (folder / "stand-in").chmod(0o755)
    (folder / "Makefile").write_text("build/copy:\n\tmkdir -p build\n\tcp stand-in build/copy\n")
    toml = folder / "kernels/copy/kernel.toml"
    toml.write_text(toml.read_text().replace('devices = ["cuda"]\n', ""))


@pytest.mark.parametrize(
    ("recorded", "device", "verdict"),
    [("test_cmp.json", 0, "UNCHANGED"), ("test_ref.json", 1, "REGRESSION")],
    ids=["the-same-gpu-again", "a-slower-gpu"],
)
def test_recorded_results_of_nvbench_are_judged(example, recorded, device, verdict):
    nvbench_folder()
    folder = example("nvbench")
    stand_in(folder, "test_ref.json", 0)
    commit(folder, "recorded")
    stand_in(folder, recorded, device)
    commit(folder, "recorded again")
    _, (full, narrow), messages = ci_perf(folder, "--against", "HEAD~1")

    assert full["verdict"] == verdict, messages
    assert (full["base_s"], narrow["base_s"]) == pytest.approx((956.2607302014941e-6, 6485.689823444072e-6))


def nvbench_folder():
    """Return the folder of nvbench in the package cuda-bench; skip where there is none."""
    try:
        return importlib.metadata.distribution("cuda-bench").locate_file("cuda/bench/cu13/nvbench")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("needs cuda-bench")


def test_the_program_of_nvbench_compiles(example):
    folder = example("nvbench")
    make(folder)

    assert b"copy_sweep_grid_shape" in (folder / "build/copy").read_bytes()


def make(folder):
    """Build with the machine's nvcc, else with that of PyPI, which does not find the libraries beside it."""
    nvbench_folder()
    nvcc = shutil.which("nvcc") or str(TOOLKIT / "bin/nvcc")
    if not Path(nvcc).is_file():
        pytest.skip("needs nvcc")
    argv = ["make", f"NVCC={nvcc}", f"PYTHON={sys.executable}"]
    environ = {"LIBRARY_PATH": str(TOOLKIT / "lib"), **os.environ}
    made = subprocess.run(argv, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr


@pytest.mark.gpu
def test_the_program_of_nvbench_is_measured_with_its_samples(example):
    folder = example("nvbench")
    make(folder)
    status, cases, messages = ci_perf(folder, "--processes", "1", device="cuda")

    assert (status, [case["code"] for case in cases]) == (0, ["no-baseline"] * 2), messages
    assert cases[0]["n"] > 1


def test_two_releases_of_a_project_are_compared(tmp_path):
    """Without a GPU the references of the kernels run instead of the package, which is empty here."""
    wheels = [tmp_path / f"liger_kernel-0.{number}.0-py3-none-any.whl" for number in (7, 8)]
    for wheel in wheels:
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("liger_kernel/ops/tvd.py", f"LigerTVDLossFunction = {wheel.name!r}\n")
    flags = "--device cpu --profile none --case-budget 1 --wait 60"
    script = [sys.executable, str(ROOT / "scripts/bench-projects"), "liger", *map(str, wheels)]

    ran = subprocess.run(
        [*script, "--flags", flags, "--kernels", "tvd", "--runs", str(tmp_path / "runs")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1].startswith("| tvd/small | ")
    assert (tmp_path / "runs/tvd.json").is_file()
