"""`ci-perf history` and `site`: a real repository, real Parquet files, the parsers of other tools."""

import csv
import io
import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec

import duckdb
import pytest
from click.testing import CliRunner
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from ci_perf.cli import program
from ci_perf.history.page import render_site
from ci_perf.history.parquet import add_points, read_points
from ci_perf.history.points import points_of_run, series_of
from ci_perf.history.trend import change_points, creep
from ci_perf.store import read_run
from ci_perf.values.series import Point, Series
from tests.project.test_project import ROOT

finds_changes = pytest.mark.skipif(find_spec("ruptures") is None, reason="needs ruptures: not yet for this Python")
NOISE = (0.004, -0.006, 0.001, 0.005, -0.003, -0.001, 0.006, -0.005, 0.002, -0.002)
"""Relative, one for each point, over and over."""


def series(values, better="lower"):
    names = ("baseline", "nap", "one", "l4", "wall", "s", better)
    return Series(
        tuple(Point(f"2026-01-{n:02}T00:00:00+00:00", f"{n:040}", *names, v, v, v) for n, v in enumerate(values, 1))
    )


def noisy(levels):
    return [level * (1 + NOISE[n % len(NOISE)]) for n, level in enumerate(levels)]


@finds_changes
@pytest.mark.parametrize(
    ("levels", "places"),
    [
        ([1.0] * 20, []),
        ([1.0] * 10 + [1.05] * 10, [10]),
        ([1.0] * 8 + [0.8] * 8 + [1.0] * 8, [8, 16]),
        ([1.0] * 19 + [1.5], []),  # the newest point alone may be an outlier
        ([1.0, 2.0, 2.0], []),
    ],
)
def test_change_points_are_where_the_level_changed(levels, places):
    one = series(noisy(levels))

    assert [one.points.index(change.after) for change in change_points(one)] == places


@finds_changes
def test_a_change_point_says_how_much_slower_also_of_a_rate():
    assert change_points(series(noisy([1.0] * 10 + [1.1] * 10)))[0].ratio == pytest.approx(1.1, rel=0.01)
    assert change_points(series(noisy([1.1] * 10 + [1.0] * 10), "higher"))[0].ratio == pytest.approx(1.1, rel=0.01)


