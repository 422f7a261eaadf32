"""What the baselines of the base commit know of the scatter of a case, and what it changes in turns."""

import math
import random
from dataclasses import replace

import pytest

from ci_perf.judge.pairs import decide_pairs
from ci_perf.judge.ratios import USUAL
from ci_perf.judge.scatter import expected_scatter, known_scatter
from ci_perf.values.baseline import KnownScatter
from ci_perf.values.measurement import Pair
from ci_perf.values.reasons import Reason, Verdict
from ci_perf.values.run import Against, Policy
from tests.builders import a_baseline, a_measurement

MEASURED = a_measurement(pairs=(Pair((1.0,), (1.0,), 100, "cuda-graph"),))


def expected(sd, degrees=5, method="cuda-graph", case="sdpa/s128"):
    return expected_scatter(Against("main", "abc", scatter={case: KnownScatter(method, sd, degrees)}), MEASURED)


def test_the_scatter_of_a_pair_is_that_of_the_difference_of_two_processes():
    known = known_scatter([a_baseline([math.exp(x) for x in (-0.002, 0.0, 0.002)])])

    assert known["sdpa/s128"] == KnownScatter("cuda-graph", pytest.approx(math.sqrt(2) * 0.002), 2)


def test_one_process_says_nothing_of_the_scatter():
    assert known_scatter([a_baseline([1.0])]) == {}


@pytest.mark.parametrize(
    ("known", "sd", "degrees"),
    [
        (expected(0.001), math.sqrt((4 * 0.003**2 + 5 * 0.001**2) / 9), 9),
        (expected(0.01), math.sqrt((4 * 0.003**2 + 5 * 0.01**2) / 9), 9),
        (expected(0.5), math.sqrt((4 * 0.003**2 + 5 * 0.01**2) / 9), 9),
        (expected(0.001, 100), math.sqrt((4 * 0.003**2 + 100 * 0.001**2) / 104), 12),
        (expected(0.001, method="cupti-cold"), USUAL.sd, USUAL.degrees),
        (expected(0.001, case="sdpa/other"), USUAL.sd, USUAL.degrees),
    ],
)
def test_known_and_usual_scatter_are_averaged_by_their_degrees_of_freedom(known, sd, degrees):
    assert (known.sd, known.degrees) == (pytest.approx(sd), degrees)
    assert known.far is None  # processes one after another are no pairs


@pytest.mark.parametrize("known", [0.0, 0.002, 0.5])
def test_a_change_beyond_the_threshold_is_not_called_unchanged_whatever_is_known(known):
    chance, policy, calm = random.Random(1), Policy(), expected(known)
    verdicts = [
        decide_pairs([math.log(1.031) + chance.gauss(0, 0.004) for _ in range(3)], policy, scatter=calm).verdict
        for _ in range(2000)
    ]

    assert sum(verdict is Verdict.UNCHANGED for verdict in verdicts) <= 20  # 1 %


def test_quiet_processes_in_the_baseline_save_pairs_at_a_threshold_of_1_percent():
    values, policy = [0.005, 0.003, 0.004], replace(Policy(), regression=0.01)

    assert decide_pairs(values, policy).code == Reason.NEEDS_MORE_PAIRS
    assert decide_pairs(values, policy, scatter=expected(0.0015)).code == Reason.WITHIN_NOISE
