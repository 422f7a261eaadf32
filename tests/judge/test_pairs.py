"""The decision on pairs that took turns: statistics, and the operating points on simulated noise."""

import math
import random
import re
import statistics
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lib.computed_once import computed_once

from ci_perf.judge.clocks import knows_clocks
from ci_perf.judge.looks import (
    CONTINUED,
    FAKED,
    FAR,
    LOOKS,
    SPENT,
    faked,
    is_faked,
    lacking_starts,
    least_far_pairs,
    odd,
)
from ci_perf.judge.pairs import decide_pairs, further_starts
from ci_perf.judge.ratios import (
    LEAST_SD,
    POWER,
    TRIMMED_FROM,
    USUAL,
    Scatter,
    detectable_change,
    expected_interval,
    log_ratio,
    pair_interval,
    usable_ratios,
)
from ci_perf.judge.stats import Interval, t_cdf, t_quantile
from ci_perf.judge.verdict import judge
from ci_perf.values.kernel import Program
from ci_perf.values.measurement import Pair
from ci_perf.values.reasons import Reason, Verdict
from ci_perf.values.run import Against, Policy
from tests.builders import a_measurement, a_run, a_spec

POLICY = Policy()


def pairs(ratio, n=5, sd=0.001, seed=1):
    noise = random.Random(seed)
    return [math.log(ratio) + noise.gauss(0, sd) for _ in range(n)]


# Critical values of Student's t from the table of NIST/SEMATECH, e-Handbook of Statistical Methods, 1.3.6.7.2.
@pytest.mark.parametrize(
    ("probability", "degrees", "value"),
    [
        (0.975, 1, 12.706),
        (0.975, 4, 2.776),
        (0.99, 7, 2.998),
        (0.995, 4, 4.604),
        (0.999, 11, 4.025),
        (0.95, 100, 1.660),
    ],
)
def test_the_quantiles_are_those_of_the_tables(probability, degrees, value):
    assert t_quantile(probability, degrees) == pytest.approx(value, abs=6e-4)


@pytest.mark.parametrize(
    ("t", "degrees", "probability"),
    [
        (0.0, 3, 0.5),
        (1.0, 1, 0.75),
        (1.4142136, 2, 0.8535534),
        (3.182446, 3, 0.975),
        (2.776445, 4, 0.975),
        (2.570582, 5, 0.975),
        (2.446912, 6, 0.975),
        (3.499483, 7, 0.995),
        (3.355387, 8, 0.995),
        (1.833113, 9, 0.95),
    ],
)
def test_the_distribution_is_that_of_the_tables(t, degrees, probability):
    assert t_cdf(t, degrees) == pytest.approx(probability, abs=1e-6)


@given(degrees=st.integers(1, 60), t=st.floats(0, 50))
def test_the_quantile_inverts_the_distribution(degrees, t):
    probability = t_cdf(t, degrees)

    assert 0.5 <= probability <= 1 + 1e-12
    if probability < 1 - 1e-9:
        assert t_cdf(t_quantile(probability, degrees), degrees) == pytest.approx(probability, abs=1e-12)


def test_two_wild_rounds_of_ten_move_a_pair_little():
    sound = [1.03, 1.031, 1.029, 1.03, 1.03, 1.031, 1.029, 1.03]

    assert log_ratio(Pair((1.0,) * 10, (*sound, 5.0, 9.0), 100, "cuda-graph")) == pytest.approx(
        math.log(1.03), abs=1e-3
    )


@pytest.mark.parametrize(
    ("ratio", "verdict", "code"),
    [
        (1.05, Verdict.REGRESSION, "slower"),
        (1.035, Verdict.REGRESSION, "slower"),
        (1.0, Verdict.UNCHANGED, "within-noise"),
        (1.02, Verdict.UNCHANGED, "below-threshold"),
        (0.95, Verdict.UNCHANGED, "below-threshold"),
        (0.85, Verdict.SPEEDUP, "faster"),
    ],
)
def test_a_clear_change_is_told_at_the_first_look(ratio, verdict, code):
    outcome = decide_pairs(pairs(ratio), POLICY)

    assert (outcome.verdict, outcome.code) == (verdict, code)


