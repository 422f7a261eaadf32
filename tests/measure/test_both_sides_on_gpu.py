"""A run against a base on a real GPU: both sides are profiled, and a planted fault is named."""

import json
import os
import subprocess
import sys

import pytest

from ci_perf.measure import tools

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

SOURCE = """
extern "C" __global__ void transpose(const float* __restrict__ x, float* __restrict__ y, int n) {
    __shared__ float tile[32][33];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row = 32 * blockIdx.y, column = 32 * blockIdx.x;
    for (int i = 0; i < 32; i += 8) tile[warp + i][lane] = x[size_t(row + warp + i) * n + column + lane];
    __syncthreads();
    for (int i = 0; i < 32; i += 8) y[size_t(column + warp + i) * n + row + lane] = tile[lane][warp + i];
}
"""
"""A matrix transposed through shared memory; the 33rd column keeps the reads of a column from one bank."""
MOVED = 7
"""Lines that the last commit inserts above."""
HEAD = "\n" * MOVED + SOURCE.replace("[32][33]", "[32][32]")
"""The same without the 33rd column."""
READS = SOURCE[: SOURCE.index("tile[lane]")].count("\n") + 1
"""The line that reads a column of the tile, and stores a row of the result."""
TOLD = {
    "line": READS + MOVED,
    "base_line": READS,
    "by": "conflicts",
    "base_bytes": 4 * 4096**2,
    "head_bytes": 4 * 4096**2,
}
"""What the report says of the source line; by samples it would be another, at which warps wait for the queue."""
KERNEL = """
from pathlib import Path

import torch

from ci_perf.cuda import CudaSource

SOURCE = CudaSource(Path(__file__).with_name("transpose.cu"))


def make_inputs(rng, device, n):
    return torch.rand(n, n, generator=rng).to(device)


def launch(x):
    n = x.shape[0]
    y = torch.empty_like(x)
    SOURCE.launch("transpose", (n // 32, n // 32), 256, (x, y, n))
    return y


def reference(x):
    return x.double().t().contiguous()
"""
TOML = """entry = "kernel.py"
devices = ["cuda"]
[cases.n4096]
n = 4096
"""


@pytest.fixture
def repository(tmp_path):
    """A repository whose last commit removes the padding of the tile, and moves all lines."""
    folder = tmp_path / "kernels/transpose"
    folder.mkdir(parents=True)
    (folder / "kernel.toml").write_text(TOML)
    (folder / "kernel.py").write_text(KERNEL)
    for number, content in enumerate((SOURCE, HEAD)):
        (folder / "transpose.cu").write_text(content)
        for command in ("init -q", "add -A", f"-c user.name=me -c user.email=me@localhost commit -qm {number}"):
            subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
    return tmp_path


def test_a_planted_bank_conflict_is_named_with_the_counters_of_both_sides(repository):
    if not any(tool.complete for tool in tools.find("ncu", os.environ)):
        pytest.skip("needs an ncu that may read counters")
    command = [sys.executable, "-m", "ci_perf", "run", "--against", "HEAD~1", "--output", "out", "--json"]
    ran = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    (case,) = json.loads(ran.stdout)["cases"]
    written = {path.relative_to(repository / "out").as_posix() for path in (repository / "out").rglob("*.*")}

    assert case["verdict"] == "REGRESSION", case["sentence"]
    assert [cause["mechanism"] for cause in case["causes"]][:1] == ["bank-conflicts"], ran.stderr
    assert case["counters"]["base"]["shared_bank_conflicts"] < case["counters"]["head"]["shared_bank_conflicts"]
    assert case["timeline"]["base"]["launch_calls"] == case["timeline"]["head"]["launch_calls"] == 10
    assert {change["metric"] for change in case["counters_changed"]} >= {"shared_static_bytes"}
    assert {"explain.ncu-rep", "explain-base.ncu-rep", "timeline-base.sqlite", "sass/transpose.n4096.diff"} <= written
    assert case["line"]["file"].endswith("transpose.cu")
    assert case["line"].items() >= TOLD.items()
    assert case["line"]["base_excessive_wavefronts"] == 0 < case["line"]["head_excessive_wavefronts"]
    assert case["occupancy_limiter"]["head"]
