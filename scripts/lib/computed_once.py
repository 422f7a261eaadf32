"""Computes what the rule asks for several times of the same pairs only once: simulations take a third of the time.

The functions are pure, and so the results are the same to the last bit.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from ci_perf.judge import pairs, ratios

FUNCTIONS = (
    *((ratios, "_sd"), (ratios, "_kept")),
    *((pairs, "is_faked"), (pairs, "lacking_starts"), (pairs, "log_ratio"), (ratios, "log_ratio")),
)
"""Where the rule looks up the functions that take most of its time."""
KEPT = 10_000
"""Results of each; the starts of simulated cases are often the same."""


@contextmanager
def computed_once() -> Iterator[None]:
    """Keep the results of FUNCTIONS until the end of the block."""
    with ExitStack() as stack:
        for module, name in FUNCTIONS:
            stack.enter_context(patch.object(module, name, _keeping(getattr(module, name))))
        yield


def _keeping(function: Callable[..., object]) -> Callable[..., object]:
    kept = functools.lru_cache(KEPT)(function)

    @functools.wraps(function)
    def call(*arguments: object) -> object:
        return kept(*(tuple(a) if isinstance(a, list) else a for a in arguments))

    return call