@pytest.mark.parametrize(
    ("values", "total"),
    [
        ([1.01**n for n in range(4)], 1.01**3),
        ([1.01**n for n in range(3)], None),  # 2 % in all
        ([1.0, 1.0, 1.04, 1.04], None),  # one change that is not small
        ([1.029, 1.0, 1.02, 1.029], None),
        ([1.0, 1.01, 1.02, 1.03, 1.04, 0.9], 1.04),
        ([1 / 1.01**n for n in range(9)], None),  # faster
        (noisy([1.0] * 30), None),
    ],
)
def test_creep_is_small_changes_that_add_up(values, total):
    found = creep(series(values))

    assert (found and found.ratio) == (total and pytest.approx(total))


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Return a repository with a baseline of `nap` in 200 versions: 5 % slower from the 101st on."""
    baseline = json.loads((ROOT / "baselines/h200/pipeline.json").read_text())
    (case,) = list(baseline["cases"])[:1]
    time = baseline["cases"][case]["time"]
    stream = ["commit refs/heads/main\ncommitter a developer <developer@localhost> 1700000000 +0100\ndata 5\nfirst\n"]
    for number in range(200):
        factor = (1.05 if number >= 100 else 1) * (1 + NOISE[number % 10])
        replicates = [[value * factor for value in values] for values in time["replicates"]]
        own = {**time, "median": time["median"] * factor, "replicates": replicates}
        text = json.dumps({**baseline, "cases": {case: {**baseline["cases"][case], "time": own}}})
        stream.append(
            f"commit refs/heads/main\ncommitter a developer <developer@localhost> {1700000001 + number * 3600} +0100\n"
            f"data 4\nnext\nM 644 inline baselines/h200/nap.json\ndata {len(text)}\n{text}\n"
        )
    subprocess.run(["git", "init", "-q", "-b", "main", tmp_path], check=True)
    subprocess.run(["git", "fast-import", "--quiet"], cwd=tmp_path, input="".join(stream), text=True, check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ci_perf(*arguments):
    ran = CliRunner().invoke(program, arguments)
    assert ran.exit_code == 0, ran.output
    return ran.stdout


@finds_changes
def test_history_names_the_change_among_200_commits(repository):
    commits = subprocess.run(
        ["git", "log", "--reverse", "--format=%H", "main", "--", "baselines"],
        cwd=repository, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip

    shown = ci_perf("history", "nap", "--picture", "nap.svg")

    assert f"change at {commits[100][:8]}: time +5." in shown
    assert shown.count("change at") == 1
    assert "no creep" not in shown.replace("no change point, no creep", "")
    assert "(180 older points are not shown)" in shown
    assert "<svg" in (repository / "nap.svg").read_text()


def test_an_unreadable_version_is_named_and_the_others_are_shown(repository):
    subprocess.run(["git", "checkout", "-q", "main"], check=True)
    (repository / "baselines/h200/nap.json").write_text('{"cases": {"one": {"time": []}}}')
    subprocess.run(
        ["git", "-c", "user.name=me", "-c", "user.email=me@localhost", "commit", "-qam", "broken"], check=True
    )

    ran = CliRunner().invoke(program, ["history", "nap"])

    assert ran.exit_code == 0
    assert "warning: h200/nap.json at" in ran.stderr
    assert "baseline" in ran.stdout


@pytest.mark.usefixtures("repository")
def test_a_kernel_without_history_is_an_error_with_the_remedy():
    ran = CliRunner().invoke(program, ["history", "other"])

    assert ran.exit_code == 2
    assert "there is no history of `other`" in ran.stderr
    assert "--runs" in ran.stderr


@pytest.mark.usefixtures("repository")
def test_exports_are_what_other_tools_read():
    rows = list(csv.DictReader(io.StringIO(ci_perf("history", "nap", "--export", "csv"))))
    families = list(text_string_to_metric_families(ci_perf("history", "nap", "--export", "openmetrics")))
    bencher = json.loads(ci_perf("history", "nap", "--export", "bencher"))

    assert len(rows) == 200
    newest = float(rows[-1]["median"])
    (family,) = families
    assert (family.name, family.type, family.unit) == ("ci_perf_time_seconds", "gauge", "seconds")
    assert [sample.value for sample in family.samples][-1] == newest
    assert float(family.samples[0].timestamp) == 1700000001
    ((name, measures),) = bencher.items()
    assert name.startswith("nap/")
    assert measures["latency"]["value"] == pytest.approx(newest * 1e9)
    assert measures["latency"]["lower_value"] <= measures["latency"]["value"] <= measures["latency"]["upper_value"]


@finds_changes
def test_the_site_has_a_page_for_each_kernel_that_loads_nothing(repository):
    ci_perf("site", "--output", "pages")

    index, page = (repository / "pages" / name for name in ("index.html", "kernels/nap.html"))
    assert 'href="kernels/nap.html"' in index.read_text()
    text = page.read_text()
    (data,) = histories(text)
    assert len(data["points"]) == 200
    assert data["changes"] == [99.5]
    assert "change at" in text
    assert "default-src 'none'" in text
    assert set(re.findall(r'(?:src|href)="([^"]*)"', text.partition("<script>")[0])) == {"../index.html"}


def test_no_name_of_a_series_is_markup():
    nasty = "<img src=x onerror=a()>\"'</script>"
    points = [replace(point, kernel=nasty, case=nasty, commit=nasty, method=nasty) for point in series([1.0]).points]
    pages = render_site({nasty: [Series(tuple(points))]}, lambda _: ())

    for page in pages.values():
        assert "<img" not in page
        assert page.count("</script>") == page.count("<script")


@pytest.mark.parametrize("store", ["{folder}/store", "memory://fleet/perf"])
def test_points_of_several_machines_are_kept_once_each_in_one_store(store, tmp_path):
    store = store.format(folder=tmp_path)
    mine, theirs = series([1.0, 1.1]).points, series([1.1, 1.2, 1.3]).points

    places = {add_points(store, points) for points in (mine, theirs, mine)}

    assert len(places) == 2
    assert read_points(store) == tuple(sorted({*mine, *theirs}))
    assert read_points(store, "other") == ()
    if "://" not in store:
        assert duckdb.sql(f"SELECT count(*) FROM '{store}/*.parquet'").fetchall() == [(5,)]


@pytest.mark.usefixtures("repository")
def test_a_store_that_fsspec_does_not_know_is_an_error():
    ran = CliRunner().invoke(program, ["history", "nap", "--store", "nowhere://bucket"])

    assert ran.exit_code == 2
    assert "--store nowhere://bucket" in ran.stderr


def histories(page):
    """Return the data of the histories on a page of a report."""
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', page, re.DOTALL)
    return [chart["data"] for chart in json.loads(found[1]) if chart["kind"] == "history"]


def test_the_page_of_a_run_shows_the_history_of_its_cases_on_its_gpu(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = str(ROOT / "tests/data/runs/h100-planted-5-percent")
    alone = ci_perf("report", run, "--html")
    subprocess.run(["git", "init", "-q"], check=True)
    as_me = ("git", "-c", "user.name=me", "-c", "user.email=me@localhost")
    for device in ("h100-80gb-hbm3", "h200"):
        file = tmp_path / "baselines" / device / "sdpa.json"
        file.parent.mkdir(parents=True)
        for slower in (1, 2):
            document = json.loads((ROOT / "baselines/h100-80gb-hbm3/sdpa.json").read_text())
            for case in document["cases"].values():
                case["time"]["median"] *= slower
            file.write_text(json.dumps(document))
            subprocess.run([*as_me, "add", "-A"], check=True)
            subprocess.run([*as_me, "commit", "-qm", "baseline"], check=True)

    found = histories(ci_perf("report", run, "--html"))
    more = histories(ci_perf("report", run, "--html", "--runs", str(ROOT / "tests/data/runs/h100-unchanged")))

    assert histories(alone) == []
    assert {len(data["points"]) for data in found} == {3}
    assert {len(data["points"]) for data in more} == {2, 4}  # of cases without a baseline, and with two
    assert all(label.split()[-1] in {"run", "baseline"} for data in found for *_, label in data["points"])


def test_recorded_runs_are_points_too():
    file = ROOT / "tests/data/runs/h100-planted-5-percent/run.json"

    points = list(points_of_run(read_run(file)))

    assert points
    assert all(point.source == "run" and math.isfinite(point.median) for point in points)
    assert all(point.low <= point.median <= point.high for one in series_of(points) for point in one.points)


@pytest.mark.usefixtures("repository")
def test_without_the_extra_everything_but_the_changes_is_shown_and_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ruptures", None)

    shown = ci_perf("history", "nap", "--picture", "nap.svg")
    ci_perf("site", "--output", "pages")

    assert "install the extra: `ci-perf[history] @ git+" in shown
    assert "no change point" not in shown
    assert shown.count("baseline") == 20
