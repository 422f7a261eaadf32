"""`ci-perf bisect`: a real repository of 64 commits, `git bisect`, and turns on the CPU with a simulated clock."""

import itertools
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from ci_perf.cli import program
from ci_perf.measure import cpu
from ci_perf.values.run import Note
from tests.measure.nap_repository import commit, git, write

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("repository")]


def history_of(commits, slow_from, broken=(), without=()):
    """Commit the kernel so many times: slower from one on, some that fail, some without the case."""
    made = []
    for number in range(commits):
        write("nap", factor=3.0 if number >= slow_from else 1.0)
        toml, code = (Path("kernels/nap") / name for name in ("kernel.toml", "kernel.py"))
        code.write_text(f"# {number}\n{'raise ValueError' if number in broken else ''}\n{code.read_text()}")
        if number in without:
            toml.write_text(toml.read_text().replace("cases.one", "cases.other"))
        made.append(commit(f"commit {number}"))
    return made


def bisect(*arguments):
    return CliRunner().invoke(program, ["bisect", *arguments])


def busier_each_time():
    """Return what stands for the question whether the machine is busy: it always is, with another load each time."""
    load = itertools.count(3)
    return lambda: Note("cpu-busy", f"other programs use these cores (load average {next(load)}.5)")


def test_a_planted_commit_among_64_is_named_and_the_users_tree_stays(repository, monkeypatch):
    commits = history_of(64, slow_from=41, broken=[47], without=[31, 32])
    monkeypatch.setattr(cpu, "query_busy", busier_each_time())
    (repository / "notes.txt").write_text("mine")
    before = git("status", "--porcelain"), git("branch", "--show-current")

    ran = bisect("--good", commits[0], "nap/one")

    assert ran.exit_code == 0, ran.output
    named, shown = ran.stdout.splitlines()[-2:]
    assert named.startswith(f"{commits[41][:12]} changed nap/one")
    assert named.endswith("commit 41")
    assert "slower" in shown
    assert any(f"{commits[number][:8]} skipped" in ran.stderr for number in (31, 32))  # git takes either as the middle
    steps = re.findall(r"^step (\d+) of about (\d+): [0-9a-f]{8}; about \d+ (?:s|min) left$", ran.stderr, re.MULTILINE)
    assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
    assert 6 <= len(steps) <= 9
    assert int(steps[0][1]) in (6, 7)
    assert ran.stderr.count("warning: other programs use these cores") == 1
    assert (git("status", "--porcelain").replace("?? ci-perf-bisect/\n", ""), git("branch", "--show-current")) == before
    assert len(git("worktree", "list").splitlines()) == 1


def test_commits_that_cannot_be_measured_leave_it_open_which_one_it_was():
    commits = history_of(4, slow_from=2, broken=[1])

    ran = bisect("--good", commits[0], "nap/one")

    assert ran.exit_code == 0, ran.output
    assert "one of these 2 commits" in ran.stdout
    assert all(commits[number][:12] in ran.stdout for number in (1, 2))
    assert commits[3][:12] not in ran.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--good", "HEAD~1", "nap/one"), "hint: name commits between which the case changed"),
        (("--good", "HEAD", "--bad", "HEAD~1", "nap/one"), "is no ancestor of"),
        (("--good", "HEAD~1", "nap"), "does not name one case"),
        (("--good", "HEAD~1", "nap/*"), "does not name one case"),
        (("--good", "HEAD~1", "--against", "main", "nap/one"), "bisect selects the base itself"),
    ],
)
def test_what_cannot_be_bisected_is_an_error_with_the_remedy(arguments, said):
    history_of(2, slow_from=9)

    ran = bisect(*arguments)

    assert ran.exit_code == 2, ran.output
    assert said in ran.stderr
