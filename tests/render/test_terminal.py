"""The report in a terminal: it fits any width from 60 columns on, and no number is shortened or divided."""

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.console import Console

from ci_perf import store
from ci_perf.judge.report import build_report
from ci_perf.render import cells
from ci_perf.render.html import render_html
from ci_perf.render.markdown import render_comment
from ci_perf.render.terminal import render_terminal
from ci_perf.values.reasons import Verdict
from ci_perf.values.run import Note
from tests.builders import PARAMS, a_baseline, a_baseline_case, a_measurement, a_provenance, a_run, a_spec, times

RUNS = sorted((Path(__file__).parents[1] / "data/runs").iterdir())
WIDTHS = st.integers(60, 200)


def printed(report, width, encoding="utf-8", run="ci-perf-run", **console):
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Console(file=file, width=width, highlight=False, **console).print(render_terminal(report, run))
    file.seek(0)
    return file.read()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("name", ["h200-explained", "h200-turns-planted-8-percent", "h100-planted-5-percent"])
def test_a_recorded_run_at_the_width_of_a_terminal(name, width, golden):
    report = build_report(store.read_run(Path(__file__).parents[1] / "data/runs" / name))

    golden(f"terminal/{name}-{width}.txt", printed(report, width))


REPORTS = {run.name: build_report(store.read_run(run)) for run in RUNS}


def check_that_nothing_is_cut(report, width):
    narrow = printed(report, width)
    lines = narrow.split("\n")
    shown = {cell for row in report.rows for cell in (*cells.verdict(row)[1:-1], *cells.statistics(row))}

    assert max(map(len, lines)) <= width
    assert not [cell for cell in shown if not any(cell in line for line in lines)]
    assert not numbers(printed(report, 1000)) - numbers(narrow)


def numbers(text):
    """Return the words that contain a number."""
    return {word for word in text.split() if re.search(r"\d", word)}


@pytest.mark.parametrize("name", REPORTS)
@settings(deadline=None, max_examples=8)
@example(width=60)
@given(width=WIDTHS)
def test_no_number_of_a_recorded_run_is_cut_at_any_width(name, width):
    check_that_nothing_is_cut(REPORTS[name], width)


@settings(deadline=None, max_examples=20)
@given(
    width=WIDTHS,
    cases=st.lists(st.text("abz-", min_size=1, max_size=40), min_size=1, max_size=4, unique=True),
    ratio=st.floats(1e-2, 1e2),
)
def test_no_number_of_any_run_is_cut_at_any_width(width, cases, ratio):
    found = [a_measurement(times(ratio), times(ratio), case=case) for case in cases]
    base = a_baseline(cases={case: a_baseline_case() for case in cases})
    check_that_nothing_is_cut(
        build_report(a_run(*found, kernels=(a_spec(cases=dict.fromkeys(cases, PARAMS)),), baselines=(base,))), width
    )


@pytest.mark.parametrize("name", REPORTS)
@settings(deadline=None, max_examples=8)
@example(width=120)
@given(width=WIDTHS)
def test_no_reason_of_a_row_ends_its_line_between_number_and_unit_or_with_spaces(name, width):
    lines = printed(REPORTS[name], width).split("\n")

    assert not [line for line in lines if re.match(r" {4,}(%|M|us|MB|GB/s)( |$)", line)]
    assert not [line for line in lines if width < 100 and line.startswith("    ") and line.endswith(" ")]


def test_uncommitted_changes_are_said_beside_the_commit():
    changed = replace(a_run(), provenance=a_provenance(commit="0123456789-dirty"), baselines=(a_baseline(),))

    assert "of commit 01234567 with uncommitted changes compared with" in printed(build_report(changed), 200)


def test_the_next_command_names_the_run():
    report = build_report(a_run())

    assert "\"ci-perf baseline accept 'my runs/1'\" makes" in printed(report, 200, run="my runs/1")


def test_code_in_messages_is_bold_on_a_terminal_and_no_report_has_backticks(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    note = Note("cpu-busy", "the cores are busy", "see `ci-perf doctor`, and set `samples`")
    report = build_report(replace(a_run(a_measurement()), notes=(note,)))
    bold = printed(report, 100, force_terminal=True)
    piped = printed(report, 100)

    assert re.search(r"see \S*\x1b\[1;2m\S*ci-perf doctor\x1b\[0m", bold), bold
    assert 'see "ci-perf doctor", and set samples' in piped
    assert "`" not in bold + piped


def test_verdicts_differ_without_colour_and_in_a_terminal_that_shows_ascii_only():
    utf_8, ascii_only = ({getattr(verdict, sign) for verdict in Verdict} for sign in ("sign", "ascii_sign"))

    assert len(utf_8) == len(ascii_only) == len(Verdict)
    assert "^ REGRESSION" in printed(REPORTS["h200-explained"], 100, encoding="ascii")


def test_terminal_page_and_comment_have_the_same_sign_of_a_verdict():
    report = REPORTS["h200-explained"]
    comment = render_comment(report).replace("**", "")
    shown = [printed(report, 100), re.sub("<.*?>", "", render_html(report)), comment]

    for verdict in {row.finding.verdict for row in report.rows}:
        assert all(f"{verdict.sign} {verdict}" in text for text in shown), verdict


def test_colours_are_omitted_where_no_color_is_set_or_the_output_is_no_terminal(monkeypatch):
    report = REPORTS["h200-turns-planted-8-percent"]
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    coloured = printed(report, 100, force_terminal=True)
    piped = printed(report, 100)
    monkeypatch.setenv("NO_COLOR", "1")

    assert "\x1b[1;31m▲ REGRESSION" in coloured
    assert "\x1b" not in piped
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", printed(report, 100, force_terminal=True))
