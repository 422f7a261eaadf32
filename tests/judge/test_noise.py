"""The rules are applied to noise recorded on real GPUs, and to a simulated GPU with faults."""

# ruff: noqa: ARG002, ARG005 # the Machine's own signatures

import json
import math
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from lib.computed_once import computed_once

from ci_perf.judge.looks import LOOKS
from ci_perf.judge.pairs import decide_pairs
from ci_perf.judge.ratios import log_ratio
from ci_perf.judge.report import build_report
from ci_perf.judge.stats import ratio_interval, spread
from ci_perf.judge.stored import decide
from ci_perf.measure.main_job import execute
from ci_perf.values.job import select_jobs
from ci_perf.values.measurement import Failure, Pair, Verification
from ci_perf.values.reasons import Reason, Verdict
from ci_perf.values.run import Against, Policy
from tests.builders import a_device, a_run, a_spec

RECORDED = json.loads((Path(__file__).parents[1] / "data/noise/turns-and-alone.json").read_text())
RED_OR_GREEN = {Verdict.REGRESSION, Verdict.SPEEDUP}


def pair_values(trials):
    return [log_ratio(Pair(tuple(a for a, _ in t), tuple(b for _, b in t), 100, "cuda-graph")) for t in trials]


def verdict_of(draw, comparisons=12):
    for look in LOOKS:
        outcome = decide_pairs(draw[:look], Policy(), comparisons=comparisons, last=look == LOOKS[-1])
        if outcome.code != Reason.NEEDS_MORE_PAIRS:
            return outcome.verdict
    raise AssertionError("the last look decides")


def sessions(values, number, seed):
    draws = random.Random(seed)
    return Counter(verdict_of(draws.sample(values, min(len(values), LOOKS[-1]))) for _ in range(number))


@pytest.mark.parametrize("kernel", sorted(RECORDED["unchanged"]))
def test_recorded_pairs_of_unchanged_code_are_never_red_or_green(kernel):
    verdicts = sessions(pair_values(RECORDED["unchanged"][kernel]), 2000, seed=1)

    assert not RED_OR_GREEN & verdicts.keys()
    assert verdicts[Verdict.UNCHANGED] >= 1960


@pytest.mark.parametrize("kernel", sorted(RECORDED["planted"]))
def test_recorded_pairs_with_a_planted_slowdown_are_always_red(kernel):
    values = pair_values(RECORDED["planted"][kernel])
    draws = random.Random(2)

    verdicts = {verdict_of(draws.sample(values, 5) + draws.sample(values, 7)) for _ in range(500)}

    assert verdicts == {Verdict.REGRESSION}


@pytest.mark.parametrize("kernel", sorted(RECORDED["unchanged"]))
def test_recorded_errors_lie_on_both_sides(kernel):
    """A rule, a timer or an order of turns that favours one side would show here."""
    values = pair_values(RECORDED["unchanged"][kernel])
    slower = sum(value > 0 for value in values)

    assert 7 <= slower <= 23  # of 30 fair coins, outside once in 400


@pytest.mark.parametrize("kernel", sorted(RECORDED["alone"]))
def test_recorded_lone_processes_of_unchanged_code_are_never_red_against_a_baseline(kernel):
    medians, draws = RECORDED["alone"][kernel], random.Random(3)
    red = 0
    for _ in range(5000):
        drawn = draws.sample(medians, 18)
        outcome = decide(drawn[:6], [drawn[6:12], drawn[12:]], Policy(), floor=spread(drawn[:6]))
        red += outcome.verdict in RED_OR_GREEN

    assert red == 0


def test_the_interval_alone_would_be_red_on_the_same_recorded_processes():
    """What the rule adds: on this kernel two batches and an interval of 99 % are not enough."""
    medians, draws = RECORDED["alone"]["mm4096"], random.Random(3)
    red = 0
    for _ in range(5000):
        drawn = draws.sample(medians, 18)
        base, batches = drawn[:6], (drawn[6:12], drawn[12:])
        slower = all(ratio_interval(base, batch, 0.99).point >= 1.03 for batch in batches)
        red += slower and ratio_interval(base, drawn[6:], 0.99).low > 1

    assert red >= 5


