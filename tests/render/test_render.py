"""Reports keep their structure whatever the names and messages of users' code contain."""

import csv
import html
import io
import json
import re
import unicodedata
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console

from ci_perf.judge.report import build_report
from ci_perf.render.cells import reproduce
from ci_perf.render.json_text import render_json
from ci_perf.render.junit import render_junit
from ci_perf.render.markdown import render_comment
from ci_perf.render.tabular import COLUMNS, render_csv
from ci_perf.render.terminal import render_terminal, render_timings
from ci_perf.values.codec import dump_run, load_run
from ci_perf.values.comment import CommentStatus, State, marker
from ci_perf.values.errors import FormatError
from ci_perf.values.escape import LONGEST, clean, code, prose
from ci_perf.values.kernel import Gate
from ci_perf.values.measurement import Failure
from ci_perf.values.reasons import Verdict
from ci_perf.values.run import Against, Note
from ci_perf.values.trace import CaseTimeline, Reading, TracedKernel
from tests.builders import (
    PARAMS,
    STEADY,
    a_baseline,
    a_baseline_case,
    a_cpu,
    a_device,
    a_measurement,
    a_policy,
    a_run,
    a_spec,
    a_toolchain,
    counters,
    times,
)

NASTY = (
    "a|b\n| c | d |\n|---|---|",
    "`` ` ``` x",
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "@torvalds @octo/team see #1 and GH-2",
    "--> <!-- ci-perf:default -->",
    "</summary></details>\n\n# heading",
    "[link](https://evil.example) ![i](http://x/y.png) www.evil.example me@evil.example",
    "\u202egnp.exe\u2066\u200b\ufeff\x1b[31mred\x07\x00",
    "'; rm -rf / #",
    "=cmd|' /C calc'!A0",
    "{body} {} {{}} %s \\",
    "]]> &amp; &#60; \ud800 \udfff",
    "void f<int, (x)1>(T const&, ...) [with T = float]",
    "-",
    "1. one",
    "\r\rcarriage\r\nreturn\x85\u2028\u2029",
)
fragments = st.one_of(st.sampled_from(NASTY), st.text(st.characters(), max_size=12))
texts = st.lists(fragments, min_size=1, max_size=3).map("".join)
names = texts.map(lambda text: text.encode("utf-8", "replace").decode()).filter(bool)
"""Without lone surrogates, which run.json cannot contain."""


def for_any(function):
    """Run a test with every nasty text, then with mixtures of them."""
    for text in NASTY:
        function = example(text)(function)
    return settings(deadline=None)(given(texts)(function))


def without_own_markup(markdown):
    """Drop the tags of the <code> elements that escaping writes; their content is checked as entities."""
    return re.sub(r"</?code>", "", markdown)


@for_any
def test_code_is_one_cell_of_one_line_without_markup(text):
    written = without_own_markup(code(text))

    assert not set(written) & set("|\n\r<>@*_[]\\") - set("_" if written.startswith("`") else "")
    assert written.count("`") == (2 if written.startswith("`") else 0)
    assert not [c for c in written if unicodedata.category(c)[0] == "C" or c in "\u2028\u2029"]


@for_any
def test_prose_is_one_cell_of_one_line_without_markup(text):
    written = without_own_markup(prose(text))

    assert not set(written) & set("|\n\r<>@`*_[]\\!~$")
    assert "://" not in written
    assert "www." not in written
    assert not [c for c in written if unicodedata.category(c)[0] == "C" or c in "\u2028\u2029"]


@for_any
def test_escaped_text_is_displayed_unchanged(text):
    """Only control characters, repeated spaces, and what is too long are removed."""
    for write, longest in ((code, LONGEST), (prose, 400)):
        shown = plain(MarkdownIt("commonmark").renderInline(write(text)))
        assert shown == (clean(text, longest) or ("?" if write is code else ""))


@for_any
def test_mentions_and_issue_numbers_are_written_as_code_which_github_does_not_link(text):
    for write in (code, prose):
        outside = re.sub(r"<code>.*?</code>", "", MarkdownIt("commonmark").renderInline(write(text)))
        assert "@" not in html.unescape(outside)
        assert "#" not in html.unescape(outside)


def plain(page):
    """Return the text that a browser shows."""
    shown = []
    parser = HTMLParser(convert_charrefs=True)
    parser.handle_data = shown.append
    parser.feed(page)
    parser.close()
    return "".join(shown)


