"""Golden files, an interpreter for kernels, the profiles of hypothesis, and the marker `gpu`."""

import difflib
import functools
import importlib.util
import os
import tempfile
import venv
from pathlib import Path

import hypothesis
import pytest

from ci_perf.measure import lock, session

os.environ.pop("COLUMNS", None)  # pytest-xdist sets it for its workers; the width of a report depends on it
GOLDEN = Path(__file__).parent / "golden"
collect_ignore = ["data", "examples"]
"""Kernels of recorded runs and of other projects, which are no tests."""

# The suite runs the same examples each time and on a machine of any load: a test fails because of a change alone.
# `--hypothesis-profile=explore` looks for new counterexamples.
_ANY_LOAD = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("same", derandomize=True, **_ANY_LOAD)
hypothesis.settings.register_profile("explore", max_examples=2000, **_ANY_LOAD)
hypothesis.settings.register_profile("mutate", max_examples=20, derandomize=True, **_ANY_LOAD)
hypothesis.settings.load_profile("same")


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew; review the diff")


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") and not has_gpu():
        missing = pytest.fail if item.config.option.markexpr == "gpu" else pytest.skip
        missing("needs a GPU, and a torch that sees it")


@functools.cache
def has_gpu():
    """Say whether torch sees a GPU."""
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.device_count() > 0


@pytest.fixture(autouse=True)
def idle_cores(monkeypatch):
    """Let a run find idle cores, whatever else this machine does."""
    monkeypatch.setattr(session.cpu, "query_busy", lambda: None)


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
    """Keep temporary files and the locks of GPUs in a folder of this process: two runs of the tests share no lock."""
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tempfile, "tempdir", str(folder))
        patched.setattr(lock, "FOLDER", folder)
        yield
