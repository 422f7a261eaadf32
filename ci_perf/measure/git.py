"""Runs git in the repository with the kernels, and asks it about commits. Queries return None without git."""

import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from ci_perf.measure import proc
from ci_perf.values.device import DIRTY
from ci_perf.values.errors import MachineError

_TIMEOUT_S = 20.0
FETCH_TIMEOUT_S = 300.0
_SCRATCH = "ci-perf-index-"
_NO_MORE: Mapping[str, str] = {}
_OF_A_HOOK = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR"})
NO_HOOKS = ("-c", "core.hooksPath=/dev/null")
"""Hooks of the repository could change what is checked out, or fail: the base is what was committed."""


def outside_hooks(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which git finds its repository by the folder it is in.

    Git sets these variables for hooks. With them a checkout of the base would overwrite the index of the commit that
    is being made, which would lose its changes.
    """
    return {name: value for name, value in environ.items() if name not in _OF_A_HOOK}


def query_commit(root: Path, *, besides: Path | None = None) -> str | None:
    """Return the commit that is checked out, with `-dirty` where tracked files differ from it; None without git.

    The file `besides` may differ.
    """
    commit = ask(root, "rev-parse", "HEAD")
    if not commit:
        return None
    # git refuses to exclude a file that is elsewhere: then nothing would differ.
    within = besides is not None and besides.resolve().is_relative_to(root.resolve())
    files = (".", f":(exclude){besides}") if within else ()
    return f"{commit}{DIRTY}" if ask(root, "status", "--porcelain", "--untracked-files=no", "--", *files) else commit


def query_problem(root: Path) -> tuple[str, str] | None:
    """Return why git cannot be used for a folder, and the remedy; None where it can or there is no repository.

    Git calls a `.git` that it cannot use "not a git repository", too: a damaged one, or that of a worktree whose
    repository is elsewhere, as in a container with only the worktree.
    """
    status, said = run(root, "rev-parse", "--git-dir", timeout_s=_TIMEOUT_S)
    own = next((folder for folder in (root, *root.absolute().parents) if (folder / ".git").exists()), None)
    if status == 0 or ("not a git repository" in said and own is None):
        return None
    lines = said.strip().splitlines() or [proc.signal_name(status)]
    reason = next((line for line in lines if line.startswith("fatal:")), lines[0]).removeprefix("fatal: ")
    remedy = re.search(r"git config --global --add safe\.directory .+", said)
    if remedy:
        return f"git refuses {root}: {reason}", f"another user owns it; if you trust it: `{remedy[0].strip()}`"
    if own is not None and "not a git repository" in said:
        return f"git cannot use {own / '.git'}: {reason}", _remedy_of(own / ".git")
    return f"git cannot be used for {root}: {reason}", "install git, and see `git status` there"


def _remedy_of(link: Path) -> str:
    if link.is_file():
        return "it names a folder that is not here: mount that folder too, or use a clone"
    return "it is damaged: clone the repository again, or see `git fsck`"


def query_user(root: Path) -> str | None:
    """Return the name that git would write into a commit, or None."""
    return ask(root, "config", "user.name") or None


def query_prefix(root: Path) -> str:
    """Return where a folder lies below the top of its repository, as `sub/folder/`; empty at the top or without git."""
    return ask(root, "rev-parse", "--show-prefix") or ""


def find_commit(root: Path, name: str) -> str | None:
    """Return the hash of the commit that a name stands for, or None where this clone has none."""
    return ask(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")


def parents_of(root: Path, commit: str) -> list[str]:
    """Return the parents of a commit, even where a shallow clone lacks them; none without git."""
    lines = (ask(root, "cat-file", "commit", commit) or "").split("\n\n")[0].splitlines()
    return [line.removeprefix("parent ") for line in lines if line.startswith("parent ")]


def query_first_parents(root: Path, commits: Iterable[str]) -> dict[str, str]:
    """Return the first parent of each commit that this clone knows together with its parent."""
    asked = [commit for commit in commits if re.fullmatch("[0-9a-f]{40,64}", commit)]
    found = ask(root, "rev-list", "--no-walk", "--parents", "--ignore-missing", *asked) if asked else ""
    lines = (line.split() for line in (found or "").splitlines())
    return {line[0]: line[1] for line in lines if len(line) > 1}


def query_heads(root: Path, commit: str) -> tuple[str, ...]:
    """Return the commits that may be the head of a pull request: a commit, and what it merged if it is a merge."""
    return commit, *parents_of(root, commit)[1:]


def query_tree(root: Path, commit: str) -> str:
    """Return the hash of a commit's content: that of its tree."""
    return ask(root, "rev-parse", f"{commit}^{{tree}}") or commit


def query_changed(root: Path, commit: str, tree: Path) -> tuple[str, ...]:
    """Return the tracked files by which a folder differs from a commit, those of its submodules too.

    The folder has the whole tree of the commit as plain files. A submodule that cannot be compared counts as changed.
    """
    folder = ask(root, "rev-parse", "--absolute-git-dir")
    top = Path(ask(root, "rev-parse", "--show-toplevel") or root)
    if folder is None:
        return (".",)
    with tempfile.TemporaryDirectory(prefix=_SCRATCH) as scratch:
        index = {"GIT_INDEX_FILE": str(Path(scratch) / "index")}
        own = ("--git-dir", folder, "--work-tree", str(tree), *NO_HOOKS, "-c", "core.fsmonitor=false")
        run(tree, *own, "read-tree", commit, timeout_s=_TIMEOUT_S, more=index)
        diff = ("diff", "-z", "--name-only", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all", commit)
        status, said = run(tree, *own, *diff, timeout_s=FETCH_TIMEOUT_S, more=index)
    if status != 0:
        return (".",)
    changed = [name for name in said.split("\0") if name]
    listed = (ask(top, "ls-tree", "-r", "-z", commit) or "").split("\0")
    for line in (line for line in listed if line.startswith("160000 ")):
        what, _, name = line.partition("\t")
        if (tree / name).is_dir() and any((tree / name).iterdir()):
            here = (top / name / ".git").exists()
            inside = query_changed(top / name, what.split()[2], tree / name) if here else (".",)
            changed += [f"{name}/{file}" for file in inside]
    return tuple(changed)


def query_untracked(root: Path, folders: Iterable[str]) -> tuple[str, ...]:
    """Return the files of these folders, relative to the root, that git neither tracks nor ignores."""
    patterns = ("--exclude-standard", "--exclude=__pycache__/")
    found = ask(root, "--literal-pathspecs", "ls-files", "--others", "-z", *patterns, "--", *folders) or ""
    return tuple(name for name in found.split("\0") if name)


def query_files(root: Path, folders: Iterable[str], commit: str = "") -> tuple[str, ...]:
    """Return the files of these folders, relative to the root: those of a commit, or all that git does not ignore."""
    of_commit = ("ls-tree", "-r", "-z", "--name-only", commit)
    here = ("ls-files", "--cached", "--others", "--exclude-standard", "--exclude=__pycache__/", "-z")
    found = ask(root, "--literal-pathspecs", *(of_commit if commit else here), "--", *folders) or ""
    return tuple(dict.fromkeys(name for name in found.split("\0") if name))


def renamed_from(root: Path, commit: str) -> dict[str, str]:
    """Return the old name of each file that was renamed since a commit, by its new name; both relative to the root."""
    found = ask(root, "diff", "-z", "--name-status", "--find-renames", "--diff-filter=R", "--relative", commit) or ""
    parts = found.split("\0")  # `R100`, the old name, the new one, and so on
    return dict(zip(parts[2::3], parts[1::3], strict=False))


def ask(root: Path, *arguments: str, timeout_s: float = _TIMEOUT_S) -> str | None:
    """Return what a command of git prints, without spaces around it; None where git fails."""
    status, output = run(root, *arguments, timeout_s=timeout_s)
    return output.strip() if status == 0 else None


def run(root: Path, *arguments: str, timeout_s: float, more: Mapping[str, str] = _NO_MORE) -> tuple[int, str]:
    """Return git's exit status and output; where it cannot be started or takes too long, 1 and the reason."""
    try:
        env = {**outside_hooks(os.environ), "LC_ALL": "C", **more}  # its words are read
        completed = proc.run(("git", "-C", str(root), *arguments), timeout_s=timeout_s, env=env)
    except MachineError as error:
        return 1, str(error)
    if completed.timed_out:
        return 1, f"git took longer than {timeout_s:g} s"
    return completed.status, completed.output
