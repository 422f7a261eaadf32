"""Real processes: what a program leaves running is ended, wherever it hid."""

import ast
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

PARENT = """
import subprocess, sys
from ci_perf.guard import leftovers

assert leftovers.adopt_orphans()
subprocess.run([sys.executable, "-c", sys.argv[1]], check=True, stdout=subprocess.DEVNULL)
print(leftovers.end_descendants())
print(leftovers.end_descendants())
"""
SESSION = "import subprocess; subprocess.Popen(['sleep', '3600'], stdout=subprocess.DEVNULL, start_new_session=True)"
TWO_FORKS = "import os; os.fork() or os.setsid() or os.fork() or os.execvp('sleep', ['sleep', '3600'])"
DEAF = "import subprocess; subprocess.Popen(['sh', '-c', 'trap \"\" TERM INT HUP; sleep 3600; sleep 3600'])"


@pytest.mark.parametrize(
    ("program", "leaves"),
    [("pass", False), (SESSION, True), (TWO_FORKS, True), (DEAF, True)],
    ids=["nothing", "a process in a session of its own", "a daemon", "a shell that ignores signals"],
)
def test_what_a_program_leaves_running_is_ended(program, leaves):
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PARENT, program], capture_output=True, text=True, check=True
    )

    first, second = map(ast.literal_eval, ran.stdout.splitlines())
    assert (bool(first[0]), first[1]) == (leaves, [])
    assert second == ([], [])