@pytest.mark.parametrize(
    ("ratio", "sentence"),
    [(1.02, r"\+2\.0 %, certain \(.*\); a regression begins at 3\.0 %"), (0.95, r"a speedup begins at 10\.0 %")],
)
def test_a_change_below_the_threshold_names_the_size_of_the_threshold(ratio, sentence):
    outcome = decide_pairs(pairs(ratio), POLICY)

    assert re.search(sentence, outcome.sentence)
    assert "below" not in outcome.sentence  # the code beside it says so


def test_what_is_not_clear_asks_for_more_pairs_until_the_last_look():
    near = pairs(1.03, sd=0.01)

    assert decide_pairs(near, POLICY).code == Reason.NEEDS_MORE_PAIRS
    assert decide_pairs(near, POLICY, last=True).verdict in {Verdict.INCONCLUSIVE, Verdict.REGRESSION}


@pytest.mark.parametrize("bad", [0.0, -1e-6, math.inf, math.nan])
@pytest.mark.parametrize("side", ["base", "head"])
def test_a_pair_with_a_round_of_no_time_has_no_ratio(bad, side):
    pair = Pair(**{"base": (1e-6, 1e-6), "head": (1e-6, 1e-6), side: (1e-6, bad)}, launches=1, method="cuda-graph")

    assert math.isnan(log_ratio(pair))
    assert usable_ratios([pair]) == []


@pytest.mark.parametrize("values", [[], [math.nan] * 5, [math.inf] * 5, [0.05]])
def test_too_little_or_unusable_is_inconclusive(values):
    assert decide_pairs(values, POLICY, last=True).verdict is Verdict.INCONCLUSIVE


def test_a_change_that_the_clocks_explain_is_none_of_the_code():
    assert decide_pairs(pairs(1.05), POLICY, clocks=[0.95] * 5).code == "slower-clock"
    assert decide_pairs(pairs(1.05), POLICY, clocks=[1.001] * 5).code == "slower"


def test_what_is_only_read_of_the_clocks_explains_no_change():
    """The median ratio of unchanged code was off by up to 1.4 % (baselines/h100-80gb-hbm3/audit.jsonl)."""
    noisy = [0.972, 1.01, 0.975, 1.008, 0.98]

    assert decide_pairs(pairs(1.0351), POLICY, clocks=[0.98] * 5).code == "slower-clock"
    assert decide_pairs(pairs(1.0351), POLICY, clocks=[0.99, 1.004, 0.99, 1.006, 0.995]).code == "slower"
    assert decide_pairs(pairs(1.0351), POLICY, clocks=noisy).code == Reason.NEEDS_MORE_PAIRS
    assert decide_pairs(pairs(1.0351), POLICY, clocks=noisy, last=True).code == "slower-uneven-clock"
    assert decide_pairs(pairs(1.0515), POLICY, clocks=[1.0, 1.001, None, None, None], last=True).code == "slower"


@pytest.mark.parametrize("n", [3, 5, 7])
@computed_once()
def test_a_change_that_is_called_detectable_is_seen_in_four_of_five_sets_of_pairs(n):
    """In other sets, whose scatter is what that of the first one was said to be."""
    draws, confidence = random.Random(n), 1 - 0.01 / 3
    first = [draws.gauss(0, 1) for _ in range(n)]
    first = [value * 0.003 / statistics.stdev(first) for value in first]
    true = math.log(1 + detectable_change(first, confidence))
    seen = sum(pair_interval([true + draws.gauss(0, 0.003) for _ in range(n)], confidence).low > 1 for _ in range(2000))
    assert seen == pytest.approx(1600, abs=100)


@given(
    values=st.lists(st.floats(-0.3, 0.3), min_size=2, max_size=12), comparisons=st.integers(1, 50), last=st.booleans()
)
def test_swapped_sides_never_both_win(values, comparisons, last):
    there = decide_pairs(values, POLICY, comparisons=comparisons, last=last).verdict
    back = decide_pairs([-v for v in values], POLICY, comparisons=comparisons, last=last).verdict

    assert not (there is Verdict.REGRESSION and back is Verdict.REGRESSION)
    assert not (there is Verdict.SPEEDUP and back is Verdict.SPEEDUP)


@given(values=st.lists(st.floats(-0.1, 0.1), min_size=3, max_size=12))
def test_more_confidence_means_a_wider_interval(values):
    narrow, wide = pair_interval(values, 0.95), pair_interval(values, 0.999)

    assert wide.low <= narrow.low <= narrow.point <= narrow.high <= wide.high


