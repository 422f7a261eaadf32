"""The tables that `ncu --csv` prints, also out of a log that holds the output of the profiled program too.

`--page raw` has a row for each launch, a column for each metric and a row of units; `--page details` has a row for
each metric of each launch, and rows of rules between them. Columns are found by name: their number and order differ
between versions.
"""

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from ci_perf.traces.ncu import printed, units
from ci_perf.traces.ncu.counters import Counters, Dim3, Kind, Launch, failed_launches, range_name
from ci_perf.values.errors import ProfileError
from ci_perf.values.trace import Reading

_SPEECH = re.compile(r"==(?:ERROR|WARNING)==\s*(.*)")
_DETAILS_COLUMNS = ("Metric Name", "Metric Unit", "Metric Value")
_IDENTITY = frozenset(
    {
        "ID",
        "Process ID",
        "Process Name",
        "Host Name",
        "Kernel Name",
        "Kernel Time",
        "Context",
        "Stream",
        "Block Size",
        "Grid Size",
        "Device",
        "CC",
    }
)
_CUT = "cut off"
_WHOLE_METRICS = re.compile(r".*\.(?:sum|min|max)|launch__.*|Duration|Elapsed Cycles")
"""Metrics that count whole things, if their unit does; an average may have a fraction."""


@dataclass(slots=True)
class _Table:
    """One header and the rows below it."""

    header: list[str]
    rows: list[dict[str, str]] = field(default_factory=list)
    units: dict[str, str] | None = None
    ignored: int = 0
    """Lines between the rows that are not ncu's."""
    cut: bool = False
    """The last row ends inside a cell."""

    @property
    def is_raw(self) -> bool:
        return "Metric Name" not in self.header


@dataclass(frozen=True, slots=True)
class _Cell:
    """One printed value, before it is known how the file writes numbers."""

    name: str
    unit: str
    text: str
    section: str = ""
    label: str = ""

    @property
    def figure(self) -> str:
        """Without ncu's failure mark, and without the values of single instances behind a total."""
        bare = self.text.strip().removeprefix("(!)").strip()
        return re.sub(r"\s+\([^()]*;[^()]*\)$", "", bare)


def has_table(text: str) -> bool:
    """Tell whether the output holds the header of a table of ncu."""
    return any(_parse_header(line) for line in _lines(text))


def parse(text: str) -> Counters:
    """Read all tables in ncu's output; rows that cannot be used are counted in the warnings."""
    tables = list(_tables(_lines(text)))
    cells = [(launch, found) for table in tables for launch, found in _launches(table)]
    mark = printed.decimal_mark(_printed_numbers(cell for _, found in cells for cell in found))
    keys = _metric_keys([found for _, found in cells])
    launches = tuple(
        replace(launch, index=index, metrics=_metrics(found, keys, mark)) for index, (launch, found) in enumerate(cells)
    )
    if not launches:
        ignored = sum(table.ignored for table in tables)
        below = f": {ignored} lines below its header are no rows of its columns" if ignored else ""
        raise ProfileError(f"ncu's table has no launch{below}", hint="ncu profiled no kernel; its output says why")
    if not any(launch.metrics for launch in launches):
        raise ProfileError(
            f"ncu listed {len(launches)} launches but not one metric",
            hint="the set, section or metric names may be unknown to this ncu, or its section files missing",
        )
    kind = Kind.RAW_CSV if tables[0].is_raw else Kind.DETAILS_CSV
    return Counters(kind, None, launches, (*_warnings(text, tables), *failed_launches(launches)))


def _lines(text: str) -> list[str]:
    # str.splitlines would also split at separators that may stand inside a name
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _parse_header(line: str) -> list[str] | None:
    """Return the columns if a table begins here, even behind output that the program did not end with a newline."""
    start = line.find('"ID",')
    if start < 0 and not line.startswith("ID,"):
        return None
    header = [cell.strip() for cell in _split(line[max(start, 0) :]) or ()]
    return header if "Kernel Name" in header else None


def _split(line: str) -> list[str] | None:
    try:
        return next(csv.reader([line]))
    except csv.Error:
        return None


