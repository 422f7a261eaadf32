"""Starts of the workers of both sides: real workers, whose kernel logs each import."""

import os
from dataclasses import replace

import pytest

from ci_perf.measure import cpu
from ci_perf.measure.base import Base
from ci_perf.measure.side import Side
from ci_perf.measure.starts import Starts
from ci_perf.measure.worker_process import Worker, job_request
from ci_perf.values.job import select_jobs
from ci_perf.values.run import Against
from tests.builders import a_spec

KERNEL = """
with open({log!r}, "a") as log:
    print({name!r}, file=log)
make_inputs = launch = reference = print
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernels", "devices", "ahead"),
    [(1, ("cuda",), 1), (2, ("cuda",), 1), (3, ("cuda",), 0), (1, ("cpu",), 0)],
)
def test_starts_are_made_before_they_are_needed_for_up_to_two_kernels_on_a_gpu(
    tmp_path, bare_python, monkeypatch, kernels, devices, ahead
):
    """Three processes import already: 6 cores leave room for a start of both sides, 4 for none."""
    monkeypatch.setattr(cpu, "available_bytes", lambda: 1 << 40)
    specs = tuple(a_spec(f"k{number}", devices=devices) for number in range(kernels))
    counts = []
    for cores in (4, 6):
        monkeypatch.setattr(cpu, "usable_cores", lambda cores=cores: cores)
        head, worker, control = (Worker(bare_python, dict(os.environ), tmp_path, name) for name in ("h", "b", "c"))
        side = Side("base", tmp_path / "base", {}, worker)
        starts = Starts(head, tmp_path / "head", Base(Against("main", ""), side, replace(side, worker=control)))
        try:
            starts.guess(select_jobs(specs, [], devices))
            counts.append((head.wait_ahead(), worker.wait_ahead(), control.wait_ahead()))
        finally:
            starts.close()

    assert counts == [(0, 0, 0), (ahead, ahead, 0)]


@pytest.mark.slow
def test_workers_of_all_pairs_start_at_once_as_far_as_there_are_cores(tmp_path, bare_python, monkeypatch):
    monkeypatch.setattr(cpu, "usable_cores", lambda: 6)
    monkeypatch.setattr(cpu, "available_bytes", lambda: 1 << 40)
    spec, log = a_spec("sdpa", devices=("cpu",)), tmp_path / "imports"
    for name in ("base", "head"):
        (tmp_path / name / spec.folder).mkdir(parents=True)
        (tmp_path / name / spec.folder / spec.entry).write_text(KERNEL.format(log=str(log), name=name))
    head, worker, control = (Worker(bare_python, dict(os.environ), tmp_path, name) for name in ("h", "b", "c"))
    side = Side("base", tmp_path / "base", {"sdpa": spec}, worker)
    base = Base(Against("main", ""), side, Side("base", side.root, side.kernels, control))
    starts, jobs, counts = Starts(head, tmp_path / "head", base), select_jobs((spec,), [], ["cpu"]), []
    try:
        for _ in range(4):
            starts.anew(jobs, 5)
            starts.preload(jobs, control=True)
            counts.append(log.read_text().split().count("head"))
        control.ask({"op": "verify", **job_request(jobs[0], side.root)}, 300.0)
        of_base = log.read_text().split().count("base")
    finally:
        starts.close()

    assert counts == [3, 3, 3, 6]
    assert of_base == 6 + 1  # the control stays
