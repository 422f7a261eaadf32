"""The parts of HTML pages: texts, lists, tables and figures, in which nothing that is quoted is markup."""

from collections.abc import Iterable, Sequence
from html import escape

from ci_perf.pages.chart import Chart
from ci_perf.values.escape import clean, spans


def text(content: str, longest: int = 600) -> str:
    """Write a text, which may quote users' code, so that nothing in it is markup."""
    return _escaped(clean(content, longest))


def prose(content: str, longest: int = 600) -> str:
    """Write a message like `text`, and what stands between backticks as code.

    >>> prose("see `ci-perf doctor`, not <b>")
    'see <code>ci-perf doctor</code>, not &lt;b&gt;'
    """
    parts = spans(clean(content, longest))
    return "".join(f"<code>{escape(part)}</code>" if is_code else _escaped(part) for part, is_code in parts)


def _escaped(content: str) -> str:
    """Write a cleaned text; browsers divide `->` between lines, an arrow they do not."""
    return escape(content).replace(" -&gt; ", " \N{RIGHTWARDS ARROW} ")


def bullets(contents: Sequence[str]) -> str:
    """Return a list of messages; empty for no messages."""
    return f"<ul>{''.join(f'<li>{prose(content)}</li>' for content in contents)}</ul>" if contents else ""


def table(caption: str, titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table that scrolls in a region of its own, which the keyboard reaches."""
    head = "".join(f'<th scope="col">{text(title)}</th>' for title in titles)
    body = "".join(
        f'<tr><th scope="row">{text(first)}</th>{"".join(f"<td>{text(cell)}</td>" for cell in rest)}</tr>'
        for first, *rest in rows
    )
    return (
        f'<div class="wide" role="region" aria-label="{text(caption)}" tabindex="0"><table>'
        f"<caption>{text(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>\n"
    )


def figure(chart: Chart, place: int, *, level: int = 4) -> str:
    """Return the figure in which charts.js draws the chart at this place of the page's data, with a heading."""
    title, caption = text(chart.title), text(chart.caption)
    return f'<figure data-chart="{place}"><h{level}>{title}</h{level}><figcaption>{caption}.</figcaption></figure>'
