import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci_perf.judge.gates import counter_changes, judge_gate
from ci_perf.judge.outcome import policy_of
from ci_perf.judge.report import build_report
from ci_perf.judge.stored import comparable, decide, times_half
from ci_perf.judge.verdict import is_red, judge
from ci_perf.values.device import Toolchain
from ci_perf.values.kernel import Gate
from ci_perf.values.kernel_names import NameChanges
from ci_perf.values.measurement import Failure
from ci_perf.values.metrics import METRICS, Trust
from ci_perf.values.reasons import GateState, Verdict
from ci_perf.values.run import Note, Policy
from ci_perf.values.trace import CaseTimeline, TracedKernel
from tests.builders import (
    PARAMS,
    STEADY,
    a_baseline,
    a_baseline_case,
    a_cpu,
    a_device,
    a_measurement,
    a_run,
    a_spec,
    a_toolchain,
    agreed,
    counters,
    replicates,
    times,
)

CHANGED = {Verdict.REGRESSION, Verdict.SPEEDUP}
JUDGED = CHANGED | {Verdict.UNCHANGED}

sides = st.lists(st.floats(1e-6, 1e-3), min_size=5, max_size=7)
shifts = st.sampled_from([0.5, 0.9, 1.0, 1.03, 1.05, 2.0])
noises = st.lists(st.floats(0.98, 1.02), min_size=6, max_size=6)


@pytest.mark.parametrize(
    ("first", "second", "verdict", "code"),
    [
        (1.05, 1.05, Verdict.REGRESSION, "slower"),
        (1.05, None, Verdict.INCONCLUSIVE, "slower-unconfirmed"),
        (1.10, 1.01, Verdict.INCONCLUSIVE, "slower-not-repeated"),
        (1.01, 1.10, Verdict.INCONCLUSIVE, "slower-not-repeated"),
        (0.80, 0.80, Verdict.SPEEDUP, "faster"),
        (0.80, None, Verdict.INCONCLUSIVE, "faster-unconfirmed"),
        (0.80, 0.99, Verdict.INCONCLUSIVE, "faster-not-repeated"),
        (1.01, None, Verdict.UNCHANGED, "below-threshold"),
        (0.95, 0.95, Verdict.UNCHANGED, "below-threshold"),
    ],
)
def test_a_change_counts_when_each_of_two_batches_shows_it(first, second, verdict, code):
    batches = [times(first)] + ([times(second)] if second else [])

    outcome = decide(STEADY, batches, Policy())

    assert (outcome.verdict, outcome.code) == (verdict, code)


def test_an_empty_second_batch_confirms_nothing():
    assert decide(STEADY, [times(1.05), ()], Policy()).code == "slower-unconfirmed"


@pytest.mark.parametrize(("odd_one", "code"), [(51.5e-6, "slower-overlapping"), (51.3e-6, "slower")])
def test_a_slowdown_near_the_threshold_that_one_process_of_the_baseline_shared_is_no_regression(odd_one, code):
    restless = (50e-6, 50e-6, 50e-6, 50e-6, 50e-6, 50e-6, odd_one)

    assert decide(restless, [[51.4e-6] * 2 + [52.5e-6] * 4] * 2, Policy()).code == code


def test_one_lucky_process_cannot_hide_a_large_slowdown():
    assert decide(STEADY, [[*times(1.5)[1:], STEADY[-1]], times(1.5)], Policy()).code == "slower"


@pytest.mark.parametrize(("floor", "code"), [(0.0, "slower"), (0.03, "slower"), (0.06, "slower-not-significant")])
def test_the_baselines_own_scatter_widens_the_interval(floor, code):
    assert decide(STEADY, [times(1.05)] * 2, Policy(), floor=floor).code == code


