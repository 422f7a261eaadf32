"""Checks commits out: as a worktree of the repository, in a temporary folder or in one that is kept."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ci_perf.measure import git, proc
from ci_perf.measure.temporary import temporary_folder
from ci_perf.values.errors import MachineError


@contextmanager
def checked_out(root: Path, commit: str) -> Iterator[Path]:
    """Check a commit out into a temporary folder and yield what `root` is there; remove those of killed runs too.

    Where the commit does not have the folder, it is empty.
    """
    with temporary_folder("ci-perf-base-", lambda parent: _forget(parent / "tree")) as parent:
        tree = parent / "tree"
        with worktree(root, commit, tree):
            folder = tree / git.query_prefix(root)
            folder.mkdir(parents=True, exist_ok=True)
            yield folder


@contextmanager
def worktree(root: Path, commit: str, tree: Path, *, kept: bool = False) -> Iterator[None]:
    """Check a commit out as a worktree, so that its build finds a repository, and remove it afterwards.

    With `kept` it stays afterwards as plain files, without a link to the repository.
    """
    try:
        _check_out(root, f"the base {commit[:8]}", "worktree", "add", "--detach", "--force", str(tree), commit)
        # The submodules that are checked out in the repository itself.
        if used := [name for name in query_submodules(root) if (tree / name).is_dir()]:
            _check_out(tree, "the base's submodules", "submodule", "update", "--init", "--recursive", "--", *used)
        yield
        if kept:
            _forget(tree)
    finally:
        if (tree / ".git").exists():
            git.ask(root, "worktree", "remove", "--force", str(tree))


def query_submodules(root: Path) -> tuple[str, ...]:
    """Return the submodules that are checked out, by their paths from the top of the repository."""
    return tuple((git.ask(root, "submodule", "foreach", "--quiet", 'echo "$sm_path"') or "").splitlines())


def _check_out(folder: Path, what: str, *arguments: str) -> None:
    """Run a git command that checks something out, without hooks; MachineError."""
    status, said = git.run(folder, *git.NO_HOOKS, *arguments, timeout_s=git.FETCH_TIMEOUT_S)
    if status != 0:
        last = (said.strip().splitlines() or [proc.signal_name(status)])[-1]
        raise MachineError(f"cannot check out {what}: {last}", hint=f"see `git {' '.join(arguments[:2])}`")


def _forget(tree: Path) -> None:
    """Make plain files of a worktree: remove the links between it and its repository, and nothing else."""
    link = tree / ".git"
    if not link.is_file():
        return
    folder = Path(link.read_text(encoding="utf-8").strip().removeprefix("gitdir: "))
    link.unlink()
    if folder.parent.name == "worktrees":
        shutil.rmtree(folder, ignore_errors=True)
