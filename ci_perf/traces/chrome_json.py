"""Reads the JSON of a Chrome trace event by event: a trace of millions of events takes ten times its size as objects.

torch does not escape all that JSON wants escaped. Control characters and bytes that are no UTF-8 are read all the same;
a quote or a backslash inside a name leaves no way to tell where the name ends, so such a file is refused.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

from ci_perf.traces import filetype
from ci_perf.values.errors import ProfileError

LARGEST = 8 << 30
"""Characters of a trace that are read: a small file that gzip packed may hold any number."""
_CHUNK = 1 << 20
_LONGEST_VALUE = 64 << 20
"""Characters of one event."""
_EVENTS = "traceEvents"
_CUT = "was the program that wrote it cut off?"
_NOT_ESCAPED = (
    "names are not escaped, a known fault of some versions of torch: write the trace without with_stack, or with a "
    "newer torch"
)


class _NotEscaped(ValueError):
    """Text that goes on behind a name that ended too early."""


class _Malformed(ValueError):
    """A comma too many, or a value too few."""


def read(
    path: Path, header: dict[str, Any], parse_float: Callable[[str], float | Decimal] = Decimal
) -> Iterator[dict[str, Any]]:
    """Yield the events of a trace, also of one that is packed by gzip; the keys beside them go into `header`.

    Numbers with a fraction are made by `parse_float`. What is no such trace is a ProfileError.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as raw:
            encoding = filetype.text_encoding(raw.read(4096)) or "utf-8-sig"
        with opened(path, "rt", encoding=encoding, errors="replace", newline="") as file:
            yield from _Reader(file, parse_float).events(header)
    except _NotEscaped as error:
        raise ProfileError(f"{path}: no JSON: {error}", hint=_NOT_ESCAPED) from None
    except _Malformed as error:
        raise ProfileError(f"{path}: no JSON: {error}", hint="was the file changed after it was written?") from None
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else error
        raise ProfileError(f"{path}: no Chrome trace: {why}", hint=_CUT) from None
    if header.get(_EVENTS, "") is not None:
        raise ProfileError(
            f"{path}: no Chrome trace of torch's profiler: it has no list of {_EVENTS}",
            hint="`export_chrome_trace` writes one",
        )


class _Reader:
    """A JSON object whose largest list is read piece by piece."""

    def __init__(self, file: IO[str], parse_float: Callable[[str], Any]) -> None:
        self._file = file
        self._decoder = json.JSONDecoder(strict=False, parse_float=parse_float)
        self._text, self._at, self._read = "", 0, 0

    def events(self, header: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the events, and put the keys beside them into `header`, in which the events are None."""
        if self._next() != "{":
            raise ValueError(f"it begins with {self._text[:20]!r}, not with an object")
        for key in self._items("{", "}"):
            if key in header:
                raise ValueError(f"the key {key} occurs twice")
            if key == _EVENTS and self._next() == "[":
                header[key] = None
                for event in self._items("[", "]"):
                    if not isinstance(event, dict):
                        raise ValueError(f"{str(event)[:40]!r} among the events")  # noqa: TRY004 - of the file
                    yield event
            else:
                header[key] = self._value()
        if self._next():
            raise ValueError(f"more text behind its end: {self._text[self._at : self._at + 40]!r}")

    def _items(self, begin: str, end: str) -> Iterator[Any]:
        """Yield the keys of an object, whose values the caller reads, or the items of a list."""
        self._expect(begin)
        if self._next() == end:
            self._at += 1
            return
        while True:
            item = self._value()
            if begin == "{":
                if not isinstance(item, str):
                    raise ValueError(f"{str(item)[:40]!r} in place of a key")
                self._expect(":")
            yield item
            if self._next() == end:
                self._at += 1
                return
            self._expect(",")

    def _expect(self, mark: str) -> None:
        if (found := self._next()) != mark:
            if not found:
                raise ValueError(f"it ends where {mark!r} is missing")
            raise self._broken(f"{found!r} in place of {mark!r}")
        self._at += 1

    def _next(self) -> str:
        """Return the next character that is no space, without taking it; empty at the end of the file."""
        while True:
            while self._at < len(self._text):
                if not self._text[self._at].isspace():
                    return self._text[self._at]
                self._at += 1
            if not self._more():
                return ""

    def _more(self) -> bool:
        """Read on; False at the end of the file."""
        left = len(self._text) - self._at
        chunk = self._file.read(max(_CHUNK, left))
        self._read += len(chunk)
        if "\0" in chunk:
            raise ValueError(filetype.LOST)
        if self._read > LARGEST or left > _LONGEST_VALUE:
            raise ValueError("larger than any that is read" if self._read > LARGEST else "one event has no end")
        if chunk:
            self._text, self._at = self._text[self._at :] + chunk, 0
        return bool(chunk)

    def _value(self) -> Any:  # noqa: ANN401 - whatever JSON holds
        self._next()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                # Near the end of what was read, and inside a string, more text may complete the value.
                open_string = error.msg.startswith("Unterminated")
                if (open_string or error.pos > len(self._text) - 16) and self._more():
                    continue
                whole = self._text.rstrip()
                if error.pos >= len(whole) or (open_string and not whole.endswith("}")):
                    raise ValueError(f"{error.msg} at its end") from None
                raise self._broken(error.msg, error.pos) from None
            if end < len(self._text) or not self._more():  # a number may go on in the next piece
                self._at = end
                return value

    def _broken(self, why: str, at: int | None = None) -> ValueError:
        place = self._at if at is None else at
        kind = _NotEscaped if self._text[place : place + 1] not in (*"]},", "") else _Malformed
        return kind(f"{why} at {self._text[max(0, place - 20) : place + 20]!r}")
