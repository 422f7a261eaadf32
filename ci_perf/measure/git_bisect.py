"""`git bisect` in a separate worktree: the user's tree, index and bisection are not touched."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ci_perf.measure import git, git_checkout
from ci_perf.values.errors import ConfigError, MachineError

_FOUND = re.compile(r"^([0-9a-f]{40,64}) is the first", re.MULTILINE)
_STEPS = re.compile(r"\(roughly (\d+) steps?\)")
_REMAIN = re.compile(r"^([0-9a-f]{40,64})$", re.MULTILINE)
GOOD, BAD, SKIP = "good", "bad", "skip"
"""What a step answers, as `git bisect` names it."""


@dataclass(frozen=True, slots=True)
class Bisection:
    """A bisection that runs in a worktree."""

    tree: Path
    """What the folder of the kernels' repository is there."""

    def find(self, good: str, bad: str, judge: Callable[[str, int], str]) -> tuple[str, ...]:
        """Return the first bad commit, or all that may be the first where skipped commits leave it open.

        `judge` gets the commit that is checked out, and about how many more commits follow it; it answers GOOD, BAD or
        SKIP. MachineError where git fails.
        """
        status, output = self._run("bisect", "start", bad, good)
        while not (found := _FOUND.search(output)):
            if "only 'skip'ped commits left" in output:
                return tuple(_REMAIN.findall(output))
            if status:
                raise MachineError(f"git bisect failed: {output.strip().splitlines()[-1]}")
            more = _STEPS.search(output)
            answer = judge(self._commit(), int(more[1]) if more else 0)
            self._run("reset", "--hard", "--quiet")  # a build may write tracked files
            status, output = self._run("bisect", answer)
        return (found[1],)

    def check_out(self, commit: str) -> None:
        """Check out a commit; files that git does not track stay. MachineError."""
        status, output = self._run("checkout", "--force", "--quiet", "--detach", commit)
        if status:
            raise MachineError(f"{commit[:8]} cannot be checked out: {output.strip()[-200:]}")

    def _commit(self) -> str:
        return self._run("rev-parse", "HEAD")[1].strip()

    def _run(self, *arguments: str) -> tuple[int, str]:
        return _git(self.tree, *arguments)


@contextmanager
def bisecting(root: Path, good: str, bad: str) -> Iterator[Bisection]:
    """Check `bad` out into a worktree that lasts as long as the context.

    ConfigError unless the commit `good` is an ancestor of `bad`. MachineError.
    """
    if good == bad or _git(root, "merge-base", "--is-ancestor", good, bad)[0]:
        hint = "name an older commit with --good and a newer one that contains it with --bad"
        raise ConfigError(f"--good {good[:8]} is no ancestor of --bad {bad[:8]}", hint=hint)
    with git_checkout.checked_out(root, bad) as tree:
        yield Bisection(tree)


def query_title(root: Path, commit: str) -> str:
    """Return the date and the subject of a commit."""
    return git.ask(root, "show", "--no-patch", "--format=%cs, %s", commit) or ""


def _git(folder: Path, *arguments: str) -> tuple[int, str]:
    return git.run(folder, *git.NO_HOOKS, *arguments, timeout_s=git.FETCH_TIMEOUT_S)
