"""A session of a profiler for all cases, with a fake nsys that returns a recorded trace."""

import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from ci_perf.guard.guard import Guard
from ci_perf.measure.backend import Profiled
from ci_perf.measure.both_sides import ProfiledBase, located, write_differences
from ci_perf.measure.conditions import Conditions
from ci_perf.measure.profile import NcuProfiler, NsysProfiler
from ci_perf.traces.attribution import case_counters, launch_counters, program_timeline
from ci_perf.traces.ncu.code import Code, Instruction
from ci_perf.traces.ncu.counters import Counters, Launch
from ci_perf.traces.ncu.lines import source_lines
from ci_perf.traces.timeline import Gpu, KernelStats
from ci_perf.values.job import Job
from ci_perf.values.kernel import Gate
from ci_perf.values.metrics import BY_NAME
from ci_perf.values.trace import Reading, SourceLine
from tests.builders import a_spec
from tests.measure.test_external import H200, fake_ncu, fake_nsys


def a_profiler(root, more="", kind=NsysProfiler, python="true", timeout_s=20.0, **changes):
    """Return an nsys whose trace has the ranges of the cases sdpa/s512 and matmul/n4096, and runs nothing."""
    capture = root / "capture.sqlite"
    shutil.copy(H200, capture)
    with closing(sqlite3.connect(capture)) as database, database:
        for recorded, label in (("sdpa_s512", "ci-perf:sdpa/s512"), ("matmul_4096", "ci-perf:matmul/n4096")):
            database.execute("UPDATE NVTX_EVENTS SET text = ? WHERE text = ?", (label, recorded))
            database.execute("UPDATE StringIds SET value = ? WHERE value = ?", (label, recorded))
    guard = Guard(root / "out", ())
    guard.folder.mkdir()
    guard.open()
    path = fake_nsys(root, capture, more) if kind is NsysProfiler else fake_ncu(root, more)
    conditions = Conditions(python, root, dict(os.environ), 30, timeout_s)
    return kind(str(path), "2025.3.2", conditions, guard, **changes)


def job(kernel, case, *patterns):
    return Job(a_spec(kernel, kernels=patterns, cases={case: {}}), case, {}, "cuda")


def test_each_case_gets_the_kernels_of_its_own_range(tmp_path):
    found = a_profiler(tmp_path).run([job("sdpa", "s512", "flash"), job("matmul", "n4096")])
    counts = {label: [k.count for k in timeline.kernels] for label, timeline in found.timelines.items()}

    assert counts == {"ci-perf:sdpa/s512": [5], "ci-perf:matmul/n4096": [5]}
    assert [note.code for note in found.notes] == []
    assert (tmp_path / "out/timeline.sqlite").is_file()


@pytest.mark.parametrize(
    ("mine", "code", "message"),
    [
        (job("matmul", "n4096", "conv"), "nsys-no-kernel", "no GPU kernel is called `conv`; there ran `nvjet_sm90_tst"),
        (job("gemm", "n1"), "nsys-no-range", "nsys: saw no GPU kernel of gemm/n1"),
    ],
)
def test_the_note_on_a_case_without_a_matching_kernel_names_the_kernels_that_ran(tmp_path, mine, code, message):
    (note,) = a_profiler(tmp_path).run([job("sdpa", "s512"), mine]).notes

    assert note.code == code
    assert message in note.message


