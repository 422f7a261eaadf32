"""Compiles all configurations of a kernel with `triton.autotune` at once, and times none of them."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Callable

from ci_perf.userside.slots import Slots

MOST_THREADS = 8
"""Threads of one process: 5 % of a compilation of a matmul is Python code, of one thread at a time (Triton 3.7)."""


class _NotTuned(BaseException):
    """The choice of a configuration is not known. No `except Exception` of a kernel catches it."""


class Compilers(Executor):
    """Threads that take a slot for each compilation, and return None where it fails."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._threads = ThreadPoolExecutor(max(1, min(MOST_THREADS, len(slots))))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Compile in a thread; a configuration that does not compile is reported by the tuning itself."""

        def compiled() -> Any:
            with self._slots.taken(), contextlib.suppress(Exception):
                return fn(*args, **kwargs)

        return self._threads.submit(compiled)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)


def tuner_class() -> Any:
    """Return Triton's class `Autotuner`; None where Triton was not imported."""
    return getattr(sys.modules.get("triton.runtime.autotuner"), "Autotuner", None)


def has_tuned() -> bool:
    """Return whether there is a kernel that Triton tunes among several configurations; call it before `gc.freeze`."""
    tuner = tuner_class()
    if tuner is None:
        return False
    # The type, not isinstance: that would import what a lazy module stands for.
    kernels = (found for found in gc.get_objects() if issubclass(type(found), tuner))
    return any(len(kernel.configs) > 1 for kernel in kernels)


def compile_instead_of_tuning(slots: Slots) -> None:
    """Let a kernel that would be tuned be compiled in all of its configurations, for the rest of this process.

    Then it is launched in the first one that can be launched, so that what follows gets correct values. Nothing is
    written that a later tuning would take for a choice. A choice that is known already is used.
    """
    tuner = tuner_class()
    if tuner is None:
        return
    tune = tuner.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return tune(self, *args, **kwargs)
        except _NotTuned:
            return _launch_untuned(self, args, kwargs, slots)

    def bench(*_: Any, **__: Any) -> Any:
        raise _NotTuned

    tuner.run, tuner._bench = run, bench


def _launch_untuned(tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any], slots: Slots) -> Any:
    tuner.nargs = dict(zip(tuner.arg_names, args))
    configurations = tuner.prune_configs(kwargs)
    with slots.lent(), _in_threads(slots):
        for config in configurations:
            with contextlib.suppress(Exception):
                _launch(tuner, config, args, {**kwargs, "warmup": True})
    for config in configurations[:-1]:
        with contextlib.suppress(Exception):
            return _launch(tuner, config, args, kwargs)
    return _launch(tuner, configurations[-1], args, kwargs)


def _launch(tuner: Any, config: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Launch a configuration, or compile it with `warmup`; its own hook may change the arguments on the host."""
    chosen = {**kwargs, **config.all_kwargs()}
    if getattr(config, "pre_hook", None) is not None:
        config.pre_hook({**tuner.nargs, **chosen})
    return tuner.fn.run(*args, **chosen)


@contextlib.contextmanager
def _in_threads(slots: Slots) -> Iterator[None]:
    """Compile in threads what is compiled in a block, and wait for them; Triton before 3.6 compiles in this thread."""
    mode = getattr(sys.modules["triton"], "AsyncCompileMode", None)
    if mode is None:
        with slots.taken():
            yield
        return
    with Compilers(slots) as threads, mode(threads):
        yield
