"""`run --earlier`: what a re-run of a job keeps of an earlier attempt, and what it refuses."""

import json
import zipfile
from dataclasses import replace

import pytest

from ci_perf.cli.resume import Attempt
from ci_perf.values.codec import dump_run
from ci_perf.values.measurement import Failure, Pair
from ci_perf.values.reasons import Reason
from ci_perf.values.run import Against, Note
from tests.builders import a_device, a_measurement, a_policy, a_provenance, a_run, a_spec, a_toolchain

HEAD, BASE = "e" * 40, "b" * 40
ENVIRON = {"GITHUB_EVENT_NAME": "push", "GITHUB_REPOSITORY": "octo/kernels", "GITHUB_SHA": HEAD}
OPEN = (1.04, 0.96, 1.05, 0.95) * 6
STEADY = (1.0, 1.001, 0.999, 1.0)
SLOWER = (1.2, 1.201, 1.199) * 3
OURS = a_provenance(commit=HEAD, repository="octo/kernels", head=HEAD)


def pairs(ratios):
    return tuple(Pair((50e-6,) * 4, (50e-6 * ratio,) * 4, 100, "cuda-graph") for ratio in ratios)


def timed(kernel, ratios, **changes):
    return a_measurement(kernel=kernel, replicates=(), pairs=pairs(ratios), **changes)


def a_turn(*measurements, control=STEADY, **changes):
    against = Against("base", BASE, control_case="sdpa/s128", control=pairs(control))
    specs = tuple(a_spec(name) for name in ("sdpa", "gemm", "norm"))
    return replace(a_run(*measurements, kernels=specs, provenance=OURS, against=against), **changes)


def blank(**changes):
    empty = a_turn(finished=False)
    return replace(empty, measurements=(), against=replace(empty.against, control=(), control_case=""), **changes)


def begun(earlier, now=None):
    run = Attempt("ci-perf-run-1-numbers", earlier).begin(now or blank())
    (note,) = (note for note in run.notes if note.code.startswith("attempt-"))
    return run, note


def test_decided_cases_are_kept_undecided_ones_get_one_more_look_and_failed_ones_are_measured_again():
    failed = a_measurement(kernel="norm", replicates=(), failure=Failure("time", "timeout", "no answer"))
    earlier = a_turn(timed("sdpa", SLOWER), timed("gemm", OPEN), failed)

    run, note = begun(earlier)

    assert [(m.kernel, m.looked) for m in run.measurements] == [("sdpa", ()), ("gemm", (24,))]
    assert [m.pairs for m in run.measurements] == [pairs(SLOWER), pairs(OPEN)]
    assert run.against.control == pairs(STEADY)
    assert note.message == "1 case of ci-perf-run-1-numbers kept, 1 undecided case measured further"


def test_the_note_on_a_budget_that_was_spent_is_of_the_attempt_that_spent_it():
    notes = (Note(Reason.BUDGET_SPENT, "there was no time to decide 1 case"), Note(Reason.CPU_BUSY, "busy"))
    run, _ = begun(a_turn(timed("sdpa", SLOWER), timed("gemm", OPEN), notes=notes))

    assert [note.code for note in run.notes] == ["cpu-busy", "attempt-continued"]


def test_an_attempt_with_other_budgets_is_continued():
    command = f"{OURS.command} --budget=60 --case-budget=9"
    run, note = begun(a_turn(timed("sdpa", STEADY), provenance=replace(OURS, command=command)))

    assert [m.kernel for m in run.measurements] == ["sdpa"]
    assert note.code == "attempt-continued"


