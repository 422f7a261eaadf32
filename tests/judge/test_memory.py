"""Peak device memory: what grows by at least its threshold is a regression, whatever the time does."""

import math
from dataclasses import replace

import pytest

from ci_perf.judge.baseline import make_baselines
from ci_perf.judge.report import build_report
from ci_perf.judge.verdict import judge
from ci_perf.values.codec import dump_baseline, dump_run, load_baseline, load_run
from ci_perf.values.kernel import Gate
from ci_perf.values.measurement import MemoryPeaks, Pair
from ci_perf.values.run import Against
from tests.builders import STEADY, a_baseline, a_baseline_case, a_measurement, a_run, a_spec, replicates, times

SCATTER = (0.0, 1.0, -1.0, 0.5, -0.5)


def in_turns(*peaks, ratio=1.0, memory=0.05, finished=True):
    """Return the finding and the warnings of a case in turns whose pairs have these peaks, in MB."""
    pairs = tuple(
        replace(
            Pair((50e-6,) * 4, (50e-6 * ratio * math.exp(s / 1000),) * 4, 100, "cuda-graph", 1.0),
            memory=MemoryPeaks(*(mega and int(mega * 1e6) for mega in peak)),
        )
        for s, peak in zip(SCATTER, peaks * (5 // len(peaks)), strict=True)
    )
    control = tuple(replace(pair, head=pair.base) for pair in pairs)
    measurement = a_measurement(replicates=(), pairs=pairs)
    run = a_run(measurement, against=Against("main", "abc", (), "sdpa/s128", control), finished=finished)
    (row,) = build_report(replace(run, kernels=(a_spec(memory=memory),))).rows
    return row.finding, row.warnings


GREW = "peak device memory grew by 6.0 %, from 100 MB to 106 MB: the threshold is 5.0 %"


@pytest.mark.parametrize(
    ("peaks", "verdict", "code"),
    [
        (((100, 100),), "UNCHANGED", "within-noise"),
        (((100, 50),), "UNCHANGED", "within-noise"),
        (((100, 104.9),), "UNCHANGED", "within-noise"),
        (((100, 105),), "REGRESSION", "more-memory"),
        (((100, 100),) * 4 + ((100, 200),), "REGRESSION", "more-memory"),  # a short peak may be missed, but not made up
        (((None, 100),), "UNCHANGED", "within-noise"),
        (((100, None),), "UNCHANGED", "within-noise"),
    ],
)
def test_memory_that_grows_by_its_threshold_is_a_regression(peaks, verdict, code):
    finding, warnings = in_turns(*peaks)

    assert (finding.verdict, finding.code) == (verdict, code)
    unknown = [side for side, known in zip(("base", "head"), peaks[0], strict=True) if known is None]
    assert warnings == tuple(
        f"peak device memory is not known of the {side}: its growth was not checked" for side in unknown
    )


def test_the_sentence_names_both_the_memory_and_the_time():
    slower = in_turns((100, 106), ratio=1.05)[0]
    faster = in_turns((100, 106), ratio=0.8)[0]

    assert (slower.code, faster.code) == ("slower", "more-memory")
    assert slower.sentence.endswith(f"; {GREW}")
    assert faster.sentence.startswith(f"{GREW}; the time: faster: 1.25 times as fast")
    assert faster.change.point == pytest.approx(0.8, rel=1e-3)


@pytest.mark.parametrize(("head", "warned"), [(104.9, False), (106, True)])
def test_memory_that_grows_without_a_threshold_is_a_warning(head, warned):
    finding, warnings = in_turns((100, head), memory=None)

    assert finding.verdict == "UNCHANGED"
    grew = "peak device memory grew by 6.0 %, from 100 MB to 106 MB"
    assert warnings == ((f"{grew}: `memory` in [policy] of kernel.toml sets a threshold",) if warned else ())


def test_until_a_run_has_finished_the_verdict_is_that_on_the_time():
    assert in_turns((100, 106), finished=False)[0].code == "within-noise"


def with_peak(*megabytes):
    taken = replicates(STEADY, times(1.001))
    peaks = (megabytes * len(taken))[: len(taken)]
    return tuple(replace(r, memory_bytes=m and int(m * 1e6)) for r, m in zip(taken, peaks, strict=True))


@pytest.mark.parametrize(("head", "code"), [(104, "within-noise"), (105, "more-memory"), (None, "within-noise")])
def test_a_stored_peak_is_compared_with_the_largest_of_the_run(head, code):
    agreed = a_baseline(cases={"s128": a_baseline_case(memory_bytes=100_000_000)})
    measurement = a_measurement(replicates=with_peak(90, head) if head else with_peak(None))
    (finding,) = judge(a_run(measurement, kernels=(a_spec(memory=0.05),), baselines=(agreed,)))

    assert finding.code == code


def test_a_baseline_keeps_the_largest_peak_and_files_hold_it():
    run = a_run(a_measurement(replicates=with_peak(100, 120)))
    (baseline,) = make_baselines(run, (), None, "run.json")

    assert load_baseline(dump_baseline(baseline), "b.json").cases["s128"].memory_bytes == 120_000_000
    assert load_run(dump_run(run), "run.json") == run


@pytest.mark.parametrize(
    ("megabytes", "state"), [((99, 100), "KEPT"), ((99, 101), "BROKEN"), ((99, None), "NOT_MEASURED")]
)
def test_a_gate_limits_the_peak_of_every_process(megabytes, state):
    gated = a_spec(gates=(Gate("peak_memory_bytes", "<=", 1e8),))
    (finding,) = judge(a_run(a_measurement(replicates=with_peak(*megabytes)), kernels=(gated,)))

    assert [gate.state for gate in finding.gates] == [state]
