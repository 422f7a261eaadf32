"""The order of the main job, on a fake machine that returns scripted results."""

import itertools
from dataclasses import replace

import pytest

from ci_perf.judge.baseline import make_baselines
from ci_perf.judge.continued import continued, undecided
from ci_perf.judge.looks import LOOKS
from ci_perf.judge.report import build_report
from ci_perf.judge.verdict import judge
from ci_perf.measure import pair_loop
from ci_perf.measure.backend import Profiled
from ci_perf.measure.budget import Budget
from ci_perf.measure.main_job import SPARE_PROCESSES, execute
from ci_perf.measure.pair_loop import CONTROL_PAIRS, SPARE_PAIRS
from ci_perf.values.codec import dump_run, load_run
from ci_perf.values.errors import ConfigError
from ci_perf.values.job import select_jobs
from ci_perf.values.measurement import Cost, Failure, Pair, Replicate, SameCode, Verification
from ci_perf.values.reasons import Reason, Verdict
from ci_perf.values.run import Against, Note
from ci_perf.values.trace import CaseTimeline, Reading
from tests.builders import STEADY, a_baseline, a_cpu, a_device, a_measurement, a_run, a_spec

SOUND = (Verification(0.0, 0.01, "launch"), Cost(1e9, 2e6))
WRONG = Failure("verify", "wrong-output", "largest error against the reference is 1")
SPECS = (a_spec("gemm", devices=("cpu", "cuda")), a_spec("sdpa"))


class ScriptedMachine:
    """A fake machine on which the times of cases are scaled by `factor`, and which fails as `failures` says."""

    def __init__(self, *, factor=None, failures=None, profiled=(), disturbances=()):
        self.disturbances = {"sdpa/s128": iter(disturbances)}
        self.factor = factor or {}
        self.failures = failures or {}
        self.profiled = profiled
        self.log = []

    def verify(self, jobs):
        for job in jobs:
            self.log.append(("verify", job.id, job.device))
            yield job, self.failures.get(("verify", job.id), SOUND)

    def time(self, jobs, *, batch, turn):
        self.log.append(("turn", batch, turn))
        for job in reversed(jobs):
            self.log.append(("time", job.id, job.device))
            seconds = STEADY[turn % len(STEADY)] * self.factor.get(job.id, 1.0)
            failure = self.failures.get(("time", job.id, batch, turn))
            disturbed = next(self.disturbances.get(job.id, iter(())), ())
            yield job, failure or Replicate((seconds,), 100, "cuda-graph", batch, disturbed=disturbed)

    def profile(self, jobs, changed=()):
        self.log.append(("profile", *((job.id, job.device) for job in jobs)))
        self.changed = [job.id for job in changed]
        yield from self.profiled

    def seconds_used(self):
        return 1.25 * len(self.log)

    def timed(self, case):
        return sum(1 for entry in self.log if entry[:2] == ("time", case))


class Quiet:
    """Progress that counts the stages and draws nothing."""

    def __init__(self):
        self.stages = []

    def begin(self, stage, steps):
        self.stages.append((stage, steps, 0))

    def step(self, what):
        del what
        stage, steps, done = self.stages[-1]
        self.stages[-1] = (stage, steps, done + 1)


class Disk:
    """Keeps every run that is saved."""

    def __init__(self):
        self.runs = []

    def save(self, run):
        self.runs.append(run)


def go(machine, *, processes=2, devices=None, baselines=(), disk=None, progress=None, specs=SPECS):
    devices = devices or (a_device(),)
    run = a_run(kernels=specs, devices=devices, baselines=baselines, measurements=(), finished=False)
    jobs = select_jobs(specs, [], [device.kind for device in devices])
    disk, progress = disk or Disk(), progress or Quiet()
    return execute(run, jobs, machine, processes=processes, save=disk.save, progress=progress)


def of(run, kernel, device="cuda"):
    return next(m for m in run.measurements if (m.kernel, m.device) == (kernel, device))


def verdict_of(run, kernel):
    return next(finding for finding in judge(run) if finding.kernel == kernel)


def test_every_case_is_verified_before_any_is_timed_and_all_are_timed_before_any_is_profiled():
    machine = ScriptedMachine()
    run = go(machine)

    assert machine.log == [
        ("verify", "gemm/s128", "cuda"),
        ("verify", "sdpa/s128", "cuda"),
        ("turn", 0, 0),
        ("time", "sdpa/s128", "cuda"),
        ("time", "gemm/s128", "cuda"),
        ("turn", 0, 1),
        ("time", "sdpa/s128", "cuda"),
        ("time", "gemm/s128", "cuda"),
        ("profile", ("gemm/s128", "cuda"), ("sdpa/s128", "cuda")),
    ]
    assert run.finished
    assert [(m.id, len(m.replicates), m.verification) for m in run.measurements] == [
        ("gemm/s128", 2, SOUND[0]),
        ("sdpa/s128", 2, SOUND[0]),
    ]


def test_a_case_with_a_wrong_output_is_neither_timed_nor_profiled_and_the_others_are():
    machine = ScriptedMachine(failures={("verify", "sdpa/s128"): WRONG})
    run = go(machine)

    assert (machine.timed("sdpa/s128"), machine.timed("gemm/s128")) == (0, 2)
    assert machine.log[-1] == ("profile", ("gemm/s128", "cuda"))
    assert of(run, "sdpa").failure == WRONG
    assert of(run, "gemm").failure is None


