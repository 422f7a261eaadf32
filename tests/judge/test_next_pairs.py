"""Which cases get the next pairs where the budget is short."""

import math

import pytest

from ci_perf.judge.next_pairs import affordable, expected_pairs, pairs_to_decision
from ci_perf.values.measurement import Pair
from ci_perf.values.run import Against, Policy
from tests.builders import a_measurement, a_run


@pytest.mark.parametrize(
    ("values", "comparisons", "more"),
    [
        ([], 1, 3),
        ([0.0], 1, 2),
        ([0.0, 0.0005], 1000, 1),
        ([0.05], 1, 4),
        ([0.05], 12, 7),
        ([0.05], 1000, 11),
        ([0.25], 1, 2),
        ([0.25], 1000, 4),
        ([0.0296], 1, 23),
        ([0.02, 0.04], 1, 22),
        ([0.02, 0.04] * 12, 1, 1),
    ],
    ids=[
        *("nothing is known", "no change", "no change needs one more", "a change", "among 12", "among 1000"),
        *("a large change", "a large one among 1000", "at the threshold", "scatter across it", "the last look is over"),
    ],
)
def test_the_pairs_that_a_decision_will_take_follow_from_those_so_far(values, comparisons, more):
    assert pairs_to_decision(values, Policy(), comparisons=comparisons) == more


@pytest.mark.parametrize(
    ("changes", "comparisons", "more"),
    [({}, 1, 4), ({}, 1000, 11), ({"among": 1000}, 1, 11), ({"among": 9}, 1000, 11)],
)
def test_a_case_shares_the_error_with_those_of_the_plan_or_of_its_session(changes, comparisons, more):
    pair = Pair((1e-5,) * 4, (1e-5 * math.exp(0.05),) * 4, 100, "cuda-graph")
    run = a_run(a_measurement(replicates=(), pairs=(pair,)), against=Against("main", "b" * 40), **changes)

    assert expected_pairs(run, run.measurements[0], comparisons) == more


@pytest.mark.parametrize(
    ("left_s", "chosen"),
    [
        (0.9, []),
        (1.0, ["near"]),
        (5.9, ["near"]),
        (6.0, ["near", "far"]),
        (16.0, ["near", "far", "farthest"]),
    ],
    ids=["not even one", "one", "one and a part", "two", "all"],
)
def test_the_cheapest_decisions_come_first_and_only_those_that_fit(left_s, chosen):
    assert list(affordable({"farthest": 10.0, "near": 1.0, "far": 5.0}, left_s)) == chosen
