"""Python's garbage collector, where it takes time from what is waited for or measured."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Let the garbage collector not run in a block; afterwards it runs if it ran before.

    An import makes many objects and hardly any garbage (its share of the time: `baselines/h200/projects.md`).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