def test_a_case_that_fails_while_it_is_timed_is_not_started_again():
    hung = Failure("time", "timeout", "no answer within 120 s")
    machine = ScriptedMachine(failures={("time", "gemm/s128", 0, 1): hung})
    run = go(machine, processes=4)

    assert (machine.timed("gemm/s128"), machine.timed("sdpa/s128")) == (2, 4)
    assert of(run, "gemm").failure == hung
    assert machine.log[-1] == ("profile", ("sdpa/s128", "cuda"))


def test_nothing_is_timed_if_every_case_is_wrong():
    machine = ScriptedMachine(failures={("verify", "gemm/s128"): WRONG, ("verify", "sdpa/s128"): WRONG})
    progress = Quiet()
    run = go(machine, progress=progress)

    assert machine.log[2:] == [("profile",)]
    assert [stage for stage, _, _ in progress.stages] == ["verify"]
    assert run.finished


@pytest.mark.parametrize(("factor", "verdict"), [(1.08, Verdict.REGRESSION), (0.8, Verdict.SPEEDUP)])
def test_a_candidate_is_measured_again_in_another_batch_and_only_then_decided(factor, verdict):
    machine = ScriptedMachine(factor={"sdpa/s128": factor})
    run = go(machine, processes=6, baselines=(a_baseline(), a_baseline(kernel="gemm")))

    assert (machine.timed("gemm/s128"), machine.timed("sdpa/s128")) == (6, 12)
    assert [r.batch for r in of(run, "sdpa").replicates] == [0] * 6 + [1] * 6
    verdicts = {f.kernel: f.verdict for f in judge(run)}
    assert verdicts == {"gemm": Verdict.UNCHANGED, "sdpa": verdict}

    assert machine.changed == ["sdpa/s128"], "these are profiled for every counter"


def test_unchanged_cases_are_measured_once():
    machine = ScriptedMachine()
    go(machine, processes=6, baselines=(a_baseline(), a_baseline(kernel="gemm")))

    assert (machine.timed("gemm/s128"), machine.timed("sdpa/s128")) == (6, 6)
    assert machine.changed == []


def test_a_candidate_is_confirmed_on_its_own_device_only():
    machine = ScriptedMachine(factor={"gemm/s128": 1.5})
    run = go(machine, processes=6, devices=(a_cpu(), a_device()), baselines=(a_baseline(kernel="gemm"),))

    assert len(of(run, "gemm", "cuda").replicates) == 12
    assert len(of(run, "gemm", "cpu").replicates) == 6


def test_only_successful_cases_on_a_gpu_are_profiled():
    machine = ScriptedMachine(failures={("verify", "gemm/s128"): WRONG})
    go(machine, devices=(a_cpu(), a_device()))

    assert machine.log[-1] == ("profile", ("sdpa/s128", "cuda"))


def test_results_and_notes_of_profilers_are_saved():
    registers = ({"registers_per_thread": Reading(64.0)},) * 2
    timeline = CaseTimeline(10, ())
    machine = ScriptedMachine(
        profiled=(
            Profiled(timelines={"ci-perf:sdpa/s128": timeline}, notes=(Note("nsys-warning", "one event was lost"),)),
            Profiled(counters={"ci-perf:gemm/s128": registers}, notes=(Note("ncu-no-range", "saw no GPU kernel"),)),
        )
    )
    run = go(machine)

    assert (of(run, "sdpa").timeline, of(run, "sdpa").counters) == (timeline, ())
    assert (of(run, "gemm").timeline, of(run, "gemm").counters) == (None, registers)
    assert [note.code for note in run.notes] == ["nsys-warning", "ncu-no-range"]


def test_the_run_is_saved_after_every_step_and_finished_only_at_the_end():
    disk, machine = Disk(), ScriptedMachine(profiled=(Profiled(),))
    last = go(machine, disk=disk)

    # The blank, two verified, four timed, one profiler, the end.
    assert len(disk.runs) == 9
    assert [run.finished for run in disk.runs] == [False] * 8 + [True]
    assert [sum(len(m.replicates) for m in run.measurements) for run in disk.runs] == [0, 0, 0, 1, 2, 3, 4, 4, 4]
    assert all(load_run(dump_run(run), "run.json") == run for run in disk.runs)
    assert last == disk.runs[-1]
    assert last.gpu_seconds == round(machine.seconds_used(), 1)


def test_what_was_measured_before_an_interruption_is_saved():
    class Interrupted(ScriptedMachine):
        def time(self, jobs, *, batch, turn):
            if turn == 1:
                raise KeyboardInterrupt
            yield from super().time(jobs, batch=batch, turn=turn)

    disk = Disk()
    with pytest.raises(KeyboardInterrupt):
        go(Interrupted(), disk=disk)

    assert [len(m.replicates) for m in disk.runs[-1].measurements] == [1, 1]
    assert not disk.runs[-1].finished