def test_an_attempt_that_was_cancelled_is_continued_with_what_it_has():
    run, note = begun(a_turn(timed("sdpa", STEADY), finished=False))

    assert (run.finished, run.measurements[0].pairs) == (False, pairs(STEADY))
    assert note.message == "1 case of ci-perf-run-1-numbers kept"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"devices": (a_device(name="NVIDIA L4"),)}, "the device differs: ['h100-80gb-hbm3, driver 580, 700 W'] now"),
        ({"devices": (a_device(driver="575.10"),)}, "the device differs"),
        ({"devices": (a_device(power_limit_w=350.0),)}, "the device differs"),
        ({"devices": (a_device(mig=True),)}, "the device differs"),
        ({"toolchain": a_toolchain(torch="2.12.0")}, "the toolchain differs"),
        ({"provenance": replace(OURS, commit="f" * 40)}, "the commit differs"),
        ({"provenance": replace(OURS, shard="l4-1-of-2")}, "the shard differs"),
        ({"provenance": replace(OURS, command="ci-perf run --samples=9")}, "the command line differs"),
        ({"against": Against("base", "c" * 40)}, "the base differs"),
        ({"policy": a_policy(regression=0.01)}, "the policy differs"),
        ({"kernels": (a_spec(),)}, "the list of kernels differs"),
        ({"against": None}, "it is finished, and has no base to take more turns with"),
        ({"notes": (Note(Reason.MEMORY_ERRORS, "2 errors"),)}, "the memory of its GPU had errors"),
    ],
)
def test_pairs_of_another_machine_or_other_code_do_not_join_and_a_note_says_why(changes, why):
    run, note = begun(a_turn(timed("sdpa", STEADY), **changes))

    assert (run.measurements, run.finished, note.code) == ((), False, "attempt-not-continued")
    assert note.message.startswith(f"ci-perf-run-1-numbers is not continued: {why}")


def test_a_session_that_cannot_be_believed_is_not_continued():
    run, note = begun(a_turn(timed("sdpa", STEADY), control=(1.05, 1.051, 1.049, 1.05)))

    assert run.measurements == ()
    assert "the base differed from itself by +5.0 %" in note.message


def test_numbers_that_cannot_be_judged_are_not_continued():
    run, note = begun(a_turn(timed("other", STEADY)))

    assert run.measurements == ()
    assert "its numbers cannot be judged" in note.message


@pytest.fixture
def artifact(tmp_path):
    """A function that packs a run, or the text of a run.json, as GitHub does; it returns the folder."""

    def pack(run, **more):
        folder = tmp_path / "ci-perf-run-1-numbers"
        folder.mkdir(exist_ok=True)
        with zipfile.ZipFile(folder / "artifact.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("run.json", run if isinstance(run, str) else dump_run(run))
            for name, text in more.items():
                archive.writestr(name, text)
        return folder

    return pack


def test_the_run_of_an_artifact_is_read_as_it_is_packed(artifact):
    earlier = a_turn(timed("sdpa", STEADY))

    assert Attempt.of(artifact(earlier), ENVIRON) == Attempt("ci-perf-run-1-numbers", earlier)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (dump_run(a_turn(provenance=replace(OURS, repository="mallory/kernels"))), "measured for mallory/kernels"),
        (dump_run(a_turn(provenance=replace(OURS, head="a" * 40))), "measured for commit aaaa"),
        (dump_run(a_turn()).replace('"policy":', '"polices":'), "policy"),
        (json.dumps({"schema": "x"}), "schema"),
        ("[" * 10_000, "run-1-numbers"),
        (" " * 300_000_000, "unpacks to more than"),
    ],
    ids=["repository", "commit", "key", "schema", "depth", "bomb"],
)
def test_what_is_no_run_of_this_repository_and_commit_is_refused_with_the_reason(text, why, artifact):
    found = Attempt.of(artifact(text), ENVIRON)

    assert found.run is None
    assert why in found.why


def test_outside_of_a_workflow_no_attempt_is_continued_and_the_note_says_so(artifact):
    assert "and this is none (GITHUB_REPOSITORY)" in Attempt.of(artifact(a_turn()), {}).why


@pytest.mark.parametrize("name", ["/etc/passwd", "../run.json"])
def test_an_artifact_whose_entries_leave_its_folder_is_refused(name, artifact):
    found = Attempt.of(artifact(a_turn(), **{name: ""}), ENVIRON)

    assert (found.run, "leaves the archive's folder" in found.why) == (None, True)


def test_an_artifact_of_several_files_is_refused(artifact):
    folder = artifact(a_turn(timed("sdpa", STEADY)))
    (folder / "another.zip").touch()

    found = Attempt.of(folder, ENVIRON)

    assert (found.run, found.why) == (None, "ci-perf-run-1-numbers: holds 2 files, expected one")


def test_without_an_artifact_everything_is_measured_and_the_note_says_which_permission_it_takes(tmp_path):
    attempt = Attempt.of(tmp_path / "ci-perf-run-1-numbers", ENVIRON)
    run = attempt.begin(blank())

    (note,) = run.notes
    assert (note.code, note.message) == ("attempt-not-continued", "no run of an earlier attempt of this job was found")
    assert "actions: read" in note.hint