@pytest.mark.parametrize(
    ("ratio", "clock_now", "code"),
    [
        (1.05, 1980e6, "slower"),
        (1.05, 1880e6, "slower-clock"),
        (1.05, 2080e6, "slower"),
        (0.80, 1980e6, "faster"),
        (0.85, 2200e6, "faster-clock"),
    ],
)
def test_a_change_that_the_clock_explains_is_none_of_the_code(ratio, clock_now, code):
    assert decide(STEADY, [times(ratio)] * 2, Policy(), clocks=(1980e6, clock_now)).code == code


@pytest.mark.parametrize(
    "batch", [(49e-6, 49e-6, 49e-6, 55e-6, 55e-6, 55e-6), (50e-6, 55e-6, 55e-6, 55e-6, 55e-6, 55e-6)]
)
def test_a_slowdown_whose_interval_holds_or_touches_no_change_is_not_significant(batch):
    assert decide([50e-6] * 6, [batch] * 2, Policy()).code == "slower-not-significant"


def test_the_more_cases_are_judged_the_more_it_takes():
    """Of 18,564 orderings of 6 against 12 two are as extreme as this: enough for 1 in 100 cases of 92, not of 93."""
    batches = [times(1.05)] * 2

    assert decide(STEADY, batches, Policy(), comparisons=92).code == "slower"
    assert decide(STEADY, batches, Policy(), comparisons=93).code == "slower-too-few-processes"


def test_no_change_smaller_than_a_stored_time_is_off_is_established():
    outcome = decide(STEADY, [times(1.007)] * 2, Policy(regression=0.005))

    assert (outcome.verdict, outcome.code) == (Verdict.INCONCLUSIVE, "slower-too-small")
    assert outcome.sentence == "0.7 % slower, but a stored time is off by up to 1.0 % a few minutes later"


def test_an_interval_that_reaches_a_threshold_is_inconclusive_not_unchanged():
    assert decide(STEADY, [times(1.0), times(1.05)], Policy()).code == "interval-too-wide"
    assert decide(STEADY, [times(0.88, STEADY[:2]) + STEADY[:4]], Policy()).code == "interval-too-wide"
    assert decide(STEADY, [(50e-6,)], Policy()).sentence == "too few processes for an interval"


@pytest.mark.parametrize("odd", [0.98, 1.02])
def test_the_detectable_change_is_the_wider_side_of_the_interval(odd):
    outcome = decide([50e-6] * 6, [(*times(odd, [50e-6] * 2), *[50e-6] * 4)], Policy())

    assert outcome.detectable == pytest.approx(max(odd, 1 / odd) ** times_half(0.99) - 1)
    assert outcome.sentence == "0.0 %; a change of 2.7 % would likely be seen"


@given(base=st.integers(1, 10**6))
def test_exactly_3_percent_slower_is_a_regression_however_it_is_rounded(base):
    seconds = base * 1e-9

    assert decide([seconds] * 6, [[seconds * 1.03] * 6] * 2, Policy()).verdict is Verdict.REGRESSION
    assert decide([seconds] * 6, [[seconds * 1.0299] * 6] * 2, Policy()).verdict is Verdict.UNCHANGED


@given(head=st.integers(1, 10**6))
def test_exactly_10_percent_faster_is_a_speedup_however_it_is_rounded(head):
    seconds = head * 1e-9

    assert decide([seconds * 1.10] * 6, [[seconds] * 6] * 2, Policy()).verdict is Verdict.SPEEDUP
    assert decide([seconds * 1.0999] * 6, [[seconds] * 6] * 2, Policy()).verdict is Verdict.UNCHANGED


@given(seconds=st.floats(1e-9, 1.0))
def test_an_interval_that_ends_exactly_at_a_threshold_is_inconclusive(seconds):
    slow, fast = [seconds] * 4 + [seconds * 1.03] * 2, [seconds] * 4 + [seconds / 1.10] * 2

    for head in (slow, fast):
        assert decide([seconds] * 6, [head], Policy()).code == "interval-too-wide"