class SimulatedGpu:
    """A `Machine` on a GPU that drifts, throttles, hiccups, has processes of two kinds, and slows the head by `true`.

    Of `wild` processes one is slower by 30 % from start to end; where rounds are `dropped`, a pair has 4 to 10 of them;
    `rates` are measured in place of times. Of `halving` rounds one begins with the clock at half its rate, or back at
    all of it. `recorded` is the kernel whose pairs, recorded on an H100, are drawn in place of made-up ones.
    """

    touched = ()

    def __init__(
        self,
        seed,
        *,
        true=1.0,
        sd=0.002,
        modes=0.0,
        drift=0.0,
        hiccups=0.0,
        bias=0.0,
        throttle=None,
        wild=None,
        dropped=False,
        rates=False,
        halving=None,
        recorded=None,
    ):
        self.chance = random.Random(seed)
        self.true, self.sd, self.modes, self.drift = true, sd, modes, drift
        self.hiccups, self.bias, self.throttle = hiccups, bias, throttle
        self.wild, self.dropped, self.rates = wild, dropped, rates
        self.halving, self.recorded = halving, recorded
        self.clock = 1.0
        self.seconds = 0.0

    def verify(self, jobs):
        yield from ((job, (Verification(0.0, 0.01, "launch"), None)) for job in jobs)

    def time(self, jobs, *, batch, turn):
        raise AssertionError("a run against a base takes turns")

    def start_anew(self, jobs, pairs):
        """Do nothing: each pair has new processes."""

    def pairs(self, jobs, number):
        for job in jobs:
            yield job, self.pair(job)

    def pair(self, job):
        return self._pair(self.true * (1 + self.bias))

    def control(self, job, number):
        return self._pair(1 + self.bias)

    def now(self):
        self.seconds += 1.0
        return self.seconds

    def profile(self, jobs, changed=()):
        return iter(())

    def seconds_used(self):
        return 0.0

    def _pair(self, ratio):
        if self.recorded:
            rounds = self.chance.choice(RECORDED["unchanged"][self.recorded])
            base, head = (tuple(r[i] * 1e-6 * (1, ratio)[i] for r in rounds) for i in (0, 1))
            return Pair(base, head, 100, "cuda-graph", 1.0)
        sides = [self._process(), self._process() * ratio]
        rounds = []
        for number in range(self.chance.randint(4, 10) if self.dropped else 10):
            taken = {}
            for side in (0, 1) if number % 2 == 0 else (1, 0):
                if self.halving and self.chance.random() < 1 / self.halving:
                    self.clock = 3.0 - self.clock
                self.clock *= 1 + self.drift * self.chance.random()
                slow = 5.0 if self.chance.random() < self.hiccups else 1.0
                taken[side] = 50e-6 * sides[side] * self.clock * slow * (1 + self.chance.gauss(0, 0.002))
            rounds.append((taken[0], taken[1]))
        unit = {"unit": "FLOP/s", "better": "higher"} if self.rates else {}
        base, head = (tuple(1e9 / r[i] if self.rates else r[i] for r in rounds) for i in (0, 1))
        return Pair(base, head, 100, "cuda-graph", self.throttle, **unit)

    def _process(self):
        mode = self.modes if self.chance.random() < 0.5 else 0.0
        wild = 0.3 if self.wild and self.chance.random() < 1 / self.wild else 0.0
        return (1 + mode) * (1 + wild) * math.exp(self.chance.gauss(0, self.sd))


class Silent:
    def begin(self, stage, steps):
        pass

    def step(self, what):
        pass


SPECS = tuple(a_spec(f"kernel{number}") for number in range(6))


@computed_once()
def session(machine):
    run = a_run(kernels=SPECS, devices=(a_device(),), baselines=(), against=Against("main", "abc"), finished=False)
    jobs = select_jobs(SPECS, [], ["cuda"])
    return execute(run, jobs, machine, processes=6, save=lambda run: None, progress=Silent())


@computed_once()
def verdicts(number, **gpu):
    """Run whole sessions of six cases each; count verdicts by their reason codes."""
    reports = [build_report(session(SimulatedGpu(seed, **gpu))) for seed in range(number)]
    return Counter(row.finding.code for report in reports for row in report.rows), reports


@pytest.mark.slow
@pytest.mark.parametrize(
    "gpu",
    [
        *({}, {"sd": 0.01}, {"drift": 0.002}, {"modes": 0.03}, {"hiccups": 0.05}, {"halving": 30}, {"sd": 0.24}),
        *({"recorded": kernel} for kernel in sorted(RECORDED["unchanged"])),
    ],
    ids=[
        *("quiet", "restless", "drifting", "two-modes", "hiccups", "throttling", "hopeless"),
        *sorted(RECORDED["unchanged"]),
    ],
)
def test_a_gpu_that_misbehaves_makes_no_unchanged_code_red(gpu):
    codes, reports = verdicts(12, **gpu)

    assert codes["slower"] == codes["faster"] == 0
    assert all(report.exit_status == 0 for report in reports)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("true", "code"), [(1.05, "slower"), (1.035, "slower"), (0.85, "faster"), (1.02, "below-threshold")]
)
def test_planted_changes_are_told_on_a_quiet_gpu(true, code):
    codes, _ = verdicts(8, true=true)

    assert codes[code] == 48


