"""What git knows of the repository with the kernels; nothing here fails where there is no git."""

from pathlib import Path

from ci_perf.core.errors import MachineError
from ci_perf.edge import proc

_TIMEOUT_S = 20.0


def query_commit(root: Path) -> str | None:
    """Return the commit that is checked out, with `-dirty` where tracked files differ from it; None without git."""
    commit = _git(root, "rev-parse", "HEAD")
    if not commit:
        return None
    return f"{commit}-dirty" if _git(root, "status", "--porcelain", "--untracked-files=no") else commit


def query_user(root: Path) -> str | None:
    """Return the name that git would write into a commit, or None."""
    return _git(root, "config", "user.name")


def _git(root: Path, *arguments: str) -> str | None:
    try:
        completed = proc.run(("git", "-C", str(root), *arguments), timeout_s=_TIMEOUT_S)
    except MachineError:
        return None
    return completed.output.strip() or None if completed.status == 0 else None
