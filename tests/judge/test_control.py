"""Whether a session can be believed: each row of a table is one side of a boundary."""

import math
from dataclasses import replace

import pytest

from ci_perf.judge.control import CONTROL_FLOOR, LEAST_CONTROL, base_doubt, believe, control_doubt, is_identical
from ci_perf.judge.outcome import Outcome
from ci_perf.judge.verdict import judge
from ci_perf.values.measurement import Pair
from ci_perf.values.reasons import Reason, Verdict
from ci_perf.values.run import Against
from tests.builders import a_measurement, a_run, a_spec

SCATTER = (-0.001, 0.001, 0.0, 0.0005, -0.0005)


def values(ratio, number=5):
    return [math.log(ratio) + noise for noise in SCATTER[:number]]


def pairs(ratio=1.0, number=5, **changes):
    return tuple(
        replace(Pair((50e-6,) * 4, (50e-6 * math.exp(value),) * 4, 100, "cuda-graph"), **changes)
        for value in values(ratio, number)
    )


@pytest.mark.parametrize(
    ("number", "ratio", "case", "code"),
    [
        (LEAST_CONTROL - 1, 1.0, "sdpa/s128", Reason.NO_CONTROL),
        (LEAST_CONTROL, 1.0, "sdpa/s128", None),
        (0, 1.0, "sdpa/s128", Reason.NO_CONTROL),
        (0, 1.0, "", None),
        (5, 1 + CONTROL_FLOOR + 1e-4, "sdpa/s128", Reason.CONTROL_MOVED),
        (5, 1 + CONTROL_FLOOR - 1e-4, "sdpa/s128", None),
        (5, 1 / (1 + CONTROL_FLOOR + 1e-4), "sdpa/s128", Reason.CONTROL_MOVED),
        (5, 1 / (1 + CONTROL_FLOOR - 1e-4), "sdpa/s128", None),
    ],
)
def test_a_session_is_reliable_if_the_base_does_not_differ_from_itself(number, ratio, case, code):
    doubt = base_doubt(values(ratio, number), case)

    assert (doubt.code if doubt else None) == code


def test_the_constants_of_the_control():
    assert CONTROL_FLOOR == 0.01
    assert LEAST_CONTROL == 4


@pytest.mark.parametrize(("scatter", "code"), [(0.0079, Reason.CONTROL_MOVED), (0.0085, None)])
def test_a_control_whose_interval_of_99_percent_holds_no_change_casts_no_doubt(scatter, code):
    """Of five values t at 99.5 % is 4.604: the half of the interval is 4.604 sd / sqrt(5)."""
    shape = [1.0, -1.0, 0.0, 0.5, -0.5]
    sd = math.sqrt(sum(s * s for s in shape) / 4)
    doubt = base_doubt([math.log(1.017) + s / sd * scatter for s in shape], "a/b")

    assert (doubt.code if doubt else None) == code


def test_a_doubt_says_what_moved_by_how_much_and_what_disturbed_it():
    assert base_doubt(values(1.05), "sdpa/s128").sentence == (
        "the base differed from itself by +5.0 % (sdpa/s128): this session is not reliable"
    )
    assert base_doubt([0.0] * 3, "sdpa/s128", "python (77)").sentence == (
        "the base was measured against itself in 3 of at least 4 pairs (sdpa/s128), "
        "which was disturbed by python (77): this session was not checked"
    )
    assert "disturbed" not in base_doubt([], "sdpa/s128").sentence


def a_session(*identical, control=None, finished=True, control_case="sdpa/s128"):
    """Return a run whose identical cases differ by these ratios."""
    measurements = [
        a_measurement(kernel=f"k{i}", replicates=(), pairs=pairs(ratio, identical=True))
        for i, ratio in enumerate(identical)
    ]
    against = Against("main", "abc", (), control_case, pairs() if control is None else control)
    return replace(a_run(), measurements=tuple(measurements), against=against, finished=finished)


@pytest.mark.parametrize(
    ("session", "code"),
    [
        (a_session(), None),
        (a_session(finished=False), None),
        (a_session(finished=False, control=(), control_case=""), Reason.NO_CONTROL),
        (a_session(control=(), control_case=""), None),
        (a_session(control=(*pairs(number=3), *pairs(disturbed=("python (7)",)))), Reason.NO_CONTROL),
        (a_session(1.0), None),
        (a_session(1.009), None),
        (a_session(1.02), Reason.CONTROL_MOVED),
        (a_session(1.0, 1.02), Reason.CONTROL_MOVED),
        (a_session(1.02, control=pairs(1.05)), Reason.CONTROL_MOVED),
    ],
)
def test_a_session_is_judged_by_its_control_and_by_identical_code(session, code):
    doubt = control_doubt(session, session.against)

    assert (doubt.code if doubt else None) == code


def test_the_more_cases_are_identical_the_more_it_takes_to_doubt_a_session():
    """Each has its share of the 1 %: of one case 1.7 % at this scatter is doubtful, of ten it is not."""
    shape = (1.0, -1.0, 0.0, 0.5, -0.5)
    off = tuple(
        replace(p, head=tuple(50e-6 * math.exp(0.017 + 0.009 * s) for _ in range(4)))
        for p, s in zip(pairs(identical=True), shape, strict=True)
    )
    one = a_measurement(kernel="k0", replicates=(), pairs=off)
    alone = replace(a_session(), measurements=(one,))
    among = replace(a_session(*[1.0] * 10), measurements=(*a_session(*[1.0] * 10).measurements, one))

    assert control_doubt(alone, alone.against).code is Reason.CONTROL_MOVED
    assert control_doubt(among, among.against) is None


def test_the_control_is_named_before_a_case_of_identical_code():
    session = a_session(1.02, control=pairs(1.05))

    assert control_doubt(session, session.against).sentence.startswith("the base differed from itself by +5.0 %")


@pytest.mark.parametrize(
    ("verdict", "code"),
    [
        (Verdict.REGRESSION, Reason.CONTROL_MOVED),
        (Verdict.UNCHANGED, Reason.CONTROL_MOVED),
        (Verdict.INCONCLUSIVE, Reason.SLOWER),
    ],
)
def test_a_doubt_takes_the_place_of_every_verdict_but_inconclusive(verdict, code):
    outcome = Outcome(verdict, Reason.SLOWER, "5 % slower")
    doubt = base_doubt(values(1.05), "sdpa/s128")

    assert believe(outcome, None) == outcome
    assert (believe(outcome, doubt).verdict, believe(outcome, doubt).code) == (Verdict.INCONCLUSIVE, code)


@pytest.mark.parametrize(
    ("taken", "identical"),
    [
        (pairs(identical=True), True),
        ((*pairs(identical=True), *pairs()), False),
        ((*pairs(identical=True), *pairs(disturbed=("python (7)",))), True),
        (pairs(identical=True, head=(0.0,) * 4), False),
        ((), False),
    ],
)
def test_a_case_is_identical_where_each_sound_pair_is(taken, identical):
    assert is_identical(a_measurement(replicates=(), pairs=taken)) is identical


@pytest.mark.parametrize(
    ("session", "code"),
    [(a_session(1.0, control=pairs(1.05)), Reason.CONTROL_MOVED), (a_session(1.0), Reason.SAME_MACHINE_CODE)],
)
def test_a_doubt_about_the_session_is_the_reason_of_its_cases(session, code):
    (finding,) = judge(replace(session, selection=("k0",), kernels=(a_spec("k0"),)))

    assert finding.code is code