@pytest.mark.slow
def test_processes_that_are_off_from_start_to_end_never_make_unchanged_code_red_or_green():
    codes, _ = verdicts(40, wild=25)

    assert codes.keys() <= {"within-noise", "interval-too-wide"}
    assert codes["within-noise"] >= 216  # of 240


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wild", "flagged"),
    [pytest.param(80, 0.98, id="one-pair-in-40-as-on-an-h100"), pytest.param(25, 0.8, id="one-pair-in-13")],
)
def test_processes_that_are_off_from_start_to_end_hide_few_slowdowns_and_reverse_none(wild, flagged):
    codes, _ = verdicts(40, wild=wild, true=1.035)

    assert codes.keys() <= {"slower", "interval-too-wide", "not-sure-among-K-cases"}
    assert codes["slower"] >= flagged * 240


@pytest.mark.parametrize(("true", "code"), [(1.05, "slower"), (1.0, "within-noise"), (0.85, "faster")])
@pytest.mark.parametrize("gpu", [{"rates": True}, {"dropped": True}], ids=["rates", "dropped-rounds"])
def test_rates_and_pairs_that_lack_rounds_are_judged_like_times(true, code, gpu):
    codes, reports = verdicts(4, true=true, **gpu)

    assert codes == {code: 24}
    assert {report.exit_status for report in reports} == {1 if code == "slower" else 0}


@pytest.mark.slow
@pytest.mark.parametrize("gpu", [{"halving": 30}, *({"recorded": kernel} for kernel in sorted(RECORDED["unchanged"]))])
def test_planted_slowdowns_are_told_on_a_gpu_that_throttles_and_in_recorded_noise(gpu):
    codes, _ = verdicts(8, true=1.05, **gpu)

    assert codes == {"slower": 48}


@pytest.mark.parametrize("side", ["base", "head"])
def test_rounds_that_took_no_time_decide_nothing_and_stop_nothing(side):
    class Lossy(SimulatedGpu):
        def _pair(self, ratio):
            pair = super()._pair(ratio)
            lost = self.chance.random() < 0.2
            return replace(pair, **{side: (0.0, *getattr(pair, side)[1:])}) if lost else pair

    reports = [build_report(session(Lossy(seed))) for seed in range(4)]

    codes = {row.finding.code for report in reports for row in report.rows}
    assert codes == {"bad-values", "within-noise"}


def test_a_change_whose_clocks_are_not_known_says_so():
    _, (report,) = verdicts(1, true=1.05)

    assert all(row.finding.sentence.endswith("; the SM clocks are not known") for row in report.rows)


def test_drift_alone_is_taken_out_by_the_turns():
    run = session(SimulatedGpu(5, true=1.05, drift=0.003))

    assert {row.finding.code for row in build_report(run).rows} == {"slower"}


def test_a_session_whose_control_moves_is_believed_in_nothing():
    codes, reports = verdicts(4, bias=0.05)

    assert codes == {"control-moved": 24}
    assert all(report.exit_status == 0 for report in reports)


def test_a_clock_that_explains_the_change_is_no_change_of_the_code():
    codes, _ = verdicts(4, true=1.05, throttle=0.95)

    assert codes == {"slower-clock": 24}


@pytest.mark.slow
def test_errors_of_a_whole_session_lie_on_both_sides():
    """The self-check: swap nothing, plant nothing, and half of the estimates must be above 1."""
    _, reports = verdicts(40)
    above = sum(row.finding.change.point > 1 for report in reports for row in report.rows)

    assert 90 <= above <= 150  # of 240 fair coins


def test_a_base_that_fails_half_way_leaves_the_other_cases_alone():
    class Failing(SimulatedGpu):
        def pair(self, job):
            if job.spec.name == "kernel3":
                return "raised: half written"
            if job.spec.name == "kernel4":
                return Failure("ready", "raised", "RuntimeError: no")
            return super().pair(job)

    rows = {row.finding.kernel: row.finding.code for row in build_report(session(Failing(1))).rows}

    assert rows["kernel3"] == "base-failed"
    assert rows["kernel4"] == "raised"
    assert {rows[f"kernel{n}"] for n in (0, 1, 2, 5)} == {"within-noise"}
