"""What a comment of a pull request last said, and the marker that keeps it."""

import re
from enum import StrEnum


class State(StrEnum):
    """What a comment last said; its hidden marker keeps it for the next run."""

    FLAGGED = "flagged"
    PENDING = "pending"
    """Flagged before, and now neither flagged nor shown to be fine."""
    RESOLVED = "resolved"
    CLEAN = "clean"
    """Nothing was ever flagged."""


def marker(key: str, state: State) -> str:
    """Return the hidden first line of a comment, by which the next run finds it.

    >>> marker("default", State.FLAGGED)
    '<!-- ci-perf:default flagged -->'
    """
    return f"<!-- ci-perf:{key} {state} -->"


def read_marker(body: str, key: str) -> State | None:
    r"""Return what a comment said that begins with the marker of this key, or None where it is no such comment.

    >>> read_marker("<!-- ci-perf:default resolved -->\r\n### ci-perf", "default")
    <State.RESOLVED: 'resolved'>
    >>> read_marker("<!-- ci-perf:other resolved -->", "default") is None
    True
    """
    found = re.match(rf"<!-- ci-perf:{re.escape(key)} ({'|'.join(State)}) -->\s*$", body, re.MULTILINE)
    return State(found[1]) if found else None