@pytest.mark.parametrize("pairs_measured", [8, 12])
@computed_once()
def test_the_trimmed_interval_holds_the_truth_about_as_often_as_it_says(pairs_measured):
    noise = random.Random(1)
    drawn = ([noise.gauss(0, 0.01) for _ in range(pairs_measured)] for _ in range(4000))
    intervals = [pair_interval(values, 0.99) for values in drawn]

    assert 0.985 <= sum(found.low <= 1 <= found.high for found in intervals) / 4000 <= 0.997


def session(noise, ratio, sd, comparisons=12):
    """Run one case as the flow does: look, measure more, look again."""
    values = []
    for look in LOOKS:
        values += [math.log(ratio) + noise.gauss(0, sd) for _ in range(look - len(values))]
        outcome = decide_pairs(values, POLICY, comparisons=comparisons, last=look == LOOKS[-1])
        if outcome.code != Reason.NEEDS_MORE_PAIRS:
            return outcome.verdict
    raise AssertionError("the last look decides")


@pytest.mark.slow
@pytest.mark.parametrize("sd", [0.001, 0.0035, 0.01, 0.02])
@computed_once()
def test_unchanged_code_is_never_red_or_green(sd):
    noise = random.Random(7)

    verdicts = [session(noise, 1.0, sd) for _ in range(3000)]

    assert Verdict.REGRESSION not in verdicts
    assert Verdict.SPEEDUP not in verdicts


@pytest.mark.parametrize(
    ("ratio", "sd", "flagged"), [(1.035, 0.0035, (0.99, 1.0)), (1.05, 0.01, (0.98, 1.0)), (1.02, 0.0035, (0.0, 0.001))]
)
@computed_once()
def test_planted_changes_are_flagged_as_often_as_promised(ratio, sd, flagged):
    noise = random.Random(11)

    share = sum(session(noise, ratio, sd) is Verdict.REGRESSION for _ in range(1000)) / 1000

    assert flagged[0] <= share <= flagged[1]


# --- the rules, with both sides of each boundary ---

LOOK = 1 - 0.01 * 0.20
"""The level of an interval of five pairs: 1 % of errors, of which this look has a fifth."""
SHAPE = (1.0, -1.0, 0.0, 0.5, -0.5)


def with_interval(ratio, high, confidence=LOOK, degrees=4):
    """Return five log ratios around `ratio` whose interval at this confidence ends at `high`, and as far below."""
    half = math.log(high / ratio)
    sd = half * math.sqrt(5) / t_quantile(1 - (1 - confidence) / 2, degrees)
    unit = statistics.stdev(SHAPE)
    return [math.log(ratio) + s / unit * sd for s in SHAPE]


def expected(ratio, high):
    """Return those whose interval with the usual scatter ends at `high`: it has four degrees of freedom more."""
    return with_interval(ratio, high, LOOK, 8)


def to(ratio, low):
    """Return those whose interval ends at `low` from below."""
    return with_interval(ratio, ratio * ratio / low)


def shared(ratio, low, comparisons):
    """Return those whose interval ends at `low` when so many cases share its level."""
    return with_interval(ratio, ratio * ratio / low, 1 - 0.01 * 0.20 / comparisons)


