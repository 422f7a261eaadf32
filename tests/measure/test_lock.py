"""Two runs never measure on one GPU at the same time."""

import multiprocessing
import stat
import time

import pytest

from ci_perf.measure.lock import gpu_lock
from ci_perf.values.errors import MachineError

GPU = "GPU-c5460912-01ff"


def hold(folder, seconds, held):
    with gpu_lock(GPU, 1.0, print, folder):
        held.set()
        time.sleep(seconds)


@pytest.fixture
def another_run(tmp_path):
    """Another process that holds the lock for so long."""
    context = multiprocessing.get_context("spawn")
    started = []

    def start(seconds):
        held = context.Event()
        process = context.Process(target=hold, args=(tmp_path, seconds, held))
        process.start()
        started.append(process)
        assert held.wait(30)
        return process

    yield start
    for process in started:
        process.kill()
        process.join()


def test_a_run_waits_for_the_one_before_and_says_so_once(another_run, tmp_path):
    process = another_run(0.6)
    said, began = [], time.monotonic()

    with gpu_lock(GPU, 30.0, said.append, tmp_path):
        assert time.monotonic() - began > 0.3
    assert said == [f"waiting for process {process.pid}, which measures on this GPU ..."]


def test_a_run_that_waits_too_long_says_for_whom(another_run, tmp_path):
    process = another_run(60)

    with pytest.raises(MachineError, match=rf"process {process.pid}\) has held"), gpu_lock(GPU, 0.1, print, tmp_path):
        pass


def test_the_lock_ends_with_a_process_that_is_killed(another_run, tmp_path):
    process = another_run(60)
    process.kill()
    process.join()

    with gpu_lock(GPU, 1.0, print, tmp_path):
        pass


def test_other_gpus_and_no_gpu_are_free_and_every_user_may_take_the_lock(another_run, tmp_path):
    another_run(60)

    with gpu_lock("GPU-another", 0.1, print, tmp_path), gpu_lock(None, 0.1, print, tmp_path):
        assert stat.S_IMODE((tmp_path / f"ci-perf-{GPU}.lock").stat().st_mode) == 0o666