@pytest.mark.parametrize(
    ("more", "code", "cases"),
    [
        ("kill -STOP $$", "nsys-no-report", 0),
        ('echo a-report >"$report"; kill -STOP $$', "nsys-time-limit", 1),
    ],
    ids=["no-report", "partial-report"],
)
def test_a_profiler_that_does_not_end_is_killed_and_its_report_is_incomplete(tmp_path, more, code, cases):
    found = a_profiler(tmp_path, more, timeout_s=0.5).run([job("sdpa", "s512")])
    (note,) = found.notes

    assert (note.code, len(found.timelines)) == (code, cases)
    assert "its time limit" in note.message
    assert "NCCL" in note.hint


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        ("", "nsys-cut-off", "its run ended early, without results for matmul/n4096"),
        ('{"ok": tr', "nsys-cut-off", "without results for matmul/n4096"),
        (
            '{"ok": false, "message": "ValueError: odd"}',
            "nsys-case-failed",
            "matmul/n4096 was not profiled: ValueError",
        ),
    ],
)
def test_a_case_that_the_worker_did_not_finish_has_no_readings(tmp_path, answer, code, words):
    """The report contains its range with the kernels that were launched."""
    worker = tmp_path / "worker"
    worker.write_text(f"""#!/bin/sh\nfor last; do :; done\nprintf '%s\\n' '{{"ok": true}}' '{answer}' >"$last"\n""")
    worker.chmod(0o755)
    found = a_profiler(tmp_path, python=str(worker)).run([job("sdpa", "s512"), job("matmul", "n4096")])

    assert list(found.timelines) == list(found.counters) == ["ci-perf:sdpa/s512"]
    assert [(note.code, words in note.message) for note in found.notes] == [(code, True)]


def test_costly_counters_are_collected_only_for_a_gate_or_a_full_profile(tmp_path):
    gated = Job(a_spec("k", cases={"a": {}}, gates=(Gate("sm_throughput_pct", ">=", 1.0),)), "a", {}, "cuda")
    asked = []
    for full, mine in ((False, job("sdpa", "s512")), (False, gated), (True, job("sdpa", "s512"))):
        folder = tmp_path / f"{len(asked)}"
        folder.mkdir()
        a_profiler(folder, kind=NcuProfiler, full=full).run([mine])
        asked.append("sm__throughput" in (folder / "ncu-calls").read_text())

    assert asked == [False, True, True]


def test_cases_that_changed_are_profiled_with_the_full_set_into_a_separate_report(tmp_path, monkeypatch):
    jobs = [job("sdpa", "s512"), job("matmul", "n4096")]
    ncu = a_profiler(tmp_path, kind=NcuProfiler)
    run = NcuProfiler.run

    def counting(self, jobs):  # the recorded report has no range of these cases
        return replace(run(self, jobs), counters={mine.label: ({},) for mine in jobs})

    monkeypatch.setattr(NcuProfiler, "run", counting)
    list(ncu.profile(jobs, jobs[:1]))
    usual, full = (tmp_path / "ncu-calls").read_text().splitlines()

    assert ("--set full" in usual, "--set full" in full) == (False, True)
    assert {path.name for path in (tmp_path / "out").glob("*.ncu-rep")} == {"kernels.ncu-rep", "explain.ncu-rep"}
    assert len((tmp_path / "out/logs/ncu-requests.jsonl").read_text().splitlines()) == 2
    assert len((tmp_path / "out/logs/ncu-explain-requests.jsonl").read_text().splitlines()) == 1


class Counting(NcuProfiler):
    """Finds counters of every case that it is given, except `denied`; each run another number. The guard is a list."""

    def run(self, jobs):
        self.guard.append((self.report, [job.id for job in jobs]))
        names = ("cycles", "sm_throughput_pct") if self.full else ("cycles",)
        launch = dict.fromkeys(names, Reading(float(len(self.guard))))
        return Profiled(counters={job.label: (launch,) for job in jobs if job.case != "denied"})


def test_cases_that_changed_are_explained_only_if_counters_can_be_read():
    jobs, asked = [job("k", "same"), job("k", "slower"), job("k", "denied")], []
    _, explained = Counting("ncu", "2025.3", None, asked).profile(jobs, jobs[1:])

    assert explained.counters == {"ci-perf:k/slower": ({"cycles": Reading(1.0), "sm_throughput_pct": Reading(2.0)},)}, (
        "what the first session found stays"
    )
    assert asked == [("kernels", ["k/same", "k/slower", "k/denied"]), ("explain", ["k/slower"])]


