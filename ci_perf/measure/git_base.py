"""Finds the commit that a change is compared with: a commit or branch that is named, or the base of a pull request."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from ci_perf.measure import git
from ci_perf.values.errors import ConfigError, MachineError, did_you_mean
from ci_perf.values.pull_request import claimed_number


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
    commit = git.find_commit(root, target) or _fetch(root, target) or _deepen(root, target)
    if commit is None:
        raise _no_commit(root, ref, target)
    if merged_into or (ref != "base" and not ref.startswith("merge-base:")):
        return commit
    merge_base = git.ask(root, "merge-base", "HEAD", commit)
    if merge_base is None and _deepen(root, commit):
        merge_base = git.ask(root, "merge-base", "HEAD", commit)
    if merge_base is None:
        raise MachineError(f"--against {ref}: HEAD and {target} have no common ancestor here")
    if ref == "base" and merge_base == git.find_commit(root, "HEAD"):
        raise ConfigError(
            f"--against {ref}: HEAD is part of the base {target[:8]}: nothing of the pull request is checked out",
            hint="measure in a `pull_request` workflow; `pull_request_target` checks out the base branch",
        )
    return merge_base


def _no_commit(root: Path, ref: str, target: str) -> MachineError:
    """Return why a commit that is not in this clone could not be fetched either."""
    if problem := git.query_problem(root):
        return MachineError(f"--against {ref}: {problem[0]}", hint=problem[1])
    if git.ask(root, "rev-parse", "--git-dir") is None:
        return MachineError(f"--against {ref}: {root} is not in a git repository", hint="a base is a commit of one")
    if git.find_commit(root, "HEAD") is None and git.ask(root, "rev-list", "--all", "--max-count=1") == "":
        return MachineError(f"--against {ref}: {root} has no commit yet", hint="commit the kernels first")
    return MachineError(
        f"--against {ref}: git knows no commit `{target}` here, and {_why_not_fetched(root)}",
        hint=did_you_mean(target, _names(root)) or "check out with `fetch-depth: 0`, or name a commit that exists",
    )


def _names(root: Path) -> list[str]:
    """Return the branches and tags of this clone, those of `origin` too."""
    listed = git.ask(root, "for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/remotes", "refs/tags")
    return (listed or "").splitlines()


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
    into, *merged = git.parents_of(root, merge) if merge else ("",)
    if not into or not merged:
        raise MachineError(
            f"--against base: origin has no merge commit of #{number}, so its base is not known",
            hint="resolve its conflicts, or name the base: --against merge-base:main",
        )
    if git.find_commit(root, "HEAD") not in (merge, *merged):
        raise MachineError(
            f"--against base: the checked-out commit is not the head of #{number}, which is {merged[0]}",
            hint=f"check out `ref: refs/pull/{number}/head`",
        )
    if git.find_commit(root, into) is None:
        _fetch(root, into)
    if found := git.ask(root, "merge-base", "HEAD", into):
        return found
    _deepen(root, into)
    if found := git.ask(root, "merge-base", "HEAD", into):
        return found
    raise MachineError(f"--against base: HEAD and {into} have no common ancestor here", hint="use `fetch-depth: 0`")


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
    parents = git.parents_of(root, "HEAD")
    return parents[0] if len(parents) == 2 and parents[1] == head else None


def _fetch(root: Path, name: str) -> str | None:
    if name.startswith("-"):
        return None
    name = name.removeprefix("origin/")
    known = git.find_commit(root, f"refs/remotes/origin/{name}")
    if known is not None:
        return known
    # A full clone stays one: fetched to a depth, it would lose its history.
    depth = ["--depth=1"] if git.ask(root, "rev-parse", "--is-shallow-repository") == "true" else []
    if git.ask(root, "fetch", "--no-tags", *depth, "origin", name, timeout_s=git.FETCH_TIMEOUT_S) is None:
        return None
    return git.find_commit(root, "FETCH_HEAD")


def _why_not_fetched(root: Path) -> str:
    """Say why origin gave no commit: it does not have it, cannot be reached, or denies access."""
    status, said = git.run(root, "ls-remote", "--quiet", "origin", "HEAD", timeout_s=git.FETCH_TIMEOUT_S)
    if status == 0:
        return "origin does not have it"
    if git.ask(root, "remote", "get-url", "origin") is None:
        return "there is no remote `origin` to fetch it from"
    lines = said.strip().splitlines() or ["git gave no reason"]
    fatal = next((line for line in lines if line.lower().startswith(("fatal:", "error"))), lines[-1])
    return f"origin could not be asked: {re.sub(r'//[^/@ ]*@', '//', fatal)[:300]}"


def _deepen(root: Path, name: str) -> str | None:
    """Fetch the whole history of a shallow clone and look a commit up: servers know no `HEAD~1` and no short hash."""
    if git.ask(root, "rev-parse", "--is-shallow-repository") != "true":
        return None
    git.ask(root, "fetch", "--no-tags", "--unshallow", "origin", timeout_s=git.FETCH_TIMEOUT_S)
    return git.find_commit(root, name)
