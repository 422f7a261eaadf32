"""scripts/setup-runner.sh on a fake host: programs that answer like the real ones, and temporary files."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.test_project import ROOT

SMI = """#!/bin/sh
case "$*" in
  *persistence_mode*) cat "$HOST/persistence" ;;
  *query-gpu=name*) echo "NVIDIA L4" ;;
  *--persistence-mode=1*) echo Enabled >"$HOST/persistence" ;;
  *) echo "| NVIDIA-SMI 580.159.03   Driver Version: 580.159.03   CUDA Version: 13.0  |" ;;
esac
"""
APT = """#!/bin/sh
echo "apt-get $*" >>"$HOST/called"
for package in "$@"; do
  case $package in
    nsight-systems-cli) cp "$HOST/bin/true" "$HOST/bin/nsys" ;;
    cuda-nsight-compute-13-0) cp "$HOST/bin/true" "$HOST/bin/ncu" ;;
  esac
done
"""


@pytest.fixture
def host(tmp_path):
    """A host with an L4 and its driver, and no other software of NVIDIA."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/params").write_text("RmProfilingAdminOnly: 1\n")
    (tmp_path / "persistence").write_text("Disabled\n")
    for name in (
        "bash",
        "cat",
        "cp",
        "dirname",
        "git",
        "grep",
        "head",
        "mkdir",
        "sed",
        "sort",
        "tr",
        "true",
    ):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    (tmp_path / "bin/python3").symlink_to(Path(sys.base_prefix) / "bin/python3")
    for name, text in (("nvidia-smi", SMI), ("apt-get", APT), ("apt-cache", "#!/bin/sh\n")):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def setup(host, *arguments):
    environ = {"PATH": str(host / "bin"), "HOST": str(host), "SETUP_RUNNER_ROOT": str(host), "HOME": os.environ["HOME"]}
    argv = [host / "bin/bash", ROOT / "scripts/setup-runner.sh", *arguments]
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)


def files(host):
    return {path: path.read_bytes() for path in host.rglob("*") if path.is_file() and not path.is_symlink()}


def words(ran, word):
    return [line.removeprefix(word).strip() for line in ran.stdout.splitlines() if line.startswith(f"{word} ")]


def test_check_says_what_is_missing_and_changes_nothing(host):
    before = files(host)

    ran = setup(host, "--check")

    assert ran.returncode == 1, ran.stderr
    assert [what.split(" (")[0] for what in words(ran, "missing")] == [
        "Nsight Systems",
        "Nsight Compute",
        "performance counters for every user",
        "persistence mode",
    ]
    assert files(host) == before


def test_what_is_missing_is_set_up_once_and_fits_the_driver(host):
    first = setup(host)
    (host / "proc/driver/nvidia/params").write_text("RmProfilingAdminOnly: 0\n")  # as after the boot that it asks for
    after = files(host)
    again = setup(host)

    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    assert words(first, "reboot")
    assert "install --yes --no-install-recommends cuda-nsight-compute-13-0" in (host / "called").read_text()
    options = (host / "etc/modprobe.d/ci-perf-counters.conf").read_text()
    assert options == "options nvidia NVreg_RestrictProfilingToAdminUsers=0\n"
    assert words(again, "setting") == words(again, "reboot") == []
    assert files(host) == after


def test_it_says_how_to_register_a_runner_that_lives_for_one_job(host):
    ran = setup(host, "--check")

    assert "./config.sh --unattended --ephemeral --labels gpu,l4 " in ran.stdout
    assert "generate-jitconfig" in ran.stdout
    assert "-f labels[]=self-hosted -f labels[]=gpu -f labels[]=l4 --jq" in ran.stdout


def test_without_a_driver_it_says_so_first(host):
    (host / "bin/nvidia-smi").unlink()

    assert words(setup(host, "--check"), "missing") == ["NVIDIA driver"]
    assert setup(host).returncode == 3
    assert "install the driver first" in setup(host).stderr