@pytest.mark.parametrize(
    ("values", "more", "code"),
    [
        # No change is UNCHANGED where the interval lies within both thresholds.
        (expected(1.0, 1.0299), {}, "within-noise"),
        (expected(1.0, 1.0301), {}, "needs-more-pairs"),
        (expected(1.0, 1.0301), {"last": True}, "interval-too-wide"),
        (expected(0.95, 0.95**2 * 1.0999), {}, "below-threshold"),
        (expected(0.95, 0.95**2 * 1.1001), {}, "needs-more-pairs"),
        (expected(0.95, 0.95**2 * 1.1001), {"last": True}, "interval-too-wide"),
        # A change before the last look lies beyond its threshold with the whole interval.
        (to(1.05, 1.0301), {}, "slower"),
        (to(1.05, 1.0299), {}, "needs-more-pairs"),
        (with_interval(0.85, 1 / 1.1001), {}, "faster"),
        (with_interval(0.85, 1 / 1.0999), {}, "needs-more-pairs"),
        # At the last look its estimate does, and the interval excludes no change.
        (to(1.05, 1.0299), {"last": True}, "slower"),
        (to(1.05, 1.0001), {"last": True}, "slower"),
        (to(1.05, 0.9999), {"last": True}, "interval-too-wide"),
        (to(1.0301, 1.0001), {"last": True}, "slower"),
        (to(1.0299, 1.0001), {"last": True}, "interval-too-wide"),
        (with_interval(0.85, 0.9999), {"last": True}, "faster"),
        (with_interval(0.85, 1.0001), {"last": True}, "interval-too-wide"),
        (with_interval(1 / 1.1001, 0.9999), {"last": True}, "faster"),
        (with_interval(1 / 1.0999, 0.9999), {"last": True}, "interval-too-wide"),
        # The level of a change is shared by the cases of the run, that of no change is not.
        (shared(1.05, 1.0001, 4), {"last": True, "comparisons": 4}, "slower"),
        (shared(1.05, 0.9999, 4), {"last": True, "comparisons": 4}, "not-sure-among-K-cases"),
        (shared(1.05, 1.0301, 4), {"comparisons": 4}, "slower"),
        (shared(1.05, 1.0299, 4), {"comparisons": 4}, "needs-more-pairs"),
        (expected(1.0, 1.0299), {"comparisons": 12}, "within-noise"),
        (to(1.05, 1.0301), {"comparisons": 0}, "slower"),
        # Among more cases five pairs are too few, whatever their interval is, unless the change is far.
        ([0.05] * 5, {"comparisons": 6, "last": True}, "not-sure-among-K-cases"),
        ([0.05] * 5, {"comparisons": 6}, "needs-more-pairs"),
        ([0.05] * 8, {"comparisons": 6}, "slower"),
        ([0.05] * 3, {}, "needs-more-pairs"),
        ([0.25] * 3, {}, "slower"),
        ([0.05] * 5, {"comparisons": 6, "scatter": Scatter(0.0048, 20)}, "slower"),
        ([0.05] * 5, {"comparisons": 6, "scatter": Scatter(0.0052, 20)}, "needs-more-pairs"),
        ([0.05] * 5, {"comparisons": 6, "scatter": Scatter(0.0048, 19)}, "needs-more-pairs"),
        # Each pair shows a third of the change; of twelve, one need not.
        ([0.05] * 7 + [0.01], {"last": True}, "pairs-disagree"),
        ([0.05] * 11 + [0.01], {"last": True}, "slower"),
        ([0.05] * 10 + [0.01] * 2, {"last": True}, "pairs-disagree"),
        # At the last look, as many need not as two kinds of processes do not fake among these cases.
        ([0.05] * 15 + [0.01] * 9, {"last": True}, "slower"),
        ([0.05] * 14 + [0.01] * 10, {"last": True}, "pairs-disagree"),
        ([0.05] * 16 + [0.01] * 8, {"last": True, "comparisons": 12}, "slower"),
        ([0.05] * 15 + [0.01] * 9, {"last": True, "comparisons": 12}, "not-sure-among-K-cases"),
        ([0.05] * 18 + [0.01] * 6, {"last": True, "comparisons": 1000}, "slower"),
        ([0.05] * 17 + [0.01] * 7, {"last": True, "comparisons": 1000}, "not-sure-among-K-cases"),
        # The clocks: a change is there in cycles, too, and reaches the threshold, or it is the clock's.
        (with_interval(1.05, 1.051), {"clocks": [1.0] * 5}, "slower"),
        (with_interval(1.05, 1.051), {"clocks": [0.983] * 5}, "slower"),
        (with_interval(1.05, 1.051), {"clocks": [0.979] * 5}, "slower-clock"),
        (with_interval(0.85, 0.851), {"clocks": [1.0] * 5}, "faster"),
        (with_interval(0.85, 0.851), {"clocks": [1.068] * 5}, "faster"),
        (with_interval(0.85, 0.851), {"clocks": [1.072] * 5}, "faster-clock"),
        (with_interval(0.85, 0.851), {"clocks": [1.0, 1.4, 0.7, 1.2, 0.8]}, "needs-more-pairs"),
        (with_interval(0.85, 0.851), {"clocks": [1.0, 1.4, 0.7, 1.2, 0.8], "last": True}, "faster-uneven-clock"),
        # Clocks that fewer than half of the pairs know, or fewer than three, explain nothing.
        (with_interval(1.05, 1.051), {"clocks": [0.95, 0.95, 0.95, None, None]}, "slower-clock"),
        (with_interval(1.05, 1.051), {"clocks": [0.95, 0.95, None, None, None]}, "slower"),
    ],
)
def test_the_rules_of_a_verdict_on_both_sides_of_each_boundary(values, more, code):
    outcome = decide_pairs(values, POLICY, **more)

    assert outcome.code == code


