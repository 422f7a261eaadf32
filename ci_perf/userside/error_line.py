"""Where a kernel raised an error: its own line for a sentence of a report, and its traceback."""

from __future__ import annotations

import itertools
import linecache
import os
import sysconfig
import traceback
from collections.abc import Iterator

from ci_perf.userside.case import Wrong

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_PACKAGES = "-packages" + os.sep
"""In the path of an installed file: `site-packages/` or `dist-packages/`."""
_LIBRARIES = ("torch", "triton", "cuda", "numpy", "cupy")
"""Packages that a kernel calls: their lines are not what a kernel's author can change."""
_STANDARD = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))
_MOST = 160
"""Characters of a message or of a line of source."""
_OURS = (_HERE, os.path.join(os.path.dirname(os.path.dirname(_HERE)), "worker.py"), "<frozen importlib")
"""How the files begin whose frames lead to the kernel's."""
_FIRST, _LAST = 2000, 4000
"""Characters that are kept of a long traceback."""


def what_broke(error: BaseException) -> str:
    """Return the error in one line, and where there is one the innermost line of the kernel's own code that raised it.

    A file has its whole path; that of an installed package begins with the package.
    """
    first = (str(error).strip().split("\n") or [""])[0][:_MOST]
    name = type(error).__name__
    said = f"{name}: {first}" if first else name
    own = list(_own_lines(error))
    if not own:
        return f"{said} (no line of Python raised it: the call is in compiled code)"
    file, number = own[-1]
    source = linecache.getline(file, number).strip()[:_MOST]
    shown = file.rpartition(_PACKAGES)[2]
    return f"{said}, raised by `{source}` at {shown}:{number}" if source else f"{said}, raised at {shown}:{number}"


def _own_lines(error: BaseException) -> Iterator[tuple[str, int]]:
    """Yield file and line of each frame of an error's traceback that is neither ours nor that of a library."""
    for frame, number in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        _, packages, inside = file.rpartition(_PACKAGES)
        theirs = inside.split(os.sep)[0] in _LIBRARIES if packages else file.startswith(("<", _HERE, *_STANDARD))
        if not theirs:
            yield file, number


def kernels_traceback(error: BaseException) -> str:
    """Return the traceback of an error, and of those that led to it, from the first frame that is not ci-perf's.

    It is empty for an error that ci-perf found itself, such as a wrong output: its message says all.
    """
    shown = traceback.TracebackException(type(error), error, error.__traceback__)
    if not _begin_with_kernel(shown):
        if isinstance(error, Wrong):
            return ""
        shown = traceback.TracebackException(type(error), error, error.__traceback__)  # ci-perf's own fault: all of it
    text = "".join(shown.format()).rstrip()
    return text if len(text) <= _FIRST + _LAST else f"{text[:_FIRST]}\n...\n{text[-_LAST:]}"


def _begin_with_kernel(shown: traceback.TracebackException | None) -> bool:
    """Drop the first frames that are ci-perf's, also in the errors before; return whether a frame is left."""
    if shown is None:
        return False
    ours = itertools.takewhile(lambda frame: frame.filename.startswith(_OURS), shown.stack)
    del shown.stack[: len(list(ours))]
    before = [_begin_with_kernel(earlier) for earlier in (shown.__cause__, shown.__context__)]
    return bool(shown.stack) or any(before)
