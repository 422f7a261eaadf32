"""Checks that a .ncu-rep file is whole: ncu_report opens one that is cut off, emptied or damaged without an error.

A file is a header and blocks. A block is the length of its header, the header, and the messages that the header
counts: sources, then the results of launches, ranges, command lists and graphs, each behind its own length. All are
protobuf messages. Names and numbers of their fields are those of ProfilerReport.proto, which ships with ncu under
extras/FileFormat. Nothing in a file guards a single value: a bit that flips inside one stays unseen.
"""

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ci_perf.values.errors import ProfileError

Fields = Mapping[int, tuple[int, "Fields | None"]]
"""By number: the wire type of a field, and the fields of the message that it is, if that is looked into."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SOURCES, _RESULTS, _STRINGS, _PAYLOAD, _PROCESS = 1, 2, 4, 5, 6
_FURTHER_RESULTS = (7, 8, 9, 10)
"""Ranges, command lists, graphs; and graphs for people to look at."""

_VALUE: Fields = {1: (_BYTES, None), 2: (_FIXED32, None), 3: (_FIXED64, None), 4: (_VARINT, None), 5: (_VARINT, None)}
_METRIC: Fields = {1: (_VARINT, None), 2: (_BYTES, _VALUE), 3: (_BYTES, None), 4: (_VARINT, None)}
_SIZES: Fields = {1: (_VARINT, None), 2: (_VARINT, None), 3: (_VARINT, None)}
_LAUNCH: Fields = {
    **dict.fromkeys((1, 2, 3, 4, 8, 14, 16, 20, 22, 23, 29, 30), (_VARINT, None)),
    **dict.fromkeys(
        (5, 6, 7, 12, 15, 17, 18, 19, 21, 24, 25, 26, 27, 28, 31, 32, 33, 34, 36, 37, 38, 39), (_BYTES, None)
    ),
    **dict.fromkeys((9, 10, 11), (_BYTES, _SIZES)),
    13: (_BYTES, _METRIC),
    35: (_FIXED32, None),
}
_LAUNCH_NEEDS = frozenset({1, 5, 6, 7, 10, 11, 15})
_TEXTS = frozenset({5, 6, 7, 12, 17, 18, 19, 21, 24, 25, 26, 27, 28, 31, 32, 39})
"""Names of the kernel, sections, rules, ranges, stacks: messages of texts and small numbers."""
_EMPTY = bytes(16)
_HEADER: Fields = {
    **dict.fromkeys((_SOURCES, _RESULTS, _PAYLOAD, *_FURTHER_RESULTS), (_VARINT, None)),
    **dict.fromkeys((3, _STRINGS, _PROCESS), (_BYTES, None)),
}


class _Damaged(ValueError):
    """The bytes are not those that ncu writes."""


@dataclass(frozen=True, slots=True)
class Held:
    """What the headers of a report say it holds."""

    launches: int
    others: int
    """Results of ranges, command lists and graphs."""


def check(path: Path) -> Held:
    """Read through a report that begins with ncu's magic bytes; one that is not whole is a ProfileError."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
            return _walk(raw)
    except _Damaged as error:
        raise ProfileError(
            f"{path}: the report is cut off or damaged: {error}",
            hint="the disk or the upload may have filled up; profile again",
        ) from None


def _walk(raw: mmap.mmap) -> Held:
    place = 8 + _length(raw, 4)
    launches = others = blocks = 0
    while place < len(raw):
        size = _length(raw, place)
        header = _message(raw, place + 4, place + 4 + size, _HEADER, "the header of a block")
        if _PROCESS not in header:
            raise _Damaged("a block without a process")
        _check_names(raw, place + 4, place + 4 + size)
        place += 4 + size
        end = place + header.get(_PAYLOAD, 0)
        others_here = sum(header.get(number, 0) for number in _FURTHER_RESULTS)
        counts = header.get(_SOURCES, 0), header.get(_RESULTS, 0), others_here
        _check_payload(raw, place, end, counts)
        place, blocks = end, blocks + 1
        launches, others = launches + counts[1], others + counts[2]
    if place != len(raw) or not blocks:
        raise _Damaged("it ends inside a block")
    return Held(launches, others)


