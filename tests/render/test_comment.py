"""A long comment: what a reviewer sees before unfolding anything, and that no number of it disagrees with another."""

import re
from pathlib import Path

from ci_perf import store
from ci_perf.judge.report import build_report
from ci_perf.render.markdown import LARGEST_COMMENT, Frame, render_comment
from tests.judge.test_numbers import check_row

RUN = Path(__file__).parents[1] / "data/comments/cpu-42-cases.zip"


def test_the_comment_on_42_recorded_cases(golden):
    comment = render_comment(build_report(store.read_run(RUN)), Frame(limit=LARGEST_COMMENT))
    unfolded = re.sub(r"<details>.*</details>", "", comment, flags=re.DOTALL)

    assert len(comment) < 65_536
    assert len(unfolded.splitlines()) < 30
    golden("comment-of-42-cases.md", comment)


def test_the_numbers_of_42_recorded_cases_agree():
    for row in build_report(store.read_run(RUN)).rows:
        check_row(row)
