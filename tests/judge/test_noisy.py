"""Why a run would be a poor baseline."""

from dataclasses import replace

import pytest

from ci_perf.judge.baseline import make_baselines
from ci_perf.judge.noisy import doubts, doubts_of_machine, shown
from ci_perf.values.run import Note
from tests.builders import a_measurement, a_run, times

UNIT = (0.999, 1.0, 1.0, 1.0, 1.0)


def doubts_about(*medians, before=(), **changes):
    """Return the doubts about a case with these medians of processes; `before` are those of its baseline."""
    measured = a_measurement(times(50e-6, medians))
    measured = replace(measured, replicates=tuple(replace(r, **changes) for r in measured.replicates))
    run = a_run(measured)
    (new,) = make_baselines(run, [], "me", "run.json")
    old = make_baselines(a_run(a_measurement(times(50e-6, before))), [], "me", "run.json")[0] if before else None
    return doubts(run, new, old)


@pytest.mark.parametrize(
    ("scatter", "before", "says"),
    [
        (1.029, (), ()),
        (1.031, (), ("sdpa/s128: its processes differ by 3.1 %, so no smaller slowdown can be seen",)),
        (1.0049, (*UNIT,), ()),
        (1.0051, (*UNIT,), ("; those of the baseline that it replaces differ by 0.1 %",)),
        (1.019, (1.005, *UNIT[1:]), ()),
        (1.021, (1.005, *UNIT[1:]), ("; those of the baseline that it replaces differ by 0.5 %",)),
        (1.5, (1.2, *UNIT[1:]), ("sdpa/s128: its processes differ by 50.0 %",)),
    ],
)
def test_scatter_is_much_from_3_percent_on_or_above_4_times_that_of_the_baseline(scatter, before, says):
    found = doubts_about(scatter, 1.0, 1.0, 1.0, 1.0, before=before)
    assert len(found) == len(says)
    assert all(part in sentence for part, sentence in zip(says, found, strict=True))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"waited": 0.049}, ()),
        ({"waited": 0.05}, ("sdpa/s128: the machine was busy: its processes waited for a core 5.0 % of the time",)),
        ({"throttle_reasons": ("sw-power-cap", "gpu-idle")}, ()),
        (
            {"throttle_reasons": ("sw-power-cap", "hw-thermal")},
            ("sdpa/s128: the GPU slowed itself down in 5 of 5 processes: hw-thermal",),
        ),
    ],
    ids=["hardly busy", "busy", "at the power limit", "too hot"],
)
def test_a_busy_machine_and_a_slow_gpu_are_named(changes, says):
    assert doubts_about(1.0, 1.0, 1.0, 1.0, 1.0, **changes) == says


def test_other_programs_on_the_machine_are_named_once_and_many_cases_are_counted():
    notes = (Note("foreign-processes", "python (7) was there"), Note("no-nsys", "missing"), Note("cpu-busy", "busy"))

    assert doubts_of_machine(a_run(notes=notes)) == ("python (7) was there", "busy")
    assert doubts_of_machine(a_run(notes=notes), said=("cpu-busy",)) == ("python (7) was there",)
    assert shown(["a", "b", "c"], 3) == ("a", "b", "c")
    assert shown(["a", "b", "c"], 2) == ("a", "b", "and 1 more of such cases")
