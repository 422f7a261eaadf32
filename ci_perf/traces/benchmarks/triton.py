"""The CSV of triton.testing.perf_report: parameters on the left, a column for each provider.

The file says neither unit nor direction; newer versions write the unit behind the provider's name.
"""

import math
import re
from collections.abc import Iterator, Sequence

from ci_perf.traces.benchmarks.results import BenchmarkCase, BenchmarkFile, measured, number, scalar, scaled
from ci_perf.values.quantity import base_unit

_VARIABLE = re.compile(r"(?!(?:triton|torch|pytorch|cublas|cudnn|naive|compiled)$)(?:[A-Z][A-Z0-9_]*|[a-z][a-z0-9_]*)")


def is_csv(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Tell whether this is a table of numbers, but for a few rows, under names that are none."""
    named = len(header) >= 2 and all(number(heading) is None for heading in header) and all(header[1:])
    return named and 2 * len(_sound(rows)) > len(rows)


def _sound(rows: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    return [row for row in rows if all(_is_number(cell) for cell in row)]


def is_signed(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Tell whether such a table shows that Triton wrote it, where nobody says so: many a table holds only numbers.

    A column is called after Triton, or has its unit; or pandas wrote the numbers as `Mark.run` in triton/testing.py
    lets it: all with equally many digits behind the point, the first parameter too, which is a whole number.

    >>> is_signed(["N", "mine"], [["256.000000", "1.500000"]]), is_signed(["Year", "Revenue"], [["2020", "1.5"]])
    (True, False)
    """
    first, rows = 0 if header[0].strip() else 1, _sound(rows)
    providers = header[first + 1 :]
    if any("triton" in heading.lower() for heading in providers):
        return True
    if all(_provider(heading)[1] for heading in providers):
        return bool(providers)
    written = [cell.strip() for row in rows for cell in row[first:] if cell.strip() and math.isfinite(float(cell))]
    digits = {len(cell.partition(".")[2]) for cell in written}
    return len(digits) == 1 and digits != {0} and all(float(row[first] or "nan").is_integer() for row in rows)


def _is_number(cell: str) -> bool:
    return not cell.strip() or number(cell) is not None


def parse_csv(header: Sequence[str], rows: Sequence[Sequence[str]]) -> BenchmarkFile:
    """Read the table; an unnamed first column counts the rows and is left out, and so is a row that was damaged."""
    first = 0 if header[0].strip() else 1
    damaged = [row for row in rows if not all(map(_is_number, row))]
    rows = _sound(rows)
    end = _last_parameter(header, rows, first)
    cases = [case for place in range(end, len(header)) for case in _column(header, rows, first, end, place)]
    further = ", ".join(header[first + 1 : end])
    warnings = [f"these columns are taken for parameters, not for measurements: {further}"] if further else []
    if damaged:
        first_of_them = ",".join(damaged[0])[:60]
        warnings.append(f"{len(damaged)} rows hold a cell that is no number and were left out: {first_of_them}")
    return BenchmarkFile("triton-csv", tuple(cases), tuple(warnings))


def _last_parameter(header: Sequence[str], rows: Sequence[Sequence[str]], first: int) -> int:
    """Return where the providers begin: after the first column, and after those beside it that look like parameters.

    Rates may be whole numbers too, so the name must look like a variable's: `M`, `N_CTX`, `seq_len`, not `Triton`.
    """
    end = first + 1
    while len(rows) > 1 and end < len(header) - 1 and _VARIABLE.fullmatch(header[end]):
        if not all(isinstance(scalar(row[end]), int) for row in rows):
            break
        end += 1
    return end


def _column(
    header: Sequence[str], rows: Sequence[Sequence[str]], first: int, end: int, place: int
) -> Iterator[BenchmarkCase]:
    name, unit, factor = _provider(header[place])
    for row in rows:
        params = {heading: scalar(cell) for heading, cell in zip(header[first:end], row[first:end], strict=True)}
        value = number(row[place])
        yield measured(name, params, "value", (unit, None), [] if value is None else [scaled(value, factor)])


def _provider(heading: str) -> tuple[str, str, float]:
    """Return the provider's name, and the base unit and factor where the heading ends in a unit."""
    found = re.fullmatch(r"(.+?)\s*\(([^()]+)\)", heading)
    unit = base_unit(found[2]) if found else None
    return (found[1], *unit) if found and unit else (heading, "", 1.0)
