"""What git knows of the repository with the kernels: commits, bases, checkouts. Queries return None without git."""

import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from ci_perf.measure import proc
from ci_perf.values.errors import ConfigError, MachineError
from ci_perf.values.pull_request import claimed_number

_TIMEOUT_S = 20.0
_FETCH_TIMEOUT_S = 300.0
_PREFIX, _LOCK, _SCRATCH = "ci-perf-base-", "used", "ci-perf-index-"
_NO_MORE: Mapping[str, str] = {}
_OF_A_HOOK = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR"})
_NO_HOOKS = ("-c", "core.hooksPath=/dev/null")
"""Hooks of the repository could change what is checked out, or fail: the base is what was committed."""


def outside_hooks(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which git finds its repository by the folder it is in.

    Git sets these variables for hooks. With them a checkout of the base would overwrite the index of the commit that
    is being made, which would lose its changes.
    """
    return {name: value for name, value in environ.items() if name not in _OF_A_HOOK}


def query_commit(root: Path) -> str | None:
    """Return the commit that is checked out, with `-dirty` where tracked files differ from it; None without git."""
    commit = _git(root, "rev-parse", "HEAD")
    if not commit:
        return None
    return f"{commit}-dirty" if _git(root, "status", "--porcelain", "--untracked-files=no") else commit


def query_problem(root: Path) -> tuple[str, str] | None:
    """Return why git cannot be used for a folder, and the remedy; None where it can or there is no repository."""
    status, said = _run(root, "rev-parse", "--git-dir", timeout_s=_TIMEOUT_S)
    if status == 0 or "not a git repository" in said:
        return None
    lines = said.strip().splitlines() or [proc.signal_name(status)]
    reason = next((line for line in lines if line.startswith("fatal:")), lines[0]).removeprefix("fatal: ")
    remedy = re.search(r"git config --global --add safe\.directory .+", said)
    if remedy:
        return f"git refuses {root}: {reason}", f"another user owns it; if you trust it: `{remedy[0].strip()}`"
    return f"git cannot be used for {root}: {reason}", "install git, and see `git status` there"


def query_user(root: Path) -> str | None:
    """Return the name that git would write into a commit, or None."""
    return _git(root, "config", "user.name") or None


def query_prefix(root: Path) -> str:
    """Return where a folder lies below the top of its repository, as `sub/folder/`; empty at the top or without git."""
    return _git(root, "rev-parse", "--show-prefix") or ""


def resolve_base(root: Path, ref: str, environ: Mapping[str, str]) -> str:
    """Return the commit of a base: a commit, a branch, `merge-base:BRANCH`, or `base` in a pull request event.

    A commit that a shallow clone lacks is fetched from `origin`. MachineError, ConfigError where there is none.
    """
    merged_into = _merged_into(root, environ) if ref == "base" else None
    number = query_claimed(environ)
    if ref == "base" and number is not None and query_event_base(environ) is None:
        return _base_of(root, number)
    target = merged_into or (query_event_base(environ) if ref == "base" else ref.removeprefix("merge-base:"))
    if target is None:
        hint = "name a commit or branch: --against merge-base:main"
        raise ConfigError("--against base: this is no pull request event", hint=hint)
    commit = _commit(root, target) or _fetch(root, target) or _deepen(root, target)
    if commit is None:
        if problem := query_problem(root):
            raise MachineError(f"--against {ref}: {problem[0]}", hint=problem[1])
        if _git(root, "rev-parse", "--git-dir") is None:
            raise MachineError(f"--against {ref}: {root} is not in a git repository", hint="a base is a commit of one")
        raise MachineError(
            f"--against {ref}: git knows no commit `{target}` here, and {_why_not_fetched(root)}",
            hint="check out with `fetch-depth: 0`, or name a commit that exists",
        )
    if merged_into or (ref != "base" and not ref.startswith("merge-base:")):
        return commit
    merge_base = _git(root, "merge-base", "HEAD", commit)
    if merge_base is None and _deepen(root, commit):
        merge_base = _git(root, "merge-base", "HEAD", commit)
    if merge_base is None:
        raise MachineError(f"--against {ref}: HEAD and {target} have no common ancestor here")
    if ref == "base" and merge_base == _commit(root, "HEAD"):
        raise ConfigError(
            f"--against {ref}: HEAD is part of the base {target[:8]}: nothing of the pull request is checked out",
            hint="measure in a `pull_request` workflow; `pull_request_target` checks out the base branch",
        )
    return merge_base


def query_event_base(environ: Mapping[str, str]) -> str | None:
    """Return the base commit of the pull request or merge group that triggered this workflow run, if one did."""
    return _event_text(environ, "merge_group", "base_sha") or _event_text(environ, "pull_request", "base", "sha")


def query_claimed(environ: Mapping[str, str]) -> int | None:
    """Return the pull request that `CI_PERF_PULL_REQUEST`, a comment or a push of copy-pr-bot names."""
    named = environ.get("CI_PERF_PULL_REQUEST", "")
    if named:
        if not re.fullmatch("[1-9][0-9]{0,9}", named):
            raise ConfigError(f"environment CI_PERF_PULL_REQUEST: {named!r:.40} is not the number of a pull request")
        return int(named)
    try:
        document = json.loads(Path(environ.get("GITHUB_EVENT_PATH", "")).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return claimed_number(environ, document)


def _base_of(root: Path, number: int) -> str:
    """Return where the head of a pull request left its base branch, without a token: by GitHub's merge commit.

    GitHub keeps the head merged into the base branch as `refs/pull/N/merge`, as long as the two have no conflict.
    """
    merge = _fetch(root, f"refs/pull/{number}/merge")
    into, *merged = _parents(root, merge) if merge else ("",)
    if not into or not merged:
        raise MachineError(
            f"--against base: origin has no merge commit of #{number}, so its base is not known",
            hint="resolve its conflicts, or name the base: --against merge-base:main",
        )
    if _commit(root, "HEAD") not in (merge, *merged):
        raise MachineError(
            f"--against base: the checked-out commit is not the head of #{number}, which is {merged[0]}",
            hint=f"check out `ref: refs/pull/{number}/head`",
        )
    if _commit(root, into) is None:
        _fetch(root, into)
    if found := _git(root, "merge-base", "HEAD", into):
        return found
    _deepen(root, into)
    if found := _git(root, "merge-base", "HEAD", into):
        return found
    raise MachineError(f"--against base: HEAD and {into} have no common ancestor here", hint="use `fetch-depth: 0`")


def _parents(root: Path, commit: str) -> list[str]:
    lines = (_git(root, "cat-file", "commit", commit) or "").split("\n\n")[0].splitlines()
    return [line.removeprefix("parent ") for line in lines if line.startswith("parent ")]


def query_heads(root: Path, commit: str) -> tuple[str, ...]:
    """Return the commits that may be the head of a pull request: a commit, and what it merged if it is a merge."""
    return commit, *_parents(root, commit)[1:]


def _event_text(environ: Mapping[str, str], *keys: str) -> str | None:
    """Return a text of the event that triggered this workflow run, or None where it has no such key."""
    try:
        found = json.loads(Path(environ.get("GITHUB_EVENT_PATH", "")).read_text(encoding="utf-8"))
        for key in keys:
            found = found[key]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(found)


def _merged_into(root: Path, environ: Mapping[str, str]) -> str | None:
    """Return the commit that GitHub merged the pull request into, where its merge commit is checked out.

    The base in the event may be older, and later commits of the base branch would count as the pull request's. A
    commit names its parents even where a shallow clone lacks them.
    """
    head = _event_text(environ, "pull_request", "head", "sha")
    parents = _parents(root, "HEAD")
    return parents[0] if len(parents) == 2 and parents[1] == head else None


def _commit(root: Path, name: str) -> str | None:
    return _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")


def _fetch(root: Path, name: str) -> str | None:
    if name.startswith("-"):
        return None
    name = name.removeprefix("origin/")
    known = _commit(root, f"refs/remotes/origin/{name}")
    if known is not None:
        return known
    # A full clone stays one: fetched to a depth, it would lose its history.
    depth = ["--depth=1"] if _git(root, "rev-parse", "--is-shallow-repository") == "true" else []
    if _git(root, "fetch", "--no-tags", *depth, "origin", name, timeout_s=_FETCH_TIMEOUT_S) is None:
        return None
    return _commit(root, "FETCH_HEAD")


def _why_not_fetched(root: Path) -> str:
    """Say why origin gave no commit: it does not have it, cannot be reached, or denies access."""
    status, said = _run(root, "ls-remote", "--quiet", "origin", "HEAD", timeout_s=_FETCH_TIMEOUT_S)
    if status == 0:
        return "origin does not have it"
    lines = said.strip().splitlines() or ["git gave no reason"]
    fatal = next((line for line in lines if line.lower().startswith(("fatal:", "error"))), lines[-1])
    return f"origin could not be asked: {re.sub(r'//[^/@ ]*@', '//', fatal)[:300]}"


def _deepen(root: Path, name: str) -> str | None:
    """Fetch the whole history of a shallow clone and look a commit up: servers know no `HEAD~1` and no short hash."""
    if _git(root, "rev-parse", "--is-shallow-repository") != "true":
        return None
    _git(root, "fetch", "--no-tags", "--unshallow", "origin", timeout_s=_FETCH_TIMEOUT_S)
    return _commit(root, name)


def query_tree(root: Path, commit: str) -> str:
    """Return the hash of a commit's content: that of its tree."""
    return _git(root, "rev-parse", f"{commit}^{{tree}}") or commit


def query_changed(root: Path, commit: str, tree: Path) -> tuple[str, ...]:
    """Return the tracked files by which a folder differs from a commit, those of its submodules too.

    The folder has the whole tree of the commit as plain files. A submodule that cannot be compared counts as changed.
    """
    folder = _git(root, "rev-parse", "--absolute-git-dir")
    top = Path(_git(root, "rev-parse", "--show-toplevel") or root)
    if folder is None:
        return (".",)
    with tempfile.TemporaryDirectory(prefix=_SCRATCH) as scratch:
        index = {"GIT_INDEX_FILE": str(Path(scratch) / "index")}
        own = ("--git-dir", folder, "--work-tree", str(tree), *_NO_HOOKS, "-c", "core.fsmonitor=false")
        _run(tree, *own, "read-tree", commit, timeout_s=_TIMEOUT_S, more=index)
        diff = ("diff", "-z", "--name-only", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all", commit)
        status, said = _run(tree, *own, *diff, timeout_s=_FETCH_TIMEOUT_S, more=index)
    if status != 0:
        return (".",)
    changed = [name for name in said.split("\0") if name]
    listed = (_git(top, "ls-tree", "-r", "-z", commit) or "").split("\0")
    for line in (line for line in listed if line.startswith("160000 ")):
        what, _, name = line.partition("\t")
        if (tree / name).is_dir() and any((tree / name).iterdir()):
            here = (top / name / ".git").exists()
            inside = query_changed(top / name, what.split()[2], tree / name) if here else (".",)
            changed += [f"{name}/{file}" for file in inside]
    return tuple(changed)


@contextmanager
def checked_out(root: Path, commit: str) -> Iterator[Path]:
    """Check a commit out into a temporary folder and yield what `root` is there; also remove leftovers of killed runs.

    Where the commit does not have the folder, it is empty.
    """
    _remove_leftovers()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as parent, _marked_as_used(Path(parent)):
        tree = Path(parent) / "tree"
        with worktree(root, commit, tree):
            folder = tree / query_prefix(root)
            folder.mkdir(parents=True, exist_ok=True)
            yield folder


@contextmanager
def _marked_as_used(folder: Path) -> Iterator[None]:
    """Hold a lock in a folder; it ends with this process, however that ends."""
    descriptor = os.open(folder / "new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        (folder / "new").rename(folder / _LOCK)  # visible only once it is held
        yield
    finally:
        os.close(descriptor)


def _remove_leftovers() -> None:
    """Remove the checkouts of this user's runs that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            with (folder / _LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if (folder / "tree" / ".git").is_file():
                    _forget(folder / "tree")
                shutil.rmtree(folder, ignore_errors=True)


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
            _git(root, "worktree", "remove", "--force", str(tree))


def query_submodules(root: Path) -> tuple[str, ...]:
    """Return the submodules that are checked out, by their paths from the top of the repository."""
    return tuple((_git(root, "submodule", "foreach", "--quiet", 'echo "$sm_path"') or "").splitlines())


def _check_out(folder: Path, what: str, *arguments: str) -> None:
    """Run a git command that checks something out, without hooks; MachineError."""
    status, said = _run(folder, *_NO_HOOKS, *arguments, timeout_s=_FETCH_TIMEOUT_S)
    if status != 0:
        last = (said.strip().splitlines() or [proc.signal_name(status)])[-1]
        raise MachineError(f"cannot check out {what}: {last}", hint=f"see `git {' '.join(arguments[:2])}`")


def _forget(tree: Path) -> None:
    """Make plain files of a worktree: remove the links between it and its repository, and nothing else."""
    link = tree / ".git"
    folder = Path(link.read_text(encoding="utf-8").strip().removeprefix("gitdir: "))
    link.unlink()
    if folder.parent.name == "worktrees":
        shutil.rmtree(folder, ignore_errors=True)


def renamed_from(root: Path, commit: str) -> dict[str, str]:
    """Return the old name of each file that was renamed since a commit, by its new name; both relative to the root."""
    found = _git(root, "diff", "-z", "--name-status", "--find-renames", "--diff-filter=R", "--relative", commit) or ""
    parts = found.split("\0")  # `R100`, the old name, the new one, and so on
    return dict(zip(parts[2::3], parts[1::3], strict=False))


def _git(root: Path, *arguments: str, timeout_s: float = _TIMEOUT_S) -> str | None:
    status, output = _run(root, *arguments, timeout_s=timeout_s)
    return output.strip() if status == 0 else None


def _run(root: Path, *arguments: str, timeout_s: float, more: Mapping[str, str] = _NO_MORE) -> tuple[int, str]:
    """Return git's exit status and output; where it cannot be started or takes too long, 1 and the reason."""
    try:
        env = {**outside_hooks(os.environ), "LC_ALL": "C", **more}  # its words are read
        completed = proc.run(("git", "-C", str(root), *arguments), timeout_s=timeout_s, env=env)
    except MachineError as error:
        return 1, str(error)
    if completed.timed_out:
        return 1, f"git took longer than {timeout_s:g} s"
    return completed.status, completed.output