@pytest.mark.parametrize(
    ("values", "clocks", "sentence"),
    [
        ([0.05] * 5, [0.975] * 5, "5.1 % slower, but not in SM cycles: the clocks differed by -2.5 %"),
        (
            [0.05] * 5,
            [1.0, 1.4, 0.7, 1.2, 0.8],
            "5.1 % slower, but SM clocks too uneven to tell whether in cycles, too: the clocks differed by 0.0 %",
        ),
        ([0.0, 0.1, 0.0, 0.1, 0.05], [], "the interval allows -10.5 % to +23.4 %"),
        ([math.nan] * 5, [], "a pair holds no usable time"),
    ],
)
def test_an_inconclusive_verdict_says_what_is_not_clear(values, clocks, sentence):
    assert decide_pairs(values, POLICY, clocks=clocks, last=True).sentence == sentence


@pytest.mark.parametrize(("comparisons", "pairs"), [(1, 3), (88, 3), (89, 5), (2262, 5)])
def test_from_how_many_pairs_on_a_change_beyond_20_percent_counts_among_so_many_cases(comparisons, pairs):
    assert least_far_pairs(comparisons) == pairs
    assert comparisons * odd(pairs) <= FAKED


@pytest.mark.parametrize(
    ("pairs", "hidden", "most"),
    [(5, 0, 4), (8, 0, 278), (12, 1, 1927), (24, 6, 1286), (24, 7, 162), (24, 8, 24), (24, 9, 4)],
)
def test_among_how_many_cases_so_many_pairs_that_do_not_show_a_change_are_allowed(pairs, hidden, most):
    assert not is_faked([1] * pairs, hidden, most)
    assert is_faked([1] * pairs, hidden, most + 1)


@pytest.mark.parametrize(("pairs", "hidden"), [(5, 1), (8, 1), (12, 2), (23, 2)])
def test_before_the_last_look_one_pair_of_twelve_need_not_show_a_change(pairs, hidden):
    assert is_faked([1] * pairs, hidden)
    assert not is_faked([1] * pairs, hidden - 1)


@pytest.mark.parametrize(("looked", "faked"), [((), False), ((24,), True)])
def test_the_look_of_a_run_that_continues_another_spends_less(looked, faked):
    pairs = 24 + 24 * len(looked)
    most = max(n for n in range(pairs) if 12 * chance_of(pairs, n) <= FAKED * SPENT[-1])

    assert is_faked([1] * pairs, most, 12, looked) is faked


def chance_of(pairs, hidden):
    """Return the probability that at most so many of the pairs are no draw of probability 1/4."""
    return sum(math.comb(pairs, n) * 0.75**n * 0.25 ** (pairs - n) for n in range(hidden + 1))


@pytest.mark.parametrize(("pairs", "hidden"), [(5, 0), (8, 1), (24, 7)])
def test_pairs_of_starts_of_their_own_are_independent_draws(pairs, hidden):
    assert faked([1] * pairs, hidden) == pytest.approx(chance_of(pairs, hidden))


@pytest.mark.parametrize(
    ("starts", "hidden", "cases", "further"),
    [
        ([3], 0, 1, 9),
        ([3], 0, 12, 11),
        ([3, *[1] * 8], 0, 1, 1),
        ([3, *[1] * 9], 0, 1, 0),
        ([3], 3, 1, 21),
    ],
)
def test_a_case_whose_pairs_do_not_all_show_the_change_gets_more_starts_up_to_the_last_look(
    starts, hidden, cases, further
):
    assert lacking_starts(starts, hidden, cases) == further


@pytest.mark.parametrize(
    ("starts", "comparisons", "code"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7], 1, "slower"),
        ([0, 0, 0, 1, 2, 3, 4, 5], 17, "slower"),
        ([0, 0, 0, 1, 2, 3, 4, 5], 18, "needs-more-pairs"),
        ([0, 0, 0, 1, 1, 2, 2, 3], 1, "slower"),
        ([0, 0, 0, 1, 1, 2, 2, 3], 2, "needs-more-pairs"),
        ([0] * 8, 1, "needs-more-pairs"),
        ([None] * 8, 278, "slower"),
        ([], 278, "slower"),
        ([], 279, "needs-more-pairs"),
    ],
)
def test_pairs_of_one_start_of_the_workers_count_as_one_draw_of_two_kinds(starts, comparisons, code):
    assert decide_pairs([0.05] * 8, POLICY, comparisons=comparisons, starts=starts).code == code


