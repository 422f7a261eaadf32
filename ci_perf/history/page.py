"""Static HTML pages: one for each kernel, and an index. Each is one file."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from urllib.parse import quote

from ci_perf.history.table import Changes, known_changes, place, trend_of
from ci_perf.pages.chart import history_chart
from ci_perf.pages.document import document
from ci_perf.pages.parts import bullets, figure, table, text
from ci_perf.values.quantity import amount, counted
from ci_perf.values.series import Series


def render_site(kernels: Mapping[str, Sequence[Series]], changes_of: Changes) -> dict[str, str]:
    """Return the text of each page by its name in the folder; `kernels` are the series of each kernel."""
    files = {name: quote(name, safe="") for name in kernels}
    pages = {f"kernels/{files[name]}.html": _kernel_page(name, own, changes_of) for name, own in kernels.items()}
    items = "\n".join(
        f'<li><a href="kernels/{quote(files[name])}.html">{text(name)}</a>: {counted(len(series), "series")}, '
        f"newest {max(one.last.when for one in series)[:10]}</li>"
        for name, series in kernels.items()
    )
    pages["index.html"] = document("Kernels", f"<ul>\n{items}\n</ul>\n")
    return pages


def _kernel_page(name: str, series: Sequence[Series], changes_of: Changes) -> str:
    trends = [trend_of(one, changes_of) for one in series]
    drawn = [replace(history_chart(trend, several=False), title=trend.series.name) for trend in trends]
    charts = [chart for chart in drawn if chart.is_finite]
    sections = [
        (figure(chart, charts.index(chart), level=2) if chart in charts else "") + _points(trend.series)
        for chart, trend in zip(drawn, trends, strict=True)
    ]
    missing = {known_changes(one, changes_of)[1] for one in series} - {""}
    body = '<p><a href="../index.html">All kernels</a></p>\n' + bullets(sorted(missing)) + "\n".join(sections)
    return document(name, body, charts)


def _points(series: Series) -> str:
    rows = [(p.when[:10], place(p), p.source, amount(p.median, p.unit)) for p in reversed(series.points)]
    found = table(f"Points of {series.name}", ("date", "commit", "from", "median"), rows)
    return f"<details><summary>{counted(len(rows), 'point')} of {text(series.name)}</summary>{found}</details>\n"
