"""Where the time of a request goes: seconds by stage, so that a report can say what a case costs beside its kernel."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

SPENT: dict[str, float] = {}
"""Seconds by stage since the last request; stages of the same name add up."""


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Count the time of a block for a stage. Stages do not nest: each second counts once."""
    started = time.monotonic()
    try:
        yield
    finally:
        SPENT[name] = SPENT.get(name, 0.0) + time.monotonic() - started


def take_spent() -> dict[str, float]:
    """Return the seconds by stage, to the millisecond, and begin anew."""
    spent = {name: round(seconds, 3) for name, seconds in SPENT.items()}
    SPENT.clear()
    return spent
