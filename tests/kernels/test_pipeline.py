"""The program in CUDA C++: its build, its arguments, its arithmetic."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.kernels.helpers import KERNELS, rng

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch")
PROGRAM = KERNELS / "pipeline"
TOOLKIT = str(Path(sysconfig.get_path("purelib")) / "nvidia/cu13")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the program once and return the cache that contains it."""
    folder = tmp_path_factory.mktemp("cache")
    done = run_program(PROGRAM, folder, "--build")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


def run_program(folder, cache, *arguments):
    """Run the program, built by the nvcc of PyPI if the machine has none."""
    argv = [sys.executable, str(folder / "run.py"), *arguments]
    # The nvcc of PyPI does not find the libraries beside it.
    environ = {"CUDA_HOME": TOOLKIT, "LIBRARY_PATH": f"{TOOLKIT}/lib", **os.environ, "CI_PERF_CACHE": str(cache)}
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)


def test_the_program_compiles_once_for_an_l4_and_an_h100_and_again_when_its_source_changes(built, tmp_path):
    (program,) = built.glob("programs/*")
    assert all(f"-gencode=arch=compute_{n},code=sm_{n}" in load_program().FLAGS for n in (89, 90))

    before = program.stat().st_mtime_ns
    run_program(PROGRAM, built, "--build")
    assert program.stat().st_mtime_ns == before

    shutil.copytree(PROGRAM, tmp_path / "pipeline")
    with (tmp_path / "pipeline/pipeline.cu").open("a") as source:
        source.write("int broken(\n")
    broken = run_program(tmp_path / "pipeline", built, "--build")
    assert broken.returncode == 3
    assert "pipeline.cu: does not compile: nvcc ended with exit status" in broken.stderr
    assert "error: " in broken.stdout
    assert list(built.glob("programs/*")) == [program]


@pytest.mark.parametrize("argument", ["--rows=0", "--rows=", "--rows=3x", "--row=3", "3"])
def test_the_program_refuses_invalid_arguments(built, argument):
    done = run_program(PROGRAM, built, argument)

    assert done.returncode == 2
    assert done.stderr.startswith(f"pipeline: {argument}: expected --rows=N")


@pytest.mark.skipif(torch.cuda.device_count() > 0, reason="there is a GPU")
def test_the_program_fails_on_a_cuda_error(built):
    done = run_program(PROGRAM, built)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("pipeline: cudaMallocHost(")


@pytest.mark.gpu
@pytest.mark.parametrize("columns", [1, 2, 3, 33, 1000])
def test_the_program_is_right_for_rows_of_any_length(built, columns):
    done = run_program(PROGRAM, built, "--rows=1024", f"--columns={columns}", "--steps=1")

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("columns", [1, 2, 3, 33, 1000])
def test_the_programs_arithmetic_meets_its_tolerance_where_values_of_a_row_are_nearly_equal(columns):
    allowed = float(re.search(r"kTolerance = (\S+);", (PROGRAM / "pipeline.cu").read_text())[1])
    drawn = torch.randint(1 << 24, (1024, columns), generator=rng()).float() * 2.0**-24
    x = drawn + (torch.arange(1024) % 7)[:, None]
    distance = x - x[:, :1]
    mean = distance.mean(1, keepdim=True)
    scale = ((distance.square().mean(1, keepdim=True) - mean.square()).clamp(min=0) + 1e-5).rsqrt()
    expected = x.double() - x.double().mean(1, keepdim=True)
    expected /= (expected.square().mean(1, keepdim=True) + 1e-5).sqrt()

    def worst(out):
        return ((out - expected).abs() / (expected.abs() + 1)).max()

    assert worst((distance - mean) * scale) < allowed / 5
    assert columns != 2 or worst((x - (x[:, :1] + mean)) * scale) > allowed, "a mean as it is loses too much"


def test_without_nvcc_the_program_says_what_it_needs(monkeypatch, capsys):
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)

    with pytest.raises(SystemExit) as ended:
        load_program().find_nvcc()

    assert ended.value.code == 3
    assert "put that of a CUDA toolkit on the PATH, or name the toolkit with CUDA_HOME" in capsys.readouterr().err


def load_program():
    spec = importlib.util.spec_from_file_location("run_pipeline", PROGRAM / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
