"""Two runs never measure on one GPU at the same time."""

import multiprocessing
import stat

import pytest

from ci_perf.measure.lock import gpu_lock
from ci_perf.values.errors import MachineError

GPU = "GPU-c5460912-01ff"


WAIT_S = 300.0
"""Longer than any busy machine needs."""


def hold(folder, held, end):
    with gpu_lock(GPU, WAIT_S, print, folder):
        held.set()
        end.wait(WAIT_S)


@pytest.fixture
def another_run(tmp_path):
    """Another process, which holds the lock until its event `end` is set."""
    context = multiprocessing.get_context("spawn")
    held, end = context.Event(), context.Event()
    process = context.Process(target=hold, args=(tmp_path, held, end))
    process.start()
    assert held.wait(WAIT_S)
    process.end = end
    yield process
    process.kill()
    process.join()


def test_a_run_waits_for_an_earlier_run_and_prints_one_message(another_run, tmp_path):
    said = []

    def say(message):
        said.append(message)
        another_run.end.set()

    with gpu_lock(GPU, WAIT_S, say, tmp_path):
        pass
    assert said == [f"waiting for process {another_run.pid}, which measures on this GPU ..."]


def test_the_error_for_waiting_too_long_names_the_other_run(another_run, tmp_path):
    held = rf"process {another_run.pid}\) has held"

    with pytest.raises(MachineError, match=held), gpu_lock(GPU, 0.1, print, tmp_path):
        pass


def test_the_lock_ends_with_a_process_that_is_killed(another_run, tmp_path):
    another_run.kill()
    another_run.join()

    with gpu_lock(GPU, WAIT_S, print, tmp_path):
        pass


@pytest.mark.usefixtures("another_run")
def test_other_gpus_are_not_locked_and_every_user_can_lock(tmp_path):
    with gpu_lock("GPU-another", 0.1, print, tmp_path), gpu_lock(None, 0.1, print, tmp_path):
        assert stat.S_IMODE((tmp_path / f"ci-perf-{GPU}.lock").stat().st_mode) == 0o666