def test_a_disturbed_process_is_measured_again_with_a_note():
    other_program = ("python (77)",)
    run = go(
        ScriptedMachine(disturbances=((), other_program, other_program, ())), processes=6, baselines=(a_baseline(),)
    )

    assert [replicate.disturbed for replicate in of(run, "sdpa").replicates] == [()] * 6
    assert [(note.code, note.message) for note in run.notes] == [
        ("measured-again", "processes that were disturbed, and measured again: sdpa/s128 (2); python (77)")
    ]
    assert verdict_of(run, "sdpa").verdict is Verdict.UNCHANGED


def test_a_case_that_is_always_disturbed_is_inconclusive_and_cannot_become_a_baseline():
    machine = ScriptedMachine(factor={"sdpa/s128": 1.2}, disturbances=(("python (77)",),) * 5)
    run = go(machine, processes=6, baselines=(a_baseline(),))

    found = verdict_of(run, "sdpa")
    assert (found.verdict, found.code) == (Verdict.INCONCLUSIVE, "disturbed")
    assert found.sentence == "2 of 6 processes were disturbed: python (77)"
    assert len(of(run, "sdpa").timed) == 4
    assert machine.log.count(("time", "sdpa/s128", "cuda")) == 6 + SPARE_PROCESSES, "once in vain is enough"
    with pytest.raises(ConfigError, match=r"`sdpa/s128` was disturbed: python \(77\)"):
        make_baselines(run, ["sdpa"], "me", "run.json")


def test_each_stage_announces_its_number_of_steps():
    progress = Quiet()
    machine = ScriptedMachine(factor={"sdpa/s128": 1.08}, profiled=(Profiled(), Profiled()))
    go(machine, processes=6, baselines=(a_baseline(), a_baseline(kernel="gemm")), progress=progress)

    assert progress.stages == [("verify", 2, 2), ("time", 12, 12), ("confirm", 6, 6), ("profile", 2, 2)]


def test_a_run_without_cases_finishes_empty():
    spec = replace(SPECS[0], cpu_cases=())
    run = go(ScriptedMachine(), devices=(a_cpu(),), specs=(spec,))

    assert (run.measurements, run.finished) == ((), True)


# --- against a base ---

AGREED = (0.999, 1.0, 1.001, 1.0005, 0.9995)
"""head / base of pairs that lead to a decision."""
OPEN = (0.97, 1.05, 0.95, 1.06)
"""head / base of pairs that never lead to a decision."""


class TurnsMachine(ScriptedMachine):
    """A fake machine on which pairs have scripted ratios, which are repeated, and scripted durations."""

    touched = ()

    def __init__(self, *, ratios=None, lasts=None, base=None, disturbed=None, identical=(), proven=(), control=AGREED):
        super().__init__()
        self.ratios = {name: itertools.cycle(found) for name, found in (ratios or {}).items()}
        self.lasts, self.base, self.identical, self.proven = lasts or {}, base or {}, identical, proven
        self.disturbed = {name: itertools.cycle(found) for name, found in (disturbed or {}).items()}
        self.control_ratios = itertools.cycle(control)
        self.seconds = 100.0
        self.start = 0
        self.numbers, self.control_numbers = [], []

    def start_anew(self, jobs, pairs):
        self.log.append(("start anew", [job.id for job in jobs], pairs))
        self.start += 1

    def pairs(self, jobs, number):
        self.numbers.append(number)
        for job in jobs:
            self.log.append(("pair", job.id))
            self.seconds += self.lasts.get(job.id, 1.0)
            found = self.pair(job, next(self.ratios.setdefault(job.id, itertools.cycle(AGREED))))
            disturbed = next(self.disturbed.get(job.id, iter(((),))))
            if job.id in self.proven:
                yield job, SameCode()
                continue
            yield job, replace(found, identical=job.id in self.identical, disturbed=disturbed)

    def control(self, job, number):
        self.control_numbers.append(number)
        self.log.append(("control", job.id))
        disturbed = next(self.disturbed.get("control", iter(((),))))
        return replace(self.pair(job, next(self.control_ratios)), disturbed=disturbed)

    def pair(self, job, ratio):
        base = self.base.get(job.id, 50e-6)
        return Pair((base,) * 4, (base * ratio,) * 4, 100, "cuda-graph", start=self.start)

    def now(self):
        return self.seconds

    def paired(self, case):
        return self.log.count(("pair", case))


def take_turns(machine, *, budget=Budget(), specs=SPECS, progress=None):  # noqa: B008 # frozen
    """Return a run against a base, its exit status, and its findings by kernel."""
    run = a_run(kernels=specs, against=Against("main", "abc"), measurements=(), finished=False)
    jobs = select_jobs(specs, [], ["cuda"])
    progress = progress or Quiet()
    run = execute(run, jobs, machine, processes=1, save=lambda run: None, progress=progress, budget=budget)  # noqa: ARG005
    report = build_report(run)
    return run, report.exit_status, {row.finding.kernel: row.finding for row in report.rows}


def test_no_pair_is_started_that_would_exceed_the_budget():
    machine = TurnsMachine(ratios={"gemm/s128": OPEN, "sdpa/s128": OPEN})
    _, exit_status, found = take_turns(machine, budget=Budget(total_s=7.5))

    assert (machine.paired("gemm/s128"), machine.paired("sdpa/s128"), machine.seconds) == (5, 2, 107.0)
    assert {(f.verdict, f.code) for f in found.values()} == {(Verdict.INCONCLUSIVE, "budget-spent")}
    assert "after 5 pairs, and the budget is spent" in found["gemm"].sentence
    assert exit_status == 0