@given(base=sides, noise=noises, shift=shifts, exponent=st.sampled_from([-30, -1, 1, 20]))
def test_a_verdict_does_not_depend_on_the_unit(base, noise, shift, exponent):
    scale = 2.0**exponent
    batch = [base[0] * shift * n for n in noise]

    plain = decide(base, [batch, batch], Policy())
    scaled = decide([scale * b for b in base], [[scale * h for h in batch]] * 2, Policy())

    assert (scaled.verdict, scaled.code) == (plain.verdict, plain.code)


@given(base=noises, noise=noises, shift=shifts)
def test_no_change_is_a_regression_both_ways_or_a_speedup_both_ways(base, noise, shift):
    head = times(shift, noise)

    there = decide(base, [head, head], Policy(speedup=0.03)).verdict
    back = decide(head, [base, base], Policy(speedup=0.03)).verdict

    assert not (there is back and there in CHANGED)


@given(base=noises, noise=noises, shift=shifts)
def test_where_higher_is_better_the_verdict_is_that_of_the_inverse(base, noise, shift):
    rates = [1 / b for b in base]
    head = [shift / n for n in noise]

    outcome = decide(rates, [head, head], Policy(), better="higher")

    inverse = [[1 / h for h in head]] * 2
    assert outcome == decide([1 / r for r in rates], inverse, Policy())


def test_a_lower_throughput_is_a_regression():
    rates = (100.0, 100.1, 100.2, 100.3, 100.4, 100.5)

    assert decide(rates, [times(0.9, rates)] * 2, Policy(), better="higher").verdict is Verdict.REGRESSION
    assert decide(rates, [times(1.2, rates)] * 2, Policy(), better="higher").verdict is Verdict.SPEEDUP


@given(
    bad=st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -1.0]),
    place=st.sampled_from(["base", "first", "second"]),
    shift=shifts,
    better=st.sampled_from(["lower", "higher"]),
)
def test_one_value_that_is_no_time_spoils_the_case(bad, place, shift, better):
    values = {"base": list(STEADY), "first": list(times(shift)), "second": list(times(shift))}
    values[place][3] = bad

    outcome = decide(values["base"], [values["first"], values["second"]], Policy(), better=better)

    assert (outcome.verdict, outcome.code) == (Verdict.INCONCLUSIVE, "bad-values")


@pytest.mark.parametrize(("base", "batches"), [((), [STEADY, STEADY]), (STEADY, []), (STEADY, [(), ()]), ((), [])])
def test_nothing_measured_is_inconclusive(base, batches):
    outcome = decide(base, batches, Policy())

    assert (outcome.verdict, outcome.code) == (Verdict.INCONCLUSIVE, "no-values")


@given(value=st.floats(1e-6, 1e-3), other=sides)
def test_one_process_is_never_enough(value, other):
    for base, batches in (([value], [other, other]), (other, [[value]]), ([value], [[value], [value]])):
        assert decide(base, batches, Policy()).verdict not in JUDGED


def lognormal(rng: random.Random, sd: float) -> float:
    return math.exp(rng.gauss(0, sd))


def bimodal(rng: random.Random, sd: float) -> float:
    """Two states of a process, 6 % apart, as SDPA showed on an H100; each with its own scatter."""
    return lognormal(rng, sd) * rng.choice([1.0, 1.06])


def session(rng: random.Random, noise, sd: float, slower: float = 1.0):
    base, first, second = ([noise(rng, sd) for _ in range(6)] for _ in range(3))
    return decide(base, [times(slower, first), times(slower, second)], Policy())


@pytest.mark.parametrize(
    ("noise", "sd"),
    [
        (lognormal, 0.003),
        (lognormal, 0.01),
        pytest.param(lognormal, 0.03),
        pytest.param(bimodal, 0.003),
        pytest.param(bimodal, 0.01),
    ],
)
def test_unchanged_code_is_never_red(noise, sd):
    rng = random.Random(f"{noise.__name__} {sd}")
    verdicts = [session(rng, noise, sd).verdict for _ in range(2000)]

    assert verdicts.count(Verdict.REGRESSION) == 0


