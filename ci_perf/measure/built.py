"""The base commit's tree as the setup command left it, kept from run to run: a pull request's base seldom moves.

A tree lies in the cache under the hash of what was asked for: the content of the commit, the command, the interpreter,
the variables that steer builds, the tree's own path. It counts as built while the toolchain is as the build left it:
torch may have been upgraded since, or another base been installed into the same interpreter. The head is built in
place, every time, by tools that know what is up to date.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from ci_perf.measure import git
from ci_perf.values.errors import MachineError

KEPT = 5
"""So many built trees stay, the last used ones."""


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return where built trees are kept: $CI_PERF_CACHE, else ci-perf in the XDG cache folder."""
    chosen = environ.get("CI_PERF_CACHE")
    home = Path(environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    return (Path(chosen) if chosen else home / "ci-perf") / "trees"


@contextmanager
def built_tree(
    root: Path,
    commit: str,
    depends_on: tuple[str, ...],
    environ: Mapping[str, str],
    build: Callable[[Path], None],
    toolchain: Callable[[], str],
) -> Iterator[Path]:
    """Return the folder of `root` in a commit's tree that `build` was run in once, with `depends_on` as it is now.

    It is built again where `toolchain`, a hash, is no longer what it was after the build. A build that fails or is
    killed leaves nothing that counts as built. While a tree is used it is not removed, and it is built by one run at a
    time.
    """
    cache = cache_folder(environ)
    folder = cache / _key(root, commit, depends_on)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(
            f"{folder}: built trees cannot be kept there: {error.strerror}", hint="name a folder with CI_PERF_CACHE"
        ) from None
    descriptor = os.open(folder.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        tree, complete = folder / "tree", folder / "complete"
        if not complete.is_file() or complete.read_text(encoding="utf-8").strip() != toolchain():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True, exist_ok=True)
            with git.worktree(root, commit, tree, kept=True):
                build(tree / git.query_prefix(root))
            complete.write_text(f"{toolchain()}\n", encoding="utf-8")
        os.utime(folder)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        _forget_old(cache, folder)
        yield tree / git.query_prefix(root)
    finally:
        os.close(descriptor)


def _key(root: Path, commit: str, depends_on: tuple[str, ...]) -> str:
    parts = (git.query_tree(root, commit), git.query_prefix(root), *git.query_submodules(root), *depends_on)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def _forget_old(cache: Path, current: Path) -> None:
    """Remove the trees that were not used for longest and are not used now."""
    folders = sorted((f for f in cache.iterdir() if f.is_dir()), key=lambda f: f.stat().st_mtime, reverse=True)
    for folder in folders[KEPT:]:
        if folder == current:
            continue
        lock = folder.with_suffix(".lock")
        with suppress(OSError), lock.open("ab") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
            lock.unlink()