def test_a_change_that_is_far_needs_no_new_starts_of_the_workers():
    assert decide_pairs([0.25] * 3, POLICY, starts=[0, 0, 0]).code == "slower"


@pytest.mark.parametrize(
    ("values", "starts", "cases", "needed"),
    [
        ([math.log(1.0301)] * 3, [0] * 3, 1, 9),
        ([math.log(1.0299)] * 3, [0] * 3, 1, 0),
        ([math.log(1.0301) + 0.02 * s for s in SHAPE], [0] * 5, 1, 18),
        ([-math.log(1.1001)] * 3, [0] * 3, 1, 9),
        ([-math.log(1.0999)] * 3, [0] * 3, 1, 0),
        ([0.05] * 12, [0, 0, 0, *range(1, 10)], 1, 0),
        ([0.05] * 11, [0, 0, 0, *range(1, 9)], 1, 1),
        ([0.05] * 12, [0, 0, 0, *range(1, 10)], 12, 2),
        ([0.05] * 3, [None] * 3, 1, 7),
        ([0.05] * 12, [None] * 12, 1, 0),
    ],
)
def test_an_undecided_case_whose_estimate_reaches_a_threshold_gets_new_starts(values, starts, cases, needed):
    change = pair_interval(values, 0.99)

    assert further_starts(values, change, POLICY, starts, cases) == needed


@pytest.mark.parametrize(("number", "code"), [(2, "budget-spent"), (3, "within-noise")])
def test_fewer_than_three_pairs_decide_nothing(number, code):
    assert against_base(*[a_pair()] * number).code == code


def test_the_interval_that_decides_is_the_one_that_is_reported():
    """Of no change, the one with the known scatter; of a change, the one whose error the cases share."""
    quiet, slower = pairs(1.0, n=3), pairs(1.05, n=8)

    unchanged, red = decide_pairs(quiet, POLICY, comparisons=6), decide_pairs(slower, POLICY, comparisons=6)

    assert unchanged.change == expected_interval(quiet, 1 - 0.01 * 0.35, USUAL)
    assert red.change == pair_interval(slower, 1 - 0.01 * 0.15 / 6)
    assert red.change.low > 1.03
    assert math.log(1 + FAR) > 0.13


def test_values_that_are_no_number_and_no_values_have_reasons_of_their_own():
    assert decide_pairs([math.nan], POLICY).code == "bad-values"
    assert decide_pairs([], POLICY).code == "no-values"


@pytest.mark.parametrize(
    ("clocks", "pairs_measured", "known"),
    [
        ([0.9, 0.9, 0.9], 3, True),
        ([0.9, 0.9, None], 3, False),
        ([0.9, 0.9], 2, False),
        ([0.9, 0.9, 0.9, None, None, None], 6, True),
        ([0.9, 0.9, 0.9, None, None, None, None], 7, False),
        ([], 5, False),
    ],
)
def test_the_clocks_are_known_where_three_pairs_and_half_of_them_know_them(clocks, pairs_measured, known):
    assert knows_clocks(clocks, pairs_measured) is known


def test_the_constants_of_the_rule():
    assert (LOOKS, LEAST_SD, TRIMMED_FROM, POWER) == ((3, 5, 8, 12, 24), 5e-4, 8, 0.8)
    assert math.fsum((*SPENT, CONTINUED)) == pytest.approx(1)


@pytest.mark.parametrize(("sd", "counts"), [(4e-4, 5e-4), (6e-4, 6e-4)])
def test_the_scatter_of_few_pairs_is_taken_to_be_at_least_the_best_that_was_measured(sd, counts):
    values = [s / statistics.stdev(SHAPE) * sd for s in SHAPE]

    assert math.log(pair_interval(values, 0.99).high) == pytest.approx(4.604 * counts / math.sqrt(5), rel=1e-3)


@pytest.mark.parametrize(("quiet", "point"), [(6, math.exp(0.7 / 7)), (7, 1.0)])
def test_from_eight_pairs_on_the_lowest_and_the_highest_do_not_count(quiet, point):
    assert pair_interval([0.0] * quiet + [0.7], 0.99).point == pytest.approx(point)