def test_a_planted_5_percent_is_always_found_in_quiet_noise():
    rng = random.Random(5)

    assert {session(rng, lognormal, 0.003, slower=1.05).verdict for _ in range(400)} == {Verdict.REGRESSION}


def the_finding(run):
    (finding,) = judge(run)
    return finding


def test_a_case_is_judged_against_its_baseline():
    run = a_run(a_measurement(times(1.10), times(1.10)), baselines=(a_baseline(),))

    finding = the_finding(run)

    assert (finding.id, finding.device, finding.verdict) == ("sdpa/s128", "h100-80gb-hbm3", Verdict.REGRESSION)
    assert finding.change.point == pytest.approx(1.10, rel=0.005)
    assert finding.head == pytest.approx(finding.change.point * finding.base)
    assert finding.sentence == "10.0 % slower in each batch of fresh processes"


def test_the_batches_are_those_that_the_processes_name():
    shuffled = replicates(times(1.10), times(1.01))[::-1]

    finding = the_finding(a_run(a_measurement(replicates=shuffled), baselines=(a_baseline(),)))

    assert finding.code == "slower-not-repeated"


def test_a_kernels_own_thresholds_come_before_those_of_the_run():
    measurement = a_measurement(times(1.05), times(1.05))
    run = a_run(measurement, kernels=(a_spec(regression=0.08),), baselines=(a_baseline(),))

    assert the_finding(run).verdict is Verdict.UNCHANGED
    assert policy_of(Policy(regression=0.04, speedup=0.2), a_spec(speedup=0.5)) == Policy(regression=0.04, speedup=0.5)


def test_only_the_cases_that_are_compared_share_the_confidence():
    """93 comparisons would be one too many for 6 against 12 processes; what failed or is new is not compared."""
    slow = a_measurement(times(1.10), times(1.10))
    failed = replace(a_measurement(), failure=Failure("verify", "wrong-output", "off by 2.0"))
    new = a_measurement(case="unknown-to-the-baseline")
    baselines = (a_baseline(),)

    assert judge(a_run(*[slow] * 92, failed, new, baselines=baselines))[0].code == "slower"
    assert judge(a_run(*[slow] * 93, baselines=baselines))[0].code == "slower-too-few-processes"


def test_a_case_without_baseline_is_new():
    elsewhere = a_baseline(device=a_device(name="NVIDIA L4"))

    for baselines in ((), (elsewhere,), (a_baseline(kernel="gemm"),)):
        finding = next(f for f in judge(a_run(baselines=baselines, selection=("sdpa",))) if f.case == "s128")
        assert (finding.verdict, finding.code, finding.base) == (Verdict.NEW, "no-baseline", None)


def test_a_failed_case_says_at_which_stage():
    failure = Failure("verify", "wrong-output", "element 3 is off by 0.2")

    finding = the_finding(a_run(a_measurement(failure=failure), baselines=(a_baseline(),)))

    assert (finding.verdict, finding.code) == (Verdict.FAILED, "wrong-output")
    assert finding.sentence == "verify: element 3 is off by 0.2"


def test_a_case_that_was_not_timed_is_inconclusive():
    finding = the_finding(a_run(a_measurement(replicates=()), baselines=(a_baseline(),)))

    assert (finding.verdict, finding.code) == (Verdict.INCONCLUSIVE, "not-measured")


def test_nothing_but_a_failure_is_believed_where_the_gpus_memory_broke():
    """A CPU that was measured beside it has its own."""
    note = Note("memory-errors", "2 uncorrected memory errors (ECC) while this ran", "reset the GPU")
    slower = a_measurement(times(2.0), times(2.0), counters=counters(local_load_inst=8))
    failed = a_measurement(case="s256", failure=Failure("verify", "wrong-output", "off by 2"))
    kernels = (a_spec(gates=(Gate("local_load_inst", "<=", 0.0),)),)
    run = a_run(slower, notes=(note,), kernels=kernels, devices=(a_device(), a_cpu()), baselines=(a_baseline(),))

    (finding,) = judge(run)
    report = build_report(run)

    assert (finding.verdict, finding.code, finding.gates) == (Verdict.INCONCLUSIVE, "memory-errors", ())
    assert (report.exit_status, report.next_step.split(":")[0]) == (3, "The memory of this GPU has errors")
    assert judge(replace(run, measurements=(failed,)))[0].verdict is Verdict.FAILED
    assert judge(replace(run, measurements=(replace(slower, device="cpu"),)))[0].verdict is Verdict.NEW


