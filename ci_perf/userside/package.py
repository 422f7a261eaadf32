"""What kernel.toml says of a kernel's packages and variables; it takes effect before the entry is imported."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

_READ_AT_START = ("LD_", "PYTHON", "OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "MALLOC_", "GLIBC_", "TORCH_")
"""How variables begin that are read when a process starts or torch is imported."""
_BEFORE: dict[str, str | None] = {}
"""The values, before the last kernel, of the variables that it set."""


def needs_new_interpreter(uses: dict[str, Any]) -> bool:
    """Return whether a fork of a process that has imported torch is too late for the variables of a kernel."""
    return any(name.startswith(_READ_AT_START) for name in uses.get("env", ()))


def take_effect(uses: dict[str, Any]) -> None:
    """Set the variables of a kernel, in place of those of the kernel before it, and put its folders on the path."""
    for name, value in _BEFORE.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    _BEFORE.clear()
    for name, value in uses.get("env", {}).items():
        _BEFORE[name] = os.environ.get(name)
        os.environ[name] = value
    folders = uses.get("path", [])
    sys.path[:] = [*folders, *(folder for folder in sys.path if folder not in folders)]


def why_foreign(uses: dict[str, Any]) -> str:
    """Return which package of `imports` is not there, or lies outside of the tree that is measured; empty if none."""
    own = tuple(os.path.join(os.path.realpath(folder), "") for folder in (uses.get("root", "/"), *uses.get("path", ())))
    for name in uses.get("imports", ()):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if f"{name}.".startswith(f"{error.name}."):  # and not another one that it imports
                return f"`{name}`, which [package] of kernel.toml names in `imports`, is not there: {error}"
            raise
        file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
        real = os.path.realpath(file)
        if (
            not real.startswith(own) or "-packages" + os.sep in real
        ):  # the latter: installed, in an environment of the tree
            return f"`{name}` was imported from {file}, not from the tree that is measured, {uses['root']}"
    return ""
