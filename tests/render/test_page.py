"""The page: one file that runs only its own script, whatever it quotes, and shows what the report knows."""

import base64
import functools
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ci_perf import store
from ci_perf.judge.report import build_report
from ci_perf.render import charts, html
from ci_perf.render.html import render_html
from ci_perf.values.measurement import Cost, Failure
from ci_perf.values.run import Note
from tests.builders import STEADY, a_baseline, a_device, a_measurement, a_run

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "tests/data/runs"
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


def data_of(page):
    """Return the data of the charts."""
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', page, re.DOTALL)
    return json.loads(found[1]) if found else []


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
    found = [element for element in elements(quoting(text)) if element != ("code",)]  # between two backticks

    assert found == [element for element in elements(quoting("x")) if element != ("code",)]


def test_code_in_messages_is_code_on_the_page():
    page = quoting("see `a <b>`")
    recorded = re.sub("<script.*?</script>", "", page_of("h200-explained"), flags=re.DOTALL)

    assert "csee <code>a &lt;b&gt;</code>" in page
    assert "`" not in recorded


@pytest.mark.parametrize("run", sorted(path.name for path in RUNS.iterdir()))
def test_the_page_of_a_recorded_run_is_one_file_and_lists_the_hashes_of_its_scripts(run):
    page = page_of(run)
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    found = elements(page)

    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}\"" in page
    assert not {tag for tag, *_ in found} & {"img", "link", "iframe", "object", "embed", "base"}
    assert not [names for _, *names in found if any(name.startswith("on") or name == "src" for name in names)]
    assert set(re.findall(r'href="([^"]*?)\d+"', page)) <= {"#case-"}


@pytest.mark.parametrize("run", sorted(path.name for path in RUNS.iterdir()))
def test_each_row_of_the_table_leads_to_its_case_and_each_chart_has_a_text(run):
    page = page_of(run)
    rows = len(report_of(run).rows)

    assert re.findall(r'href="#(case-\d+)"', page) == re.findall(r'<details id="(case-\d+)"', page)
    assert page.count("<details id=") == rows
    assert re.findall(r'<figure data-chart="(\d+)">', page) == [str(place) for place in range(len(data_of(page)))]
    assert page.count("<figure ") == page.count("<figcaption>")


def test_a_case_of_turns_shows_both_sides_the_thresholds_causes_and_counters():
    page = page_of("h200-explained")

    for title in ("Times of both sides", "Change of each pair, interval and thresholds", "SM clock", "Roofline"):
        assert f"<h4>{title}</h4>" in page
    for text in ("Causes", "this can account for", "Counters of uncoalesced/n4096", "thresholds -9.1 % and +3.0 %"):
        assert text in page


def test_no_browser_divides_the_arrow_between_two_numbers():
    page = page_of("h200-explained")

    assert "4.274 → 18.98 M" in page
    assert " -&gt; " not in page


def test_work_without_operations_has_the_bandwidth_as_its_ceiling():
    assert "Bandwidth of the memory, at most 4.81 TB/s; share of it: head 33 %, base 76 %." in page_of("h200-explained")


def test_all_counters_of_a_case_stand_side_by_side():
    page = page_of("h200-explained")

    assert '<th scope="col">base</th><th scope="col">head</th><th scope="col">unit</th>' in page
    assert '<tr><th scope="row">registers_per_thread</th><td>22</td><td>22</td><td>register</td></tr>' in page


def test_a_page_of_many_cases_says_how_many_are_without_charts(monkeypatch):
    report = report_of("h100-unchanged")
    whole = render_html(report)
    monkeypatch.setattr(html, "MOST_DRAWN", len(report.rows) - 2)
    page = render_html(report)

    assert f"charts of the first {len(report.rows) - 2} cases, without 2 less urgent ones" in page
    assert "less urgent" not in whole
    assert 0 < len(data_of(page)) < len(data_of(whole))
    assert page.count("<figure ") == len(data_of(page))


def test_a_chart_of_many_rounds_shows_some_of_each_process(monkeypatch):
    monkeypatch.setattr(charts, "MOST_MARKS", 100)
    drawn = next(
        chart for chart in data_of(render_html(report_of("h100-planted-5-percent"))) if chart["kind"] == "times"
    )

    assert [place for place, _ in drawn["data"]["head"]][:3] == [0, 4, 8]
    assert len(drawn["data"]["head"]) == 90


def test_the_library_for_the_charts_is_what_scripts_plot_build_made_of_the_locked_packages():
    folder = ROOT / "scripts/plot"
    recorded = [line.split() for line in (folder / "plot.sha256").read_text().splitlines()]

    assert {name for _, name in recorded} >= {"bundle.js", "package-lock.json", "../../ci_perf/pages/plot.min.js"}
    for digest, name in recorded:
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, f"{name}: run scripts/plot/build"


@pytest.mark.parametrize("value", [1e308, 1e-320])
def test_numbers_that_a_chart_cannot_show_leave_it_out(value):
    device = a_device(memory_clock_max_hz=2e9, memory_bus_bits=5120, sm_count=132, sm_clock_max_hz=2e9)
    measured = a_measurement(STEADY, cost=Cost(value, value, "float32"))
    run = replace(a_run(measured), devices=(replace(device, compute_capability="9.0"),))

    assert {chart["kind"] for chart in data_of(render_html(build_report(run)))} >= {"times"}
