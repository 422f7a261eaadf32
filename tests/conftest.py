"""Golden files: expected output of whole-program runs, beside the tests; and an interpreter for kernels."""

import difflib
import tempfile
import venv
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"
collect_ignore = ["data"]
"""Kernels of recorded runs lie there, which are no tests."""


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew; review the diff")


@pytest.fixture
def golden(request):
    """Compare a text with a file of tests/golden, and show what differs."""

    def compare(name, text):
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        expected = path.read_text(encoding="utf-8")
        if text != expected:
            lines = difflib.unified_diff(expected.splitlines(), text.splitlines(), name, "now", lineterm="")
            pytest.fail("\n".join(lines))

    return compare


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory):
    """Return an interpreter without any package: a worker starts in no time, and its kernels run on the CPU."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True)
    return str(folder / "bin" / "python")


@pytest.fixture(scope="session", autouse=True)
def temporary_files(tmp_path_factory):
    """Keep what the program puts into the system's folder for temporary files, such as locks, among the tests' own."""
    before, tempfile.tempdir = tempfile.tempdir, str(tmp_path_factory.mktemp("temporary"))
    yield
    tempfile.tempdir = before
