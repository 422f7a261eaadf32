"""Answers questions about the GPU during an import without initialising CUDA.

A process that has initialised CUDA cannot fork processes that use it. Many packages ask torch or Triton for the compute
capability or the shared memory of the GPU while they are imported, to choose block sizes, and do nothing else on it.
Here a fork asks in their place. What the import does beyond that initialises CUDA as ever.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Callable

_TRITON_DRIVER = "triton.backends.nvidia.driver"
_PLAIN = (bool, int, float, str, bytes, tuple, type(None))


@contextlib.contextmanager
def asked_in_forks() -> Iterator[None]:
    """Answer `torch.cuda`'s and Triton's questions about properties of the GPU in forks for as long as the block runs.

    A function that a package keeps from then asks in its own process afterwards.
    """
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda"):
        yield
        return
    cuda = torch.cuda
    asking = _Asking(cuda.is_initialized)
    change: dict[str, Callable[[Any], Any]] = {
        "is_available": lambda original: _noticing_triton(original, asking),
        "current_device": lambda original: asking.instead(original, lambda: 0),
        "get_device_properties": lambda original: asking.instead(original, asking.in_fork(original)),
    }
    before = {name: getattr(cuda, name) for name in change if hasattr(cuda, name)}
    for name, function in before.items():
        setattr(cuda, name, change[name](function))
    try:
        yield
    finally:
        asking.ended = True
        for name, function in before.items():
            setattr(cuda, name, function)
        utils = getattr(sys.modules.get(_TRITON_DRIVER), "CudaUtils", None)
        if utils is not None and isinstance(utils.__dict__.get("get_device_properties"), _Answered):
            del utils.get_device_properties


class _Asking:
    """Asks in forks until the import has ended or something else has initialised CUDA; each question once."""

    def __init__(self, is_initialized: Callable[[], bool]) -> None:
        self._is_initialized = is_initialized
        self._known: dict[tuple[int, str], Any] = {}
        self.ended = False

    def instead(self, original: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls `other` during the import, and `original` later, or if `other` fails."""

        def asked(*args: Any, **named: Any) -> Any:
            if not self.ended and not self._is_initialized():
                with contextlib.suppress(Exception):
                    return other(*args, **named)
            return original(*args, **named)

        return asked

    def in_fork(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls `original` in a fork; properties are returned as a namespace of plain values."""

        def asked(*args: Any, **named: Any) -> Any:
            key = (id(original), repr((args, named)))
            if key not in self._known:
                self._known[key] = answer_of_fork(lambda: original(*args, **named))
            return self._known[key]

        return asked


def answer_of_fork(ask: Callable[[], Any]) -> Any:
    """Return what a function returns in a fork; EOFError if it raises there."""
    answer_in, answer_out = os.pipe()
    pid = os.fork()
    if not pid:
        with contextlib.suppress(BaseException), os.fdopen(answer_out, "wb") as stream:
            stream.write(pickle.dumps(_plain(ask())))
        os._exit(0)
    os.close(answer_out)
    with os.fdopen(answer_in, "rb") as stream:
        written = stream.read()
    os.waitpid(pid, 0)
    answer = pickle.loads(written)  # noqa: S301 # written by our own fork
    return SimpleNamespace(**answer[1]) if answer[0] == "attributes" else answer[1]


def _plain(answer: Any) -> tuple[str, Any]:
    """Return a dict or plain value as it is, and of any other object the attributes that are plain."""
    if isinstance(answer, (dict, *_PLAIN)):
        return "value", answer
    names = [name for name in dir(answer) if not name.startswith("_")]
    values = {name: getattr(answer, name) for name in names}
    found = {name: value for name, value in values.items() if isinstance(value, _PLAIN)}
    return "attributes", {**found, **({"uuid": str(values["uuid"])} if "uuid" in values else {})}


class _Answered:
    """A class attribute in front of the function of Triton's driver that returns the properties of a GPU."""

    def __init__(self, asking: _Asking) -> None:
        self._asking = asking

    def __get__(self, utils: Any, owner: Any = None) -> Any:
        original = utils.__dict__["get_device_properties"]

        def initialized(*args: Any) -> Any:
            sys.modules["torch"].cuda.init()  # Triton relies on the process to have done so
            return original(*args)

        return self._asking.instead(original, self._asking.in_fork(initialized))

    def __set__(self, utils: Any, original: Any) -> None:
        utils.__dict__["get_device_properties"] = original


def _noticing_triton(is_available: Callable[[], bool], asking: _Asking) -> Callable[[], bool]:
    """Return `is_available`, which Triton calls before it makes its driver; the driver is then told to ask here."""

    def asked() -> bool:
        utils = getattr(sys.modules.get(_TRITON_DRIVER), "CudaUtils", None)
        if not asking.ended and utils is not None and "get_device_properties" not in utils.__dict__:
            utils.get_device_properties = _Answered(asking)
        return is_available()

    return asked