def test_a_case_that_only_the_baseline_has_is_missing():
    baseline = a_baseline(cases={"s128": a_baseline_case(), "s256": a_baseline_case()})
    run = a_run(baselines=(baseline,))

    _, gone = judge(run)

    assert (gone.id, gone.verdict, gone.code) == ("sdpa/s256", Verdict.MISSING, "removed")
    assert gone.base == baseline.cases["s256"].time.median


def test_nothing_is_missing_where_only_some_was_asked_for_or_another_device_was_measured():
    baseline = a_baseline(cases={"s128": a_baseline_case(), "s256": a_baseline_case()})

    assert len(judge(a_run(baselines=(baseline,), selection=("sdpa/s128",)))) == 1
    assert len(judge(a_run(baselines=(replace(baseline, device=a_cpu()),)))) == 1


def test_one_case_on_two_devices_has_two_findings():
    on_cpu = a_measurement(device="cpu", target="reference")
    baselines = (a_baseline(), a_baseline(device=a_cpu(), cases={"s128": a_baseline_case(target="reference")}))

    findings = judge(a_run(a_measurement(), on_cpu, devices=(a_device(), a_cpu()), baselines=baselines))

    assert [(f.device, f.verdict) for f in findings] == [
        ("h100-80gb-hbm3", Verdict.UNCHANGED),
        ("cpu-amd-epyc-9654", Verdict.NOT_COMPARABLE),
    ]


@pytest.mark.parametrize(
    ("factor", "target", "verdict"),
    [
        (1.0, "launch", Verdict.UNCHANGED),
        (1.0, "reference", Verdict.NOT_COMPARABLE),
        (0.5, "reference", Verdict.NOT_COMPARABLE),
        (1.5, "reference", Verdict.REGRESSION),
    ],
)
def test_a_reference_that_ran_in_place_of_the_kernel_shows_nothing_good_of_it(factor, target, verdict):
    baseline = a_baseline(cases={"s128": a_baseline_case(target=target)})
    measured = a_measurement(times(factor), times(factor), target=target)

    (finding,) = judge(a_run(measured, baselines=(baseline,)))

    assert finding.verdict is verdict


def in_units(**changes):
    return tuple(replace(replicate, **changes) for replicate in replicates(STEADY))


@pytest.mark.parametrize(
    ("code", "sentence", "device", "measurement"),
    [
        ("other-power-limit", "baseline 700.0, now 350.0", {"power_limit_w": 350.0}, {}),
        ("other-driver", "baseline 580, now 570", {"driver": "570.86.10"}, {}),
        ("other-driver", "baseline 580, now unknown", {"driver": None}, {}),
        ("other-mig", "baseline False, now True", {"mig": True}, {}),
        ("other-parameters", "baseline dtype=float16, seq=128, now seq=64", {}, {"params": {"seq": 64}}),
        ("other-target", "baseline launch, now reference", {}, {"target": "reference"}),
        ("other-method", "now cuda-events", {}, {"replicates": replicates(STEADY, method="cuda-events")}),
        ("other-unit", "baseline s, now byte/s", {}, {"replicates": in_units(unit="byte/s")}),
        ("other-direction", "baseline lower, now higher", {}, {"replicates": in_units(better="higher")}),
    ],
)
def test_times_taken_under_other_conditions_are_not_compared(code, sentence, device, measurement):
    run = a_run(a_measurement(**measurement), devices=(a_device(**device),), baselines=(a_baseline(),))

    finding = the_finding(run)

    assert (finding.verdict, finding.code) == (Verdict.NOT_COMPARABLE, code)
    assert finding.sentence.endswith(sentence)
    assert finding.change is None