def a_base(root, **changes):
    base = root / "base"
    base.mkdir()
    kernels = {"k": a_spec("k", folder="old/k", cases={"same": {}, "slower": {}})}
    return ProfiledBase(base, "/base/python", {"SECRET": "x", "PATH": "/base/bin"}, None, kernels, **changes)


class Asked(list):
    """What was asked, in place of a guard."""

    folder = Path("unused")


class Side(Counting):
    """Counts what it is asked for, with the tree that it runs in."""

    def run(self, jobs):
        self.guard.append((self.report + self.side, self.conditions.root.name, [job.spec.folder for job in jobs]))
        return Profiled(counters={job.label: ({"cycles": Reading(float(len(self.guard)))},) for job in jobs})


def test_with_a_base_a_changed_case_is_counted_on_both_sides_for_what_explains_it(tmp_path):
    jobs, asked = [job("k", "same"), job("k", "slower"), job("new", "a")], Asked()
    conditions = Conditions("python", tmp_path / "head", {"PATH": "/bin"}, 30, 20.0)
    _, found = Side("ncu", "2025.3", conditions, asked).profile(jobs, jobs[1:], a_base(tmp_path))

    assert [folder for _, _, folder in asked[1:]] == [["old/k"], ["kernels/k", "kernels/new"]]
    assert [(report, tree) for report, tree, _ in asked] == [
        ("kernels", "head"),
        ("explain-base", "base"),
        ("explain", "head"),
    ]
    assert found.base_profiles["ci-perf:k/slower"].counters == ({"cycles": Reading(2.0)},)
    assert found.head_profiles["ci-perf:k/slower"].counters == ({"cycles": Reading(3.0)},)
    assert found.counters == {}, "what is judged stays as it was measured"


def test_the_base_is_traced_where_a_case_changed_or_the_files_of_its_kernel_differ(tmp_path):
    jobs = [job("k", "same"), job("k", "slower")]
    conditions = Conditions("python", tmp_path / "head", {"PATH": "/bin"}, 30, 20.0)
    for touched, changed, expected in (((), jobs[1:], ["slower"]), (("k",), [], ["same", "slower"]), ((), [], [])):
        asked = []
        nsys = Traced("nsys", "2025.3", conditions, asked)
        folder = tmp_path / str(len(touched) + len(changed) * 2)
        folder.mkdir()
        list(nsys.profile(jobs, changed, a_base(folder, touched=touched)))
        assert asked == [("", ["same", "slower"]), *([("-base", expected)] if expected else [])]


class Traced(NsysProfiler):
    def run(self, jobs):
        self.guard.append((self.side, [job.case for job in jobs]))
        return Profiled()


def test_the_base_runs_with_its_own_interpreter_and_no_further_variables(tmp_path):
    of_head = Conditions("python", tmp_path / "head", {"PATH": "/bin"}, 30, 20.0)
    found = a_base(tmp_path).conditions(of_head)

    assert (found.python, found.root, found.env) == ("/base/python", tmp_path / "base", {"PATH": "/base/bin"})


def test_error_messages_contain_no_folder_of_the_machine(tmp_path):
    ncu = a_profiler(tmp_path, 'echo {} >"$report"; exit', kind=NcuProfiler)
    (note,) = ncu.run([job("sdpa", "s512")]).notes

    assert note.message == "ncu: kernels.ncu-rep: not an ncu report: it looks like JSON"


def counted(values, launches=2):
    """Return the registers of each launch of a case whose GPU kernels ncu saw in this order."""
    metric = BY_NAME["registers_per_thread"]
    seen = [Launch(place, name, ("mine",), {metric.ncu: Reading(value)}) for place, (name, value) in enumerate(values)]
    other = Launch(9, "gemm", ("other",), {metric.ncu: Reading(255.0)})
    report = Counters((*seen, other))
    return [launch[metric.name] for launch in case_counters(report, "mine", ["gemm"], launches, [metric])]