def _check_names(raw: mmap.mmap, begin: int, end: int) -> None:
    """Check the names of the metrics, which the header of a block lists."""
    for number, _, size, behind in _fields(raw, begin, end, "the header of a block"):
        if number == _STRINGS:
            for _, wire, length, place in _fields(raw, behind - size, behind, "the names of the metrics"):
                if wire != _BYTES or not raw[place - length : place].decode(errors="replace").isprintable():
                    raise _Damaged("a name of a metric that is no text")


def _check_payload(raw: mmap.mmap, place: int, end: int, counts: tuple[int, int, int]) -> None:
    """Check the messages of a block: sources, launches, and results of other kinds, as many as its header says."""
    if end > len(raw):
        raise _Damaged("it ends inside a block")
    if sum(counts) > (end - place) // 4 + 1:
        raise _Damaged(f"{sum(counts)} results in {end - place} bytes")
    for index in range(sum(counts)):
        begin = place + 4
        place = begin + _length(raw, place)
        if place > end:
            raise _Damaged("a result that is longer than its block")
        if counts[0] <= index < counts[0] + counts[1]:
            found = _message(raw, begin, place, _LAUNCH, "a launch")
            if not found.keys() >= _LAUNCH_NEEDS:
                raise _Damaged("a launch that is not whole")
            _check_texts(raw, begin, place)
        else:
            _message(raw, begin, place, {}, "a source")
    if place != end:
        raise _Damaged("more bytes in a block than its results have")


def _check_texts(raw: mmap.mmap, begin: int, end: int) -> None:
    """Refuse a launch with an emptied name or section: ncu computes some metrics by what the sections say."""
    for number, _, size, behind in _fields(raw, begin, end, "a launch"):
        if number in _TEXTS and raw.find(_EMPTY, behind - size, behind) >= 0:
            raise _Damaged("a launch with an emptied text")


def _length(raw: mmap.mmap, place: int) -> int:
    if place + 4 > len(raw):
        raise _Damaged("it ends inside a block")
    return int.from_bytes(raw[place : place + 4], "little")


def _message(raw: mmap.mmap, begin: int, end: int, known: Fields, what: str) -> dict[int, int]:
    """Check a protobuf message and those inside it; return the last number, or length, of each field."""
    if end > len(raw):
        raise _Damaged("it ends inside a block")
    found: dict[int, int] = {}
    for number, wire, value, place in _fields(raw, begin, end, what):
        expected, inner = known.get(number, (wire, None))
        if wire != expected:
            raise _Damaged(f"{what} with a field {number} of another type")
        if inner is not None:
            _message(raw, place - value, place, inner, what)
        found[number] = value
    return found


def _fields(raw: mmap.mmap, place: int, end: int, what: str) -> Iterator[tuple[int, int, int, int]]:
    """Yield number, wire type, number or length, and the place behind each field of a message."""
    while place < end:
        key, place = _varint(raw, place, end, what)
        wire, value = key & 7, 0
        if wire == _VARINT:
            value, place = _varint(raw, place, end, what)
        elif wire == _BYTES:
            value, place = _varint(raw, place, end, what)
            place += value
        elif wire in {_FIXED32, _FIXED64}:
            place += 4 if wire == _FIXED32 else 8
        else:
            raise _Damaged(f"{what} with bytes that are no field")
        if key < 8 or place > end:
            raise _Damaged(f"{what} with bytes that are no field" if key < 8 else f"{what} that ends inside a field")
        yield key >> 3, wire, value, place


def _varint(raw: mmap.mmap, place: int, end: int, what: str) -> tuple[int, int]:
    value = shift = 0
    while place < end and shift < 70:
        byte = raw[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
    raise _Damaged(f"{what} that ends inside a number")
