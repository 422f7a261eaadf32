"""Baselines of several sessions: what they allow another session, and when a run adds one."""

import itertools
import math
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from ci_perf.audit.file import read_sessions
from ci_perf.judge.baseline import MOST_SESSIONS, add_session
from ci_perf.judge.sessions import sessions_of
from ci_perf.judge.stats import Interval
from ci_perf.judge.verdict import judge
from ci_perf.values.baseline import BaselineTime, EarlierSession
from ci_perf.values.codec import dump_baseline, load_baseline
from tests.builders import (
    STEADY,
    a_baseline,
    a_baseline_case,
    a_device,
    a_measurement,
    a_provenance,
    a_run,
    agreed,
    times,
)

ROOT = Path(__file__).parents[2]


def of_sessions(*factors):
    """A baseline whose sessions took so many times as long as STEADY, the newest first."""
    first, *others = (times(factor) for factor in factors)
    case = a_baseline_case(first)
    earlier = tuple(EarlierSession(f"2026-11-{20 - n:02}", tuple(sorted(m))) for n, m in enumerate(others))
    return a_baseline(cases={"s128": replace(case, time=replace(case.time, earlier=earlier))})


def margin(*factors):
    return math.exp(sessions_of(of_sessions(*factors).cases["s128"].time, 0.99).margin) - 1


def test_more_sessions_that_agree_allow_less_and_sessions_that_do_not_allow_more():
    assert margin(1.0) == pytest.approx(0.0673, abs=1e-4)
    assert margin(*[1.0] * 4) == pytest.approx(0.0300, abs=1e-4)
    assert margin(*[1.0] * 8) == pytest.approx(0.0201, abs=1e-4)
    assert margin(1.0, 1.05, 0.95, 1.0) > margin(1.0)


def test_the_interval_of_a_change_includes_the_scatter_between_sessions():
    sessions = sessions_of(of_sessions(1.0).cases["s128"].time, 0.99)
    exact, wide = Interval(1.05, 1.05, 1.05, 0.99), Interval(0.0, 1.0, math.inf, 0.99)

    found = sessions.widened(exact)

    assert (found.low, found.high) == (pytest.approx(1.05 / 1.0673, rel=1e-4), pytest.approx(1.05 * 1.0673, rel=1e-4))
    assert sessions.widened(wide) == wide


@pytest.mark.parametrize(
    ("factors", "slower", "verdict", "code"),
    [
        ([1.0], 1.06, "INCONCLUSIVE", "slower-too-small"),
        ([1.0], 1.08, "REGRESSION", "slower"),
        ([1.0] * 4, 1.025, "UNCHANGED", "within-noise"),
        ([1.0] * 4, 1.06, "REGRESSION", "slower"),
        ([1.0, 1.05, 0.95, 1.0], 1.06, "INCONCLUSIVE", "slower-too-small"),
    ],
)
def test_a_change_counts_from_what_the_sessions_allow(factors, slower, verdict, code):
    (finding,) = judge(a_run(a_measurement(times(slower), times(slower)), baselines=(of_sessions(*factors),)))

    assert (finding.verdict, finding.code) == (verdict, code)


def test_a_row_names_the_sessions_and_what_they_would_show():
    (one,) = judge(a_run(a_measurement(STEADY), baselines=(of_sessions(1.0),)))
    (four,) = judge(a_run(a_measurement(STEADY), baselines=(of_sessions(*[1.0] * 4),)))

    assert one.sentence == "0.0 %; a change of 8.0 % would likely be seen; the baseline holds 1 session"
    assert four.sentence == "0.0 %; a change of 3.7 % would likely be seen; the baseline holds 4 sessions"


def accepted(day, factor=1.0, **changes):
    """A baseline as a run of a day makes it."""
    return a_baseline(times(factor), provenance=a_provenance(date=f"2026-12-{day:02}T10:00:00Z"), **changes)


def sessions_after(*runs):
    held = None
    for run in runs:
        held = add_session(held, run, 0.99)
    return held.cases["s128"].time.sessions


def with_counters(day, registers):
    counters = agreed(registers_per_thread=registers)
    return accepted(day, cases={"s128": replace(a_baseline_case(), counters=counters)})


@pytest.mark.parametrize(
    ("runs", "number"),
    [
        ([accepted(1)], 1),
        ([accepted(1), accepted(2)], 2),
        ([accepted(1), accepted(1)], 1),
        ([accepted(1), accepted(2), accepted(2)], 2),
        ([accepted(1), accepted(2, 1.05)], 2),
        ([accepted(1), accepted(2, 1.08)], 1),
        ([accepted(1), accepted(2, device=a_device(power_limit_w=300.0))], 1),
        ([with_counters(1, 32), with_counters(2, 32)], 2),
        ([with_counters(1, 32), with_counters(2, 40)], 1),
        ([accepted(day) for day in range(1, 12)], MOST_SESSIONS),
    ],
)
def test_a_run_of_another_day_adds_a_session_where_code_and_time_agree(runs, number):
    assert len(sessions_after(*runs)) == number


def test_a_file_with_sessions_is_read_back_equal_and_one_without_holds_one():
    held = of_sessions(1.0, 1.01)

    assert load_baseline(dump_baseline(held), "x.json") == held
    assert '"earlier"' not in dump_baseline(of_sessions(1.0))
    assert len(load_baseline(dump_baseline(of_sessions(1.0)), "x.json").cases["s128"].time.sessions) == 1


@pytest.mark.parametrize(("held", "most"), [(1, 0.015), (4, 0.02)])
def test_recorded_sessions_of_unchanged_code_are_seldom_beyond_what_the_others_allow(held, most):
    """Of each case on H100s: windows of sessions, by their first process; each against those before it."""
    sessions, _ = read_sessions([ROOT / "baselines/h100-80gb-hbm3/audit.jsonl"])
    by_case = {}
    for case in itertools.chain.from_iterable(session.cases for session in sessions):
        by_case.setdefault(case.id, []).append(statistics.median(case.base))
    beyond = []
    for taken in by_case.values():
        for i in range(held, len(taken)):
            before = [taken[i - 1 - (k * 7) % i] for k in range(held)]
            time = BaselineTime("cuda-graph", before[0], 0.0, tuple((value,) for value in before[:1]))
            time = replace(time, earlier=tuple(EarlierSession("a day", (value,)) for value in before[1:]))
            centre = statistics.fmean(map(math.log, before))
            beyond.append(abs(math.log(taken[i]) - centre) > sessions_of(time, 0.99).margin)

    assert statistics.fmean(beyond) <= most
