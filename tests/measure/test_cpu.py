"""The cores of this machine: how busy they are, how long a thread waits for one, and what it executes."""

import os
import threading
import time

import pytest

from ci_perf.measure.cpu import note_busy, used_share
from ci_perf.userside import core_clock
from ci_perf.userside.instructions import Counter

BEFORE = "cpu 9 9 9 9\ncpu0 100 0 50 1000 10 0 5 0 0 0\ncpu1 100 0 50 1000 10 0 5 0 0 0\ncpu12 0 0 0 0 0 0 0 0 0 0\n"
AFTER = "cpu 9 9 9 9\ncpu0 130 5 60 1025 20 0 10 15 0 0\ncpu1 100 0 50 1100 10 0 5 0 0 0\ncpu12 1 0 0 0 0 0 0 0 0 0\n"


@pytest.mark.parametrize(
    ("cores", "share"),
    [({0}, 0.65), ({1}, 0.0), ({0, 1}, 0.325), ({12}, 1.0), ({7}, None), (set(), None)],
    ids=["one is busy", "one is idle", "both", "two digits", "unknown", "none"],
)
def test_the_used_share_is_that_of_the_allowed_cores_without_idle_time_and_waits_for_disks(cores, share):
    assert used_share(BEFORE, AFTER, cores) == share


@pytest.mark.parametrize(("share", "busy"), [(None, False), (0.0, False), (0.19, False), (0.2, True), (1.0, True)])
def test_a_machine_is_busy_from_a_fifth_of_its_cores_on(share, busy):
    note = note_busy(share, 9.25, 2)
    assert (note is not None) is busy
    if note and share == 1.0:
        assert note.code == "cpu-busy"
        assert note.message.startswith(
            "this machine is busy: other programs use 100 % of 2 cores (load average 9.2); times scatter more"
        )


def test_a_thread_that_shares_a_core_has_waited_and_its_sleep_is_no_wait():
    """Two threads on one core: while one waits, the other one runs."""
    assert core_clock.waited() >= 0.0
    allowed = os.sched_getaffinity(0)
    if core_clock.waited() == 0.0 and not os.path.exists("/proc/thread-self/schedstat"):  # noqa: PTH110
        pytest.skip("this Linux does not count the waits of threads")
    done = threading.Event()
    child = os.fork()
    if child == 0:
        os.sched_setaffinity(0, {min(allowed)})
        end = time.monotonic() + 60
        while time.monotonic() < end and os.getppid() != 1:
            pass
        os._exit(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        before, started = core_clock.waited(), time.monotonic()
        while core_clock.waited() - before < 0.02:
            pass
        assert time.monotonic() - started >= core_clock.waited() - before >= 0.02
    finally:
        os.sched_setaffinity(0, allowed)
        os.kill(child, 9)
        os.waitpid(child, 0)
        done.set()


def test_a_counter_of_perf_event_open_counts_what_this_process_does():
    """The clock of a task is an event that every machine has; the instructions often cannot be counted."""
    software, task_clock = 1, 1
    counter = Counter(software, task_clock)
    before = counter.read()
    if before is None:
        pytest.skip("perf_event_open is not allowed here")
    end = time.thread_time() + 0.02
    while time.thread_time() < end:
        pass
    after = counter.read()
    assert after is not None
    assert after - before >= 15_000_000


def test_where_there_is_no_counter_nothing_is_counted():
    assert Counter(99, 0).read() is None
    instructions = Counter()
    first = instructions.read()
    assert first is None or instructions.read() > first
