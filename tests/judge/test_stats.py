import itertools
import math
import random
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci_perf.judge.stats import Interval, median_interval, quantile, ratio_interval, spread, summarize
from tests.builders import replicates

seconds = st.floats(1e-9, 1e3)
samples = st.lists(seconds, min_size=1, max_size=8)


def covers(interval: Interval, value: float) -> bool:
    return interval.low <= value <= interval.high


@pytest.mark.parametrize("n", range(1, 13))
def test_the_coverage_of_a_median_is_that_of_all_ways_to_fall_around_it(n):
    """Each value lies above or below the true median with equal chance: count the ways that the interval covers it."""
    interval = median_interval(range(1, n + 1), confidence=0.95)
    low_rank = int(interval.low)
    ways = sum(low_rank <= sum(below) <= n - low_rank for below in itertools.product((0, 1), repeat=n))

    assert interval.confidence == ways / 2**n
    assert interval.high == n + 1 - low_rank


@pytest.mark.parametrize(("n", "confidence"), [(4, 0.3), (6, 0.95), (8, 0.99), (9, 0.95), (12, 0.95), (20, 0.99)])
def test_the_interval_of_a_median_is_the_narrowest_that_covers_enough(n, confidence):
    rank = int(median_interval(range(1, n + 1), confidence).low)
    misses = [2 * sum(math.comb(n, i) for i in range(k)) / 2**n for k in (rank, rank + 1)]

    assert misses[0] <= 1 - confidence < misses[1]


@pytest.mark.parametrize(("m", "n", "confidence"), [(3, 3, 0.9), (4, 4, 0.95), (3, 5, 0.95), (5, 5, 0.99), (2, 9, 0.9)])
def test_the_coverage_of_a_ratio_is_that_of_all_orderings(m, n, confidence):
    """With no change every ordering of the m + n values is equally likely: count those whose interval holds 1."""
    values = range(1, m + n + 1)
    intervals = [
        ratio_interval(base, [v for v in values if v not in base], confidence)
        for base in itertools.combinations(values, m)
    ]
    covering = sum(covers(i, 1.0) for i in intervals)

    assert covering / len(intervals) == pytest.approx(intervals[0].confidence)
    assert intervals[0].confidence >= confidence


@pytest.mark.parametrize(("n", "reached"), [(5, 250 / 252), (6, 922 / 924)])
def test_the_extreme_ratios_reach_the_coverage_that_the_tables_of_mann_and_whitney_give(n, reached):
    interval = ratio_interval([1.0] * n, [2.0**i for i in range(n)], reached - 1e-9)

    assert (interval.low, interval.high) == (1.0, pytest.approx(2 ** (n - 1)))
    assert interval.point == pytest.approx(2 ** ((n - 1) / 2))
    assert interval.confidence == pytest.approx(reached)


def test_more_orderings_are_left_out_as_far_as_the_confidence_allows():
    base, head = [1.0] * 6, [2.0**i for i in range(6)]
    # P[U <= 2] = 4 / 924 on either side, P[U <= 3] = 7 / 924: 99 % allows the first, not the second.
    assert ratio_interval(base, head, 0.99).confidence == pytest.approx(1 - 8 / 924)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 6), (4, 4)])
def test_too_few_processes_exclude_nothing(m, n):
    interval = ratio_interval([1.0] * m, [2.0] * n, 0.99)

    assert (interval.low, interval.point, interval.high) == (0.0, 2.0, math.inf)


@pytest.mark.parametrize("noise", ["lognormal", "bimodal", "cauchy"])
def test_intervals_cover_the_truth_as_often_as_they_promise(noise):
    rng = random.Random(20261127)

    def draw() -> float:
        if noise == "lognormal":
            return math.exp(rng.gauss(0, 0.01))
        if noise == "bimodal":
            return rng.choice([1.0, 1.05]) + rng.gauss(0, 0.001)
        return math.exp(0.01 * math.tan(math.pi * (rng.random() - 0.5)))

    trials, missed_ratio, missed_median = 1500, 0, 0
    true_median = {"lognormal": 1.0, "bimodal": 1.025, "cauchy": 1.0}[noise]
    for _ in range(trials):
        base, head = [draw() for _ in range(6)], [1.3 * draw() for _ in range(6)]
        missed_ratio += not covers(ratio_interval(base, head, 0.95), 1.3)
        missed_median += not covers(median_interval(base, 0.95), true_median)

    reached = ratio_interval([1] * 6, [1] * 6, 0.95).confidence
    assert missed_ratio / trials == pytest.approx(1 - reached, abs=0.02)
    assert missed_median / trials == pytest.approx(2 / 64, abs=0.02)


@given(base=samples, head=samples, confidences=st.tuples(st.floats(0.5, 0.999), st.floats(0.5, 0.999)))
def test_more_confidence_never_narrows_an_interval(base, head, confidences):
    low, high = sorted(confidences)
    for narrow, wide in (
        (ratio_interval(base, head, low), ratio_interval(base, head, high)),
        (median_interval(base, low), median_interval(base, high)),
    ):
        assert wide.low <= narrow.low <= narrow.point <= narrow.high <= wide.high
        assert wide.confidence >= narrow.confidence