def a_hostile_run(name, message):
    """Two flagged cases, a new one and a missing one, with `name` and `message` wherever a run contains text."""
    kernel = TracedKernel(name, 10, 500_000, 5e4, (64, 1, 1), (128, 1, 1))
    spec = a_spec(name, cases={name: {}, "slow": {}, "new": {}}, gates=(Gate(name, ">=", 85.0),))
    slow = (times(1.2), times(1.2))
    old = {"slow": a_baseline_case(), name + "gone": a_baseline_case()}
    return a_run(
        a_measurement(kernel=name, case=name, failure=Failure("verify", "raised", message, f"Traceback:\n{message}")),
        a_measurement(*slow, kernel=name, case="slow", timeline=CaseTimeline(10, (kernel, kernel))),
        a_measurement(STEADY, kernel=name, case="new", counters=({name: Reading(None, name, message)},)),
        kernels=(spec,),
        baselines=(a_baseline(kernel=name, cases=old),),
        notes=(Note("no-ncu", message, message),),
        toolchain=a_toolchain(packages={**a_toolchain().packages, name: message}),
    )


def hostile(check):
    for text in NASTY:
        readable = text.encode("utf-8", "replace").decode()
        check = example(name=readable, message=readable)(check)
    return settings(max_examples=50, deadline=None)(given(name=names, message=names)(check))


def tables(markdown):
    """Return the shape of every table: its number of cells, row by row."""
    shapes = []
    for token in MarkdownIt("commonmark").enable("table").parse(markdown):
        if token.type == "table_open":
            shapes.append([])
        elif token.type == "tr_open":
            shapes[-1].append(0)
        elif token.type in ("td_open", "th_open"):
            shapes[-1][-1] += 1
    return shapes


ORDINARY = render_comment(build_report(a_hostile_run("sdpa", "it failed")))


@hostile
def test_no_name_or_message_changes_the_structure_of_a_comment(name, message):
    comment = render_comment(build_report(a_hostile_run(name, message)))

    assert tables(comment) == tables(ORDINARY)
    assert headings(comment) == headings(ORDINARY)
    assert tags(comment) == tags(ORDINARY)


@pytest.mark.parametrize("text", NASTY)
def test_names_of_devices_are_not_read_as_markup(text):
    def comment(name):
        both = (a_measurement(STEADY), a_measurement(STEADY, device="cpu"))
        return render_comment(build_report(a_run(*both, devices=(a_device(name=name), a_cpu(name=name)))))

    named = comment(text.encode("utf-8", "replace").decode())

    assert tables(named) == tables(comment("GPU"))
    assert tags(named) == tags(comment("GPU"))


def headings(markdown):
    """Return the text of each heading, and how often parts are folded."""
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    titles = [after.content for token, after in pairwise(tokens) if token.type == "heading_open"]
    return titles, markdown.count("<details>"), markdown.count("</details>"), markdown.count("```")


def tags(markdown):
    """Return the names of the elements of the page, without the <code> that escaping writes."""
    found = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: found.append((tag, attributes))
    parser.feed(MarkdownIt("commonmark").enable("table").render(markdown))
    return [(tag, attributes) for tag, attributes in found if tag != "code"]


@hostile
def test_a_comment_contains_only_one_html_comment_its_marker(name, message):
    comment = render_comment(build_report(a_hostile_run(name, message)))

    assert comment.startswith(marker("default", CommentStatus(State.FLAGGED)).removesuffix(" -->"))
    assert comment.count("<!--") == comment.count("-->") == 1


@hostile
def test_junit_is_xml_with_a_case_for_each_row(name, message):
    report = build_report(a_hostile_run(name, message))
    suite = ElementTree.fromstring(render_junit(report))

    assert len(suite.findall("testcase")) == int(suite.get("tests")) == 4
    assert len(suite.findall("testcase/failure")) == int(suite.get("failures")) == 3
    assert len(suite.findall("testcase/skipped")) == int(suite.get("skipped")) == 1


def ungated(*cases, fail_on=("gate",)):
    """Return a report on unchanged cases with two gates, one of which was not measured."""
    gates = (Gate("local_load_inst", "<=", 0.0), Gate("registers_per_thread", "<=", 32.0))
    spec = a_spec(cases=dict.fromkeys(cases, PARAMS), gates=gates)
    base = a_baseline(cases=dict.fromkeys(cases, a_baseline_case()))
    found = [a_measurement(STEADY, case=case, counters=counters(registers_per_thread=32.0)) for case in cases]
    return build_report(a_run(*found, kernels=(spec,), baselines=(base,), policy=a_policy(fail_on=fail_on)))


