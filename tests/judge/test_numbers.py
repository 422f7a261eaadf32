"""Base, head, change and interval of a row agree as they are printed, and each sentence agrees with the interval."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ci_perf import store
from ci_perf.judge.report import build_report
from ci_perf.judge.sessions import sessions_of
from ci_perf.judge.stored import decide
from ci_perf.render import cells
from ci_perf.values.baseline import BaselineTime
from ci_perf.values.measurement import Pair
from ci_perf.values.reasons import Reason, Verdict
from ci_perf.values.run import Against, Policy
from tests.builders import a_baseline, a_baseline_case, a_measurement, a_run

RUNS = sorted((Path(__file__).parents[1] / "data/runs").iterdir())
FACTORS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
EXCLUDES_NO_CHANGE = {Reason.SLOWER, Reason.FASTER, Reason.BELOW_THRESHOLD, Reason.NOT_SURE, Reason.PAIRS_DISAGREE}
ROUNDED = 0.05
"""Per cent: half of the last digit of a change that is printed."""


def printed_range(text):
    """Return the two values between which a number was rounded that is printed with up to four digits."""
    number, unit = text.split()
    digits = number.replace(".", "").lstrip("0")
    places = len(number.partition(".")[2]) + 4 - len(digits) if "." in number else max(0, 4 - len(digits))
    half, value = 0.5 * 10.0**-places, float(number)
    factor = FACTORS.get(unit, {"G": 1e9, "M": 1e6, "T": 1e12, "k": 1e3}.get(unit[0], 1.0))
    return (value - half) * factor, (value + half) * factor


def check_row(row):
    finding = row.finding
    _, base, head, change, _ = cells.verdict(row)
    if finding.change is None or "[any]" in change:
        return
    point, low, high = (float(n) for n in re.fullmatch(r"(\S+) % \[(\S+), (\S+)\]", change).groups())
    (base_low, base_high), (head_low, head_high) = printed_range(base), printed_range(head)
    if finding.unit != "s":  # of rates the head is below the base
        (base_low, base_high), (head_low, head_high) = (head_low, head_high), (base_low, base_high)

    assert (head_low / base_high - 1) * 100 - ROUNDED <= point <= (head_high / base_low - 1) * 100 + ROUNDED
    assert low <= point <= high
    check_sentence(finding.code, finding.sentence, finding.change, (low, high))


def check_sentence(code, sentence, change, printed):
    if code in EXCLUDES_NO_CHANGE:
        assert change.low > 1 or change.high < 1
    if code is Reason.WITHIN_NOISE:
        assert change.low <= 1 <= change.high
    if quoted := re.search(r"the interval allows (\S+) % to (\S+) %", sentence):
        assert tuple(map(float, quoted.groups())) == pytest.approx(printed)


@pytest.mark.parametrize("run", RUNS, ids=[run.name for run in RUNS])
def test_the_numbers_of_each_row_of_a_recorded_run_agree(run):
    for row in build_report(store.read_run(run)).rows:
        check_row(row)


scatters = st.lists(st.floats(-1, 1), min_size=24, max_size=24)


@settings(deadline=None, max_examples=60)
@given(
    scatter=scatters,
    size=st.sampled_from([0.0005, 0.005, 0.05, 0.5]),
    ratio=st.floats(0.3, 3),
    count=st.sampled_from([1, 3, 5, 12, 24]),
    seconds=st.floats(1e-7, 10),
    better=st.sampled_from(["lower", "higher"]),
)
def test_the_numbers_of_a_case_in_turns_agree(scatter, size, ratio, count, seconds, better):
    unit, seconds = ("s", seconds) if better == "lower" else ("byte/s", seconds * 1e12)
    pairs = tuple(
        Pair(
            (seconds,) * 3, (seconds * ratio * (1 + size * noise / 2),) * 3, 100, "cuda-graph", unit=unit, better=better
        )
        for noise in scatter[:count]
    )
    measured = a_measurement(replicates=(), pairs=pairs)
    run = a_run(measured, against=Against("HEAD~1", "5b1f0c2d" * 5, control=pairs_without_change()))

    for row in build_report(run).rows:
        check_row(row)


def pairs_without_change():
    return tuple(Pair((1e-5,) * 3, (1e-5,) * 3, 100, "cuda-graph") for _ in range(5))


@settings(deadline=None, max_examples=60)
@given(
    scatter=scatters,
    size=st.sampled_from([0.0005, 0.005, 0.05, 0.5]),
    ratio=st.floats(0.3, 3),
    cases=st.sampled_from([1, 12, 300]),
    floor=st.sampled_from([0.0, 0.02, 2.0]),
)
def test_the_numbers_of_a_case_against_its_baseline_agree(scatter, size, ratio, cases, floor):
    noisy = [1e-5 * (1 + size * noise / 2) for noise in scatter]
    batches = [[ratio * value for value in noisy[6 * n : 6 * n + 6]] for n in (1, 2)]
    base = a_baseline_case(noisy[:6])
    base = replace(base, time=replace(base.time, noise_floor=floor))
    run = replace(
        a_run(a_measurement(*batches), baselines=(a_baseline(cases={"s128": base}),)),
        **({"among": cases} if cases > 1 else {}),
    )

    for row in build_report(run).rows:
        check_row(row)


def test_a_change_inside_the_scatter_of_a_noisy_baseline_says_so():
    """It said "+309 % [+172, +518]: does not exclude no change", which the interval does."""
    base = [1e-5, 1.05e-5, 1.1e-5, 1.5e-5, 1.6e-5, 2e-5]
    time = BaselineTime("cuda-graph", 1.3e-5, 2.0, tuple((value,) for value in base))

    found = decide(base, [[4.5e-5] * 6] * 2, Policy(), floor=2.0, sessions=sessions_of(time, 0.99))

    assert (found.verdict, found.code) == (Verdict.INCONCLUSIVE, Reason.SLOWER_NOT_SIGNIFICANT)
    assert found.change.low > 1
    assert found.sentence.endswith("and processes of the baseline scatter by 200.0 %")
