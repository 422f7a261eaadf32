"""The promise for each pull request: at most 1 % of those that change nothing are red, with up to 1,000 cases.

`scripts/simulate-verdicts` simulates more cases. How often two kinds of processes fake a change is computed exactly.
"""

import math
import statistics
from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lib import verdict_simulation
from lib.computed_once import computed_once
from lib.verdict_simulation import (
    MODELS,
    SHARES,
    Case,
    choose,
    false_alarms,
    is_red,
    judge,
    most_hidden,
    recorded,
    simulate,
    weigh,
)

from ci_perf.audit.file import read_sessions
from ci_perf.judge import pairs
from ci_perf.judge.looks import LOOKS, SPENT, goal, is_faked, share
from ci_perf.values.reasons import Verdict
from ci_perf.values.run import Policy

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(("comparisons", "cases"), [(1, 4_000), (12, 12_000), (1000, 4_000)])
@pytest.mark.parametrize("noise", MODELS.values(), ids=MODELS)
def test_at_most_1_percent_of_unchanged_pull_requests_is_red(noise, comparisons, cases):
    """The cases are as many as 4,000 pull requests of one case, 1,000 of twelve, and 4 of 1,000."""
    assert false_alarms(noise, cases, comparisons) <= 0.01 * cases / comparisons + 0.5


def test_a_rule_that_treats_pairs_as_independent_has_false_alarms_where_kinds_persist():
    """The simulation can fail: without new starts of the workers, a quarter of the cases is slower in every pair."""
    with (
        patch.object(verdict_simulation, "further_starts", lambda *_: 0),
        patch.object(pairs, "starts_of", lambda _, number: [1] * number),
    ):
        assert false_alarms(MODELS["two kinds 50:50, 4 % apart, for as long as the workers"], 400, 12) >= 60


def test_each_case_that_a_whole_simulation_calls_red_is_among_the_false_alarms_that_are_counted():
    noise = MODELS["two kinds 50:50, 13 % apart, for as long as the workers"]
    red = [n for n in range(3000) if judge(noise(Random(n)), 1, Policy())[0].verdict is Verdict.REGRESSION]

    assert red
    assert all(is_red(Case(noise(Random(n)), 1, Policy()), most_hidden(1)) for n in red)


@pytest.mark.parametrize("name", ["hopeless, sd 24 %", "two kinds 50:50, 13 % apart, for as long as the workers"])
def test_what_is_computed_once_leaves_every_outcome_as_it_is(name):
    def outcomes():
        return [judge(MODELS[name](Random(n)), 12, Policy(), continuations=2) for n in range(20)]

    with computed_once():
        kept = outcomes()

    assert kept == outcomes()


@pytest.mark.parametrize("first", [1, 2, 3])
@pytest.mark.parametrize("comparisons", [1, 4, 5, 12, 17, 18, 69, 158, 159, 278, 279, 1000])
def test_two_kinds_of_processes_fake_a_change_in_at_most_half_of_the_error(comparisons, first):
    """At all looks together, exactly: the first pairs are of one start, each further one is of its own."""
    starts: list[int] = []
    hidden, red = {0: 1.0}, 0.0  # the probability of each number of pairs that do not show the change
    for look in LOOKS:
        for pairs_of_start in [first] * (not starts) + [1] * (look - max(first, sum(starts))):
            starts.append(pairs_of_start)
            after = Counter()
            for number, chance in hidden.items():
                after[number] += chance / 4
                after[number + pairs_of_start] += chance * 3 / 4
            hidden = after
        found = {number for number in hidden if not is_faked(starts, number, comparisons)}
        red += math.fsum(hidden.pop(number) for number in found)

    assert comparisons * red <= 0.005


@pytest.mark.slow
@pytest.mark.parametrize("how_long", ["", ", for as long as the workers"])
def test_the_promise_holds_at_a_threshold_of_1_percent(how_long):
    noise = MODELS[f"two kinds 50:50, 1.5 % apart{how_long}"]

    assert false_alarms(noise, 12_000, 12, threshold=0.01) <= 0.01 * 12_000 / 12 + 0.5


@pytest.mark.slow
def test_changes_of_1_5_percent_are_flagged_at_a_threshold_of_1_percent_in_recorded_noise():
    sessions, _ = read_sessions(sorted(ROOT.glob("baselines/*/audit.jsonl")))
    found = [simulate(noise, 40, 12, change=0.015, threshold=0.01) for noise in recorded(sessions)]

    assert sum(f.red for f in found) >= 0.99 * sum(f.cases for f in found)


def test_neighbouring_pairs_of_recorded_unchanged_code_are_as_alike_as_independent_ones():
    """Of five independent values, less their mean, neighbours have a correlation of -1/4."""
    sessions, _ = read_sessions(sorted(ROOT.glob("baselines/*/audit.jsonl")))
    ratios = [case.ratios for s in sessions if s.planted == 0 for case in s.cases if len(case.ratios) == 5]
    centred = [[value - statistics.fmean(five) for value in five] for five in ratios]
    together = statistics.fmean(a * b for five in centred for a, b in pairwise(five))

    assert len(ratios) > 600
    assert together / statistics.fmean(a * a for five in centred for a in five) == pytest.approx(-0.25, abs=0.05)


@pytest.mark.parametrize(
    ("change", "comparisons", "pairs"), [(0.0, 1000, 3.1), (0.3, 3, 3.6), (0.3, 1000, 5.1), (0.035, 12, 13.5)]
)
def test_clear_cases_take_few_pairs(change, comparisons, pairs):
    found = simulate(MODELS["quiet, sd 0.2 %"], 300, comparisons, change=change)

    assert found.pairs <= pairs
    assert (found.red if change else found.unchanged) >= 297


@pytest.mark.slow
def test_the_shares_of_the_looks_are_those_that_the_records_choose():
    sessions, _ = read_sessions(sorted(ROOT.glob("baselines/*/audit.jsonl")))
    noises = recorded([session for session in sessions if session.planted == 0][::2])

    assert choose({shares: weigh(noises, shares) for shares in SHARES}) == SPENT


@given(ends=st.lists(st.integers(0, 24), min_size=1, max_size=8), pairs_of_the_last=st.booleans())
def test_however_often_a_run_is_continued_its_looks_spend_no_more_than_the_error_of_one(ends, pairs_of_the_last):
    """Each run ends after so many more pairs, wherever its budget is spent, or at its last look."""
    looked, spent = [], []
    for more in (*ends, *([24] if pairs_of_the_last else [])):
        before = max(looked, default=0)
        end = min(before + more, goal(looked))
        looks = {look for look in (*LOOKS, goal(looked)) if before < look <= end} | ({end} if end > before else set())
        spent += [share(pairs, looked) for pairs in sorted(looks)]
        looked.append(end)

    assert math.fsum(spent) <= 1 + 1e-12


@pytest.mark.slow
def test_unchanged_code_gets_no_second_chance_to_be_red_by_running_again():
    """Of 600 pull requests of one case 1 % are 6. Five more runs decide few of these cases."""
    found = simulate(MODELS["hopeless, sd 24 %"], 600, 1, continuations=5)

    assert found.red <= 6
    assert found.pairs >= 130
