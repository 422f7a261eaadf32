"""The line of a kernel that raised an error, for a sentence of a report."""

from __future__ import annotations

import linecache
import os
import sysconfig
import traceback
from collections.abc import Iterator

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_PACKAGES = "-packages" + os.sep
"""In the path of an installed file: `site-packages/` or `dist-packages/`."""
_LIBRARIES = ("torch", "triton", "cuda", "numpy", "cupy")
"""Packages that a kernel calls: their lines are not what a kernel's author can change."""
_STANDARD = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))
_MOST = 160
"""Characters of a message or of a line of source."""


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