def test_the_counters_of_a_case_are_those_of_each_launch_of_its_kernels():
    kernels = [("gemm_a", 40.0), ("memset", 99.0), ("gemm_b", 50.0)]

    assert [reading.value for reading in counted([*kernels, ("gemm_a", 60.0), ("gemm_b", 30.0)])] == [50.0, 60.0]
    assert counted([("memset", 99.0)]) == []


def test_if_a_launch_is_missing_no_counters_are_reported():
    lost = counted([("gemm_a", 40.0), ("gemm_b", 50.0), ("gemm_a", 40.0)])

    assert lost == [Reading(None, "register", "3 GPU kernels in 2 launches")]

    half = counted([("gemm_a", 40.0), ("gemm_b", 50.0)])

    assert half == [Reading(None, "register", "2 GPU kernels in 2 launches, not the same in each")]


def launched(**changes):
    """Return the properties of a launch of a kernel with 128 threads and no shared memory, with the given changes."""
    kernel = KernelStats("gemm", "gemm", 1, 100, 100.0, 100, 100, 0, (2, 1, 1), (128, 1, 1), 32, 0, 0)
    timeline = program_timeline([replace(kernel, **changes)], [Gpu(0, "H100", "9.0")])
    (counters,) = launch_counters(timeline)
    readings = {**counters, **timeline.metrics}
    return [readings[name].value for name in ("block_size", "grid_size", "theoretical_occupancy_pct")]


def test_values_that_the_trace_lacks_are_unknown_and_not_zero():
    assert launched() == [128.0, 2.0, 100.0]
    assert launched(grid=None) == [128.0, None, 100.0]
    assert launched(block=None) == [None, 2.0, None]
    assert launched(static_shared=None, dynamic_shared=None) == [128.0, 2.0, None]


def code(*texts, name="f", file="", line=0, samples=0.0):
    return Code(name, ("ci-perf:k/a",), tuple(Instruction(text, file, line, samples) for text in texts))


def test_the_lines_of_a_case_have_the_place_of_their_file_in_the_tree_and_the_spills_in_them(tmp_path):
    (tmp_path / "kernels/k").mkdir(parents=True)
    (tmp_path / "kernels/k/k.cu").touch()
    by_path = code("LDL R1, [R2]", "FADD R1, R2", file=f"{tmp_path}/kernels/k/k.cu", line=7, samples=20.0)
    by_name = code("LDL R1, [R2]", file="k.cu", line=7, samples=10.0)
    by_current_folder = code("LDL R1, [R2]", file=f"{tmp_path}/k.cu", line=7, samples=10.0)
    other = code("FADD R1, R2", file="/usr/include/cuda/x.h", line=9, samples=40.0)

    of_kernel = (by_path, by_name, by_current_folder)
    assert source_lines(located(found, tmp_path, "kernels/k") for found in (*of_kernel, other, code("EXIT"))) == (
        SourceLine("kernels/k/k.cu", 7, samples_pct=60.0, spills=3),
        SourceLine("x.h", 9, samples_pct=40.0),
    )


@pytest.mark.parametrize(
    ("base", "head", "expected"),
    [
        ([code("MOV R1, R2")], [code("MOV R7, R9")], None),
        ([code("MOV R1, R2")], [code("MOV R1, R2", "LDL R1, [R2]")], "+LDL R, [R]"),
        ([code("EXIT", name="old")], [code("NOP", name="new")], "-EXIT"),
        ([code("EXIT")], [code("EXIT"), code("NOP", name="g")], "+++ head: g"),
    ],
)
def test_the_machine_code_of_a_case_is_compared_without_numbers_of_registers(tmp_path, base, head, expected):
    old, new = (Profiled(codes={"ci-perf:k/a": tuple(codes)}) for codes in (base, head))
    write_differences(tmp_path, [job("k", "a")], old, new)
    file = tmp_path / "sass/k.a.diff"

    assert file.is_file() == (expected is not None)
    assert expected is None or expected in file.read_text().splitlines()
