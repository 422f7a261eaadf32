"""A cache of compiled kernels for each test, and the compiler of this machine."""

import pytest

from ci_perf import cuda


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CI_PERF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def compiler():
    try:
        return cuda.find_compiler()
    except cuda.CompileError as error:
        pytest.skip(str(error))
