"""`run --resume`: what a continued run keeps of the earlier one, and why a finished one is not continued."""

from dataclasses import replace
from pathlib import Path

import pytest

from ci_perf import store
from ci_perf.cli.resume import Resumed, first_start, without_repeats
from ci_perf.values.errors import ConfigError
from ci_perf.values.measurement import Pair
from ci_perf.values.run import Against, Note
from tests.builders import a_measurement, a_run

BUSY, LATER = (Note("cpu-busy", f"other programs use {n} % of the cores") for n in (40, 60))
WARNING = Note("ncu-warning", "the report of gemm/s128 is not complete")
AGAIN, MORE = (Note("measured-again", f"processes that were disturbed: {case}") for case in ("a/b (1)", "a/c (2)"))


@pytest.mark.parametrize(
    ("earlier", "later", "shown"),
    [
        ((BUSY,), (), (BUSY,)),
        ((BUSY,), (LATER,), (LATER,)),
        ((WARNING,), (WARNING,), (WARNING,)),
        ((BUSY, WARNING), (LATER,), (WARNING, LATER)),
        ((AGAIN,), (MORE,), (AGAIN, MORE)),
    ],
    ids=["first only", "newer", "the same", "one of two", "of processes that are kept"],
)
def test_a_resumed_run_has_each_note_once(earlier, later, shown):
    first = a_run(notes=earlier)

    assert without_repeats(replace(first, notes=(*earlier, *later)), Resumed(Path(), first)).notes == shown


@pytest.mark.parametrize(("starts", "number"), [((), 0), ((None,), 0), ((0,), 1), ((0, 0, 4, 2), 5)])
def test_the_workers_of_a_resumed_run_have_the_first_unused_number(starts, number):
    pairs = tuple(Pair((1e-3,) * 4, (1e-3,) * 4, 1, "wall", start=start) for start in starts)

    assert first_start(a_run(a_measurement(pairs=pairs))) == number


def test_a_finished_run_whose_control_moved_says_so_where_it_is_not_continued(tmp_path):
    moved = tuple(Pair((1e-3,) * 4, (head,) * 4, 1, "wall") for head in (1.05e-3, 1.051e-3, 1.05e-3, 1.049e-3))
    against = Against("main", "b" * 40, control_case="sdpa/s128", control=moved)
    store.write_run(a_run(a_measurement(pairs=moved), against=against, finished=True), tmp_path)

    with pytest.raises(ConfigError, match=r"the base differed from itself by \+5.0 % \(sdpa/s128\)") as refused:
        Resumed.of(tmp_path)

    assert "more pairs" not in str(refused.value)
