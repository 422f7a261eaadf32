"""The repository of tests that compare commits."""

import contextlib
import os
import shutil

import pytest

from ci_perf.measure import turns
from tests.measure.nap_repository import commit, git, write


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A git repository with one kernel, which tests copy."""
    folder = tmp_path_factory.mktemp("template")
    with contextlib.chdir(folder):
        git("init", "--quiet", "--initial-branch=main")
        git("config", "user.name", "a developer")
        git("config", "user.email", "developer@users.noreply.github.com")
        write("nap")
        commit("base")
    return folder


@pytest.fixture
def repository(tmp_path, tmp_path_factory, monkeypatch, bare_python, template):
    """A git repository with one kernel, whose duration a commit can change; the current folder."""
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    for name in ("WARM_UP_S", "STILL_WARM_S"):  # the kernels have a clock of their own, which needs none
        monkeypatch.setattr(turns, name, {"cpu": 0.0})
    monkeypatch.setenv("CI_PERF_PYTHON", str(bare_python))
    monkeypatch.setenv("CI_PERF_CACHE", str(tmp_path_factory.mktemp("kept-bases")))
    for name in [n for n in os.environ if n.startswith("GITHUB_") or n == "CI"]:
        monkeypatch.delenv(name)
    return tmp_path