def test_a_budget_that_is_too_short_for_all_goes_to_the_cases_that_it_can_decide():
    """Most of the second half is decided, although the first half never is, in the time of 2.5 pairs of each case."""
    names = [f"n{number:02}" for number in range(100)]
    hard = {f"gemm/{name}": (0.95, 1.06) for name in names[:50]}
    spec = a_spec("gemm", cases={name: {"n": name} for name in names})
    machine = TurnsMachine(ratios=hard)
    run, _, _ = take_turns(machine, specs=(spec,), budget=Budget(total_s=250.0))

    decided = [f.case for f in judge(run) if f.code == "within-noise"]
    assert len(decided) >= 45
    assert machine.seconds <= 350.0 + CONTROL_PAIRS
    assert max(machine.paired(f"gemm/{name}") for name in names[50:]) == 3


def test_a_budget_that_is_too_short_decides_as_many_cases_as_fit_and_begins_no_others():
    """Four kernels: each gets a part of it. What is left of 100 s after 33 cases does not suffice for another."""
    specs = tuple(a_spec(f"k{kernel}", cases={f"n{case}": {"n": case} for case in range(50)}) for kernel in range(4))
    run, _, _ = take_turns(TurnsMachine(), specs=specs, budget=Budget(total_s=100.0))

    codes = [finding.code for finding in judge(run)]
    assert (codes.count("within-noise"), codes.count("budget-spent")) == (33, 167)
    assert {len(m.pairs) for m in run.measurements} == {0, 3}
    assert {m.kernel for m in run.measurements if m.pairs} == {"k0", "k1", "k2"}
    (note,) = (note for note in run.notes if note.code == "budget-spent")
    assert note.message.startswith("there was no time to decide 167 cases within 100 s: about 610 s in all would")
    assert note.hint.startswith("`--budget 610`, ")


@pytest.mark.parametrize("total_s", [18.0, 21.0, 24.0])
def test_the_note_of_a_short_budget_counts_the_cases_whose_rows_say_that_it_is_spent(total_s):
    """Of the first case some pairs are missing to its next look, the second one has two."""
    machine = TurnsMachine(ratios={"gemm/s128": OPEN, "sdpa/s128": OPEN})
    run, _, found = take_turns(machine, budget=Budget(total_s=total_s))

    assert {finding.code for finding in found.values()} == {"budget-spent"}
    (note,) = (note for note in run.notes if note.code == "budget-spent")
    assert note.message.startswith("there was no time to decide 2 cases")


def test_the_hint_of_a_short_budget_names_as_many_seconds_as_its_note():
    run, _, _ = take_turns(TurnsMachine(), budget=Budget(total_s=0.25))

    (note,) = (note for note in run.notes if note.code == "budget-spent")
    assert "about 5.4 s in all would" in note.message
    assert note.hint.startswith("`--budget 5.4`, ")


def test_with_a_budget_that_is_too_short_kernels_whose_files_differ_are_decided_first():
    specs = tuple(a_spec(f"k{n}", cases={f"c{m}": {"size": m} for m in range(20)}) for n in range(4))
    machine = TurnsMachine()
    machine.touched = {"k2"}
    run, _, _ = take_turns(machine, specs=specs, budget=Budget(total_s=100.0))

    decided = [row.finding.kernel for row in build_report(run).rows if row.finding.verdict is Verdict.UNCHANGED]
    assert decided.count("k2") == 20
    assert len(decided) == 33, "as many as without such a kernel"

    slower = {f"k2/c{m}": (1.1, 1.101) for m in range(20)}
    machine = TurnsMachine(ratios=slower)
    machine.touched = {"k2"}
    run, _, _ = take_turns(machine, specs=specs, budget=Budget(total_s=300.0))
    decided = [row.finding.id for row in build_report(run).rows if row.finding.verdict is Verdict.REGRESSION]
    assert set(decided) == set(slower)

    machine = TurnsMachine(ratios={f"k2/c{m}": OPEN for m in range(20)})
    machine.touched = {"k2"}
    run, _, _ = take_turns(machine, specs=specs, budget=Budget(total_s=200.0))
    decided = [row.finding.kernel for row in build_report(run).rows if row.finding.verdict is Verdict.UNCHANGED]
    assert len(decided) > 30, "what is not decided soon does not keep others from being measured"


def test_with_a_budget_that_is_too_short_one_change_of_each_kernel_is_decided_before_unchanged_cases():
    specs = tuple(a_spec(f"k{kernel}", cases={f"n{case}": {"n": case} for case in range(50)}) for kernel in range(3))
    slower = {f"k{kernel}/n{case}": (1.08, 1.081) for kernel in (0, 2) for case in range(20)}
    run, exit_status, _ = take_turns(TurnsMachine(ratios=slower), specs=specs, budget=Budget(total_s=180.0))

    found = judge(run)
    assert {f.kernel for f in found if f.verdict is Verdict.REGRESSION} == {"k0", "k2"}
    assert sum(f.verdict is Verdict.UNCHANGED for f in found) >= 16
    assert exit_status == 1


