"""A run is recovered from the lines of its steps, as it was after each of them."""

from dataclasses import replace

import pytest

from ci_perf.cli.artifacts import Recorder
from ci_perf.guard.guard import Guard
from ci_perf.store import JOURNAL, append_step, close_journal, read_run
from ci_perf.values.codec import dump_step, load_run, load_steps, step_of
from ci_perf.values.errors import ConfigError, FormatError
from ci_perf.values.measurement import Failure, Part
from ci_perf.values.run import Against, Note, Run
from ci_perf.values.trace import Reading
from tests.builders import a_measurement, a_run, replicates
from tests.measure.test_flow import Disk, ScriptedMachine, go
from tests.values.test_formats import FORMATS

START = a_run(a_measurement(replicates=()), a_measurement(case="s256", replicates=()), finished=False)


def with_case(run: Run, index: int, **changes: object) -> Run:
    measurements = list(run.measurements)
    measurements[index] = replace(measurements[index], **changes)
    return replace(run, measurements=tuple(measurements))


def growth() -> list[Run]:
    """Return the states of a run in which every kind of change occurs."""
    runs = [START]
    for change in (
        lambda run: with_case(run, 0, replicates=replicates((1e-5,))),
        lambda run: with_case(run, 0, replicates=replicates((1e-5, 1.1e-5))),
        lambda run: with_case(run, 1, failure=Failure("time", "timeout", "30 s")),
        lambda run: with_case(run, 1, parts=(Part("kernel", "axpy", 3, 1e-3),)),
        lambda run: with_case(run, 1, parts=(*run.measurements[1].parts, Part("range", "step", 3, 1e-3))),
        lambda run: with_case(run, 0, counters=({"cycles": Reading(3.0, "cycle")},)),
        lambda run: with_case(run, 0, replicates=(), unpaired="not-in-base"),
        lambda run: replace(run, notes=(Note("a", "first \u2028 line"),), gpu_seconds=3.5),
        lambda run: replace(run, notes=(*run.notes, Note("b", "second")), trace={"idle_pct": Reading(3.0, "%")}),
        lambda run: replace(run, against=Against("main", "abc", control_case="sdpa/s128")),
        lambda run: replace(run, against=replace(run.against, gone=("gemm",))),
        lambda run: run,
        lambda run: replace(run, finished=True),
    ):
        runs.append(change(runs[-1]))
    return runs


def journal(runs: list[Run]) -> list[str]:
    return [dump_step(step_of(before, now)) for before, now in zip([None, *runs], runs, strict=False)]


def test_after_each_step_the_run_is_what_it_was():
    runs = growth()
    lines = journal(runs)

    for number, run in enumerate(runs, start=1):
        assert load_steps("".join(lines[:number]), "run.jsonl") == run


def test_the_steps_of_a_whole_run_lead_to_the_run():
    disk = Disk()
    found = go(ScriptedMachine(), disk=disk)

    assert load_steps("".join(journal(disk.runs)), "run.jsonl") == found


@pytest.mark.parametrize("path", sorted(FORMATS.glob("*/run*.json")), ids=lambda path: path.name)
def test_every_part_of_a_run_can_come_with_a_step(path):
    found = load_run(path.read_text(encoding="utf-8"), path.name)
    blank = replace(found, measurements=(), notes=(), against=None, trace={}, sessions=(), fuzzed=(), sanitized=())

    assert load_steps("".join(journal([blank, found])), "run.jsonl") == found


def test_a_step_costs_what_changed_and_not_what_is_known():
    many = a_run(*(a_measurement(case=f"s{i}") for i in range(100)))
    step = step_of(many, with_case(many, 50, replicates=(*many.measurements[50].replicates, *replicates((1e-5,)))))

    assert [change["at"] for change in step] == [["measurements", 50, "replicates"]]
    assert [len(change["add"]) for change in step] == [1]


def test_a_last_line_that_was_cut_off_is_ignored(tmp_path):
    runs = growth()[:4]
    *lines, last = journal(runs)

    for cut in (0, 1, len(last.encode()) // 2, len(last.encode()) - 1):
        (tmp_path / JOURNAL).write_bytes("".join(lines).encode() + last.encode()[:cut])
        assert read_run(tmp_path) == runs[-2]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{\n", "run.jsonl:2: not JSON"),
        ("7\n", "run.jsonl:2: the line is not a step of this run"),
        ('[{"at": ["measurements", 9, "case"], "set": "x"}]\n', "run.jsonl:2: the line is not a step of this run"),
        ('[{"at": ["measurements"]}]\n', "run.jsonl:2: the line is not a step of this run"),
        ('[{"at": ["gpu_seconds"], "set": "x"}]\n', "run.jsonl: key `gpu_seconds`: 'x' is not of type number"),
    ],
)
def test_a_broken_line_is_refused_with_its_number(line, message):
    first, second = journal(growth()[:2])

    with pytest.raises(FormatError) as error:
        load_steps(first + line + second, "run.jsonl")
    assert str(error.value).startswith(message)


def test_a_folder_is_read_from_run_json_or_else_from_the_journal(tmp_path):
    runs = growth()[:3]
    (tmp_path / "run.json").touch()  # as a claimed folder has it
    for before, now in zip([None, *runs], runs, strict=False):
        append_step(step_of(before, now), tmp_path)

    assert read_run(tmp_path) == read_run(tmp_path / JOURNAL) == runs[-1]
    close_journal(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    assert read_run(tmp_path) == runs[-1]
    close_journal(tmp_path)


def test_a_journal_that_cannot_be_written_is_an_error_with_its_path(tmp_path):
    with pytest.raises(ConfigError, match=r"gone/run.jsonl: cannot be written: No such file or directory"):
        append_step([], tmp_path / "gone")


def test_no_line_of_a_journal_holds_a_secret(tmp_path):
    guard = Guard.of(tmp_path, {"API_TOKEN": "hunter2hunter2"})
    save = Recorder(guard)
    save(START)
    save(with_case(START, 0, failure=Failure("time", "raised", "hunter2hunter2", "at\nhunter2hunter2")))
    save(replace(START, notes=(Note("leak", "token hunter2hunter2"),)))

    assert b"hunter2" not in (tmp_path / JOURNAL).read_bytes()
    assert read_run(tmp_path).notes == (Note("leak", "token [API_TOKEN withheld]"),)
