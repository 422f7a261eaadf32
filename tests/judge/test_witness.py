"""The second witness of a change on a CPU: the instructions of a launch."""

import pytest

from ci_perf.judge.verdict import judge
from ci_perf.values.measurement import Pair
from ci_perf.values.run import Against
from tests.builders import a_cpu, a_measurement, a_run, a_spec


def verdict_of(ratio, instructions, waited):
    """Judge a case that takes `ratio` times as long; the base executes 1,000,000 instructions a launch."""
    counts = (1e6, 1e6 * instructions) if instructions else ()
    pairs = tuple(
        Pair((1e-3,) * 4, (1e-3 * ratio * noise,) * 4, 10, "perf-counter", waited=waited, instructions=counts)
        for noise in (0.999, 1.0, 1.001, 1.0005, 0.9995)
    )
    measured = a_measurement(replicates=(), pairs=pairs, device="cpu")
    against = Against("main", "abc", control=tuple(Pair((1.0,), (1.0,), 10, "perf-counter") for _ in range(4)))
    run = a_run(measured, kernels=(a_spec(devices=("cpu",)),), devices=(a_cpu(),), against=against)
    (finding,) = judge(run)
    return finding


@pytest.mark.parametrize(
    ("ratio", "instructions", "waited", "verdict", "code"),
    [
        (1.2, 1.0019, 0.05, "INCONCLUSIVE", "slower-same-instructions"),
        (1.2, 1.0019, 0.049, "REGRESSION", "slower"),
        (1.2, 1.0021, 0.05, "REGRESSION", "slower"),
        (1.2, 0.9979, 0.5, "REGRESSION", "slower"),
        (1.2, 0.9981, 0.5, "INCONCLUSIVE", "slower-same-instructions"),
        (0.8, 1.0, 0.05, "INCONCLUSIVE", "faster-same-instructions"),
        (0.8, 0.8, 0.5, "SPEEDUP", "faster"),
        (1.2, None, 0.5, "REGRESSION", "slower"),
        (1.0, 1.0, 0.5, "UNCHANGED", "within-noise"),
    ],
)
def test_a_change_on_a_busy_machine_by_the_same_instructions_is_not_established(
    ratio, instructions, waited, verdict, code
):
    found = verdict_of(ratio, instructions, waited)
    assert (found.verdict, found.code) == (verdict, code)


def test_the_row_says_how_the_instructions_and_the_machine_were():
    assert verdict_of(1.2, 1.0, 0.4).sentence == (
        "20.0 % slower in 5 pairs of processes that took turns; instructions 0.00 %, and the machine was busy: the "
        "processes waited for a core 40.0 % of the time"
    )
    assert verdict_of(1.2, 1.21, 0.0).sentence.endswith("; instructions +21.00 %")
    assert "instructions" not in verdict_of(1.2, None, 0.4).sentence