def test_every_format_distinguishes_an_unmeasured_gate_from_a_kept_one():
    report = ungated("a", "b")
    words = "local_load_inst not measured (ncu gave no counters), limit <= 0"
    suite = ElementTree.fromstring(render_junit(report))
    (line,) = [line for line in render_comment(report).splitlines() if "NOT MEASURED" in line]

    assert report.headline == "2 unchanged, 2 gates not measured"
    assert report.exit_status == 0
    assert "not measured, which is no pass" in report.next_step
    assert [html.unescape(cell.strip()) for cell in line.strip("|").split("|")] == [
        *("`sdpa/a`, `sdpa/b`", "NOT MEASURED", words)
    ]
    assert f"gate: {words}: sdpa/a, sdpa/b" in on_terminal(report)
    assert {(line["gates_kept"], line["gates_broken"], line["gates_not_measured"]) for line in in_csv(report)} == {
        ("1", "0", "1")
    }
    assert [out.text for out in suite.findall("testcase/system-out")] == [f"gate: {words}"] * 2
    assert [g["state"] for case in json.loads(render_json(report))["cases"] for g in case["gates"]] == [
        *("NOT_MEASURED", "KEPT"),
        *("NOT_MEASURED", "KEPT"),
    ]


def test_an_unmeasured_gate_that_fails_the_run_is_in_the_next_step():
    report = ungated("a", fail_on=("gate-not-measured",))
    (failure,) = ElementTree.fromstring(render_junit(report)).findall("testcase/failure")

    assert report.exit_status == 1
    assert "not measured, which is no pass" in report.next_step
    assert "local_load_inst not measured" in failure.get("message")


def test_counters_and_timeline_are_in_csv_and_comment():
    timeline = CaseTimeline(10, (), metrics={"sync_calls": Reading(0.0), "sync_pct": Reading(None, "%", "no call")})
    found = counters(registers_per_thread=32, duration_ns=9, instructions=(10, 20), l2_hit_rate_pct=(50, None))
    report = build_report(a_run(a_measurement(STEADY, timeline=timeline, counters=found)))
    (line,) = in_csv(report)
    names = ("registers_per_thread", "instructions", "l2_hit_rate_pct", "sync_calls", "sync_pct")
    (row,) = [r for r in render_comment(report).splitlines() if r.startswith("| `sdpa/s128` |") and " 32 |" in r]

    assert [line[name] for name in names] == ["32", "15", "", "0", ""]
    assert "duration_ns" not in line, "under ncu a launch takes longer"
    assert [cell.strip() for cell in row.strip("|").split("|")] == ["`sdpa/s128`", "32", "15", "-"]


def in_csv(report):
    return list(csv.DictReader(io.StringIO(render_csv(report), newline="")))


def on_terminal(report):
    console = Console(file=io.StringIO(), width=200)
    console.print(render_terminal(report))
    return console.file.getvalue()


@hostile
def test_csv_reads_back_as_it_was_written(name, message):
    report = build_report(a_hostile_run(name, message))
    lines = list(csv.DictReader(io.StringIO(render_csv(report), newline="")))

    assert [(line["kernel"], line["case"]) for line in lines] == [
        (r.finding.kernel, r.finding.case) for r in report.rows
    ]
    assert all(tuple(line) == COLUMNS for line in lines)
    assert all(None not in line.values() for line in lines)


@hostile
def test_json_can_contain_any_name(name, message):
    report = build_report(a_hostile_run(name, message))

    assert json.loads(render_json(report))["cases"][0]["kernel"] == report.rows[0].finding.kernel


@hostile
def test_no_name_controls_the_terminal(name, message):
    del message
    assert not control_characters(a_hostile_run(name, "it failed"))


@hostile
def test_no_message_controls_the_terminal(name, message):
    assert not control_characters(a_hostile_run(name, message))


def control_characters(run):
    console = Console(file=io.StringIO(), width=140, color_system=None)
    console.print(render_terminal(build_report(run)))
    return [c for c in console.file.getvalue() if unicodedata.category(c)[0] == "C" and c != "\n"]


@hostile
def test_the_command_to_reproduce_names_the_cases_and_runs_nothing_else(name, message):
    command = reproduce(build_report(a_hostile_run(name, message)))

    assert re.fullmatch(r"ci-perf run( [\w./-]+| '[\w./*?!\[\]-]+')+", command, re.ASCII)