def _tables(lines: Sequence[str]) -> Iterator[_Table]:
    table: _Table | None = None
    quoted = True
    place = 0
    while place < len(lines):
        line, used = lines[place], 1
        if header := _parse_header(line):
            if table:
                yield table
            table, quoted = _Table(_checked(header)), '"ID"' in line
        elif table and line.strip() and not line.startswith("=="):
            row, used = _read_row(lines, place, quoted=quoted)
            _add_row(table, row)
        place += used
    if table:
        yield table


def _checked(header: list[str]) -> list[str]:
    missing = [column for column in _DETAILS_COLUMNS if column not in header]
    if 0 < len(missing) < len(_DETAILS_COLUMNS):
        raise ProfileError(f"ncu's table has no column {missing[0]}", hint="was it edited? let ncu write it again")
    return header


def _read_row(lines: Sequence[str], place: int, *, quoted: bool) -> tuple[list[str] | None, int]:
    """Return the cells of the row that begins here and how many lines it takes; None if this is no row.

    Of a row that ends inside a cell, that cell is left out: half a number is a wrong number.
    """
    line, used = lines[place], 1
    if line.startswith('"') is not quoted:
        return None, used
    while line.count('"') % 2:  # a cell with a line break
        following = lines[place + used] if place + used < len(lines) else None
        if following is None or re.match(r'"\d+",|==', following):
            return (_split(line + '"') or [])[:-1], used
        line, used = f"{line}\n{following}", used + 1
    return _split(line), used


def _add_row(table: _Table, row: list[str] | None) -> None:
    identity = row[0].strip() if row else ""
    if not row or len(row) > len(table.header) + 1:  # rows of the details page end in a comma
        table.ignored += 1
    elif not identity and table.is_raw and not table.rows and table.units is None:
        table.units = dict(zip(table.header, row, strict=False))
    elif identity.isdecimal() and len(row) > table.header.index("Kernel Name"):
        table.rows.append(_by_column(table.header, row))
        table.cut = table.cut or (table.is_raw and len(row) < len(table.header))
    elif identity.isdecimal() and table.rows:
        table.cut = True
    else:
        table.ignored += 1


def _by_column(header: Sequence[str], row: Sequence[str]) -> dict[str, str]:
    """Return the cells by heading; two of one heading that differ are an error, for either may be meant."""
    found: dict[str, str] = {}
    for heading, cell in zip(header, row, strict=False):
        if found.setdefault(heading, cell) != cell:
            raise ProfileError(
                f"ncu's table has two columns {heading} that say {found[heading][:40]!r} and {cell[:40]!r}",
                hint="was it edited? let ncu write it again",
            )
    return found


def _launches(table: _Table) -> Iterator[tuple[Launch, list[_Cell]]]:
    if table.is_raw:
        for row in table.rows:
            yield _launch(row), list(_raw_cells(table, row))
        return
    grouped: dict[tuple[str, str], tuple[Launch, list[_Cell]]] = {}
    for row in table.rows:
        _, cells = grouped.setdefault((row.get("Process ID", ""), row["ID"]), (_launch(row), []))
        if row.get("Metric Name") and "Metric Value" in row:  # a rule has no metric
            cells.append(_details_cell(row))
        elif row.get("Metric Name") or "Metric Name" not in row:
            table.cut = True
    yield from grouped.values()


def _launch(row: Mapping[str, str]) -> Launch:
    return Launch(
        index=0,
        name=row["Kernel Name"],
        grid=_parse_dim(row.get("Grid Size", "")),
        block=_parse_dim(row.get("Block Size", "")),
        ranges=tuple(_ranges(row)),
        metrics={},
        compute_capability=row.get("CC") or None,
    )


def _raw_cells(table: _Table, row: Mapping[str, str]) -> Iterator[_Cell]:
    for column in table.header:
        if column not in _IDENTITY and "_Range:" not in column:
            yield _Cell(column, (table.units or {}).get(column, ""), row.get(column, _CUT))


def _details_cell(row: Mapping[str, str]) -> _Cell:
    return _Cell(
        name=row["Metric Name"],
        unit=row["Metric Unit"],
        text=row["Metric Value"],
        section=row.get("Section Name", ""),
        label=row.get("Body Item Label", ""),
    )


def _parse_dim(text: str) -> Dim3 | None:
    """Parse `(132, 1, 1)`, also where the locale groups a size: `(1,024, 1, 1)`."""
    sizes = [re.sub(r"\D", "", part) for part in text.strip("() ").split(", ")]
    if len(sizes) != 3 or not all(sizes):
        return None
    x, y, z = map(int, sizes)
    return x, y, z