def test_a_case_that_the_end_of_the_run_decides_is_not_one_that_there_was_no_time_for():
    """It is undecided at the look after three pairs; the end of the run is a look after four."""
    machine = TurnsMachine(ratios={"gemm/s128": (0.985, 0.985, 1.01, 0.985)})
    run, _, found = take_turns(machine, budget=Budget(total_s=4.0), specs=(a_spec("gemm"),))

    assert (len(of(run, "gemm").pairs), found["gemm"].code, run.notes) == (4, "within-noise", ())


def test_a_case_that_its_own_budget_stopped_does_not_ask_for_more_of_the_total():
    run, _, found = take_turns(TurnsMachine(ratios={"gemm/s128": OPEN}), budget=Budget(total_s=100.0, case_s=4.0))

    assert (found["gemm"].code, run.notes) == ("budget-spent", ())


def test_the_budget_that_a_run_asks_for_decides_all_of_its_cases():
    specs = tuple(a_spec(f"k{kernel}", cases={f"n{case}": {"n": case} for case in range(50)}) for kernel in range(4))
    run, _, _ = take_turns(TurnsMachine(), specs=specs, budget=Budget(total_s=610.0))

    assert {finding.code for finding in judge(run)} == {"within-noise"}
    assert not run.notes


def test_the_first_pairs_which_include_the_imports_do_not_make_the_others_seem_too_expensive():
    class Importing(TurnsMachine):
        def pairs(self, jobs, number):
            self.seconds += 0.0 if any(entry[0] == "pair" for entry in self.log) else 40.0
            yield from super().pairs(jobs, number)

    spec = a_spec("gemm", cases={f"n{number:03}": {"n": number} for number in range(100)})
    run, _, _ = take_turns(Importing(), specs=(spec,), budget=Budget(total_s=100.0))

    assert [finding.code for finding in judge(run)].count("within-noise") == 19


def test_new_starts_of_workers_count_for_what_a_decision_takes():
    """A slower case would take five more starts of 20 s: the others are decided first."""

    class Starting(TurnsMachine):
        def start_anew(self, jobs, pairs):
            super().start_anew(jobs, pairs)
            self.seconds += 20.0

    spec = a_spec("gemm", cases={f"n{number:03}": {"n": number} for number in range(40)})
    machine = Starting(ratios={"gemm/n000": (1.05, 1.051)})
    run, _, _ = take_turns(machine, specs=(spec,), budget=Budget(total_s=150.0))

    assert [finding.code for finding in judge(run)].count("within-noise") == 39


def test_a_case_that_spent_its_budget_does_not_reduce_the_budget_of_the_others():
    machine = TurnsMachine(ratios={"gemm/s128": (1.5,), "sdpa/s128": OPEN}, lasts={"gemm/s128": 3.0})
    _, exit_status, found = take_turns(machine, budget=Budget(case_s=5.5))

    assert (machine.paired("gemm/s128"), machine.paired("sdpa/s128")) == (1, 5)
    assert (found["gemm"].verdict, found["gemm"].code) == (Verdict.INCONCLUSIVE, "budget-spent")
    assert "after one pair" in found["gemm"].sentence
    assert found["sdpa"].code == "budget-spent"
    assert exit_status == 0


def test_a_case_that_is_decided_within_its_budget_has_a_verdict():
    _, _, found = take_turns(TurnsMachine(ratios={"gemm/s128": (1.1, 1.101)}), budget=Budget(case_s=8.5))

    assert {name: f.code for name, f in found.items()} == {"gemm": "slower", "sdpa": "within-noise"}


def test_a_disturbed_pair_is_measured_again_does_not_count_and_is_named():
    other_program = ("python (77)",)
    machine = TurnsMachine(
        ratios={"gemm/s128": (1.0, 9.0, 1.0, 9.0, 9.0, 1.001)},
        disturbed={"gemm/s128": ((), other_program, (), other_program, other_program, ())},
    )
    _, _, found = take_turns(machine)

    assert (machine.paired("gemm/s128"), machine.paired("sdpa/s128")) == (6, 3)
    assert found["gemm"].code == "within-noise"
    assert found["gemm"].sentence.endswith("; 3 more pairs do not count: python (77)")
    assert found["gemm"].head == pytest.approx(50e-6, rel=1e-3)


def test_if_memory_runs_out_pairs_timed_by_another_method_do_not_count():
    class Narrow(TurnsMachine):
        def pairs(self, jobs, number):
            for job, pair in super().pairs(jobs, number):
                yield job, replace(pair, method="cuda-graph/alternating") if self.paired("gemm/s128") > 2 else pair

    machine = Narrow(ratios={"gemm/s128": (2.0, 2.0, 1.0, 1.001, 0.999, 1.0, 1.0)})
    run, _, found = take_turns(machine)

    assert of(run, "gemm").methods == ("cuda-graph/alternating",)
    assert found["gemm"].code == "within-noise"
    assert found["gemm"].sentence.endswith("; 2 more pairs do not count: timed by cuda-graph")


def test_a_disturbed_pair_of_another_method_does_not_affect_the_others():
    pair = Pair((50e-6,) * 4, (60e-6,) * 4, 100, "cuda-graph")
    other = replace(pair, method="cuda-graph/alternating", disturbed=("python (77)",))

    assert a_measurement(replicates=(), pairs=(*(pair,) * 5, other)).sound_pairs == (pair,) * 5


