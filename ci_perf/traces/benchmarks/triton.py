"""The CSV of `triton.testing.perf_report`: parameters on the left, a column for each provider.

`Mark.run(save_path=FOLDER)` writes `FOLDER/PLOT_NAME.csv` into a folder that must exist. Triton 2.1 writes the first of
`x_names` alone, names the other columns after the providers, and writes one digit behind the point. Triton 3.6 and 3.7
write all of `x_names`, and `NAME (YLABEL)` for a provider, also where `ylabel` is empty: `Triton ()`; floats have six
digits. A text, data type or bool of `x_vals` is written as Python prints it; beside one, whole numbers have no point.
The file never says the direction, and the unit only where `ylabel` is one.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ci_perf.traces.benchmarks.results import BenchmarkCase, BenchmarkFile, measured, number, scalar, scaled
from ci_perf.values.quantity import base_unit, counted

_VARIABLE = re.compile(r"(?!(?:triton|torch|pytorch|cublas|cudnn|naive|compiled)$)(?:[A-Z][A-Z0-9_]*|[a-z][a-z0-9_]*)")

_Rows = Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class _Table:
    """The columns of a file by what they hold, and its rows without the damaged ones."""

    header: Sequence[str]
    first: int
    """The first column with a parameter: 1 where an unnamed column counts the rows."""
    end: int
    """The first column of a provider."""
    texts: frozenset[int]
    """The columns with text, which are parameters."""
    rows: _Rows
    damaged: _Rows

    @property
    def providers(self) -> Sequence[str]:
        return self.header[self.end :]


def _table(header: Sequence[str], rows: _Rows) -> _Table:
    first = 0 if header[0].strip() else 1
    texts = frozenset(place for place in range(first, len(header)) if _is_text([row[place] for row in rows]))
    sound: list[Sequence[str]] = []
    damaged: list[Sequence[str]] = []
    for row in rows:
        whole = all(_is_number(cell) for place, cell in enumerate(row) if place >= first and place not in texts)
        (sound if whole else damaged).append(row)
    end = _labelled(header, first + 1) or 0
    if end > max(texts, default=0):
        return _Table(header, first, end, texts, sound, damaged)
    end = max({first + 1, *(place + 1 for place in texts)})
    # Rates may be whole numbers too, so the name must look like a variable's: `M`, `N_CTX`, `seq_len`, not `Triton`.
    while len(sound) > 1 and end < len(header) - 1 and _VARIABLE.fullmatch(header[end]):
        if not all(isinstance(scalar(row[end]), int) for row in sound):
            break
        end += 1
    return _Table(header, first, end, texts, sound, damaged)


def _labelled(header: Sequence[str], start: int) -> int | None:
    """Return where the providers begin if the headings are those of Triton 3.6: all end in one label, empty or a unit.

    >>> _labelled(["N", "share", "Triton (ms)", "Torch (ms)"], 1), _labelled(["N", "Triton", "Torch (jit)"], 1)
    (2, None)
    """
    place = next((place for place in range(start, len(header)) if header[place].endswith(")")), len(header))
    labels = {heading.partition(" (")[2] for heading in header[place:]}
    return place if len(labels) == 1 and (labels == {")"} or _provider(header[place])[1]) else None


def _is_text(cells: Sequence[str]) -> bool:
    """Tell whether most cells of a column are text; a few among numbers are damaged."""
    filled = [cell for cell in cells if cell.strip()]
    return 2 * sum(not _is_number(cell) for cell in filled) > len(filled)


def _is_number(cell: str) -> bool:
    return not cell.strip() or number(cell) is not None


def is_csv(header: Sequence[str], rows: _Rows) -> bool:
    """Tell whether this is such a table: below names that are no numbers, a column of numbers follows any text."""
    named = len(header) >= 2 and all(number(heading) is None for heading in header) and all(header[1:])
    rows = [row for row in rows if len(row) == len(header)]
    if not named or not rows:
        return False
    table = _table(header, rows)
    return table.end < len(header) and len(table.rows) > len(table.damaged)


def is_signed(header: Sequence[str], rows: _Rows) -> bool:
    """Tell whether such a table shows that Triton wrote it, where nobody says so: many a table looks like that.

    A column is called after Triton, or all have units; or pandas wrote the numbers as `Mark.run` in triton/testing.py
    lets it: all with equally many digits behind the point, the first parameter too, which is a whole number. In a table
    with text only the measurements have these digits, and one of them needs a unit.

    >>> is_signed(["N", "mine"], [["256.000000", "1.500000"]]), is_signed(["Year", "Revenue"], [["2020", "1.5"]])
    (True, False)
    """
    table = _table(header, rows)
    others = [heading for place, heading in enumerate(header) if place > table.first and place not in table.texts]
    if any("triton" in heading.lower() for heading in others):
        return True
    units = [bool(_provider(heading)[1]) for heading in others]
    if not table.texts and all(units):
        return bool(others)
    size = next(place for place in range(table.first, len(header)) if place not in table.texts)
    sizes = size == table.end or all(float(row[size].strip() or "nan").is_integer() for row in table.rows)
    written = [cell.strip() for row in table.rows for cell in row[table.end if table.texts else table.first :]]
    digits = {len(cell.partition(".")[2]) for cell in written if cell and math.isfinite(float(cell))}
    return len(digits) == 1 and digits != {0} and sizes and (not table.texts or any(units))


def parse_csv(header: Sequence[str], rows: _Rows) -> BenchmarkFile:
    """Read the table; an unnamed first column counts the rows and is left out, and so is a row that was damaged."""
    table = _table(header, rows)
    cases = [case for place in range(table.end, len(header)) for case in _column(table, place)]
    further = ", ".join(h for p, h in enumerate(header) if table.first < p < table.end and p not in table.texts)
    warnings = [f"these columns are taken for parameters, not for measurements: {further}"] if further else []
    if table.damaged:
        rows_of_them = counted(len(table.damaged), "row")
        warnings.append(f"left out, as a cell is no number: {rows_of_them}, first {','.join(table.damaged[0])[:60]}")
    return BenchmarkFile("triton-csv", tuple(cases), tuple(warnings))


def _column(table: _Table, place: int) -> Iterator[BenchmarkCase]:
    name, unit, factor = _provider(table.header[place])
    for row in table.rows:
        params = {table.header[at]: scalar(row[at]) for at in range(table.first, table.end)}
        value = number(row[place])
        yield measured(name, params, "value", (unit, None), [] if value is None else [scaled(value, factor)])


def _provider(heading: str) -> tuple[str, str, float]:
    """Return the provider's name, and the base unit and factor where the heading ends in a unit.

    >>> _provider("Triton (Bandwidth (GB/s))"), _provider("Torch (native)"), _provider("Triton ()")
    (('Triton', 'byte/s', 1000000000.0), ('Torch (native)', '', 1.0), ('Triton', '', 1.0))
    """
    found = re.fullmatch(r"(.+?)\s*\((?:[^()]*\()?([^()]*)\){1,2}", heading)
    unit = base_unit(found[2]) if found else None
    if found and not found[2].strip():
        return found[1], "", 1.0
    return (found[1], *unit) if found and unit else (heading, "", 1.0)
