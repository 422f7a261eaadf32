"""The page: one file that runs only its own script, whatever it quotes, and shows what the report knows."""

import base64
import functools
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ci_perf import store
from ci_perf.judge.report import build_report
from ci_perf.render.charts import scale_of
from ci_perf.render.html import render_html
from ci_perf.values.measurement import Failure
from ci_perf.values.run import Note
from tests.builders import STEADY, a_baseline, a_measurement, a_run

RUNS = Path(__file__).parents[1] / "data/runs"
NASTY = "</script></style></title><script>alert(1)</script><img src=x onerror=a()>\" onload='b()' &lt; ]]> -->"


@functools.cache
def report_of(name):
    return build_report(store.read_run(RUNS / name))


@functools.cache
def page_of(name):
    return render_html(report_of(name))


def elements(page):
    """Return the name and attribute names of each element."""
    found = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: found.append((tag, *(name for name, _ in attributes)))
    parser.feed(page)
    return found


def quoting(text):
    """Return the page of a run that quotes a text wherever it may quote users' code."""
    failed = a_measurement(case="bad", failure=Failure("verify", "raised", f"a{text}", f"b{text}"))
    measured = a_measurement(STEADY)
    run = a_run(failed, measured, baselines=(a_baseline(),))
    return render_html(build_report(replace(run, notes=(Note("note", f"c{text}", f"d{text}"),))))


@settings(deadline=None, max_examples=20)
@example(NASTY)
@given(st.text(st.characters(codec="utf-8") | st.sampled_from("<>&\"'/="), max_size=60))
def test_no_quoted_text_is_markup(text):
    assert elements(quoting(text)) == elements(quoting("x"))


@pytest.mark.parametrize("run", sorted(path.name for path in RUNS.iterdir()))
def test_the_page_of_a_recorded_run_is_one_file_with_one_script(run):
    page = page_of(run)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    found = elements(page)

    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in page
    assert not {tag for tag, *_ in found} & {"img", "link", "iframe", "object", "embed", "base"}
    assert not [names for _, *names in found if any(name.startswith("on") or name == "src" for name in names)]
    assert set(re.findall(r'href="([^"]*?)\d+"', page)) <= {"#case-"}


@pytest.mark.parametrize("run", sorted(path.name for path in RUNS.iterdir()))
def test_each_row_of_the_table_leads_to_its_case_and_each_chart_has_a_text(run):
    page = page_of(run)
    rows = len(report_of(run).rows)

    assert re.findall(r'href="#(case-\d+)"', page) == re.findall(r'<details id="(case-\d+)"', page)
    assert page.count("<details id=") == rows
    assert page.count('role="img" aria-label="') == page.count("<figure>") == page.count("<figcaption>")
    assert "nan" not in " ".join(re.findall(r'(?:points|d|x|y)="([^"]*)"', page))


def test_a_case_of_turns_shows_both_sides_the_thresholds_causes_and_counters():
    page = page_of("h200-explained")

    for title in ("Times of both sides", "Change of each pair, interval and thresholds", "SM clock of the head"):
        assert f"<h4>{title}</h4>" in page
    for text in ("Causes", "this can account for", "Counters of uncoalesced/n4096", "thresholds -9.1 % and +3.0 %"):
        assert text in page


@pytest.mark.parametrize(
    ("values", "log", "at", "middle"),
    [([1.0, 3.0], False, 2.0, 50.0), ([1.0, 100.0], True, 10.0, 50.0), ([5.0], False, 5.0, 50.0)],
)
def test_a_scale_puts_the_middle_of_its_values_in_the_middle(values, log, at, middle):
    assert scale_of(values, 0, 100, log=log)(at) == middle