def test_a_run_that_ends_before_its_control_is_inconclusive():
    pair = Pair((50e-6,) * 4, (60e-6,) * 4, 100, "cuda-graph")
    run = a_run(a_measurement(pairs=(pair,) * 5), against=Against("main", "abc"), finished=False)
    (finding,) = judge(run)

    assert (finding.verdict, finding.code) == (Verdict.INCONCLUSIVE, "no-control")
    assert finding.sentence.startswith("the run ended before the base was measured against itself")


def test_the_sentence_of_a_case_left_out_by_the_budget_says_so():
    _, _, found = take_turns(TurnsMachine(lasts={"gemm/s128": 9.0}), budget=Budget(total_s=5.0))

    assert (found["sdpa"].code, found["sdpa"].sentence) == ("budget-spent", "the budget was spent before it was timed")


def test_a_case_whose_every_pair_is_disturbed_is_given_up_after_the_first_look():
    machine = TurnsMachine(disturbed={"gemm/s128": (("hw-slowdown",), ("python (77)",))})
    _, exit_status, found = take_turns(machine)

    assert machine.paired("gemm/s128") == LOOKS[0] + SPARE_PAIRS
    assert (found["gemm"].verdict, found["gemm"].code) == (Verdict.INCONCLUSIVE, "disturbed")
    assert found["gemm"].sentence == "every pair was disturbed: hw-slowdown, python (77)"
    assert (found["sdpa"].code, exit_status) == ("within-noise", 0)


def test_a_control_that_is_always_disturbed_is_given_up_and_the_session_is_not_checked():
    machine = TurnsMachine(disturbed={"control": (("python (77)",),)})
    run, _, found = take_turns(machine)

    assert len(run.against.control) == CONTROL_PAIRS + SPARE_PAIRS
    assert {(f.verdict, f.code) for f in found.values()} == {(Verdict.INCONCLUSIVE, "no-control")}
    assert "in 0 of at least 4 pairs (gemm/s128), which was disturbed by python (77): this" in found["gemm"].sentence


def test_the_control_takes_four_pairs_and_one_more_for_each_look():
    run, _, _ = take_turns(TurnsMachine(ratios={"gemm/s128": OPEN}))

    assert len(run.against.control) == CONTROL_PAIRS + len(LOOKS) - 1


def continue_run(run, machine, budget=Budget()):  # noqa: B008 # frozen
    """Return a run that continues a finished one, and its findings by kernel."""
    run = replace(run, measurements=continued(run))
    jobs = select_jobs(SPECS, [], ["cuda"])
    run = execute(run, jobs, machine, processes=1, save=lambda run: None, progress=Quiet(), budget=budget)  # noqa: ARG005
    return run, {finding.kernel: finding for finding in judge(run)}


def test_a_finished_run_goes_on_with_the_pairs_of_its_undecided_cases_alone():
    first, _, found = take_turns(TurnsMachine(ratios={"gemm/s128": OPEN}))
    assert (found["gemm"].code, found["sdpa"].code) == ("interval-too-wide", "within-noise")

    machine = TurnsMachine(ratios={"gemm/s128": OPEN})
    second, found = continue_run(first, machine)

    assert (machine.paired("gemm/s128"), machine.paired("sdpa/s128")) == (24, 0)
    assert of(second, "gemm").pairs[:24] == of(first, "gemm").pairs
    assert len(second.against.control) == len(first.against.control) + CONTROL_PAIRS
    assert ("profile", ("gemm/s128", "cuda")) in machine.log
    assert (of(second, "gemm").looked, found["sdpa"].code) == ((24,), "within-noise")

    third, found = continue_run(second, TurnsMachine(ratios={"gemm/s128": (1.0, 1.001, 0.999)}))

    assert (len(of(third, "gemm").pairs), of(third, "gemm").looked) == (72, (24, 48))
    assert load_run(dump_run(third), "run.json") == third


class Lacking(TurnsMachine):
    """A fake machine on which the pairs of some kernels have another answer; their control would be a bug."""

    def __init__(self, answers):
        super().__init__()
        self.answers = answers

    def pairs(self, jobs, number):
        yield from ((job, self.answers[job.spec.name]) for job in jobs if job.spec.name in self.answers)
        yield from super().pairs([job for job in jobs if job.spec.name not in self.answers], number)

    def control(self, job, number):
        assert job.spec.name not in self.answers
        return super().control(job, number)


def test_new_cases_say_nothing_of_what_a_pair_takes():
    """All cases of one kernel begin before the others, and take no time."""
    new, old = (a_spec(name, cases={f"n{number}": {"n": number} for number in range(40)}) for name in ("gemm", "sdpa"))
    run, _, _ = take_turns(Lacking({"gemm": Reason.NOT_IN_BASE}), specs=(new, old), budget=Budget(total_s=60.0))

    pairs = [len(m.pairs) for m in run.measurements if m.kernel == "sdpa"]
    assert (pairs.count(3), pairs.count(0)) == (20, 20)


@pytest.mark.parametrize("budget", [Budget(), Budget(total_s=1000.0)], ids=["no limit", "a limit"])
def test_no_control_is_of_a_kernel_that_the_base_lacks(budget):
    """With a limit, the first cases that begin are new, and of the next ones it is not known yet."""
    new = a_spec("gemm", cases={f"n{number}": {"n": number} for number in range(5)})
    _, _, found = take_turns(Lacking({"gemm": Reason.NOT_IN_BASE}), specs=(new, a_spec("sdpa")), budget=budget)

    assert (found["gemm"].verdict, found["sdpa"].verdict) == (Verdict.NEW, Verdict.UNCHANGED)


