"""Cases shared out over jobs, and merged again."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from ci_perf.cli import program
from ci_perf.fleet.merge import merge_planned, merge_runs
from ci_perf.fleet.shards import (
    START_S,
    fewest_shards,
    matrix,
    number_decided,
    seconds_of_baselines,
    seconds_of_run,
    share_out,
)
from ci_perf.judge.report import build_report
from ci_perf.render.markdown import render_comment
from ci_perf.values.codec import dump_plan, dump_run, load_plan, load_run
from ci_perf.values.errors import ConfigError
from ci_perf.values.job import select_jobs
from ci_perf.values.measurement import Pair
from ci_perf.values.reasons import Verdict
from ci_perf.values.run import Against, Note
from tests.builders import (
    PARAMS,
    STEADY,
    a_baseline,
    a_baseline_case,
    a_cpu,
    a_device,
    a_measurement,
    a_policy,
    a_provenance,
    a_run,
    a_spec,
    times,
)

H100, L4 = a_device(), a_device(name="NVIDIA L4", power_limit_w=72.0)
GPU = ("self-hosted", "gpu")
CASES = {f"s{n}": PARAMS for n in range(6)}
SDPA, GEMM = a_spec("sdpa", cases=CASES), a_spec("gemm", cases=CASES)


def planned(shards=2, runners=(GPU,), seconds=(), specs=(SDPA, GEMM), patterns=()):
    return share_out(select_jobs(specs, patterns, ["cuda"]), patterns, shards, runners, dict(seconds))


@given(
    cost=st.lists(st.floats(0.01, 1e4), min_size=1, max_size=40),
    shards=st.integers(1, 12),
    runners=st.integers(1, 3),
)
def test_each_case_is_in_exactly_one_shard_of_each_runner(cost, shards, runners):
    spec = a_spec("k", cases={f"c{i}": {} for i in range(len(cost))})
    seconds = {f"k/c{i}": c for i, c in enumerate(cost)}
    labels = [("gpu", f"r{i}") for i in range(runners)]

    plan = planned(shards, labels, seconds, (spec,))

    for runner in labels:
        mine = [case for shard in plan.shards if shard.runner == runner for case in shard.cases]
        assert sorted(mine) == sorted(seconds)
    loads = [shard.seconds for shard in plan.shards if shard.runner == labels[0]]
    assert len(loads) == min(shards, len(cost))
    assert max(loads) <= 4 / 3 * max(sum(cost) / len(loads), *cost) + max(cost) / 3 + 1e-6
    assert len({shard.name for shard in plan.shards}) == len(plan.shards)


def test_patterns_of_a_shard_choose_its_cases_and_no_others():
    plan = planned(3, seconds={"sdpa/s0": 100.0})

    for shard in plan.shards:
        assert tuple(job.id for job in select_jobs((SDPA, GEMM), shard.patterns, ["cuda"])) == shard.cases


def test_a_long_case_has_a_shard_to_itself():
    plan = planned(2, seconds={f"{k}/{c}": 1.0 for k in ("sdpa", "gemm") for c in CASES} | {"gemm/s3": 11.0})

    assert [shard.cases for shard in plan.shards if "gemm/s3" in shard.cases] == [("gemm/s3",)]


def test_a_kernel_that_stays_whole_goes_by_its_name():
    assert planned(1).shards[0].patterns == ("sdpa", "gemm")


@pytest.mark.parametrize(
    ("costs", "most_s", "shards"),
    [((3.0,) * 1000, 3600.0, 1), ((3.7,) * 1000, 3600.0, 2), ((2.0, 2.0, 2.0), 3.0, 3), ((3.0, 2.0, 1.0), 3.0, 2)],
    ids=["1,000 cases in an hour", "hardly more", "two together are too long", "exactly"],
)
def test_a_plan_has_as_many_shards_as_the_time_of_a_job_needs(costs, most_s, shards):
    seconds = {f"k/c{i}": cost for i, cost in enumerate(costs)}
    jobs = select_jobs((a_spec("k", cases={name[2:]: {} for name in seconds}),), (), ["cuda"])

    assert fewest_shards(jobs, seconds, most_s) == shards
    assert max(shard.seconds for shard in share_out(jobs, (), shards, (GPU,), seconds).shards) <= most_s


def test_a_case_that_is_longer_than_a_job_is_named():
    jobs = select_jobs((SDPA,), (), ["cuda"])
    with pytest.raises(ConfigError, match=r"flag --within: `sdpa/s3` alone takes about 120 s"):
        fewest_shards(jobs, {job.id: 120.0 if job.case == "s3" else 1.0 for job in jobs}, 60.0)


@pytest.mark.parametrize(
    ("shards", "runners", "says"),
    [
        (12, [("gpu", f"r{i}") for i in range(22)], "are 264 jobs, GitHub takes 256"),
        (1, [("gpu", "a"), ("cpu", "a")], "two runners end in the label `a`"),
    ],
)
def test_a_plan_that_github_would_refuse_is_an_error(shards, runners, says):
    with pytest.raises(ConfigError, match=says):
        planned(shards, runners)


def test_durations_come_from_an_earlier_run_or_from_baselines():
    slow = a_measurement(times(1000), case="slow", kernel="sdpa")
    run = a_run(a_measurement(STEADY), slow, gpu_seconds=130.0)

    of_run = seconds_of_run(run)
    of_baselines = seconds_of_baselines([a_baseline()])

    assert sum(of_run.values()) == pytest.approx(130.0)
    assert of_run["sdpa/slow"] > 5 * of_run["sdpa/s128"]
    assert of_baselines["sdpa/s128"] == pytest.approx(6 * START_S + 18 * 4e-3, rel=0.01)


def a_cpu_run(decided, undecided, control_s=0.0):
    """Return a run of a limited budget on a CPU: each decided case took 6 s, each undecided one 2 s for one pair."""
    fine = tuple(Pair((1e-4,) * 4, (1e-4 * ratio,) * 4, 20, "perf-counter") for ratio in (0.999, 1.0, 1.001))
    spent = {"base": {"rounds": 5.0}, "control": {"rounds": control_s}}
    cases = [
        a_measurement(case=f"s{n}", device="cpu", pairs=fine, spent={**spent, "head": {"rounds": 4.0, "waiting": 2.0}})
        for n in range(decided)
    ]
    cases += [
        a_measurement(case=f"s{n}", device="cpu", pairs=fine[:1], spent={**spent, "head": {"rounds": 2.0}})
        for n in range(decided, decided + undecided)
    ]
    spec = a_spec("sdpa", cases={case.case: PARAMS for case in cases})
    return a_run(*cases, kernels=(spec,), devices=(a_cpu(),), against=Against("main", "abc"), gpu_seconds=0.0)


def test_the_durations_of_a_run_on_a_cpu_are_those_of_its_clock_with_a_share_of_its_control():
    assert seconds_of_run(a_cpu_run(2, 0, control_s=3.0)) == pytest.approx({"sdpa/s0": 9.0, "sdpa/s1": 9.0})


def test_what_cases_took_that_a_budget_left_undecided_is_shared_by_the_decisions():
    """Four decisions took 4 * 6 + 2 * 2 seconds."""
    assert list(seconds_of_run(a_cpu_run(4, 2)).values()) == pytest.approx([7.0] * 6)


def test_a_plan_for_the_budget_of_a_run_expects_as_many_decisions_as_the_run_had():
    cost = seconds_of_run(a_cpu_run(4, 2))

    assert [number_decided(cost, cost, within) for within in (27.9, 28.1, 34.9, 42.1)] == [3, 4, 4, 6]


@pytest.mark.parametrize("minutes", ["nan", "inf", "0", "-1"])
def test_what_is_no_number_of_minutes_is_refused(minutes):
    ran = CliRunner().invoke(program, ["plan", "--within", minutes])

    assert (ran.exit_code, "--within" in ran.stderr) == (2, True)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--shards", "1", "--within", "0.5"), "4 of 6 cases will probably be decided by 1 job with `--budget 30`"),
        (("--shards", "2", "--within", "0.2"), "2 of 6 cases will probably be decided by 2 jobs with `--budget 12`"),
        (("--shards", "1", "--within", "30"), "6 of 6 cases will probably be decided by 1 job with `--budget 1800`"),
        (("--within", "0.5"), "6 of 6 cases will probably be decided by 2 jobs with `--budget 30`"),
    ],
)
def test_a_plan_says_how_many_cases_will_probably_be_decided(flags, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "kernels" / "sdpa"
    folder.mkdir(parents=True)
    tables = "".join(f"[cases.s{n}]\nn = {n}\n" for n in range(6))
    (folder / "kernel.toml").write_text(f'entry = "kernel.py"\ndevices = ["cpu"]\n{tables}')
    (folder / "kernel.py").write_text("")
    (tmp_path / "run.json").write_text(dump_run(a_cpu_run(4, 2)))

    ran = CliRunner().invoke(program, ["plan", "--device", "cpu", "--durations", "run.json", *flags])

    assert (ran.exit_code, ran.stderr) == (0, f"{says}\n")


def test_a_plan_survives_its_file_and_the_matrix_fits_strategy_matrix():
    plan = planned(2, [("self-hosted", "h100"), ("self-hosted", "l4")])

    assert load_plan(dump_plan(plan), "plan.json") == plan
    rows = matrix(plan)["include"]
    assert [row["shard"] for row in rows] == ["h100-1-of-2", "h100-2-of-2", "l4-1-of-2", "l4-2-of-2"]
    assert rows[0]["runner"] == ["self-hosted", "h100"]
    assert {row["among"] for row in rows} == {2 * len({case for shard in plan.shards for case in shard.cases})}


# --- merging ---------------------------------------------------------------------------------------------------------


def shard_run(shard, *measurements, **changes):
    """Return what the job of a shard leaves: its cases, all as fast as agreed unless told otherwise."""
    measured = measurements or tuple(
        a_measurement(STEADY, kernel=case.split("/")[0], case=case.split("/")[1]) for case in shard.cases
    )
    names = {m.kernel for m in measured}
    run = a_run(
        *measured,
        selection=shard.patterns,
        provenance=a_provenance(shard=shard.name),
        kernels=tuple(spec for spec in (SDPA, GEMM) if spec.name in names),
        gpu_seconds=10.0,
    )
    return replace(run, **changes)


def found(*runs):
    return {f"shards/{i}": run for i, run in enumerate(runs)}


def test_all_shards_together_are_one_run_of_everything():
    plan = planned(3)

    merged = merge_planned(found(*(shard_run(shard) for shard in plan.shards)), plan, a_provenance())

    assert {m.id for m in merged.measurements} == {f"{k}/{c}" for k in ("sdpa", "gemm") for c in CASES}
    assert (merged.finished, merged.selection, merged.gpu_seconds) == (True, (), 30.0)
    assert load_run(dump_run(merged), "run.json") == merged


def test_two_models_of_gpu_have_each_their_rows_and_their_baseline():
    plan = planned(1, [("gpu", "h100"), ("gpu", "l4")], specs=(a_spec(),))
    slow = a_measurement(times(1.2), times(1.2))
    runs = [
        shard_run(plan.shards[0], slow, kernels=(a_spec(),), baselines=(a_baseline(),)),
        shard_run(
            plan.shards[1], slow, kernels=(a_spec(),), devices=(L4,), baselines=(a_baseline(times(1.2), device=L4),)
        ),
    ]

    report = build_report(merge_planned(found(*runs), plan, a_provenance()))

    verdicts = {row.finding.device: row.finding.verdict for row in report.rows}
    assert verdicts == {"h100-80gb-hbm3": Verdict.REGRESSION, "l4": Verdict.UNCHANGED}
    assert [device.name for device in report.devices] == [H100.name, L4.name]


def test_the_first_of_two_runners_with_one_model_of_gpu_counts_and_a_note_names_the_other():
    """A wrong label must not cost the numbers that there are."""
    plan = planned(1, [("gpu", "h100"), ("gpu", "l4")], specs=(a_spec(),))
    slow = a_measurement(times(1.2), times(1.2))
    runs = [shard_run(s, slow, kernels=(a_spec(),), baselines=(a_baseline(),)) for s in plan.shards]

    report = build_report(merge_planned(found(*runs), plan, a_provenance()))

    verdicts = {row.finding.device: row.finding.verdict for row in report.rows}
    assert verdicts == {"h100-80gb-hbm3": Verdict.REGRESSION, "runner-gpu-l4": Verdict.FAILED}
    assert [note.message for note in report.notes] == [
        f"shard l4-1-of-1 does not count: gpu, l4 led to {H100.name}, as gpu, h100 did"
    ]


def test_the_merged_run_has_the_rows_of_the_baselines_of_all_shards():
    """Each shard embeds only the rows that its cases need."""
    plan = planned(2)
    row, other = a_baseline_case(), a_baseline_case(times(1.2))

    def merged(*rows):
        pairs = zip(plan.shards, rows, strict=True)
        shards = [shard_run(shard, baselines=(a_baseline(cases=cases),)) for shard, cases in pairs]
        return merge_planned(found(*shards), plan, a_provenance())

    assert merged({"s0": row, "gone": row}, {"s1": other, "gone": row}).baselines == (
        a_baseline(cases={"s0": row, "s1": other, "gone": row}),
    )
    with pytest.raises(ConfigError, match=r"^shards/1: its baseline of sdpa on h100-80gb-hbm3 differs"):
        merged({"s0": row, "gone": row}, {"s1": other, "gone": other})


def test_a_shard_without_a_run_is_a_failed_row_for_each_of_its_cases(golden):
    plan = planned(2, [("self-hosted", "gpu", "h100"), ("self-hosted", "gpu", "l4")], specs=(SDPA,))
    present = [shard_run(plan.shards[0]), shard_run(plan.shards[2], devices=(L4,))]

    merged = merge_planned(found(*present), plan, a_provenance())
    report = build_report(merged)

    lost = [row for row in report.rows if row.finding.verdict is Verdict.FAILED]
    assert {(row.finding.id, row.finding.device) for row in lost} == {
        *((case, "h100-80gb-hbm3") for case in plan.shards[1].cases),
        *((case, "l4") for case in plan.shards[3].cases),
    }
    assert report.exit_status == 1
    assert not report.finished
    golden("merged-with-missing-shards.md", render_comment(report))
    assert load_run(dump_run(merged), "run.json") == merged


def test_where_no_shard_left_a_run_every_case_is_a_failed_row():
    plan = planned(2)

    report = build_report(merge_planned({}, plan, a_provenance()))

    assert len(report.of(Verdict.FAILED)) == 2 * len(CASES)
    assert report.exit_status == 1


def test_a_case_that_a_shard_did_not_measure_is_a_failed_row():
    plan = planned(1)
    short = shard_run(plan.shards[0], a_measurement(STEADY, case="s0"))

    report = build_report(merge_planned(found(short), plan, a_provenance()))

    assert len(report.of(Verdict.FAILED)) == 2 * len(CASES) - 1


def test_of_a_repeated_job_the_later_run_counts():
    plan = planned(1)
    first = shard_run(plan.shards[0], finished=False)
    again = shard_run(plan.shards[0], provenance=a_provenance(shard="gpu-1-of-1", date="2026-11-27T13:00:00Z"))

    merged = merge_planned({"again": again, "first": first}, plan, a_provenance())

    assert merged.finished
    assert [note.message for note in merged.notes] == ["first was left out: a later run of its shard is there"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"provenance": a_provenance(commit="1111111")}, "the commit differs from shards/0: key `provenance.commit`"),
        ({"policy": a_policy(regression=0.5)}, "the policy differs"),
        ({"planted": 0.05}, "the planted slowdown differs"),
        ({"against": Against("main", "b" * 40)}, "the base differs"),
        ({"kernels": (a_spec(l2="cold"),)}, "a kernel differs"),
        ({"provenance": a_provenance(tool="9.9")}, "the version of ci-perf differs"),
    ],
)
def test_runs_that_were_not_measured_alike_are_refused(change, says):
    with pytest.raises(ConfigError, match=rf"^shards/1: {says}"):
        merge_runs(found(a_run(), a_run(a_measurement(case="other"), **change)))


def test_a_case_that_two_runs_measured_is_refused():
    with pytest.raises(ConfigError, match=r"`sdpa/s128` on h100-80gb-hbm3 is in shards/0 too"):
        merge_runs(found(a_run(), a_run()))


@pytest.mark.parametrize("shard", [None, "h100-7-of-9"])
def test_a_run_that_the_plan_does_not_know_is_refused(shard):
    with pytest.raises(ConfigError, match="shard"):
        merge_planned(found(a_run(provenance=a_provenance(shard=shard))), planned(), a_provenance())


def pairs(ratio):
    return tuple(Pair(tuple(STEADY), times(ratio * (1 + 1e-5 * i)), 100, "cuda-graph") for i in range(5))


def test_memory_that_broke_in_one_session_casts_no_doubt_on_another():
    broken = Note("memory-errors", "2 uncorrected memory errors", "reset the GPU")
    merged = merge_runs(found(a_run(a_measurement(case="s0"), notes=(broken,)), a_run(a_measurement(case="s1"))))

    rows = {row.finding.case: row.finding.verdict for row in build_report(load_run(dump_run(merged), "run.json")).rows}

    assert rows == {"s0": Verdict.INCONCLUSIVE, "s1": Verdict.NEW}
    assert [note.code for note in merged.notes] == ["memory-errors"]


def test_a_session_that_cannot_be_believed_casts_no_doubt_on_another():
    plan = planned(2, specs=(a_spec(cases={"a": PARAMS, "b": PARAMS}),))
    kernels = plan.kernels
    runs = [
        shard_run(
            shard,
            a_measurement(kernel="sdpa", case=case, replicates=(), pairs=pairs(1.2)),
            kernels=kernels,
            against=Against("main", "b" * 40, (), f"sdpa/{case}", pairs(control)),
        )
        for shard, case, control in zip(plan.shards, "ab", (1.0, 1.1), strict=True)
    ]

    report = build_report(merge_planned(found(*runs), plan, a_provenance()))

    assert {row.finding.case: row.finding.verdict for row in report.rows} == {
        "a": Verdict.REGRESSION,
        "b": Verdict.INCONCLUSIVE,
    }


@pytest.mark.parametrize(
    ("controls", "checked"),
    [
        ((1.01, 1.02, 1.0), "the base against itself 0.0 % to +2.0 %"),
        ((1.01, None, 1.0), "the base against itself 0.0 % to +1.0 %, not measured in 1 session"),
        ((1.01, None, None), "the base against itself +1.0 %, not measured in 2 sessions"),
        ((None, None, None), "the base against itself was not measured"),
    ],
)
def test_a_merged_run_names_its_base_once_however_many_sessions_it_has(controls, checked):
    runs = [
        a_run(
            a_measurement(case=f"s{number}", replicates=(), pairs=pairs(1.0)),
            against=Against("main", "b" * 40, (), "", pairs(control) if control else ()),
        )
        for number, control in enumerate(controls)
    ]

    assert build_report(merge_runs(found(*runs))).agreed == (
        f"main at commit bbbbbbbb, measured in turns in 3 sessions; {checked}",
    )


@pytest.mark.parametrize("against", [None, Against("main", "b" * 40)])
def test_the_level_is_shared_by_all_cases_of_the_plan_in_each_shard_and_in_the_merged_run(against):
    """Else every further shard would add a chance of a false alarm."""
    spec = a_spec(cases={f"s{i}": PARAMS for i in range(200)})
    base = a_baseline()
    agreed = replace(base, cases=dict.fromkeys(spec.cases, base.cases["s128"]))
    noisy = tuple(Pair(STEADY, times(ratio), 100, "cuda-graph") for ratio in (1.035, 1.045, 1.05, 1.055, 1.065))
    timed = {"replicates": (), "pairs": noisy} if against else {}
    slow = (times(1.2),) * 2
    asked = {"kernels": (spec,), "baselines": (agreed,), "against": against}
    measured = [a_measurement(*slow, case=case, **timed) for case in spec.cases]

    (as_one, alone, merged) = (
        [(row.finding.id, row.finding.verdict, row.finding.change) for row in build_report(run).rows]
        for run in (
            a_run(*measured, **asked),
            a_run(measured[0], among=200, **asked),
            merge_runs(found(*(a_run(m, among=200, **asked) for m in measured))),
        )
    )

    assert merged == as_one
    assert merged[0] == alone[0]


@pytest.mark.parametrize("against", [None, Against("main", "b" * 40)])
@pytest.mark.parametrize("among", [0, 200])
def test_merging_weakens_no_verdict_of_a_shard(against, among):
    """A shard stops measuring once a case is decided, so that a stricter rule would find too few pairs."""
    spec = a_spec(cases={f"s{i}": PARAMS for i in range(200)})
    base = a_baseline()
    agreed = replace(base, cases=dict.fromkeys(spec.cases, base.cases["s128"]))
    noisy = tuple(Pair(STEADY, times(ratio), 100, "cuda-graph") for ratio in (1.035, 1.045, 1.05, 1.055, 1.065))
    timed = {"replicates": (), "pairs": noisy} if against else {}
    runs = [
        a_run(
            *(a_measurement(*(times(1.2),) * 2, case=case, **timed) for case in cases),
            kernels=(spec,),
            baselines=(agreed,),
            against=against,
            among=among,
        )
        for cases in (list(spec.cases)[:1], list(spec.cases)[1:])
    ]

    merged = {row.finding.id: row.finding.verdict for row in build_report(merge_runs(found(*runs))).rows}

    apart = {row.finding.id: row.finding.verdict for run in runs for row in build_report(run).rows}
    assert merged == apart


def test_baselines_can_be_accepted_from_a_merged_run_of_machines_that_are_alike(tmp_path):
    plan = planned(2, specs=(SDPA,))
    runs = [shard_run(shard) for shard in plan.shards]
    other = replace(runs[1], devices=(replace(H100, driver="999.1"),))
    alike, unlike = (merge_planned(found(runs[0], second), plan, a_provenance()) for second in (runs[1], other))
    for name, run in (("alike", alike), ("unlike", unlike)):
        (tmp_path / f"{name}.json").write_text(dump_run(run))

    def accept(name):
        return CliRunner().invoke(
            program, ["baseline", "accept", f"{tmp_path}/{name}.json", "--baselines", str(tmp_path)]
        )

    assert accept("alike").exit_code == 0
    assert "machines that differ" in accept("unlike").stderr


# --- the commands ----------------------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kernel in ("gemm", "sdpa"):
        folder = tmp_path / "kernels" / kernel
        folder.mkdir(parents=True)
        cases = "\n".join(f"[cases.{case}]\nn = {i}" for i, case in enumerate(CASES))
        (folder / "kernel.toml").write_text(f'entry = "kernel.py"\n{cases}\n')
        (folder / "kernel.py").touch()
    return tmp_path


def call(*arguments):
    return CliRunner().invoke(program, list(map(str, arguments)))


def test_plan_and_merge_as_a_workflow_calls_them(repository):
    planning = call("plan", "--shards", 2, "--runner", "gpu,h100", "--format", "github", "--plan", "plan.json")
    rows = json.loads(planning.stdout)["include"]
    plan = load_plan((repository / "plan.json").read_text(), "plan.json")
    one = shard_run(plan.shards[0], kernels=plan.kernels)
    (repository / "one.json").write_text(dump_run(one))
    (repository / "two.json").write_text("")

    merging = call("merge", "one.json", "two.json", "--plan", "plan.json", "--output", "merged")

    assert planning.stdout.count("\n") == 1
    assert [row["shard"] for row in rows] == ["h100-1-of-2", "h100-2-of-2"]
    assert merging.exit_code == 0, merging.output
    assert "not merged: two.json" in (repository / "merged/report.md").read_text()
    assert call("replay", "merged").exit_code == 1


@pytest.mark.usefixtures("repository")
def test_a_plan_for_people_is_a_table(golden):
    golden("plan.txt", call("plan", "--shards", 3, "--runner", "gpu,h100", "--runner", "gpu,l4").stdout)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["merge"], "there is no run to merge"),
        (["merge", "nowhere"], "nowhere: there is no run"),
        (["merge", "--plan", "nowhere.json"], "nowhere.json: there is no plan"),
        (["plan", "--runner", ","], "holds no label"),
        (["plan", "--device", "cpu", "nothing"], "no case matches `nothing`"),
    ],
)
@pytest.mark.usefixtures("repository")
def test_what_cannot_be_planned_or_merged_is_said(arguments, says):
    ran = call(*arguments)

    assert ran.exit_code == 2
    assert says in ran.stderr


def test_an_unfinished_run_is_merged_with_the_runs_that_hold_what_it_left():
    specs = (a_spec("sdpa", cases={"s0": PARAMS, "s1": PARAMS}),)
    done = a_measurement(STEADY, case="s0")
    blank = a_measurement(case="s1", replicates=())
    stopped = a_run(done, blank, kernels=specs, finished=False)
    rest = a_run(a_measurement(STEADY, case="s1"), kernels=specs)

    whole = merge_runs({"stopped": stopped, "rest": rest})
    assert whole.finished
    assert [m.id for m in whole.measurements] == ["sdpa/s0", "sdpa/s1"]
    assert all(m.replicates for m in whole.measurements)
    alone = merge_runs({"stopped": stopped})
    assert not alone.finished
    assert len(alone.measurements) == 2
    with pytest.raises(ConfigError, match="`sdpa/s0` on h100-80gb-hbm3 is in stopped too"):
        merge_runs({"stopped": stopped, "rest": a_run(done, kernels=specs)})
