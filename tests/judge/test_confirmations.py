"""Changes against a baseline that were measured in turns with the commit of the baseline."""

from dataclasses import replace

import pytest

from ci_perf.fleet.merge import merge_runs
from ci_perf.judge.verdict import judge
from ci_perf.values.codec import dump_run, load_run
from ci_perf.values.errors import FormatError
from ci_perf.values.measurement import Pair
from ci_perf.values.run import Against, Confirmation
from tests.builders import STEADY, a_baseline, a_cpu, a_measurement, a_run, a_spec, times

NOISE = (0.999, 1.0, 1.001, 1.0005, 0.9995, 1.0, 1.0002, 0.9998)
SLOWER = (times(1.2), times(1.21))
"""Two batches of processes, which the baseline of 50 us calls slower."""


def pairs(ratio, number=8):
    return tuple(
        Pair((50e-6,) * 4, (50e-6 * ratio * noise,) * 4, 100, "cuda-graph", clocks=1.0) for noise in NOISE[:number]
    )


def confirmed(ratio, *, kernel="sdpa", number=8, moved=1.0, **changes):
    """Return a run that its baseline calls slower, and that takes `ratio` times as long in turns."""
    measured = a_measurement(kernel=kernel, **{"replicates": (), "pairs": pairs(ratio, number), **changes})
    against = Against("0fd4e2e", "0fd4e2e", control_case=f"{kernel}/s128", control=pairs(moved))
    found = Confirmation("cuda", (f"{kernel}/s128",), against, (measured,))
    baselines = (a_baseline(kernel=kernel),)
    return a_run(
        a_measurement(*SLOWER, kernel=kernel),
        kernels=(a_spec(kernel),),
        baselines=baselines,
        confirmations=(found,),
        selection=(kernel,),
    )


@pytest.mark.parametrize(
    ("run", "verdict", "code", "says"),
    [
        (confirmed(1.2), "REGRESSION", "slower", "in turns with the commit of the baseline: 20.0 % slower in 8 pairs"),
        (confirmed(1.0), "UNCHANGED", "within-noise", "; by its stored time alone: 2"),
        (confirmed(0.5), "SPEEDUP", "faster", "2.00 times as fast in 8 pairs"),
        (confirmed(1.2, moved=1.1), "INCONCLUSIVE", "control-moved", "this session is not reliable; by its stored"),
        (confirmed(1.2, number=2), "REGRESSION", "slower", "; not confirmed in turns: "),
        (confirmed(1.2, pairs=(), unpaired="not-in-base"), "REGRESSION", "slower", "turns: 0fd4e2e has no such case"),
        (confirmed(1.2, pairs=()), "REGRESSION", "slower", "turns: the budget was spent before it was timed"),
    ],
    ids=["slower", "unchanged", "faster", "not believed", "budget spent", "not in the base", "not timed"],
)
def test_the_turns_decide_where_they_compared_the_case(run, verdict, code, says):
    (finding,) = judge(run)

    assert (finding.verdict, finding.code) == (verdict, code), finding.sentence
    assert says in finding.sentence
    assert judge(load_run(dump_run(run), "run.json")) == (finding,)


def on_a_cpu(run, confirmations):
    """Return the same run as one of a CPU."""
    cpu = a_cpu()
    return replace(
        run,
        devices=(cpu,),
        measurements=tuple(replace(m, device="cpu") for m in run.measurements),
        baselines=tuple(replace(b, device=cpu) for b in run.baselines),
        confirmations=tuple(
            replace(c, device="cpu", measurements=tuple(replace(m, device="cpu") for m in c.measurements))
            for c in confirmations
        ),
    )


@pytest.mark.parametrize(
    ("turns", "verdict", "code", "says"),
    [
        (confirmed(1.2).confirmations, "REGRESSION", "slower", "in turns with the commit of the baseline"),
        (confirmed(1.0).confirmations, "UNCHANGED", "within-noise", "; by its stored time alone: 2"),
        (confirmed(1.2, number=2).confirmations, "INCONCLUSIVE", "slower-stored", "; not confirmed in turns: "),
        ((), "INCONCLUSIVE", "slower-stored", "fresh processes; a stored time of a CPU establishes no change"),
    ],
    ids=["slower", "unchanged", "budget spent", "no turns"],
)
def test_on_a_cpu_only_turns_establish_a_change(turns, verdict, code, says):
    """Other programs make all processes of a session slower there, which no statistic can tell from a change."""
    (finding,) = judge(on_a_cpu(confirmed(1.2), turns))

    assert (finding.verdict, finding.code) == (verdict, code), finding.sentence
    assert says in finding.sentence


def test_a_case_that_its_baseline_does_not_call_changed_is_not_changed_by_turns():
    run = replace(confirmed(1.5), measurements=(a_measurement(STEADY),))

    assert [finding.code for finding in judge(run)] == ["within-noise"]


def test_a_merged_run_keeps_the_verdicts_of_its_shards():
    shards = {"a": confirmed(1.0), "b": confirmed(1.2, kernel="gemm")}

    assert judge(merge_runs(shards)) == tuple(finding for run in shards.values() for finding in judge(run))


def test_a_confirmation_of_an_unknown_kernel_or_session_is_refused():
    run = confirmed(1.0)
    for wrong in ({"session": 1}, {"measurements": (a_measurement(kernel="gemm"),)}):
        text = dump_run(replace(run, confirmations=(replace(run.confirmations[0], **wrong),)))
        with pytest.raises(FormatError, match=r"run.json: key `confirmations\[0\]`: the run lists no such kernel"):
            load_run(text, "run.json")