def test_a_run_that_goes_on_tells_that_its_last_case_fails_now():
    first, _, _ = take_turns(TurnsMachine(ratios={"gemm/s128": OPEN}))
    _, found = continue_run(first, Lacking({"gemm": Failure("time", "crashed", "gone")}))

    assert (found["gemm"].verdict, found["sdpa"].verdict) == (Verdict.FAILED, Verdict.UNCHANGED)


def test_a_finished_run_measures_only_what_is_missing_where_the_rest_is_decided():
    first, _, found = take_turns(TurnsMachine(ratios={"gemm/s128": (1.2, 1.201, 1.199)}))
    machine = TurnsMachine()
    same, found = continue_run(first, machine)

    assert (machine.log, same.measurements, same.finished) == ([], first.measurements, True)
    assert found["gemm"].code == "slower"

    lacking = replace(first, measurements=tuple(m for m in first.measurements if m.kernel == "gemm"))
    again, found = continue_run(lacking, machine)

    assert (machine.paired("gemm/s128"), machine.paired("sdpa/s128")) == (0, LOOKS[0])
    assert (found["gemm"].code, found["sdpa"].code) == ("slower", "within-noise")
    assert len(again.against.control) == len(first.against.control) + CONTROL_PAIRS


def test_a_run_that_spent_its_budget_goes_on_to_the_looks_that_are_left():
    first, _, _ = take_turns(TurnsMachine(ratios={"gemm/s128": OPEN}), budget=Budget(case_s=9.0))
    machine = TurnsMachine(ratios={"gemm/s128": (1.0,)})

    second, found = continue_run(first, machine)

    assert (of(second, "gemm").looked, machine.paired("gemm/s128")) == ((9,), 15)
    assert found["gemm"].code == "within-noise"


def test_of_a_run_that_is_decided_or_cannot_be_believed_nothing_is_undecided():
    decided, _, _ = take_turns(TurnsMachine())
    doubted, _, _ = take_turns(TurnsMachine(ratios={"gemm/s128": OPEN}, control=(1.05, 1.051)))

    assert undecided(decided) == undecided(doubted) == undecided(replace(decided, against=None)) == ()


def test_a_case_that_seems_changed_is_measured_by_workers_that_start_anew_for_each_pair():
    machine = TurnsMachine(ratios={"gemm/s128": (1.05, 1.051), "sdpa/s128": OPEN})
    run, _, found = take_turns(machine)

    assert [pair.start for pair in of(run, "gemm").pairs] == [0, 0, 0, 1, 2, 3, 4, 5]
    assert found["gemm"].code == "slower"
    assert [entry for entry in machine.log if entry[0] == "start anew"] == [
        ("start anew", ["gemm/s128"], pairs) for pairs in (5, 4, 3, 2, 1)
    ]
    assert of(run, "sdpa").pairs[-1].start == 5


class Twins(TurnsMachine):
    """A fake machine on which the controls fail as scripted."""

    def __init__(self, fails, **more):
        super().__init__(**more)
        self.fails = itertools.chain(fails, itertools.repeat(fails[-1]))

    def control(self, job, number):
        pair = super().control(job, number)
        return Failure("time", "crashed", "gone") if next(self.fails) else pair


def test_a_control_is_given_up_after_two_failures_in_a_row_with_one_note():
    machine = Twins([True], ratios={"gemm/s128": OPEN})
    run, _, found = take_turns(machine)

    assert machine.log.count(("control", "gemm/s128")) == 2 * len(LOOKS)
    assert [note.message for note in run.notes] == ["the base could not be measured against itself: gone"]
    assert found["sdpa"].code == "no-control"


@pytest.mark.parametrize("fails", [[True, False], [False, True, False, False], [False] * 5 + [True]])
def test_a_control_that_fails_occasionally_still_gets_its_pairs(fails):
    run, _, found = take_turns(Twins(fails, ratios={"gemm/s128": OPEN}))

    assert len(run.against.control) >= CONTROL_PAIRS
    assert (run.notes, found["sdpa"].code) == ((), "within-noise")


def test_endless_disturbances_cost_a_few_pairs_per_look_and_are_not_reported_as_a_spent_budget():
    machine = TurnsMachine(
        ratios={"gemm/s128": OPEN}, disturbed={"gemm/s128": ((), ("python (77)",), ("python (77)",), ())}
    )
    _, _, found = take_turns(machine)

    assert machine.paired("gemm/s128") == 37  # of which 25 are undisturbed
    assert found["gemm"].code == "interval-too-wide"


RESTLESS = (0.97, 1.08, 1.0)
"""2 % slower on average by chance."""


def test_the_same_machine_code_is_unchanged_whatever_the_times_are():
    _, _, found = take_turns(TurnsMachine(ratios={"gemm/s128": RESTLESS}, identical=("gemm/s128",)))

    assert (found["gemm"].verdict, found["gemm"].code) == (Verdict.UNCHANGED, "same-machine-code")
    assert found["gemm"].sentence.endswith("measured +1.6 %")
    assert found["sdpa"].code == "within-noise"