def _ranges(row: Mapping[str, str]) -> Iterator[str]:
    """Read the columns that `--nvtx` adds: a thread or range number, then each range in quotes, outermost first.

    A range is its domain, its name, and six fields about payload, colour and message.
    """
    for column, cell in row.items():
        if "_Range:" in column:
            for quoted in re.findall(r'"(.+?)"(?=\s|$)', cell):
                domain, _, name = quoted.rsplit(":", 6)[0].partition(":")
                if domain.isdecimal():  # start/stop ranges may have their number inside
                    domain, _, name = name.partition(":")
                yield range_name(domain, name)


def _printed_numbers(cells: Iterable[_Cell]) -> Iterator[printed.Number]:
    for cell in cells:
        if printed.looks_numeric(cell.figure):
            whole = _WHOLE_METRICS.fullmatch(cell.name) is not None and units.parse(cell.unit).counts_whole_things
            yield printed.Number(cell.figure, whole=whole, bare=not cell.unit)


def _reading(cell: _Cell, mark: str) -> Reading:
    unit = units.parse(cell.unit)
    value = printed.parse(cell.figure, mark)
    if value is None:
        return Reading(None, unit.base, _reason(cell.figure))
    try:
        number = float(value) if unit.factor == 1 else float(Fraction(value) * unit.factor)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        return Reading(None, unit.base, f"{cell.figure} is not finite")
    return Reading(number, unit.base)


def _reason(text: str) -> str:
    if re.fullmatch(r"[+-]?nan(?:\(.*\))?", text, re.IGNORECASE):
        return "nan"
    if text == _CUT or re.fullmatch(r"n/a|no data|[+-]?inf(?:inity)?", text, re.IGNORECASE):
        return text.lower()
    return f"text: {text}" if text else "empty"


def _metric_keys(launches: Sequence[Sequence[_Cell]]) -> dict[tuple[str, str, str], str]:
    """Give each (name, section, label) its key: the name alone where it has one meaning in the whole file."""
    places: dict[str, dict[tuple[str, str], None]] = {}
    ambiguous: set[str] = set()
    for cells in launches:
        seen: dict[str, tuple[str, str]] = {}
        for cell in cells:
            places.setdefault(cell.name, {})[cell.section, cell.label] = None
            if seen.setdefault(cell.name, (cell.text, cell.unit)) != (cell.text, cell.unit):
                ambiguous.add(cell.name)
    return {
        (name, section, label): f"{name} [{_qualifier(section, label, found)}]" if name in ambiguous else name
        for name, found in places.items()
        for section, label in found
    }


def _qualifier(section: str, label: str, found: Iterable[tuple[str, str]]) -> str:
    """Return the label if that tells the places apart, else the section, else both."""
    sections, labels = zip(*found, strict=True)
    if all(labels) and len(set(labels)) == len(labels):
        return label
    if len(set(sections)) == len(sections):
        return section
    return f"{section}: {label}" if label else section


def _metrics(cells: Sequence[_Cell], keys: Mapping[tuple[str, str, str], str], mark: str) -> dict[str, Reading]:
    metrics: dict[str, Reading] = {}
    meanings: dict[str, list[str]] = {}
    for cell in cells:
        key = keys[cell.name, cell.section, cell.label]
        if key != cell.name:
            meanings.setdefault(cell.name, []).append(key)
        if key in metrics and metrics[key] != _reading(cell, mark):
            metrics[key] = Reading(None, "", "ambiguous: several values in one place of the report")
        else:
            metrics[key] = _reading(cell, mark)
    for name, meant in meanings.items():
        metrics[name] = Reading(None, "", f"ambiguous: it may be {' or '.join(dict.fromkeys(meant))}")
    return metrics


def _warnings(text: str, tables: Sequence[_Table]) -> Iterator[str]:
    for speech in dict.fromkeys(match[1].strip() for match in map(_SPEECH.search, _lines(text)) if match):
        yield f"ncu: {speech}"
    for table in tables:
        if table.ignored:
            yield f"{table.ignored} lines inside ncu's table are not ncu's and were ignored"
        if table.cut:
            yield "ncu's table is cut off: the last row is not whole"
        if table.is_raw and table.units is None:
            yield "ncu's table has no row of units: values are taken as they are"