def test_two_gpus_whose_names_make_the_same_folder_are_still_two_gpus():
    other = a_device(name="H100 80GB HBM3")

    assert the_finding(a_run(devices=(other,), baselines=(a_baseline(),))).code == "other-device"


def test_a_driver_of_the_same_branch_is_the_same_driver():
    tools = (Toolchain(torch="2.11.0"), Toolchain(torch="2.11.1"))

    assert comparable(a_baseline_case(), a_measurement(), a_device(), a_device(driver="580.173.02"), tools) is None


@pytest.mark.parametrize(
    "other",
    [Toolchain(torch="2.12.0"), Toolchain(torch="2.11.0", cuda="13.1"), Toolchain("3", "2.11.0", None, {"numpy": "2"})],
)
def test_another_toolchain_brings_other_machine_code(other):
    tools = (Toolchain(torch="2.11.0"), other)

    obstacle = comparable(a_baseline_case(), a_measurement(), a_device(), a_device(), tools)

    assert obstacle is not None
    assert obstacle[0] == "other-toolchain"


def test_processes_timed_by_different_methods_are_not_compared():
    mixed = replicates(STEADY) + replicates(STEADY, method="cuda-events")

    finding = the_finding(a_run(a_measurement(replicates=mixed), baselines=(a_baseline(),)))

    assert (finding.verdict, finding.code, finding.head) == (Verdict.NOT_COMPARABLE, "mixed-methods", None)


@pytest.mark.parametrize(
    ("operator", "values", "state", "worst"),
    [
        (">=", (85.0, 85.0), GateState.KEPT, 85.0),
        (">=", (99.0, 84.9), GateState.BROKEN, 84.9),
        ("<=", (85.0, 85.0), GateState.KEPT, 85.0),
        ("<=", (1.0, 85.1), GateState.BROKEN, 85.1),
        ("<=", (0.0, 0.0), GateState.KEPT, 0.0),
        (">=", (0.0, 0.0), GateState.BROKEN, 0.0),
        (">=", (99.0, None), GateState.NOT_MEASURED, None),
        ("<=", (None, 1.0), GateState.NOT_MEASURED, None),
    ],
)
def test_a_gate_is_held_against_the_worst_launch(operator, values, state, worst):
    gate = Gate("sm_throughput_pct", operator, 85.0)

    finding = judge_gate(gate, a_measurement(counters=counters(sm_throughput_pct=values)))

    assert (finding.state, finding.reading.value) == (state, worst)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_counter_that_is_no_number_keeps_no_gate(value):
    for operator in (">=", "<="):
        gate = Gate("sm_throughput_pct", operator, 85.0)
        measurement = a_measurement(counters=counters(sm_throughput_pct=value))
        assert judge_gate(gate, measurement).state is GateState.NOT_MEASURED


def test_a_gate_without_counters_is_not_measured_and_says_why():
    gate = Gate("sm_throughput_pct", ">=", 85.0)

    assert judge_gate(gate, a_measurement()).reading.reason == "no counters were measured"
    lacking = judge_gate(gate, a_measurement(counters=counters(sm_throughput_pct=None)))
    assert lacking.reading.reason == "no permission"


def test_gates_are_judged_without_a_baseline_and_on_gpus_only():
    gated = a_spec(gates=(Gate("sm_throughput_pct", ">=", 85.0),))
    busy = counters(sm_throughput_pct=50.0)

    on_gpu = the_finding(a_run(a_measurement(counters=busy), kernels=(gated,)))
    on_cpu = the_finding(a_run(a_measurement(device="cpu"), kernels=(gated,), devices=(a_cpu(),)))

    assert [str(g.gate) for g in on_gpu.broken_gates] == ["sm_throughput_pct >= 85"]
    assert on_cpu.gates == ()


NCU = "2025.3.1.0"