def test_a_case_with_identical_machine_code_is_unchanged_and_not_timed():
    machine = TurnsMachine(proven=("gemm/s128",), control=(1.05, 1.0501))
    run, exit_status, found = take_turns(machine)

    assert (machine.paired("gemm/s128"), exit_status) == (1, 0)
    assert [m.pairs for m in run.measurements if m.kernel == "gemm"] == [()]
    assert (found["gemm"].verdict, found["gemm"].code) == (Verdict.UNCHANGED, "same-machine-code")
    assert found["gemm"].sentence.endswith("proven, not timed")
    assert found["sdpa"].code == "control-moved"


def test_if_every_case_has_identical_machine_code_nothing_is_measured():
    machine = TurnsMachine(proven=("gemm/s128", "sdpa/s128"))
    _, exit_status, found = take_turns(machine)

    assert exit_status == 0
    assert {finding.code for finding in found.values()} == {"same-machine-code"}
    assert not [entry for entry in machine.log if entry[0] == "control"]


@pytest.mark.parametrize(
    ("script", "says"),
    [
        pytest.param(
            {"ratios": {"gemm/s128": (1.02, 1.0201)}}, "identical code differed by +2.0 %", id="same-code-moved"
        ),
        pytest.param({"control": (1.05, 1.0501)}, "the base differed from itself by +5.0 %", id="control-moved"),
    ],
)
def test_a_session_is_inconclusive_if_identical_code_repeatedly_takes_another_time(script, says):
    _, exit_status, found = take_turns(TurnsMachine(identical=("gemm/s128",), **script))

    assert {(f.verdict, f.code) for f in found.values()} == {(Verdict.INCONCLUSIVE, "control-moved")}
    assert all(f"{says} (gemm/s128)" in f.sentence for f in found.values())
    assert exit_status == 0


@pytest.mark.parametrize(("enough", "controls"), [(6, 0), (7, CONTROL_PAIRS)])
def test_enough_pairs_of_identical_code_take_the_place_of_the_control(monkeypatch, enough, controls):
    """Two cases have three pairs each."""
    monkeypatch.setattr(pair_loop, "ENOUGH_IDENTICAL", enough)
    run, exit_status, found = take_turns(TurnsMachine(identical=("gemm/s128", "sdpa/s128")))

    assert (len(run.against.control), exit_status) == (controls, 0)
    assert {finding.code for finding in found.values()} == {"same-machine-code"}
    (agreed,) = build_report(run).agreed
    assert ("; the base against itself " if controls else "; cases of identical code ") in agreed
    assert agreed.endswith(f" in {controls or 6} pairs")


def test_a_control_that_moved_counts_also_for_cases_with_identical_machine_code():
    machine = TurnsMachine(ratios={"gemm/s128": OPEN}, identical=("gemm/s128",), control=(1.05, 1.0501))
    _, _, found = take_turns(machine)

    assert {f.verdict for f in found.values()} == {Verdict.INCONCLUSIVE}


@pytest.mark.parametrize(
    ("seconds", "control"),
    [((5e-6, 30e-6, 25e-6, 400e-6), "k2"), ((20e-6, 1e-3, 19.9e-6, 1.0), "k0"), ((5e-6, 7e-6, 2e-6, 1e-6), "k1")],
)
def test_the_control_is_the_shortest_case_that_is_long_enough_else_the_longest(seconds, control):
    specs = tuple(a_spec(f"k{number}") for number in range(len(seconds)))
    machine = TurnsMachine(base={f"k{number}/s128": value for number, value in enumerate(seconds)})
    run, _, _ = take_turns(machine, specs=specs)

    assert run.against.control_case == f"{control}/s128"
    assert machine.log.count(("control", f"{control}/s128")) == len(run.against.control) == CONTROL_PAIRS


@pytest.mark.parametrize(
    ("budget", "pairs"),
    [
        (Budget(total_s=4.0), (2, 2)),
        (Budget(total_s=3.9), (2, 1)),
        (Budget(case_s=3.0), (3, 3)),
        (Budget(case_s=2.9), (2, 2)),
    ],
)
def test_a_pair_that_fits_the_budget_exactly_is_measured(budget, pairs):
    machine = TurnsMachine(ratios={"gemm/s128": OPEN, "sdpa/s128": OPEN})
    take_turns(machine, budget=budget)

    assert (machine.paired("gemm/s128"), machine.paired("sdpa/s128")) == pairs

    of_one_kernel = TurnsMachine(ratios={"gemm/s128": OPEN, "gemm/s256": OPEN})
    take_turns(of_one_kernel, budget=budget, specs=(a_spec("gemm", cases={"s128": {}, "s256": {}}),))

    assert (of_one_kernel.paired("gemm/s128"), of_one_kernel.paired("gemm/s256")) == pairs


def test_each_pair_has_its_number_and_each_look_says_how_many_steps_it_takes():
    machine, progress = TurnsMachine(ratios={"gemm/s128": OPEN}), Quiet()
    take_turns(machine, specs=(a_spec("gemm"),), progress=progress)

    assert machine.numbers == list(range(24))
    assert machine.control_numbers == list(range(CONTROL_PAIRS + len(LOOKS) - 1))
    assert progress.stages[1:4] == [("pairs to 3", 3, 3), ("pairs to 5", 2, 2), ("pairs to 8", 3, 3)]
