"""Static HTML pages: one for each kernel, without any other file, and an index."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from urllib.parse import quote

from ci_perf.history.picture import render_svg
from ci_perf.history.table import Changes, place, trend_lines
from ci_perf.values.quantity import amount
from ci_perf.values.series import Series

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
html {{ background: light-dark(#fff, #0d1117); color: light-dark(#1f2328, #e6edf3); overflow-wrap: anywhere; }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }}
a {{ color: light-dark(#0550ae, #79c0ff); }}
img {{ background: #fff; height: auto; max-width: 100%; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; }}
th, td {{ padding: 0.2rem 0.8rem 0.2rem 0; text-align: left; }}
pre {{ white-space: pre-wrap; }}
</style>
</head>
<body>
<main>
<h1>{title}</h1>
{body}
</main>
</body>
</html>
"""


def render_site(kernels: Mapping[str, Sequence[Series]], changes_of: Changes) -> dict[str, str]:
    """Return the text of each page by its name in the folder; `kernels` are the series of each kernel."""
    files = {name: quote(name, safe="") for name in kernels}
    pages = {f"kernels/{files[name]}.html": _kernel_page(name, own, changes_of) for name, own in kernels.items()}
    items = "\n".join(
        f'<li><a href="kernels/{quote(files[name])}.html">{escape(name)}</a>: newest {_newest(series)}</li>'
        for name, series in kernels.items()
    )
    pages["index.html"] = _PAGE.format(title="Kernels", body=f"<ul>\n{items}\n</ul>")
    return pages


def _kernel_page(name: str, series: Sequence[Series], changes_of: Changes) -> str:
    sections = [_section(one, changes_of) for one in series]
    body = '<p><a href="../index.html">All kernels</a></p>\n' + "\n".join(sections)
    return _PAGE.format(title=escape(name), body=body)


def _section(series: Series, changes_of: Changes) -> str:
    rows = "\n".join(
        f"<tr><td>{p.when[:10]}</td><td><code>{escape(place(p))}</code></td><td>{escape(p.source)}</td>"
        f"<td>{escape(amount(p.median, p.unit))}</td></tr>"
        for p in reversed(series.points)
    )
    svg = b64encode(render_svg([series], changes_of).encode()).decode()
    image = f'<img alt="{escape(series.name)} over time" src="data:image/svg+xml;base64,{svg}">'
    region = f'<div class="wide" role="region" aria-label="Points of {escape(series.name)}" tabindex="0">'
    return (
        f"<section>\n<h2>{escape(series.name)}</h2>\n{image}\n<pre>{escape(trend_lines(series, changes_of))}</pre>\n"
        f"<details><summary>{len(series.points)} points</summary>\n{region}<table>\n"
        "<thead><tr><th>date</th><th>commit</th><th>from</th><th>median</th></tr></thead>\n"
        f"<tbody>\n{rows}\n</tbody>\n</table></div></details>\n</section>"
    )


def _newest(series: Sequence[Series]) -> str:
    return max(one.last.when for one in series)[:10]