def changes(base, now, **measurement):
    case = a_baseline_case(counters=base)
    return [
        (c.metric, c.base, c.head)
        for c in counter_changes(case, (a_device(), NCU), a_measurement(counters=now, **measurement), (a_device(), NCU))
    ]


def test_an_exact_counter_has_no_tolerance():
    assert changes(agreed(registers_per_thread=128), counters(registers_per_thread=128)) == []
    assert changes(agreed(registers_per_thread=128), counters(registers_per_thread=129)) == [
        ("registers_per_thread", 128, 129)
    ]
    assert changes(agreed(local_load_inst=0), counters(local_load_inst=1)) == [("local_load_inst", 0, 1)]


@pytest.mark.parametrize(("share", "changed"), [(0.99, False), (1.01, True), (-0.99, False), (-1.01, True)])
@pytest.mark.parametrize("metric", [m for m in METRICS if m.trust is Trust.BANDED], ids=lambda metric: metric.name)
def test_a_banded_counter_may_differ_by_its_band_and_its_slack(metric, share, changed):
    base = 1e9
    now = base + share * (metric.band * base + metric.slack)

    assert bool(changes(agreed(**{metric.name: base}), counters(**{metric.name: now}))) is changed


def test_a_counter_that_explains_is_never_a_change():
    assert changes(agreed(l2_hit_rate_pct=90.0), counters(l2_hit_rate_pct=10.0)) == []


def test_counters_are_not_compared_where_one_side_lacks_them_or_the_work_differs():
    base, now = agreed(registers_per_thread=128), counters(registers_per_thread=64)

    assert changes(base, ()) == []
    assert changes(base, counters(cycles=1.0)) == []
    assert changes(base, counters(registers_per_thread=(64, None))) == []
    assert changes(base, now, params={**PARAMS, "seq": 64}) == []
    case, measurement = a_baseline_case(counters=base), a_measurement(counters=now)
    here = (a_device(), NCU)
    assert counter_changes(case, here, measurement, (a_device(), "2025.3.2")) != ()
    assert counter_changes(case, here, measurement, (a_device(), "2026.1.0")) == ()
    assert counter_changes(case, here, measurement, (a_device(name="NVIDIA L4"), NCU)) == ()


def test_a_counter_that_was_not_compared_is_a_warning_of_its_row():
    def warnings(ncu=NCU, **now):
        case = a_baseline_case(counters=agreed(registers_per_thread=128, l2_hit_rate_pct=90.0))
        run = a_run(a_measurement(counters=counters(**now)), baselines=(a_baseline(cases={"s128": case}),))
        (row,) = build_report(replace(run, toolchain=a_toolchain(ncu=ncu))).rows
        return row.warnings

    assert warnings(registers_per_thread=128, l2_hit_rate_pct=None) == ()
    assert warnings(registers_per_thread=(128, None)) == (
        "not compared with the baseline: registers_per_thread (no permission)",
    )
    (other,) = warnings(ncu="2026.1.0", registers_per_thread=128)
    assert "the baseline's are of ncu 2025.3.1, these of ncu 2026.1.0" in other


def test_counters_are_compared_where_times_are_not():
    measurement = a_measurement(
        counters=counters(registers_per_thread=64), replicates=replicates(STEADY, method="cuda-events")
    )
    baseline = a_baseline(cases={"s128": a_baseline_case(counters=agreed(registers_per_thread=128))})

    finding = the_finding(a_run(measurement, baselines=(baseline,)))

    assert finding.verdict is Verdict.NOT_COMPARABLE
    assert [c.metric for c in finding.counters] == ["registers_per_thread"]


