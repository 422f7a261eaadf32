"""Columns of integers out of SQLite by the ten thousand: a number becomes characters, a chunk of rows one text.

A row that is handed to Python costs more than all that SQLite does with it. A character outside the basic plane takes
four bytes of UTF-8, whichever it is, and holds 20 bits: so a chunk is an array of one shape, and a text of any other
length says that a number did not fit.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ci_perf.traces.nsys.pool import Ask

Ints = NDArray[np.int64]

CHUNK = 25_000
"""Rows that cross from SQLite at a time."""
BLOCK = 1 << 16
"""Numbers that are worked on at a time where a copy of all of them would be too large."""
_BITS = 20
_MASK = (1 << _BITS) - 1
_BASE = 1 << 16
"""The first character that takes four bytes."""
_MOST = 3
"""Characters of a number."""


@dataclass(frozen=True, slots=True)
class Span:
    """The rows of a view, by their numbers."""

    count: int
    first: int
    last: int

    def chunks(self) -> list[tuple[int, int]]:
        """Divide into stretches of about CHUNK rows, also where numbers are missing."""
        return stretches(self.first, self.last, max(CHUNK, (self.last - self.first + 1) // max(1, self.count // CHUNK)))


def stretches(first: int, last: int, step: int) -> list[tuple[int, int]]:
    """Divide numbers of rows into at most a thousand stretches that are no shorter than the step."""
    step = max(step, (last - first) // 1000 + 1)
    return [(begin, begin + step - 1) for begin in range(first, last + 1, step)]


def ends(ask: Ask, view: str) -> tuple[int, int]:
    """Return the numbers of the first and of the last row of a view; of an empty one, 0 and -1."""
    query = f"SELECT place FROM {view} ORDER BY place {{}} LIMIT 1"  # noqa: S608
    rows = [ask(query.format(way)) for way in ("", "DESC")]
    return (rows[0][0][0], rows[1][0][0]) if all(rows) else (0, -1)


def span(ask: Ask, view: str) -> Span:
    """Count the rows of a view."""
    first, last = ends(ask, view)
    return Span(ask(f"SELECT COUNT(*) FROM {view}")[0][0], first, last)  # noqa: S608


@dataclass(frozen=True, slots=True)
class Column:
    """An SQL expression over a view; one that is not `near` is never negative."""

    expression: str
    near: bool = False
    """The values of neighbouring rows lie near each other: only the difference is sent."""


@dataclass(slots=True)
class Columns:
    """Reads columns of a view. Columns get wider as larger numbers turn up."""

    view: str
    columns: Sequence[Column]
    total: str = ""
    """An expression that is summed up as well."""
    _widths: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._widths = [1] * len(self.columns)

    def read(self, ask: Ask, chunk: tuple[int, int]) -> tuple[list[Ints], int] | None:
        """Return the columns of the rows of a chunk, and the total; None where there are none."""
        near = ask(self._select(*(c.expression if c.near else "0" for c in self.columns)) + " LIMIT 1", chunk)
        if not near:
            return None
        while True:
            widths = tuple(self._widths)
            begins = [_begin(c, v, w) for c, v, w in zip(self.columns, near[0], widths, strict=True)]
            (count, text, total), *_ = ask(self._packed(widths), [*chunk, *begins])
            if type(total) is not int:
                raise sqlite3.DataError(f"the table behind the view {self.view} holds times that are no numbers")
            if len(text) == 4 * count * sum(widths):
                return _unpack(text, widths, begins), total
            self._widen(ask, chunk, near[0], widths)

    def _select(self, *expressions: str) -> str:
        return f"SELECT {', '.join(expressions)} FROM {self.view} WHERE place BETWEEN ?1 AND ?2"  # noqa: S608

    def _packed(self, widths: Sequence[int]) -> str:
        characters: list[str] = []
        for place, (column, width) in enumerate(zip(self.columns, widths, strict=True)):
            value = f"(({column.expression}) - ?{place + 3})"
            if width == 1:
                characters.append(value)  # its beginning makes up for _BASE
                continue
            characters.append(f"{_BASE} + ({value} >> {_BITS * (width - 1)})")
            characters += [f"{_BASE} + (({value} >> {_BITS * low}) & {_MASK})" for low in range(width - 2, -1, -1)]
        return self._select(
            "COUNT(*)", f"GROUP_CONCAT(CHAR({', '.join(characters)}), '')", f"SUM({self.total})" if self.total else "0"
        )

    def _widen(self, ask: Ask, chunk: tuple[int, int], near: Sequence[Any], widths: Sequence[int]) -> None:
        (ends,) = ask(self._select(*(f"{end}({c.expression})" for c in self.columns for end in ("MIN", "MAX"))), chunk)
        for place, (column, width) in enumerate(zip(self.columns, widths, strict=True)):
            low, high = ends[2 * place : 2 * place + 2]
            if not all(type(number) is int for number in (low, high, near[place])):
                raise sqlite3.DataError(f"{column.expression} of the view {self.view} is not always a number")
            wider = width
            while wider <= _MOST and not 0 <= low - _first(column, near[place], wider) <= (
                high - _first(column, near[place], wider)
            ) < 1 << (_BITS * wider):
                wider += 1
            if wider > _MOST:
                raise sqlite3.DataError(f"{column.expression} of the view {self.view} goes from {low} to {high}")
            self._widths[place] = max(self._widths[place], wider)
        if tuple(self._widths) == tuple(widths):
            raise sqlite3.DataError(f"the view {self.view} holds values that are no numbers")


def blocks(count: int, overlap: int = 0) -> Iterator[slice]:
    """Yield the places of so many numbers a block at a time, for where a copy of all would be too large."""
    for begin in range(0, count, BLOCK):
        yield slice(begin, min(count, begin + BLOCK + overlap))


def _first(column: Column, near: int, width: int) -> int:
    """Return the least number that a column of this width can have."""
    return near - (1 << (_BITS * width - 1)) if column.near else 0


def _begin(column: Column, near: Any, width: int) -> int:  # noqa: ANN401 - whatever is in the table
    if type(near) is not int or abs(near) >= 1 << 62:
        raise sqlite3.DataError(f"{column.expression} is {near!r} in a table of the trace")
    return _first(column, near, width) - (_BASE if width == 1 else 0)


def _unpack(text: bytes, widths: Sequence[int], begins: Sequence[int]) -> list[Ints]:
    raw = np.frombuffer(text, dtype="<u4").reshape(-1, sum(widths))
    found, place = [], 0
    for width, begin in zip(widths, begins, strict=True):
        value = np.zeros(len(raw), dtype=np.int64)
        for digit in range(place, place + width):
            value <<= _BITS
            value |= _digits(np.ascontiguousarray(raw[:, digit]))
        value += begin + (_BASE if width == 1 else 0)
        found.append(value)
        place += width
    return found


def _digits(raw: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return what characters of four bytes hold: 3, 6, 6 and 6 bits, the first byte lowest."""
    points = (raw & 7) << 18 | (raw >> 8 & 63) << 12 | (raw >> 16 & 63) << 6 | (raw >> 24 & 63)
    return (points - _BASE).astype(np.uint32)
