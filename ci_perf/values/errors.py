"""Errors that are shown to the user as one sentence and a hint, without a traceback.

A regression is a value, never an exception. Anything that is not a `CiPerfError` is a bug in ci-perf.
"""

import difflib
from collections.abc import Iterable
from typing import ClassVar

EXIT_OK = 0
EXIT_RED = 1
"""A regression, a failed kernel, a broken gate, or whatever else `fail-on` names."""
EXIT_USAGE = 2
EXIT_ENVIRONMENT = 3
EXIT_NOT_WRITTEN = 74
"""EX_IOERR of sysexits.h: a file or stdout could not be written."""
EXIT_BUG = 70
"""EX_SOFTWARE of sysexits.h."""
EXIT_STOPPED = 130
"""Stopped with Ctrl-C: 128 + SIGINT, as shells report it."""


class CiPerfError(Exception):
    """Base of every error that a user can fix; `hint` says how."""

    exit_status: ClassVar[int] = EXIT_USAGE

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class ConfigError(CiPerfError):
    """A file, key, flag or pattern is wrong."""


class WriteError(ConfigError):
    """A file or stdout cannot be written: the disk is full, the folder was removed, the reader of a pipe has ended."""

    exit_status: ClassVar[int] = EXIT_NOT_WRITTEN


class FormatError(CiPerfError):
    """A file of a run, baseline, plan or audit does not fit its schema."""


class ProfileError(CiPerfError):
    """A profiler's file cannot be read, or has another format than its name says."""


class MachineError(CiPerfError):
    """The machine cannot do what was asked for: no GPU, no torch, a tool that failed."""

    exit_status: ClassVar[int] = EXIT_ENVIRONMENT


def did_you_mean(word: str, known: Iterable[str], *, most: int = 3) -> str:
    """Return the hint for a misspelt word: up to `most` known words that are similar, or nothing.

    >>> did_you_mean("smal", ["small", "large"]), did_you_mean("x", ["small"])
    ('did you mean small?', '')
    """
    close = difflib.get_close_matches(word, known, n=most)
    return f"did you mean {' or '.join(close)}?" if close else ""
