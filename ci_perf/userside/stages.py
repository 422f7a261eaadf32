"""The wall time of a request by stage, so that a report can show what a case costs beside its kernel."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

SPENT: dict[str, float] = {}
"""Seconds by stage since the last request; stages of the same name add up."""


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Add the time of a block to a stage. Stages do not nest, so each second counts once."""
    started = time.monotonic()
    try:
        yield
    finally:
        SPENT[name] = SPENT.get(name, 0.0) + time.monotonic() - started


def take_spent() -> dict[str, float]:
    """Return the seconds by stage, rounded to milliseconds, and reset them."""
    spent = {name: round(seconds, 3) for name, seconds in SPENT.items()}
    SPENT.clear()
    return spent