def test_kernels_that_ran_are_compared_with_those_of_the_baseline_without_a_verdict():
    def traced(*names):
        return CaseTimeline(1, tuple(TracedKernel(name, 1, 9, 9.0, (1, 1, 1), (1, 1, 1)) for name in names))

    kept = a_baseline(cases={"s128": a_baseline_case(kernels=("triton_poi_fused_add_0", "gemm", "old"))})
    run = a_run(a_measurement(timeline=traced("triton_poi_fused_add_7", "gemm", "new")), baselines=(kept,))
    (finding,) = judge(run)

    assert finding.verdict is Verdict.UNCHANGED
    assert finding.kernels == NameChanges((("triton_poi_fused_add_0", "triton_poi_fused_add_7"),), ("new",), ("old",))
    elsewhere = replace(kept, device=a_device(name="H100 80GB HBM3"))  # the same folder, another device
    assert judge(replace(run, baselines=(elsewhere,)))[0].kernels == NameChanges()
    assert judge(replace(run, baselines=(a_baseline(),)))[0].kernels == NameChanges()
    assert judge(replace(run, measurements=(a_measurement(),)))[0].kernels == NameChanges()


@pytest.mark.parametrize(
    ("cause", "verdict"),
    [
        ("regression", Verdict.REGRESSION),
        ("failed", Verdict.FAILED),
        ("missing", Verdict.MISSING),
        ("inconclusive", Verdict.INCONCLUSIVE),
        ("not-comparable", Verdict.NOT_COMPARABLE),
    ],
)
def test_a_verdict_is_red_only_under_its_own_cause(cause, verdict):
    finding = replace(the_finding(a_run()), verdict=verdict)

    assert is_red(finding, [cause])
    assert is_red(finding, Policy().fail_on) is (verdict in {Verdict.REGRESSION, Verdict.FAILED, Verdict.MISSING})
    assert not is_red(replace(finding, verdict=Verdict.UNCHANGED), [cause])
    assert not is_red(finding, [])


def test_a_broken_gate_is_red_and_an_unmeasured_one_only_where_asked():
    gated = a_spec(gates=(Gate("sm_throughput_pct", ">=", 85.0),))
    broken = the_finding(a_run(a_measurement(counters=counters(sm_throughput_pct=50.0)), kernels=(gated,)))
    unmeasured = the_finding(a_run(kernels=(gated,)))

    assert is_red(broken, Policy().fail_on)
    assert not is_red(unmeasured, Policy().fail_on)
    assert is_red(unmeasured, ["gate-not-measured"])
    assert not is_red(broken, ["gate-not-measured"])


LISTED = {"s1*": "overflows: issue 12"}
WRONG, TAKEN = (Failure("verify", code, "error 0.5") for code in ("wrong-output", "device-taken"))


@pytest.mark.parametrize(
    ("expected", "changes", "verdict", "code", "red"),
    [
        (LISTED, {"failure": WRONG}, Verdict.EXPECTED_FAILURE, "expected-failure", False),
        ({"s2*": "another case"}, {"failure": WRONG}, Verdict.FAILED, "wrong-output", True),
        (LISTED, {"failure": TAKEN}, Verdict.FAILED, "device-taken", True),
        (LISTED, {}, Verdict.FAILED, "unexpected-pass", True),
        (LISTED, {"target": "reference"}, Verdict.NEW, "no-baseline", False),
        (LISTED, {"replicates": ()}, Verdict.INCONCLUSIVE, "not-measured", False),
    ],
    ids=["fails", "not listed", "no fault of the kernel", "passes", "launch does not run here", "not timed yet"],
)
def test_a_listed_failure_is_expected_and_a_listed_case_that_passes_is_red(expected, changes, verdict, code, red):
    run = a_run(a_measurement(**changes), kernels=(a_spec(expected_failures=expected),))
    (finding,) = judge(run)

    assert (finding.verdict, finding.code) == (verdict, code)
    assert is_red(finding, run.policy.fail_on) == red
    if code in ("expected-failure", "unexpected-pass"):
        assert "overflows: issue 12" in finding.sentence


def test_an_expected_failure_is_counted_and_fails_nothing():
    kernels = (a_spec(expected_failures=LISTED),)
    report = build_report(a_run(a_measurement(failure=WRONG), kernels=kernels))

    assert (report.headline, report.exit_status) == ("1 expected failure", 0)
