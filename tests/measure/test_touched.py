"""Which kernels have files of their own that differ from those of the base."""

from dataclasses import replace
from pathlib import Path

import pytest

from ci_perf.measure.base import touched_kernels
from tests.builders import a_spec
from tests.measure.nap_repository import commit, git, write

CHANGES = [
    ("more.cu", "a new file", ["nap"]),
    ("kernel.py", "an edit", ["nap"]),
    ("note.txt", None, ["nap"]),
    ("note.txt", "the same", []),
    (".triton/cache.json", "what a compiler keeps, which git ignores", []),
    ("__pycache__/kernel.pyc", "what Python keeps", []),
]


@pytest.fixture
def base(repository, tmp_path_factory):
    """The commit of a base and its tree; `nap` is the kernel that tests change."""
    write("other")
    Path("kernels/nap/note.txt").write_text("the same")
    Path(".gitignore").write_text(".triton\n")
    tree = tmp_path_factory.mktemp("base")
    found = commit("base")
    git("clone", "--quiet", str(repository), str(tree))
    return found, tree


@pytest.mark.parametrize(("file", "text", "expected"), CHANGES)
def test_a_kernel_is_touched_by_the_files_of_its_folder_that_git_does_not_ignore(
    repository, base, file, text, expected
):
    changed = Path("kernels/nap", file)
    changed.parent.mkdir(exist_ok=True)
    if text is None:
        changed.unlink()
    else:
        changed.write_text(text)

    specs = {name: replace(a_spec(name), folder=f"kernels/{name}") for name in ("nap", "other")}
    assert sorted(touched_kernels(repository, *base, tuple(specs.values()), specs)) == expected


def test_a_kernel_is_not_touched_by_a_new_name_of_its_folder(repository, base):
    Path("kernels/nap").rename("kernels/sleep")

    head = replace(a_spec("sleep"), folder="kernels/sleep")
    assert not touched_kernels(repository, *base, (head,), {"sleep": replace(head, folder="kernels/nap")})
