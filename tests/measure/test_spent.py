"""The seconds of a run by stage."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from ci_perf.measure import spent
from ci_perf.measure.spent import Spent
from ci_perf.values.job import select_jobs
from ci_perf.values.measurement import Failure
from tests.builders import a_spec

(JOB,) = select_jobs([a_spec()], [], ["cuda"])


def test_stages_sum_up_and_the_rest_is_waiting(monkeypatch):
    clock = iter([10.0, 15.0])
    monkeypatch.setattr(spent, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    seconds = Spent()
    with seconds.waiting(JOB, ["base", "head"]):
        seconds.add(JOB, "base", {"spent": {"inputs": 1.0, "rounds": 0.5}})
        seconds.add(JOB, "base", {"spent": {"rounds": 0.5}})
        seconds.add(JOB, "head", Failure("time", "raised", "no"))

    assert seconds.of(JOB.id, "cuda") == {
        "base": {"inputs": 1.0, "rounds": 1.0, "waiting": 3.0},
        "head": {"waiting": 5.0},
    }
    assert seconds.of(JOB.id, "cpu") == {}


@pytest.mark.parametrize(
    ("seconds", "device", "rng", "noted"),
    [
        (1.5, "cuda", "cpu", True),
        (0.9, "cuda", "cpu", False),
        (1.5, "cpu", "cpu", False),
        (1.5, "cuda", "device", False),
    ],
)
def test_slow_inputs_are_noted_where_the_gpu_could_draw_them(seconds, device, rng, noted):
    (job,) = select_jobs([replace(a_spec(devices=("cpu", "cuda")), rng=rng)], [], [device])
    spent_by = Spent()
    spent_by.add(job, "head", {"spent": {"inputs": seconds}})

    notes = spent_by.slow_inputs([job])

    assert [note.message for note in notes] == [f"make_inputs takes long in each process: {job.id} (1.5 s)"] * noted
