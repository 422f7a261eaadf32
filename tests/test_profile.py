"""A session of a profiler for all cases, with an nsys that plays what a real one recorded."""

import os
import shutil
import sqlite3
from contextlib import closing

import pytest

from ci_perf.core.plan import Job
from ci_perf.edge.guard import Guard
from ci_perf.edge.profile import ProfileSession
from tests.builders import a_spec
from tests.test_external import H200, fake_nsys


def session(root, more=""):
    """Return an nsys whose trace has the ranges of the cases sdpa/s512 and matmul/n4096, and runs nothing."""
    capture = root / "capture.sqlite"
    shutil.copy(H200, capture)
    with closing(sqlite3.connect(capture)) as database, database:
        for recorded, label in (("sdpa_s512", "ci-perf:sdpa/s512"), ("matmul_4096", "ci-perf:matmul/n4096")):
            database.execute("UPDATE NVTX_EVENTS SET text = ? WHERE text = ?", (label, recorded))
            database.execute("UPDATE StringIds SET value = ? WHERE value = ?", (label, recorded))
    guard = Guard(root / "out", ())
    guard.folder.mkdir()
    guard.open()
    path = str(fake_nsys(root, capture, more))
    return ProfileSession("nsys", path, "2025.3.2", "true", guard, dict(os.environ), lambda _: {}, 20.0)


def job(kernel, case, *patterns):
    return Job(a_spec(kernel, kernels=patterns, cases={case: {}}), case, {}, "cuda")


def test_each_case_gets_the_kernels_of_its_own_range(tmp_path):
    found = session(tmp_path).run([job("sdpa", "s512", "flash"), job("matmul", "n4096")])
    counts = {label: [k.count for k in timeline.kernels] for label, timeline in found.timelines.items()}

    assert counts == {"ci-perf:sdpa/s512": [5], "ci-perf:matmul/n4096": [5]}
    assert [note.code for note in found.notes] == []
    assert (tmp_path / "out/timeline.sqlite").is_file()


@pytest.mark.parametrize(
    ("mine", "code", "message"),
    [
        (job("matmul", "n4096", "conv"), "nsys-no-kernel", "no GPU kernel is called `conv`; there ran `nvjet_sm90_tst"),
        (job("gemm", "n1"), "nsys-no-range", "nsys: saw no GPU kernel of gemm/n1"),
    ],
)
def test_a_case_without_a_kernel_is_named_with_those_that_ran(tmp_path, mine, code, message):
    (note,) = session(tmp_path).run([job("sdpa", "s512"), mine]).notes

    assert note.code == code
    assert message in note.message
