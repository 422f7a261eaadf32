"""Reads the files of a repository that may hold something to measure."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ci_perf.init.candidates import Candidate, sorted_candidates
from ci_perf.init.cuda_kernels import find_kernels
from ci_perf.init.programs import find_targets, library_of
from ci_perf.init.python_functions import find_functions

MOST_FILES = 20_000
_LARGEST_SOURCE = 1 << 20
_LARGEST_PROGRAM = 256 << 20
_SKIPPED = frozenset(
    {"node_modules", "site-packages", "__pycache__", "third_party", "vendor", "external", "_deps", "CMakeFiles"}
)
"""Folders of other people's code; hidden ones and virtual environments are skipped, too."""


@dataclass(frozen=True, slots=True)
class Files:
    """What a repository holds, as far as it matters here."""

    candidates: tuple[Candidate, ...] = ()
    packages: frozenset[str] = frozenset()
    """The folders with an `__init__.py`, relative to the root."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """The sources in which something was found, by their path relative to the root."""


def read_files(root: Path, kernels_dir: str) -> Files:
    """Search a repository, without the folder of the kernels that ci-perf measures already."""
    found: list[Candidate] = []
    packages, texts = set(), {}
    for number, file in enumerate(_files(root, kernels_dir)):
        if number >= MOST_FILES:
            break
        path = file.relative_to(root).as_posix()
        if file.name == "__init__.py":
            packages.add(path.rpartition("/")[0])
        text, candidates = _search(file, path)
        if candidates:
            texts[path] = text
            found += candidates
    return Files(tuple(sorted_candidates(found)), frozenset(packages), texts)


def _files(root: Path, kernels_dir: str) -> Iterator[Path]:
    for folder, names, files in os.walk(root):
        here = Path(folder)
        names[:] = sorted(name for name in names if not _is_foreign(here / name) and here / name != root / kernels_dir)
        yield from (here / name for name in sorted(files))


def _is_foreign(folder: Path) -> bool:
    return folder.name.startswith(".") or folder.name in _SKIPPED or (folder / "pyvenv.cfg").is_file()


def _search(file: Path, path: str) -> tuple[str, list[Candidate]]:
    """Return the text of a file, and what it holds that can be measured."""
    finders = {".py": find_functions, ".cu": find_kernels}
    try:
        if file.is_symlink() or not file.is_file():
            return "", []
        if file.suffix in finders and file.stat().st_size <= _LARGEST_SOURCE:
            text = file.read_text(encoding="utf-8", errors="replace")
            return text, finders[file.suffix](text, path)
        if file.name == "CMakeLists.txt":
            text = file.read_text(encoding="utf-8", errors="replace")
            return text, find_targets(text, path)
        if os.access(file, os.X_OK) and not file.suffix and file.stat().st_size <= _LARGEST_PROGRAM:
            kind = library_of(file.read_bytes())
            return "", [Candidate(kind, path, file.name)] if kind else []
    except OSError:
        pass
    return "", []
