"""`ci-perf audit` from end to end: sessions of a kernel with its own clock on the CPU, appended to a file."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from ci_perf.audit.file import read_sessions
from ci_perf.audit.rule import rule_hash
from ci_perf.cli import program
from ci_perf.judge.control import LEAST_CONTROL
from ci_perf.measure import turns
from ci_perf.measure.git import query_commit
from tests.measure.nap_repository import NAP, TOML, git

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, bare_python):
    """The current folder, with one kernel of 2.5 ms by its own clock."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CI_PERF_PYTHON", str(bare_python))
    for name in [n for n in os.environ if n.startswith("GITHUB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(turns, "SAMPLES", 1)
    for name in ("WARM_UP_S", "STILL_WARM_S"):  # the fake kernel has its own clock, so no warm-up is needed
        monkeypatch.setattr(turns, name, {"cpu": 0.0})
    kernel = tmp_path / "kernels" / "nap"
    kernel.mkdir(parents=True)
    (kernel / "kernel.toml").write_text(TOML.format(microseconds=2500))
    (kernel / "kernel.py").write_text(NAP.format(factor=1.0))
    return tmp_path


def audit(*arguments):
    return CliRunner().invoke(program, ["audit", "--file", "audit.jsonl", "--ladder", "0,10%", *arguments])


def test_two_calls_append_to_one_file_and_record_what_was_really_planted(folder):
    file = folder / "audit.jsonl"
    first = audit("--markdown")
    before = file.read_text()
    second = audit("--ladder", "0")

    assert (first.exit_code, second.exit_code) == (0, 0), first.output + second.output
    assert file.read_text().startswith(before)
    sessions, warnings = read_sessions([file])
    assert [(session.planted, session.cases[0].planted) for session in sessions] == [(0.0, 0.0), (0.1, 0.1), (0.0, 0.0)]
    assert all(case.id == "nap/one" and len(case.ratios) >= 3 for s in sessions for case in s.cases)
    assert all(s.control_case == "nap/one" and len(s.control) >= LEAST_CONTROL for s in sessions)
    assert sessions[1].cases[0].launches % 10 == 0
    assert len({session.session for session in sessions}) == 3
    assert warnings == ()


def test_a_session_records_the_rule_and_checks_the_base_out_as_a_run_does(folder):
    (folder / "kernels/nap/kernel.py").write_text(NAP.format(factor=1.0) + "print(__file__)\n")
    for arguments in (("init", "-q"), ("add", "kernels"), ("commit", "-qm", "one")):
        git("-c", "user.name=a", "-c", "user.email=a@example.com", *arguments)
    built = audit("--ladder", "0", "--setup", "touch built")
    printed = (folder / "ci-perf-run/logs/worker-base.stdout.txt").read_text()
    Path("kernels/nap/kernel.toml").write_text(TOML.format(microseconds=2600))
    changed = audit("--ladder", "0", "--method", "wall")

    assert (built.exit_code, changed.exit_code) == (0, 0), built.output + changed.output
    sessions, _ = read_sessions([folder / "audit.jsonl"])
    assert [(session.rule, session.checked_out) for session in sessions] == [(rule_hash(), True), (rule_hash(), False)]
    assert [session.cases[0].method for session in sessions] == ["perf-counter"] * 2  # on a CPU the clock times all
    assert "warning: this tree differs from its commit: both sides run it" in changed.stderr
    assert "kernels/nap/kernel.py" in printed
    assert "2 of the 299" in changed.output


def test_a_tree_that_differs_from_its_commit_is_seen_wherever_the_audit_file_is(folder, tmp_path_factory):
    for arguments in (("init", "-q"), ("add", "kernels"), ("commit", "-qm", "one")):
        git("-c", "user.name=a", "-c", "user.email=a@example.com", *arguments)
    clean = query_commit(folder)
    Path("kernels/nap/kernel.toml").write_text(TOML.format(microseconds=2600))

    for file in (Path("audit.jsonl"), folder / "audit.jsonl", tmp_path_factory.mktemp("elsewhere") / "audit.jsonl"):
        assert query_commit(folder, besides=file) == f"{clean}-dirty"


def test_a_file_that_cannot_be_read_is_refused_before_anything_is_measured_and_stays_as_it_was(folder):
    file = folder / "audit.jsonl"
    file.write_text('{"schema": "something else"}\n')
    refused = audit()

    assert refused.exit_code == 2
    assert "audit.jsonl" in refused.stderr
    assert file.read_text() == '{"schema": "something else"}\n'
    assert not (folder / "ci-perf-run").exists()


def test_with_no_minutes_nothing_is_measured_and_a_message_says_so(folder):
    ran = audit("--minutes", "0")

    assert ran.exit_code == 0, ran.output
    assert "0 minutes are over: 0 of 2 sessions were measured" in ran.stderr
    assert not (folder / "audit.jsonl").exists()
