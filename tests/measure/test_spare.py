"""How many processes may compile at once, and the slots that they share."""

import json
import os
import signal
import subprocess
import sys
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
        (16, 139 * GIB, 0, 1),
        (16, None, None, 8),
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


def test_a_slot_is_free_although_a_process_forked_meanwhile_still_runs(slots):
    """Such as one of multiprocessing, which shares the descriptor."""
    mine, other = slots
    for hold in (mine.taken, mine.own):
        with hold():
            process = os.fork()
            if not process:
                signal.pause()
        try:
            with other.taken():
                pass
        finally:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


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


def test_the_slot_of_a_process_that_was_killed_is_free(slots, tmp_path):
    _, other = slots
    script = "import os, sys; from ci_perf.userside.slots import Slots\nwith Slots(sys.argv[1]).own(): os.abort()"
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)

    assert killed.returncode < 0
    with other.taken():
        pass


@pytest.mark.slow
@pytest.mark.parametrize(("ends", "answered"), [(False, [0, 1, 2]), (True, [0])])
def test_no_further_case_is_begun_at_the_end_of_the_requests(ends, answered):
    """As where both sides do not fit on the GPU at once."""
    script = f"""
import json, os, sys
from ci_perf.userside.answers import reply
from ci_perf.userside.compile_pool import compile_cases
from ci_perf.userside.processes import Fork

def body(requests, answers):
    for line in requests:
        reply(answers, json.dumps({{"ok": True}}) + "\\n")

read, write = os.pipe()
if {ends}:
    os.close(write)
request = {{"first": 0, "cases": [{{}}] * 3, "processes": 1, "timeout_s": 300.0}}
print([number for number, _ in compile_cases(request, os.fdopen(read), lambda: Fork(body))])
"""
    printed = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout

    assert json.loads(printed) == answered
