"""The comment as an HTML page, for a browser and for the picture in the README."""

from markdown_it import MarkdownIt

from ci_perf.judge.report import Report
from ci_perf.render.markdown import render_comment

# Similar to a comment on GitHub; no scripts and no external resources.
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>ci-perf report</title>
<style>
body {{ font: 14px/1.5 -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif; color: #1f2328;
  max-width: 1140px; margin: 24px auto; padding: 0 16px; }}
h3 {{ font-size: 20px; margin: 16px 0; }} h4 {{ font-size: 16px; margin: 16px 0; }}
table {{ border-collapse: collapse; margin: 0 0 16px; display: block; overflow-x: auto; }}
th, td {{ border: 1px solid #d1d9e0; padding: 6px 13px; }} tr:nth-child(even) td {{ background: #f6f8fa; }}
code {{ font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; background: #818b981f; padding: 2px 5px;
  border-radius: 6px; }}
pre {{ background: #f6f8fa; padding: 16px; border-radius: 6px; }} pre code {{ background: none; padding: 0; }}
details {{ margin: 0 0 12px; }} summary {{ cursor: pointer; }}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def render_html(report: Report) -> str:
    """Return a page without external resources."""
    body = MarkdownIt("commonmark").enable("table").render(render_comment(report))
    return _PAGE.format(body=body)