@given(base=samples, head=samples)
def test_swapping_the_sides_inverts_the_ratio(base, head):
    there, back = ratio_interval(base, head, 0.9), ratio_interval(head, base, 0.9)

    assert there.point * back.point == pytest.approx(1)
    assert there.confidence == pytest.approx(back.confidence)
    if there.low > 0:
        assert there.low * back.high == pytest.approx(1)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_ratio_of_what_is_no_time_is_refused(bad):
    with pytest.raises(ValueError, match="finite, positive"):
        ratio_interval([1.0, bad], [1.0], 0.99)


def test_nothing_has_no_median_and_no_ratio():
    with pytest.raises(ValueError, match="median of no values"):
        median_interval([])
    with pytest.raises(ValueError, match="both sides"):
        ratio_interval([1.0], [], 0.99)


@given(values=st.lists(seconds, min_size=2, max_size=30), percent=st.integers(1, 99))
def test_quantiles_are_those_of_the_standard_library(values, percent):
    assert quantile(values, percent / 100) == pytest.approx(
        statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
    )


def test_a_summary_keeps_samples_and_processes_apart():
    summary = summarize(replicates([1.0, 2.0], [3.0]))

    assert (summary.n, summary.processes) == (9, 3)
    assert (summary.median.low, summary.median.point, summary.median.high) == (1.0, 2.0, 3.0)
    assert summary.median.confidence == 1 - 2 / 2**3
    samples = [0.99, 1.0, 1.02, 1.98, 2.0, 2.04, 2.97, 3.0, 3.06]
    assert (summary.mean, summary.sd) == pytest.approx((statistics.mean(samples), statistics.stdev(samples)))
    assert summary.cv == summary.sd / summary.mean
    assert summary.p50 < summary.p95 < summary.p99 < 3.06


CAPPED = {"throttle_reasons": ("sw-power-cap",)}


@pytest.mark.parametrize(
    ("processes", "limited"),
    [
        ([{**CAPPED, "sm_clock_hz": 1.47e9}] * 3 + [{"sm_clock_hz": 1.98e9}] * 2, True),
        ([{**CAPPED, "sm_clock_hz": 1.47e9}] * 2 + [{"sm_clock_hz": 1.98e9}] * 2, False),
        ([{**CAPPED, "sm_clock_hz": 1.98e9}] * 4, False),  # marked for a moment
        ([{"throttle_reasons": ("applications-clocks", "sw-power-cap"), "sm_clock_hz": 1.755e9}] * 4, False),
        ([CAPPED] * 4, None),
        ([{**CAPPED, "sm_clock_hz": 1.47e9, "disturbed": ("python3 (7)",)}] * 4, None),
        ([{}] * 4, None),
    ],
    ids=[
        "most",
        "half",
        "at its highest clock",
        "clock locked",
        "clock unknown",
        "beside another program",
        "nothing known",
    ],
)
def test_the_power_limit_is_that_of_the_kernel_where_it_held_most_processes_down(processes, limited):
    measured = [replace(replicates([1.0])[0], **facts) for facts in processes]

    assert summarize(measured, clock_max_hz=1.98e9).at_power_limit is limited


@pytest.mark.parametrize(("clock", "limited"), [(1.9602e9, False), (1.9601e9, True)])
def test_a_clock_at_99_percent_of_its_highest_is_not_held_down(clock, limited):
    measured = [replace(replicates([1.0])[0], sm_clock_hz=clock, **CAPPED)]

    assert summarize(measured, clock_max_hz=1.98e9).at_power_limit is limited
    assert summarize(measured).sm_clock_hz == clock


@pytest.mark.parametrize(("samples", "cv"), [((0.0, 0.0), 0.0), ((0.5, 0.5), 0.0), ((0.4, 0.6), 0.282843)])
def test_the_cv_is_that_of_two_samples_or_more_that_take_time(samples, cv):
    summary = summarize([replace(replicates([1.0])[0], seconds=samples)])

    assert summary.cv == pytest.approx(cv, abs=1e-6)


def test_a_median_of_ten_has_another_interval_for_each_confidence():
    ten = replicates([float(i) for i in range(1, 11)])

    assert [summarize(ten, confidence).median.low for confidence in (0.95, 0.9, 0.5)] == [2.0, 2.0, 4.0]
    assert summarize(ten).median == summarize(ten, 0.95).median


def test_a_single_sample_has_no_spread():
    (process,) = replicates([1.0])
    summary = summarize([type(process)((1.0,), 1, "cuda-graph")])

    assert (summary.sd, summary.cv, summary.p99) == (0.0, 0.0, 1.0)
    assert summary.median.confidence == 0.0


def test_the_spread_is_the_largest_distance_on_either_side():
    assert spread([0.8, 1.0, 1.1]) == pytest.approx(0.2)
    assert spread([0.0, 0.0]) == 0.0
