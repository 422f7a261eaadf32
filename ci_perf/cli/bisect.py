"""`ci-perf bisect`: the commit that changed the time of a case."""

import math
import os
import re
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import click

from ci_perf import store
from ci_perf.cli.log import in_log, tell
from ci_perf.cli.options import complete_case, resolve_settings, setting_options
from ci_perf.cli.run import measure_run
from ci_perf.judge.finding import Finding
from ci_perf.judge.outcome import size
from ci_perf.judge.report import Report
from ci_perf.measure import git, git_base, tools
from ci_perf.measure.base import paths_in_tree
from ci_perf.measure.git_bisect import BAD, GOOD, SKIP, Bisection, bisecting, query_title
from ci_perf.measure.session import Session
from ci_perf.values.errors import CiPerfError, ConfigError
from ci_perf.values.quantity import percent
from ci_perf.values.reasons import Verdict
from ci_perf.values.settings import Settings

_OF_NO_USE = {
    *("against", "all-cases", "among", "confirm", "fail-on", "fuzz", "plant-slowdown", "processes", "samples"),
    *("sanitize", "seed", "shard", "strict"),
}
"""Flags of `run` that change nothing here. A file of settings may have them, so they are no errors."""
_LONG_S = 120.0
"""From so many seconds on the time that is left is in minutes."""


@click.command()
@click.argument("case", metavar="KERNEL/CASE", shell_complete=complete_case)
@click.option("--good", metavar="REF", required=True, help="A commit before the change.")
@click.option("--bad", metavar="REF", default="HEAD", show_default=True, help="A commit after the change.")
@setting_options(hidden=_OF_NO_USE)
def bisect(case: str, good: str, bad: str, **flags: object) -> None:
    """Find the commit that made KERNEL/CASE slower or faster, by `git bisect` in a separate worktree.

    First --good and --bad are measured in turns. Then each commit that git selects is measured in turns with --good,
    until it is clear whether it has more or less than half of the change. Commits that cannot be built or measured are
    skipped. At the end the commit that was found is measured and profiled in turns with its parent: this gives its own
    change and the cause.
    """
    root = Path.cwd()
    if case.count("/") != 1 or set(case) & set("*?["):
        raise ConfigError(f"`{case}` does not name one case", hint="name it as `ci-perf list` does: kernel/case")
    settings = resolve_settings(root, flags)
    if settings["against"] not in ("", "auto"):
        raise ConfigError(f"{settings.origins['against']}: bisect selects the base itself", hint="use --good and --bad")
    first, last = (git_base.resolve_base(root, ref, os.environ) for ref in (good, bad))
    with bisecting(root, first, last) as bisection:
        search = _Search(root, case, bisection, _for_worktree(settings, root))
        search.bisect(first, last)


class _Progress:
    """How far a search is: the steps, the time that is left, and each warning once."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._warnings: set[str] = set()
        self._steps = 0

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count the seconds of a measurement that succeeds."""
        started = time.monotonic()
        yield
        self._seconds.append(time.monotonic() - started)

    def step(self, commit: str, more: int) -> str:
        """Return the line before a step, after which about so many `more` follow, and the measurement of what is found.

        >>> progress = _Progress()
        >>> progress._seconds += [20.0, 40.0]
        >>> progress.step("0123456789", 4), progress.step("89abcdef01", 0)
        ('step 1 of about 5: 01234567; about 3 min left', 'step 2 of about 2: 89abcdef; about 60 s left')
        """
        self._steps += 1
        left = statistics.fmean(self._seconds or [0.0]) * (more + 2)
        time_left = f"{left:.0f} s" if left < _LONG_S else f"{left / 60:.0f} min"
        return f"step {self._steps} of about {self._steps + more}: {commit[:8]}; about {time_left} left"

    def say(self, message: str) -> None:
        """Print a message; a warning that differs from an earlier one in numbers only is not repeated."""
        words = re.sub(r"\d+", "", message)
        if words.startswith("warning: ") and words in self._warnings:
            return
        self._warnings.add(words)
        tell(message)


