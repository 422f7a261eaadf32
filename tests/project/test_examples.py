"""The examples of real projects, and the script that measures them at two releases."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
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
