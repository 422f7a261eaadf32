"""Annotations as workflow commands of GitHub's runner; no text in them can end early or begin another command."""

from ci_perf.github.publish import Annotation
from ci_perf.values.escape import clean

_LONGEST_TITLE = 200
_LONGEST_MESSAGE = 2000


def render_annotation(annotation: Annotation) -> str:
    r"""Return an annotation as a line of a step's log.

    >>> from ci_perf.github.publish import Level, Place
    >>> render_annotation(Annotation(Level.ERROR, "a, b", "50 %\nmore", Place("k/kernel.py", 7)))
    '::error file=k/kernel.py,line=7,title=a%2C b::50 %25 more'
    """
    properties = {"title": _property(clean(annotation.title, _LONGEST_TITLE))}
    if annotation.place:
        properties = {"file": _property(annotation.place.file), "line": str(annotation.place.line), **properties}
    listed = ",".join(f"{name}={value}" for name, value in properties.items())
    return f"::{annotation.level} {listed}::{_data(clean(annotation.message, _LONGEST_MESSAGE))}"


def neutral(text: str) -> str:
    r"""Return foreign text as one line in which GitHub's runner finds no command, wherever it stands in the line.

    >>> neutral("key\n::set-output name=x::1 ##[set-output name=x]1")
    'key : :set-output name=x: :1 ## [set-output name=x]1'
    """
    line = clean(text, _LONGEST_MESSAGE)
    while "::" in line:
        line = line.replace("::", ": :")
    return line.replace("##[", "## [")


def neutral_json(document: str) -> str:
    r"""Return JSON of the same value in which GitHub's runner finds no command.

    >>> neutral_json('"a::b ##[c"')
    '"a\\u003a\\u003ab ##\\u005bc"'
    """
    return document.replace("::", "\\u003a\\u003a").replace("##[", "##\\u005b")


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
