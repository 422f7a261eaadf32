"""Files that scripts/fuzz-readers found a fault with: each is refused with a sentence, or read."""

import gzip
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from lib.reader_fuzzing.seeds import reader_of

from ci_perf.values.errors import CiPerfError

ROOT = Path(__file__).parents[2]
FOUND = sorted((ROOT / "tests/data/fuzz").glob("*.packed"))


@pytest.mark.parametrize("packed", FOUND, ids=lambda path: path.name)
def test_what_the_fuzzer_found_ends_in_no_traceback(tmp_path, packed):
    file = tmp_path / packed.stem
    file.write_bytes(gzip.decompress(packed.read_bytes()))
    with suppress(CiPerfError):
        reader_of(packed.name.rpartition("-")[0])(file)


@pytest.mark.slow
def test_the_fuzzer_finds_no_fault_in_its_first_inputs_and_prints_what_became_of_them(tmp_path):
    argv = [sys.executable, ROOT / "scripts/fuzz-readers", "--inputs", "240", "--keep", tmp_path]
    done = subprocess.run(argv, capture_output=True, text=True, env={"CI_PERF_CORPUS": str(tmp_path)}, check=False)
    last = done.stdout.splitlines()[-1].split()

    assert (done.returncode, last[:2], last[-2:]) == (0, ["all", "240"], ["0", "0"]), done.stdout + done.stderr
    assert not [*tmp_path.iterdir()]
