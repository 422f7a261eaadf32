"""Real processes: those that a program starts are found and ended, whichever session they are in."""

import ast
import contextlib
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from ci_perf.measure import process_tracking

pytestmark = pytest.mark.slow

PARENT = """
import subprocess, sys
from ci_perf.measure import process_tracking

assert process_tracking.adopt_orphans()
subprocess.run([sys.executable, "-c", sys.argv[1]], check=True, stdout=subprocess.DEVNULL)
print(process_tracking.end_descendants())
print(process_tracking.end_descendants())
"""
SESSION = "import subprocess; subprocess.Popen(['sleep', '3600'], stdout=subprocess.DEVNULL, start_new_session=True)"
TWO_FORKS = "import os; os.fork() or os.setsid() or os.fork() or os.execvp('sleep', ['sleep', '3600'])"
DEAF = "import subprocess; subprocess.Popen(['sh', '-c', 'trap \"\" TERM INT HUP; sleep 3600; sleep 3600'])"


@pytest.mark.parametrize(
    ("program", "leaves"),
    [("pass", False), (SESSION, True), (TWO_FORKS, True), (DEAF, True)],
    ids=["nothing", "a process in a session of its own", "a daemon", "a shell that ignores signals"],
)
def test_processes_that_outlive_a_program_are_ended(program, leaves):
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PARENT, program], capture_output=True, text=True, check=True
    )

    first, second = map(ast.literal_eval, ran.stdout.splitlines())
    assert (bool(first[0]), first[1]) == (leaves, [])
    assert second == ([], [])


LEADER = """
import subprocess, time
subprocess.run(["sh", "-c", "sleep 3600 > /dev/null & echo $!"], env={"PATH": "/usr/bin:/bin"}, check=True)
time.sleep(3600)
"""


def test_an_orphan_with_an_empty_environment_is_ended_with_its_session():
    """Neither its environment nor its parent tells who started it."""
    tracking_id = uuid.uuid4().hex
    env = {**os.environ, process_tracking.VARIABLE: tracking_id}
    argv = [sys.executable, "-c", LEADER]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, start_new_session=True) as leader:
        orphan = int(leader.stdout.readline())
        try:
            process_tracking.end_tracked(tracking_id)
            state = Path(f"/proc/{orphan}/stat")
            alive = state.exists() and state.read_text().rpartition(") ")[2][0] not in "ZX"
        finally:
            for pid in (orphan, leader.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    assert not alive


def test_ci_perf_runs_in_a_process_that_ci_perf_started(tmp_path):
    environ = process_tracking.tracked(os.environ)

    ran = subprocess.run(
        [sys.executable, "-m", "ci_perf", "list"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.stderr.startswith(f"error: {tmp_path}/kernels: there is no such folder")
