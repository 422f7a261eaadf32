"""The frame of a page: its style, the policy on its scripts, and the data of its charts."""

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib import resources

from ci_perf.pages.chart import Chart
from ci_perf.pages.parts import text


def document(title: str, body: str, charts: Sequence[Chart] = (), scripts: Sequence[str] = ()) -> str:
    """Return a page without external resources; a browser may run only its own scripts, known by their hashes.

    `body` is HTML; its figures name the place of their chart in `charts`. The library is part of a page with charts.
    """
    scripts = [*scripts, *([_file("plot.min.js"), _file("charts.js")] if charts else [])]
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts) or "'none'"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes}"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{_file('page.css')}</style>\n</head>\n"
        f"<body>\n<main>\n<h1>{text(title)}</h1>\n{body}</main>\n"
        f"{_data(charts)}{''.join(f'<script>{script}</script>' for script in scripts)}\n</body>\n</html>\n"
    )


def _file(name: str) -> str:
    return resources.files("ci_perf.pages").joinpath(name).read_text("utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _data(charts: Sequence[Chart]) -> str:
    """Return the numbers of the charts as JSON, in which no text can end the element."""
    data = [{"kind": chart.kind, "data": chart.data} for chart in charts]
    written = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return f'<script type="application/json" id="charts">{written}</script>\n' if data else ""