@dataclass(frozen=True, slots=True)
class _Search:
    """One search; its methods print what they find."""

    root: Path
    case: str
    bisection: Bisection
    settings: Settings
    progress: _Progress = field(default_factory=_Progress)

    def bisect(self, first: str, last: str) -> None:
        """Measure the ends, bisect, and measure what was found."""
        whole = self._measure(last, first, {"profile": "none"})
        if whole.change is None or not whole.verdict.is_change:
            raise ConfigError(
                f"{self.case}: from {first[:8]} to {last[:8]}: {whole.verdict}: {whole.sentence}",
                hint="name commits between which the case changed by more than the threshold",
            )
        tell(f"{first[:8]} to {last[:8]}: {_shown(whole)}")
        slower = whole.verdict is Verdict.REGRESSION
        half = math.exp(abs(math.log(whole.change.point)) / 2) - 1
        chosen = {"profile": "none", "regression-threshold": half, "speedup-threshold": half}

        def judge(commit: str, more: int) -> str:
            tell(self.progress.step(commit, more))
            try:
                found = self._measure(commit, first, chosen)
            except CiPerfError as error:
                tell(f"{commit[:8]} skipped: {error}")
                return SKIP
            answer = _answer(found, slower=slower)
            tell(f"{commit[:8]} {answer}: {_shown(found)}")
            return answer

        found = self.bisection.find(first, last, judge)
        if len(found) > 1:
            click.echo(f"one of these {len(found)} commits changed {self.case}; those between could not be measured:")
            for commit in found:
                click.echo(in_log(f"  {commit[:12]} {query_title(self.root, commit)}"))
            return
        self._print(found[0], first, chosen)

    def _print(self, commit: str, first: str, chosen: Mapping[str, object]) -> None:
        """Measure the commit against its parent, with the profilers, and print the result."""
        parent = git.find_commit(self.root, f"{commit}^") or first
        beside = "its parent"
        try:
            found = self._measure(commit, parent, {})
        except CiPerfError as error:
            tell(f"its parent {parent[:8]} cannot be measured: {error}")
            found, beside = self._measure(commit, first, chosen), first[:8]
        click.echo(in_log(f"{commit[:12]} changed {self.case}: {query_title(self.root, commit)}"))
        click.echo(in_log(f"against {beside}: {_shown(found)}"))

    def _measure(self, commit: str, base: str, chosen: Mapping[str, object]) -> Finding:
        """Measure a commit in turns with a base."""
        self.bisection.check_out(commit)
        tree = self.bisection.tree
        output = str(self.root / self.settings["output"] / f"{commit[:12]}-against-{base[:12]}")
        values = {**self.settings.values, **chosen, "against": base, "output": output}
        settings = Settings(values, {**self.settings.origins, **dict.fromkeys(chosen, "flag of bisect")})
        with _paths_of(self.root, tree):
            specs = store.read_kernels(tree / settings["kernels-dir"], tree, (self.case,))
            with self.progress.timed():
                report, _ = measure_run(tree, specs, (self.case,), settings, _print_nothing, say=self.progress.say)
        findings = [row.finding for row in report.rows if row.finding.id == self.case]
        if not findings:
            raise ConfigError(f"{commit[:8]} has no case `{self.case}` that runs here")
        return findings[0]


def _answer(found: Finding, *, slower: bool) -> str:
    """Return on which side of half of the change a commit is; SKIP: not known."""
    if found.verdict is (Verdict.REGRESSION if slower else Verdict.SPEEDUP):
        return BAD
    return GOOD if found.verdict.is_change or found.verdict is Verdict.UNCHANGED else SKIP


def _shown(found: Finding) -> str:
    if found.change is None:
        return f"{found.verdict}: {found.sentence}"
    low, high = (percent(ratio - 1, sign=True) for ratio in (found.change.low, found.change.high))
    return f"{size(found.change.point)} [{low}, {high}]: {found.sentence}"


def _for_worktree(settings: Settings, root: Path) -> Settings:
    """Return the settings with the interpreter that the user's tree has: a worktree has no virtual environment."""
    python = tools.kernels_python(settings, root)
    output = settings["output"] if settings.origins["output"] != "default" else "ci-perf-bisect"
    return settings.replaced({"python": python, "output": output})


def _print_nothing(report: Report, *, session: Session) -> None:
    """Drop the report of a step, which could not be written: bisect prints its own lines."""


@contextmanager
def _paths_of(root: Path, tree: Path) -> Iterator[None]:
    """Let variables such as PYTHONPATH name the worktree in place of the user's tree."""
    before = dict(os.environ)
    changed = {name: path for name, path in paths_in_tree(before, root, tree).items() if path != before[name]}
    os.environ.update(changed)
    try:
        yield
    finally:
        os.environ.update({name: before[name] for name in changed})
