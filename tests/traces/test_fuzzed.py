"""Files that scripts/fuzz-readers found a fault with: each is refused with a sentence, or read."""

import gzip
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from ci_perf.cli import inspection
from ci_perf.values.errors import CiPerfError
from ci_perf.values.kernel_toml import parse_kernel

ROOT = Path(__file__).parents[2]
FOUND = sorted((ROOT / "tests/data/fuzz").glob("*.packed"))


@pytest.mark.parametrize("packed", FOUND, ids=lambda path: path.name)
def test_what_the_fuzzer_found_ends_in_no_traceback(tmp_path, packed):
    content = gzip.decompress(packed.read_bytes())
    file = tmp_path / packed.stem
    file.write_bytes(content)
    with suppress(CiPerfError):
        if packed.name.startswith("kernel-toml"):
            parse_kernel(content.decode(errors="replace"), name="k", folder="kernels/k")
        else:
            inspection.read(file, {"PATH": ""})


@pytest.mark.slow
def test_the_fuzzer_finds_no_fault_in_its_first_inputs_and_prints_what_became_of_them(tmp_path):
    argv = [sys.executable, ROOT / "scripts/fuzz-readers", "--inputs", "240", "--keep", tmp_path]
    done = subprocess.run(argv, capture_output=True, text=True, env={"CI_PERF_CORPUS": str(tmp_path)}, check=False)
    last = done.stdout.splitlines()[-1].split()

    assert (done.returncode, last[:2], last[-2:]) == (0, ["all", "240"], ["0", "0"]), done.stdout + done.stderr
    assert not [*tmp_path.iterdir()]
