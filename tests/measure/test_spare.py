"""How many processes may compile at once, and the slots that they share."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from ci_perf.measure import spare
from ci_perf.userside.slots import Slots

GIB = 1 << 30


@pytest.mark.parametrize(
    ("cores", "on_gpu", "on_host", "processes"),
    [
        (16, 139 * GIB, 120 * GIB, 8),
        (17, 139 * GIB, 120 * GIB, 8),
        (3, 139 * GIB, 120 * GIB, 1),
        (1, 139 * GIB, 120 * GIB, 1),
        (16, 2 * spare.GPU_BYTES, 120 * GIB, 2),
        (16, 2 * spare.GPU_BYTES - 1, 120 * GIB, 1),
        (16, 139 * GIB, 3 * spare.HOST_BYTES, 3),
        (16, 0, GIB, 1),
        (16, None, 0, 8),
    ],
)
def test_half_of_the_cores_compile_where_the_memory_suffices(monkeypatch, cores, on_gpu, on_host, processes):
    monkeypatch.setattr(spare.cpu, "usable_cores", lambda: cores)
    monkeypatch.setattr(spare.gpu, "query_free_memory", lambda _: on_gpu)
    monkeypatch.setattr(spare.cpu, "available_bytes", lambda: on_host)

    assert spare.compile_processes("GPU-1") == processes


@pytest.fixture
def slots(tmp_path):
    """Return two users of one slot."""
    (tmp_path / "0").touch()
    return Slots(str(tmp_path)), Slots(str(tmp_path))


def test_a_slot_that_is_lent_is_for_others_and_is_taken_again(slots):
    mine, other = slots
    order = []

    def work():
        with other.taken():
            order.append("other")

    with ThreadPoolExecutor(1) as threads:
        with mine.own():
            waits = threads.submit(work)
            order.append("mine")
            with mine.lent():
                waits.result()
            waits = threads.submit(work)
            order.append("mine again")
        waits.result()

    assert order == ["mine", "other", "mine again", "other"]


def test_the_slot_of_a_process_that_was_killed_is_free(slots):
    mine, other = slots
    pid = os.fork()
    if not pid:
        with mine.own():
            os.kill(os.getpid(), 9)
    os.waitpid(pid, 0)

    with other.taken():
        pass
