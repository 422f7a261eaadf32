"""What a run that continues another one keeps of it."""

import math
from dataclasses import replace

import pytest

from ci_perf.judge.continued import continued, undecided, why_not_continued
from ci_perf.values.measurement import Pair
from ci_perf.values.run import Against, Note
from tests.builders import a_measurement, a_run

STEADY = (0.0,) * 24


def pairs(logs, clocks=None):
    clocks = clocks or [1.0] * len(logs)
    return tuple(
        Pair((5e-5,) * 4, (5e-5 * math.exp(log),) * 4, 100, "cuda-graph", clocks=clock)
        for log, clock in zip(logs, clocks, strict=True)
    )


def a_case(logs=STEADY, *, control=STEADY[:4], clocks=None, **changes):
    """Return a run of one case with these log ratios, and of a control with those."""
    against = Against("main", "b" * 40, control_case="sdpa/s128", control=pairs(control))
    return a_run(a_measurement(replicates=(), pairs=pairs(logs, clocks)), **{"against": against, **changes})


WIDE = (0.3, -0.2) * 12
UNEVEN = [1.0, 1.4, 0.7, 1.2, 0.8] * 4 + [1.0] * 4


@pytest.mark.parametrize(
    ("run", "goes_on"),
    [
        (a_case(), False),
        (a_case((0.05,) * 24), False),
        (a_case(WIDE), True),
        (a_case(WIDE[:10]), True),
        (a_case((0.05,) * 17 + (0.01,) * 7, among=1000), True),
        (a_case((0.05,) * 24, clocks=UNEVEN), True),
        (a_case((-0.2,) * 24, clocks=UNEVEN), True),
        (a_case(WIDE, control=(0.05,) * 4), False),
        (a_case(WIDE, against=None), False),
    ],
    ids=[
        *("unchanged", "slower", "a wide interval", "no budget left", "not sure among many", "uneven clocks, slower"),
        *("uneven clocks, faster", "not reliable", "no base"),
    ],
)
def test_only_cases_that_more_pairs_may_decide_get_another_look(run, goes_on):
    (measured,) = run.measurements

    assert undecided(run) == ((measured.id,) if goes_on else ())
    assert continued(run) == (replace(measured, looked=(len(measured.pairs),)) if goes_on else measured,)


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (a_case(), ""),
        (a_case(finished=False), ""),
        (a_case(control=STEADY[:3], finished=False), ""),
        (a_case(control=STEADY[:3]), "was not checked"),
        (a_case(control=(0.05,) * 4), "is not reliable"),
        (a_case(control=(0.05,) * 4, finished=False), "is not reliable"),
        (a_case(notes=(Note("memory-errors", "2 errors"),)), "the memory of its GPU had errors"),
        (a_case(against=None), "no base to take more turns with"),
        (a_case(against=None, finished=False), ""),
    ],
    ids=[
        *("finished", "stopped", "stopped before its control", "not checked", "moved", "moved and stopped"),
        *("memory errors", "no base", "no base, stopped"),
    ],
)
def test_what_a_session_measured_that_cannot_be_trusted_is_not_kept(run, why):
    said = why_not_continued(run)

    assert said.endswith(why) if why else not said
