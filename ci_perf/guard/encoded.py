"""Archives in base64 or hexadecimal inside of a text, such as a log to which a program printed them."""

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

from ci_perf.guard.spellings import joined

_BLOCK = 1 << 20
_TEXT_OF_A_KIND = 4096
"""Bytes that are decoded to see whether an archive begins there."""


@dataclass(frozen=True, slots=True)
class _Encoding:
    """A way to write bytes as text."""

    first: tuple[bytes, ...]
    """How gzip, zip, bzip2 and xz begin in it."""
    join: Callable[[bytes], bytes]
    """Removes what stands between two lines or digits."""
    other: re.Pattern[bytes]
    """What ends it, once it is joined."""
    group: int
    """Characters that are decoded together."""
    decode: Callable[[bytes], bytes]


def _from_base64(text: bytes) -> bytes:
    return base64.b64decode(text + b"=" * (-len(text) % 4), altchars=b"-_" if b"-" in text or b"_" in text else None)


def _joined_digits(text: bytes) -> bytes:
    return joined(text).lower().translate(None, b":-")


_ENCODINGS = (
    _Encoding((b"H4sI", b"UEsDB", b"Qlpo", b"/Td6W", b"_Td6W"), joined, re.compile(rb"[^\w+/-]"), 4, _from_base64),
    *(
        _Encoding(first, _joined_digits, re.compile(rb"[^0-9a-f]"), 2, binascii.unhexlify)
        for lower in [(b"1f8b08", b"504b0304", b"425a68", b"fd377a58")]
        for first in (lower, tuple(text.upper() for text in lower))
    ),
)
_LONGEST_FIRST = max(len(text) for encoding in _ENCODINGS for text in encoding.first)


def may_begin_in(text: bytes) -> bool:
    """Say whether an archive may begin in a text."""
    return any(first in text for encoding in _ENCODINGS for first in encoding.first)


def archives(stream: IO[bytes], is_packed: Callable[[bytes], bool]) -> Iterator[Iterator[bytes]]:
    """Yield each archive that is encoded in a stream, decoded, as blocks to be read before the next is asked for.

    `is_packed` says of the first bytes whether an archive begins so.
    """
    for place, encoding in _places(stream):
        head = next(_decoded(stream, place, encoding, _TEXT_OF_A_KIND), b"")
        if is_packed(head):
            yield _decoded(stream, place, encoding, _BLOCK)


def _places(stream: IO[bytes]) -> Iterator[tuple[int, _Encoding]]:
    """Yield where an archive may begin, by its first bytes."""
    tail, at = b"", 0
    while True:
        stream.seek(at)
        block = stream.read(_BLOCK)
        if not block:
            return
        text, start = tail + block, at - len(tail)
        at += len(block)
        for encoding in _ENCODINGS:
            for first in encoding.first:
                found = text.find(first)
                while found >= 0:
                    yield start + found, encoding
                    found = text.find(first, found + 1)
        tail = text[1 - _LONGEST_FIRST :]


def _decoded(stream: IO[bytes], place: int, encoding: _Encoding, size: int) -> Iterator[bytes]:
    """Yield what is encoded from a place on, up to the first character of another kind."""
    rest, ended = b"", False
    while not ended:
        stream.seek(place)
        block = stream.read(size)
        place += len(block)
        text = rest + encoding.join(block)
        end = encoding.other.search(text)
        ended = not block or end is not None
        text = text[: end.start()] if end else text
        whole = len(text) // encoding.group * encoding.group
        if ended and encoding.group == 4 and len(text) % 4 > 1:
            whole = len(text)  # the padding was the end
        rest = text[whole:]
        try:
            yield encoding.decode(text[:whole])
        except ValueError:
            return
