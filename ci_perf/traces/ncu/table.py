"""The tables in what `ncu --csv` prints, also in a log that holds the output of the profiled program too.

`--page raw` has a row for each launch, a column for each metric and a row of units; `--page details` has a row for
each metric of each launch, and rows of rules between them. Columns are found by name: their number and order differ
between versions.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ci_perf.values.errors import ProfileError

_DETAILS_COLUMNS = ("Metric Name", "Metric Unit", "Metric Value")
_IDENTITY = {
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream", "Block Size",
    "Grid Size", "Device", "CC",
}  # fmt: skip


def lines_of(text: str) -> list[str]:
    """Return the lines of an output."""
    # str.splitlines would also split at separators that may stand inside a name
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def has_table(text: str) -> bool:
    """Tell whether the output holds the header of a table of ncu."""
    return any(_header(line) for line in lines_of(text))


@dataclass(frozen=True, slots=True)
class Cell:
    """One printed value of the details page."""

    name: str
    unit: str
    text: str
    section: str
    label: str


@dataclass
class Table:
    """One header and the rows below it."""

    header: list[str]
    quoted: bool
    """Whether its cells are in quotes."""
    rows: list[str] = field(default_factory=list)
    """As text: the cells of a page of 100,000 launches would fill the memory."""
    units: dict[str, str] | None = None
    ignored: int = 0
    """Lines between the rows that are not ncu's."""
    cut: bool = False
    """The last row ends inside a cell."""

    def __post_init__(self) -> None:
        missing = [column for column in _DETAILS_COLUMNS if column not in self.header]
        if 0 < len(missing) < len(_DETAILS_COLUMNS):
            raise ProfileError(f"ncu's table has no column {missing[0]}", hint="was it edited? let ncu write it again")

    @property
    def is_raw(self) -> bool:
        """Whether a row is a launch, not one metric of a launch."""
        return "Metric Name" not in self.header

    def add(self, row: str | None) -> None:
        """Add a row; None stands for a line that is not one."""
        cells = split(row) if row else []
        identity = cells[0].strip() if cells else ""
        if not row or not cells or len(cells) > len(self.header) + 1:  # rows of the details page end in a comma
            self.ignored += 1
        elif not identity and self.is_raw and not self.rows and self.units is None:
            self.units = dict(zip(self.header, cells, strict=False))
        elif identity.isdecimal() and len(cells) > self.header.index("Kernel Name"):
            self._check_doubles(cells)
            self.rows.append(row)
            self.cut = self.cut or (self.is_raw and len(cells) < len(self.header))
        elif identity.isdecimal() and self.rows:
            self.cut = True
        else:
            self.ignored += 1

    def _check_doubles(self, cells: Sequence[str]) -> None:
        """Refuse two cells of one heading that differ, for either may be meant."""
        if len(set(self.header)) == len(self.header):
            return
        found: dict[str, str] = {}
        for heading, cell in zip(self.header, cells, strict=False):
            if found.setdefault(heading, cell) != cell:
                raise ProfileError(
                    f"ncu's table has two columns {heading} that say {found[heading][:40]!r} and {cell[:40]!r}",
                    hint="was it edited? let ncu write it again",
                )

    def by_column(self, cells: Sequence[str]) -> dict[str, str]:
        """Return the cells of a row by heading."""
        return dict(zip(self.header, cells, strict=False))

    @cached_property
    def metrics(self) -> dict[str, tuple[int, str]]:
        """The metrics of a raw page: the place of the column and the unit."""
        named = {name: at for at, name in enumerate(self.header) if name not in _IDENTITY and "_Range:" not in name}
        return {name: (at, (self.units or {}).get(name, "")) for name, at in named.items()}

    def _cell(self, row: Mapping[str, str]) -> Cell | None:
        """Return the metric in a row of the details page; None for a rule, and for a row that is cut off."""
        name = row.get("Metric Name")
        if name and "Metric Value" in row:
            section, label = row.get("Section Name", ""), row.get("Body Item Label", "")
            return Cell(name, row["Metric Unit"], row["Metric Value"], section, label)
        if name or name is None:
            self.cut = True
        return None

    @cached_property
    def groups(self) -> list[tuple[dict[str, str], list[Cell]]]:
        """The launches of a details page: the first row of each, and its metrics."""
        found: dict[tuple[str, str], tuple[dict[str, str], list[Cell]]] = {}
        for row in map(self.by_column, map(split, self.rows)):
            _, cells = found.setdefault((row.get("Process ID", ""), row["ID"]), (row, []))
            if cell := self._cell(row):
                cells.append(cell)
        return list(found.values())


def find_tables(lines: Sequence[str]) -> Iterator[Table]:
    """Yield each table with its rows."""
    table: Table | None = None
    place = 0
    while place < len(lines):
        line, used = lines[place], 1
        if header := _header(line):
            if table:
                yield table
            table = Table(header, quoted='"ID"' in line)
        elif table and line.strip() and not line.startswith("=="):
            row, used = _find_row(lines, place, quoted=table.quoted)
            table.add(row)
        place += used
    if table:
        yield table


def _header(line: str) -> list[str] | None:
    """Return the columns if a table begins here, even behind output that the program did not end with a newline."""
    start = line.find('"ID",')
    if start < 0 and not line.startswith("ID,"):
        return None
    header = [cell.strip() for cell in split(line[max(start, 0) :])]
    return header if "Kernel Name" in header else None


def _find_row(lines: Sequence[str], place: int, *, quoted: bool) -> tuple[str | None, int]:
    """Return the row that begins here and how many lines it takes; None if this is no row.

    Of a row that ends inside a cell, that cell is left out: half a number is a wrong number.
    """
    line, used = lines[place], 1
    if line.startswith('"') is not quoted:
        return None, used
    while line.count('"') % 2:  # a cell with a line break
        following = lines[place + used] if place + used < len(lines) else None
        if following is None or re.match(r'"\d+",|==', following):
            return ",".join('"' + cell.replace('"', '""') + '"' for cell in split(line + '"')[:-1]), used
        line, used = f"{line}\n{following}", used + 1
    return line, used


def split(line: str) -> list[str]:
    """Return the cells of a row; none where it is no CSV."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []
