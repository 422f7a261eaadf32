"""What a comment of a pull request last said, and the marker that keeps it."""

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum

MOST_OPEN = 2000
"""How many open cases a marker lists: 30 kB of the 64 kB of a comment."""


class State(StrEnum):
    """What a comment last said; its hidden marker keeps it for the next run."""

    FLAGGED = "flagged"
    PENDING = "pending"
    """Flagged before, and now neither flagged nor shown to be fine."""
    RESOLVED = "resolved"
    CLEAN = "clean"
    """Nothing was ever flagged."""


@dataclass(frozen=True, slots=True, order=True)
class OpenCase:
    """A case that was flagged and has not been shown to be fine on its device since."""

    device: str
    """Digest of the device's slug, 6 hexadecimal digits: markers are hidden in the comment and must stay short."""
    case: str
    """Digest of `kernel/case`, 8 hexadecimal digits."""
    kind: str
    """`c`: a change, to be compared again; `f`: a failure, to be run again; `m`: missing, to be there or dropped."""

    @classmethod
    def of(cls, device: str, case: str, kind: str) -> "OpenCase":
        """Return the open case of a device slug and a `kernel/case`."""
        return cls(_digest(device)[:6], _digest(case)[:8], kind)

    def __str__(self) -> str:
        return f"{self.kind}{self.device}{self.case}"


@dataclass(frozen=True, slots=True)
class CommentStatus:
    """What a comment says, and the cases that it must see again before it says "resolved"."""

    state: State
    open: frozenset[OpenCase] = frozenset()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def marker(key: str, status: CommentStatus) -> str:
    """Return the hidden first line of a comment, by which the next run finds it.

    >>> marker("default", CommentStatus(State.FLAGGED))
    '<!-- ci-perf:default flagged -->'
    >>> marker("default", CommentStatus(State.FLAGGED, frozenset({OpenCase.of("h100", "sdpa/s128", "c")})))
    '<!-- ci-perf:default flagged c85e2d0dd9343d8 -->'
    """
    words = [status.state, *map(str, sorted(status.open)[:MOST_OPEN])]
    return f"<!-- ci-perf:{key} {' '.join(words)} -->"


def read_marker(body: str, key: str) -> CommentStatus | None:
    r"""Return what a comment said that has a line with the marker of this key, or None if it has none.

    Text may stand before the marker: maintainers put notes above the comment.

    >>> read_marker("<!-- ci-perf:default resolved -->\r\n### ci-perf", "default").state
    <State.RESOLVED: 'resolved'>
    >>> read_marker("<!-- ci-perf:other resolved -->", "default") is None
    True
    """
    form = rf"^<!-- ci-perf:{re.escape(key)} ({'|'.join(State)})((?: [cfm][0-9a-f]{{14}})*) -->\s*$"
    found = re.search(form, body, re.MULTILINE)
    if not found:
        return None
    cases = (OpenCase(word[1:7], word[7:], word[0]) for word in found[2].split())
    return CommentStatus(State(found[1]), frozenset(cases))
