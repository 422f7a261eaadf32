"""The pages of reports and sites in Chromium: no error, nothing wider than the window, axe, the keyboard."""

import pytest

from ci_perf.history.page import render_site
from ci_perf.history.points import points_of_run, series_of
from ci_perf.history.trend import change_points
from ci_perf.store import read_run
from tests.render.test_page import RUNS, page_of

pytest.importorskip("playwright", reason="needs the package `playwright`")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs the package `axe-playwright-python`")
from lib.browser import find_chromium, opened  # noqa: E402

CHROMIUM = find_chromium()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: install one, or name one with CHROMIUM=PROGRAM"),
]


@pytest.fixture(scope="module")
def browser():
    with opened(CHROMIUM) as browser:
        yield browser


@pytest.fixture
def opened_file(browser):
    """Return a function that opens a file; every message on the console and every other request is an error."""
    contexts, errors = [], []

    def show(file, width=1280, scheme="light"):
        contexts.append(browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme))
        contexts[-1].set_default_timeout(300_000)  # ms: the machine may be busy
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text))
        page.on("request", lambda request: request.url == file.as_uri() or errors.append(request.url))
        page.goto(file.as_uri())
        return page

    yield show
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture
def shown(opened_file, tmp_path):
    """Return a function that shows the page of a run, and fails as `opened_file`."""

    def show(run, *window):
        file = tmp_path / "report.html"
        file.write_text(page_of(run), encoding="utf-8")
        return opened_file(file, *window)

    return show


def too_wide(page):
    return page.evaluate("document.documentElement.scrollWidth - innerWidth")


@pytest.mark.parametrize(
    ("run", "width", "scheme"),
    [
        *(("h200-turns-planted-8-percent", width, scheme) for width in (390, 1280) for scheme in ("light", "dark")),
        *(("h200-explained", 390, "dark"), ("h100-unchanged", 390, "light"), ("h200-program", 1280, "light")),
    ],
)
def test_the_page_fits_the_window_and_axe_finds_nothing(shown, run, width, scheme):
    page = shown(run, width, scheme)
    assert too_wide(page) <= 0

    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    page.wait_for_function("[...document.querySelectorAll('figure')].every(figure => figure.querySelector('svg'))")

    assert too_wide(page) <= 0
    assert [violation["id"] for violation in axe.Axe().run(page).response["violations"]] == []


def test_charts_are_drawn_as_their_case_is_opened_and_again_for_another_width(shown):
    page = shown("h200-explained")
    closed, figure = page.locator("details:not([open]) figure svg"), page.locator("#case-5 figure svg").first
    assert closed.count() == 0

    page.locator("#case-5 > summary").press("Enter")
    figure.wait_for()
    wide = figure.bounding_box()["width"]
    page.set_viewport_size({"width": 390, "height": 800})
    page.wait_for_function(f"document.querySelector('#case-5 figure svg').clientWidth < {wide}")


@pytest.mark.parametrize("run", sorted(path.name for path in RUNS.iterdir()))
def test_all_charts_of_a_recorded_run_are_drawn_with_finite_numbers(shown, run):
    page = shown(run)
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    page.wait_for_function("[...document.querySelectorAll('figure')].every(figure => figure.querySelector('svg'))")
    marks = "[...document.querySelectorAll('figure svg *')].flatMap(mark => [...mark.attributes].map(own => own.value))"

    assert not [value for value in page.evaluate(marks) if "NaN" in value or "Infinity" in value]


def names(page):
    return page.locator("#cases tbody tr:not([hidden]) th").all_inner_texts()


@pytest.mark.parametrize("width", [390, 1280])
def test_the_keyboard_alone_sorts_filters_and_opens(shown, width):
    page = shown("h200-explained", width)
    urgent_first = names(page)

    page.keyboard.press("Tab")
    page.keyboard.type("bank")
    assert names(page) == ["bank_conflict/n4096"]
    assert page.locator("#count").inner_text() == "1 of 14 shown"
    for _ in "bank":
        page.keyboard.press("Backspace")
    page.keyboard.press("Tab")
    page.keyboard.type("UNCHANGED")
    assert names(page) == ["alloc_command/s20", "neutral/n16m", "sync_command/s20"]
    page.keyboard.press("Home")
    assert names(page) == urgent_first

    title = page.locator("#cases thead th", has_text="change")
    while title.locator("button:focus").count() == 0:
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    slowest_last = names(page)
    page.keyboard.press("Space")
    assert (title.get_attribute("aria-sort"), names(page)) == ("descending", slowest_last[::-1])
    assert slowest_last[-1] == "uncoalesced/n4096"

    link = page.locator("#cases tbody a", has_text="neutral")
    while not link.evaluate("link => link === document.activeElement"):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator("details[open] h3", has_text="neutral/n16m").wait_for()


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_the_pages_of_a_site_fit_the_window_and_axe_finds_nothing(opened_file, tmp_path, width, scheme):
    recorded = [read_run(RUNS / name) for name in ("h100-unchanged", "h100-planted-5-percent")]
    series = series_of(point for run in recorded for point in points_of_run(run) if point.kernel == "sdpa")
    for name, text in render_site({"sdpa": series}, change_points).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")

    for name in ("index.html", "kernels/sdpa.html"):
        page = opened_file(tmp_path / name, width, scheme)
        page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
        assert too_wide(page) <= 0
        assert [violation["id"] for violation in axe.Axe().run(page).response["violations"]] == []