@pytest.mark.parametrize(("failed", "named"), [((), ""), (("s128",), " sdpa/s128")])
def test_the_command_to_reproduce_names_no_case_that_is_gone(failed, named):
    measured = [a_measurement(case=case, replicates=(), failure=Failure("verify", "raised", "")) for case in failed]
    gone = a_run(*measured, against=Against("main", "abc", ("sdpa/s512", "gemm")))

    assert reproduce(build_report(gone)) == f"ci-perf run --against abc{named}"


def test_the_command_to_reproduce_contains_no_flags_from_the_run_file():
    smuggled = a_run(selection=("--against", "HEAD", "--setup", "reboot"), baselines=(a_baseline(),))

    assert reproduce(build_report(smuggled)) == "ci-perf run '?-against' HEAD '?-setup' reboot"


def test_a_run_file_with_a_lone_surrogate_is_refused():
    text = dump_run(a_hostile_run("sdpa", "broken"))

    assert load_run(text.replace('"broken"', r'"\ud83d\ude00"'), "run.json").notes[0].message == "\U0001f600"
    with pytest.raises(FormatError, match=r"run\.json: not JSON: .*surrogates not allowed"):
        load_run(text.replace('"broken"', r'"\ud83d"'), "run.json")


def test_the_power_limit_is_shown_also_without_a_roofline():
    processes = [replace(p, sm_clock_hz=1.47e9, throttle_reasons=("sw-power-cap",)) for p in a_measurement().replicates]
    h100 = a_device(sm_clock_max_hz=1.98e9)
    report = build_report(a_run(replace(a_measurement(), replicates=tuple(processes)), devices=(h100,)))

    assert "| at the power limit (1.47 GHz) |" in render_comment(report)
    assert json.loads(render_json(report))["cases"][0]["at_power_limit"] is True


def test_csv_leaves_cells_of_unknown_values_empty():
    failed = a_measurement(failure=Failure("verify", "raised", "ValueError"), replicates=())
    (line,) = csv.DictReader(io.StringIO(render_csv(build_report(a_run(failed)))))

    assert line["verdict"] == "FAILED"
    assert {line[c] for c in COLUMNS[5:]} == {""}


def test_the_numbers_of_csv_and_json_are_the_same():
    report = build_report(a_run(a_measurement(times(1.2), times(1.2)), baselines=(a_baseline(),)))
    (line,) = csv.DictReader(io.StringIO(render_csv(report)))
    (case,) = json.loads(render_json(report))["cases"]

    assert (line["verdict"], case["verdict"]) == (Verdict.REGRESSION, Verdict.REGRESSION)
    for column, value in (("ratio", case["change"]["ratio"]), ("p99_s", case["p99_s"]), ("mean_s", case["mean_s"])):
        assert float(line[column]) == pytest.approx(value, rel=1e-6)


def test_a_planted_slowdown_is_stated_before_any_table():
    planted = render_comment(build_report(replace(a_run(), planted=0.05)))

    assert planted.index("A slowdown of 5.0 % was planted") < planted.index("|")


@pytest.mark.parametrize(
    ("now", "heading", "row"),
    [
        ("f_0d1d2d", "<summary>GPU kernels that have another name in the baseline</summary>", "renamed"),
        ("h", "<summary>GPU kernels that changed (2)</summary>", "gone"),
    ],
)
def test_gpu_kernels_that_differ_from_the_baseline_are_listed_and_renamed_ones_are_folded(now, heading, row):
    timeline = CaseTimeline(1, (TracedKernel(now, 1, 9, 9.0, (1, 1, 1), (1, 1, 1)),))
    kept = a_baseline(cases={"s128": a_baseline_case(kernels=("f_0d1d",))})
    report = build_report(a_run(a_measurement(timeline=timeline), baselines=(kept,)))
    comment = render_comment(report)

    assert heading in comment
    assert re.search(rf"^\| `sdpa/s128` \| {row} +\| `f_0d1d`", comment, re.MULTILINE)
    assert json.loads(render_json(report))["cases"][0]["kernels_changed"]["removed"] == ["f_0d1d"] * (row == "gone")


def test_timings_are_seconds_by_case_side_and_stage():
    spent = {"head": {"import": 1.5, "rounds": 0.25}, "base": {"rounds": 0.5}}
    report = build_report(a_run(a_measurement(spent=spent)))

    assert render_timings(report).splitlines()[2:] == [
        "case       side      sum    import    rounds",
        "---------  ------  -----  --------  --------",
        "sdpa/s128  head     1.75      1.50      0.25",
        "sdpa/s128  base     0.50                0.50",
    ]
