"""`scripts/record-audit`: the sessions of a nightly audit join those of other nights."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ci_perf.audit.file import append_session, dump_session, read_sessions
from ci_perf.audit.render import GOAL_SESSIONS
from ci_perf.audit.rule import rule_hash
from tests.builders import a_device, a_provenance, an_audit_session
from tests.project.test_project import ROOT

COMMIT = "0fd4e2e" + "0" * 33


def tonight(number, **changes):
    return an_audit_session(number, **{"rule": rule_hash(), **changes})


def record(folder, *sessions, content=None):
    artifact = folder / "audit-1.zip"
    with zipfile.ZipFile(artifact, "w") as archive:
        archive.writestr("audit.jsonl", content or "".join(map(dump_session, sessions)))
    command = [sys.executable, "-I", ROOT / "scripts/record-audit", artifact, "--baselines", folder / "baselines"]
    return subprocess.run([*command, "--commit", COMMIT], capture_output=True, text=True, check=False)


def recorded(folder, device="h100-80gb-hbm3"):
    return read_sessions([Path(folder) / "baselines" / device / "nightly-audit.jsonl"])[0]


def test_the_sessions_of_several_nights_add_up_for_each_gpu_model(tmp_path):
    other = tonight(2, device=a_device(name="NVIDIA L4"))
    first = record(tmp_path, tonight(1), other)
    second = record(tmp_path, tonight(1), tonight(3))

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert recorded(tmp_path) == (tonight(1), tonight(3))
    assert recorded(tmp_path, "l4") == (other,)
    assert second.stdout == f"added 1 of 2 sessions to {tmp_path}/baselines/h100-80gb-hbm3/nightly-audit.jsonl\n"


@pytest.mark.parametrize(("planted", "goal"), [(0.0, GOAL_SESSIONS), (0.035, 25)])
def test_no_more_sessions_of_a_rule_are_added_than_are_needed(tmp_path, planted, goal):
    file = tmp_path / "baselines/h100-80gb-hbm3/nightly-audit.jsonl"
    append_session(file, tonight(0, rule="0" * 12, planted=planted))  # of an earlier rule
    append_session(file.with_name("audit.jsonl"), tonight(1, planted=planted))
    with file.open("a") as lines:
        lines.writelines(dump_session(tonight(number, planted=planted)) for number in range(2, goal))

    ran = record(tmp_path, *(tonight(goal + number, planted=planted) for number in range(3)))

    assert ran.stdout.startswith("added 1 of 3 sessions to ")
    assert len(recorded(tmp_path)) == goal


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"provenance": a_provenance(commit="abcdef1")}, "measured abcdef1, not 0fd4e2e0"),
        ({"provenance": a_provenance(commit="0fd4e2e-dirty")}, "measured 0fd4e2e-dirty, not 0fd4e2e0"),
        ({"provenance": a_provenance(commit=None)}, "measured no commit, not 0fd4e2e0"),
        ({"rule": ""}, "is of the rule that is not recorded, not"),
        ({"device": a_device(kind="cpu")}, "was not measured on a GPU"),
    ],
)
def test_a_session_that_is_not_of_this_night_is_refused_with_all_others(tmp_path, changes, why):
    ran = record(tmp_path, tonight(1), tonight(2, **changes))

    assert ran.returncode == 1
    assert f"session 0002 {why}" in ran.stderr
    assert not (tmp_path / "baselines").exists()


@pytest.mark.parametrize(
    ("content", "why"),
    [('{"schema": 1}\n', "audit.jsonl:1"), (b"\xff", "its audit.jsonl cannot be read"), (b"0" * (65 << 20), "64 MiB")],
    ids=["no session", "no text", "too large"],
)
def test_an_artifact_that_is_no_audit_is_refused(tmp_path, content, why):
    ran = record(tmp_path, content=content)

    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("error: ")
    assert why in ran.stderr


def test_a_record_that_is_a_link_is_refused(tmp_path):
    """A pull request that was merged may have put it there: the job that follows it can push."""
    file = tmp_path / "baselines/h100-80gb-hbm3/nightly-audit.jsonl"
    file.parent.mkdir(parents=True)
    file.symlink_to(tmp_path / "elsewhere")

    ran = record(tmp_path, tonight(1))

    assert (ran.returncode, ran.stderr) == (1, f"error: {file}: is a link, expected a file: nothing is added\n")
    assert not (tmp_path / "elsewhere").exists()


def test_a_name_of_a_device_that_no_folder_can_have_is_an_error(tmp_path):
    ran = record(tmp_path, tonight(1, device=a_device(name="x" * 5000)))

    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("error: ")
    assert "File name too long" in ran.stderr
    assert not (tmp_path / "baselines").exists()


def test_a_line_that_was_cut_off_costs_that_session_alone(tmp_path):
    ran = record(tmp_path, content=dump_session(tonight(1)) + dump_session(tonight(2))[:200])

    assert ran.returncode == 0, ran.stderr
    assert "audit.jsonl:2: the line is incomplete" in ran.stderr
    assert recorded(tmp_path) == (tonight(1),)