def test_the_error_of_a_trimmed_mean_is_that_of_the_winsorised_values():
    """Wilcox, 4.3: s_w / ((1 - 2 g / n) sqrt(n)), with n - 2 g - 1 degrees of freedom; t at 99.5 % of 5 is 4.032."""
    values = [-9.0, 0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 9.0]
    winsorised = [0.0, 0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.05]
    half = 4.0321 * statistics.stdev(winsorised) / ((1 - 2 / 8) * math.sqrt(8))
    found = pair_interval(values, 0.99)

    assert math.log(found.high / found.point) == pytest.approx(half, rel=1e-4)
    assert math.log(found.point / found.low) == pytest.approx(half, rel=1e-4)
    assert math.log(found.point) == pytest.approx(0.025)
    assert found.confidence == 0.99


def test_one_pair_has_no_interval_and_shows_no_change():
    assert pair_interval([math.log(2)], 0.99) == Interval(0.0, pytest.approx(2.0), math.inf, 0.0)
    assert detectable_change([0.1], 0.99) == math.inf
    assert decide_pairs([0.1], POLICY, last=True).code == "interval-too-wide"


@pytest.mark.parametrize(("log", "finite"), [(699.0, True), (701.0, False)])
def test_a_ratio_that_is_no_double_is_infinite(log, finite):
    assert math.isfinite(pair_interval([0.0, 2 * log / 100] * 2, 0.99).high)
    assert math.isfinite(pair_interval([log, log], 0.99).high) is finite or not finite


def test_two_pairs_have_a_detectable_change_that_follows_from_their_scatter():
    """At 99 % t of one degree is 63.657, of four 4.604; 26.7.10 of Abramowitz and Stegun as in the docstring."""
    for values, t, degrees in (([0.0, 0.001], 63.657, 1), ([0.001 * s for s in SHAPE], 4.604, 4)):
        error = max(statistics.stdev(values), LEAST_SD) / math.sqrt(len(values))
        factor = t * (1 - 1 / (4 * degrees)) + 0.8416 * math.sqrt(1 + t**2 / (2 * degrees))

        assert math.log(1 + detectable_change(values, 0.99)) == pytest.approx(factor * error, rel=1e-3)


@pytest.mark.parametrize(("better", "ratio"), [("lower", 1.05), ("higher", 1 / 1.05)])
def test_rates_count_the_other_way_round(better, ratio):
    pair = Pair((1.0,) * 4, (1.05,) * 4, 100, "cuda-graph", better=better)

    assert math.exp(log_ratio(pair)) == pytest.approx(ratio)


def a_pair(ratio=1.0, **changes):
    return replace(Pair((50e-6,) * 4, (50e-6 * ratio,) * 4, 100, "cuda-graph", 1.0), **changes)


def against_base(*taken, finished=True, spec=None, **changes):
    """Return the finding of a case with these pairs, in a run whose control has not moved."""
    control = tuple(a_pair(math.exp(s / 1000)) for s in SHAPE)
    measurement = replace(a_measurement(), replicates=(), pairs=taken, **changes)
    run = a_run(measurement, against=Against("main", "abc", (), "sdpa/s128", control), finished=finished)
    (finding,) = judge(replace(run, kernels=(spec or a_spec(),)))
    return finding


def some(ratio=1.0, number=5, **changes):
    return tuple(a_pair(ratio * math.exp(s / 1000), **changes) for s in (SHAPE * 3)[:number])


WIDE = tuple(a_pair(math.exp(s / 10)) for s in SHAPE * 5)
OTHER = ("a", "b")
case = partial(partial, against_base)
"""A case that is judged within the test, not while the tests are collected."""


