"""The ways to damage a file: what disks, uploads, editors and programs of other versions do to it."""

import csv
import io
import json
import random
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SHORT = 16
"""Bytes that may all be those of one value."""
Damaged = tuple[bytes, bool]
"""The content, and whether a value was replaced by one that the file could hold, which no reader can know."""

_VALUES = (
    *("0", "-1", "1e999", "-1e999", "NaN", "Infinity", "null", "true", '""', '"x"', "[]", "{}", "9" * 400, "1e-400"),
    *("0.5", str(2**31), str(2**63), str(2**64), "-" + "9" * 30, '"\\u0000"', "[1]", "1_000", "0x10", "1,234"),
)
_CELLS = (
    "",
    "x",
    "nan",
    "inf",
    "-1",
    "1e999",
    "9" * 400,
    "n/a",
    "1,234.5",
    "1.234,5",
    "(!) nan",
    "0x3",
    "\t",
    "Infinity",
)
_SQL = (0, -1, 1, 2**31, 2**62, 2**63 - 1, -(2**63), 1.5, 1e300, float("inf"), "x", "", b"\xff\0", None, 10**18)


def _cut(draw: random.Random, raw: bytes) -> Damaged:
    return raw[: draw.randrange(len(raw) + 1)], False


def _empty_tail(draw: random.Random, raw: bytes) -> Damaged:
    end = draw.randrange(len(raw) + 1)
    return raw[:end] + bytes(len(raw) - end), False


def _empty_block(draw: random.Random, raw: bytes) -> Damaged:
    place, size = _block(draw, raw)
    return raw[:place] + bytes(size) + raw[place + size :], size < _SHORT


def _lose_block(draw: random.Random, raw: bytes) -> Damaged:
    place, size = _block(draw, raw)
    return raw[:place] + raw[place + size :], True


def _repeat_block(draw: random.Random, raw: bytes) -> Damaged:
    place, size = _block(draw, raw)
    return raw[:place] + raw[place : place + size] * 2 + raw[place + size :], True


def _noise(draw: random.Random, raw: bytes) -> Damaged:
    place, size = _block(draw, raw)
    return raw[:place] + draw.randbytes(size) + raw[place + size :], True


def _flip(draw: random.Random, raw: bytes) -> Damaged:
    content = bytearray(raw)
    for _ in range(draw.choice([1, 1, 3, 20])):
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    return bytes(content), True


def _block(draw: random.Random, raw: bytes) -> tuple[int, int]:
    size = min(len(raw), draw.choice([1, 4, 64, 512, 4096, 65536]))
    return draw.randrange(len(raw) - size + 1), size


def _value(draw: random.Random, raw: bytes) -> Damaged:
    """Replace a number."""
    found = list(re.finditer(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", raw))
    if not found:
        return raw, True
    chosen = draw.choice(found)
    return raw[: chosen.start()] + draw.choice(_VALUES).encode() + raw[chosen.end() :], True


def _line(draw: random.Random, raw: bytes) -> Damaged:
    """Lose, repeat or move a line."""
    lines = raw.splitlines(keepends=True)
    place = draw.randrange(len(lines))
    chosen = [lines.pop(place)] * draw.choice([0, 2, 1])
    at = draw.choice([place, draw.randrange(len(lines) + 1)])
    return b"".join([*lines[:at], *chosen, *lines[at:]]), True


def _cell(draw: random.Random, raw: bytes) -> Damaged:
    """Lose, repeat or replace a cell of a CSV, one of its header in half of the cases."""
    lines = raw.decode(errors="replace").splitlines()
    rows = [place for place, line in enumerate(lines) if line.count(",") > 1]
    if not rows:
        return raw, True
    place = draw.choice([rows[0], draw.choice(rows)])
    cells = next(csv.reader([lines[place]]))
    at = draw.randrange(len(cells))
    how = draw.choice(["lose", "repeat", "replace"])
    cells[at : at + 1] = {"lose": [], "repeat": [cells[at]] * 2, "replace": [draw.choice(_CELLS)]}[how]
    written = io.StringIO()
    csv.writer(written, quoting=csv.QUOTE_ALL if '"' in lines[place] else csv.QUOTE_MINIMAL).writerow(cells)
    lines[place] = written.getvalue().rstrip("\r\n")
    return "\n".join([*lines, ""]).encode(), how == "replace"


def _json(draw: random.Random, raw: bytes) -> Damaged:
    """Lose, repeat or replace a value of a JSON document."""
    try:
        document = json.loads(raw)
    except ValueError:
        return raw, True
    places: list[tuple[Any, Any]] = [*_places(document)]
    holder, key = draw.choice(places)
    how = draw.choice(["lose", "replace", "replace", "wrap"])
    if how == "lose":
        del holder[key]
    else:
        holder[key] = "@@" if how == "replace" else [holder[key]]
    return json.dumps(document).replace('"@@"', draw.choice(_VALUES)).encode(), True


def _places(value: object) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict | list):
        for key in range(len(value)) if isinstance(value, list) else list(value):
            yield value, key
            yield from _places(value[key])


def _sql(draw: random.Random, raw: bytes) -> Damaged:
    """Change values of a table, or lose a table, a column or rows."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "a.sqlite"
        file.write_bytes(raw)
        with closing(sqlite3.connect(file, isolation_level=None)) as database:
            tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            wanted = [t for t in tables if re.search("KERNEL|MEMCPY|MEMSET|RUNTIME|NVTX|String|GPU|META", t)] or tables
            table = draw.choice(wanted)
            column = draw.choice([row[1] for row in database.execute(f'PRAGMA table_info("{table}")')])
            where = draw.choice(["1", "rowid % 3 = 0", f"rowid = {draw.randrange(1, 60)}"])
            try:
                if (how := draw.randrange(10)) == 0:
                    database.execute(f'DROP TABLE "{table}"')
                elif how == 1:
                    database.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO other')
                elif how == 2:
                    database.execute(f'DELETE FROM "{table}" WHERE {where}')
                else:
                    database.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE {where}', (draw.choice(_SQL),))
            except sqlite3.Error:
                return raw, True
        return file.read_bytes(), True


@dataclass(frozen=True, slots=True)
class Way:
    """A way to damage a file."""

    name: str
    apply: Callable[[random.Random, bytes], Damaged]


_BYTES = [_cut, _empty_tail, _empty_block, _lose_block, _repeat_block, _noise, _flip]
_TEXT = [*_BYTES, _value, _value, _line]
_WAYS = {
    "ncu-rep": _BYTES,
    "nsys": [*_BYTES, *[_sql] * 7],
    "ncu-csv": [*_TEXT, *[_cell] * 5],
    "torch": [*_TEXT, *[_json] * 8],
    "benchmark": [*_TEXT, *[_json] * 4, *[_cell] * 3],
    "kernel-toml": _TEXT,
    "run": [*_TEXT, *[_json] * 12],
    "baseline": [*_TEXT, *[_json] * 12],
}


def damaged(kind: str, number: int, raw: bytes) -> tuple[str, bytes, bool]:
    """Return the way, the content, and whether no reader can know of it; the same number damages a file the same."""
    draw = random.Random(f"{kind} {number}")
    way = draw.choice(_WAYS[kind])
    content, unknowable = way(draw, raw)
    by_hand = kind in {"kernel-toml", "run", "baseline"}  # any value of theirs may be another one
    return way.__name__.strip("_").replace("_", " "), content, unknowable or by_hand