@pytest.mark.parametrize(
    ("finding", "verdict", "code"),
    [
        (case(*some()), "UNCHANGED", "within-noise"),
        (case(*some(1.05)), "REGRESSION", "slower"),
        (case(*some(0.8)), "SPEEDUP", "faster"),
        (case(unpaired="not-in-base"), "NEW", "not-in-base"),
        (case(unpaired="raised: no"), "NOT_COMPARABLE", "base-failed"),
        (case(), "INCONCLUSIVE", "budget-spent"),
        (case(finished=False), "INCONCLUSIVE", "not-measured"),
        (case(*some(disturbed=("x",))), "INCONCLUSIVE", "disturbed"),
        (case(*some(), a_pair(9.0, disturbed=("x",))), "UNCHANGED", "within-noise"),
        # Inputs of another shape, the same in each of two pairs or more.
        (case(*some(shapes=OTHER)), "NOT_COMPARABLE", "other-inputs"),
        (case(*some(number=2, shapes=OTHER)), "NOT_COMPARABLE", "other-inputs"),
        (case(*some(number=1, shapes=OTHER)), "INCONCLUSIVE", "budget-spent"),
        (case(*some(shapes=("a", "a"))), "UNCHANGED", "within-noise"),
        (case(*some(number=4, shapes=OTHER), *some(number=1, shapes=("c", "d"))), "UNCHANGED", "within-noise"),
        # The same machine code in each pair.
        (case(*some(1.005, identical=True)), "UNCHANGED", "same-machine-code"),
        (case(*some(number=4, identical=True), *some(number=1)), "UNCHANGED", "within-noise"),
        # The end of the budget, and of a run, which has no next look.
        (case(*WIDE[:5]), "INCONCLUSIVE", "budget-spent"),
        (case(*WIDE[:11]), "INCONCLUSIVE", "budget-spent"),
        (case(*WIDE[:24]), "INCONCLUSIVE", "interval-too-wide"),
        (case(*WIDE[:5], finished=False), "INCONCLUSIVE", "needs-more-pairs"),
        (case(*WIDE[:11], finished=False), "INCONCLUSIVE", "needs-more-pairs"),
        (case(*WIDE[:24], finished=False), "INCONCLUSIVE", "interval-too-wide"),
        # A kernel's own thresholds.
        (case(*some(1.05), spec=a_spec(regression=0.06)), "UNCHANGED", "below-threshold"),
        (case(*some(0.8), spec=a_spec(speedup=0.3)), "UNCHANGED", "below-threshold"),
    ],
)
def test_a_case_is_judged_by_its_pairs(finding, verdict, code):
    assert (finding().verdict, finding().code) == (verdict, code)


@pytest.mark.parametrize(
    ("finding", "ends"),
    [
        (case(*some(1.05, clocks=None)), "; the SM clocks are not known"),
        (case(*some(1.05)), "5 pairs of processes that took turns"),
        (case(*some(1.05, clocks=None), spec=a_spec(program=Program("command", ("a",)))), "took turns"),
        (case(*WIDE[:5]), " after 5 pairs, and the budget is spent"),
        (case(WIDE[0]), " after one pair, and the budget is spent"),
        (case(*some(), a_pair(disturbed=("x",))), "; 1 more pair does not count: x"),
        (case(a_pair(method="other"), *some()), "; 1 more pair does not count: timed by other"),
        (case(*[a_pair(disturbed=("y", "x"))] * 2, *some()), "; 2 more pairs do not count: x, y"),
        (case(*some(disturbed=("x",))), "every pair was disturbed: x"),
        (case(unpaired="raised: no"), "main: raised: no"),
        (case(unpaired="not-in-base"), "main has no such case"),
        (case(*some(shapes=OTHER)), "measured 0.0 %, of other work"),
    ],
)
def test_a_finding_says_what_did_not_count_and_what_is_not_known(finding, ends):
    assert finding().sentence.endswith(ends)


def test_a_finding_has_the_numbers_of_both_sides():
    finding = against_base(*some(1.05))

    assert (finding.base, finding.head) == (50e-6, pytest.approx(52.5e-6))
    assert finding.change.point == pytest.approx(1.05)
    assert finding.detectable == pytest.approx(0.0055, abs=0.0005)
    assert against_base(*some(identical=True)).change.point == pytest.approx(1.0)
    assert against_base(*some(1.005, number=1, identical=True)).change.low == 0.0


@pytest.mark.parametrize(
    ("not_captured", "says"),
    [
        ((), ""),
        (("", "E at k.py:7"), "; the head can no longer be captured in a CUDA graph: E at k.py:7"),
        (("E at k.py:7", ""), "; the head can be captured in a CUDA graph, the base could not: E at k.py:7"),
    ],
)
def test_a_row_says_what_prevents_a_cuda_graph_of_one_side_alone(not_captured, says):
    plain = against_base(*some(1.05))
    finding = against_base(*some(1.05, not_captured=not_captured))

    assert (finding.verdict, finding.code) == ("REGRESSION", "slower")
    assert finding.sentence == plain.sentence + says + ("; so the wall clock timed both sides" if says else "")
