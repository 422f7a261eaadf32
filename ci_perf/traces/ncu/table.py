"""The tables in what `ncu --csv` prints, also in a log that holds the output of the profiled program too.

`--page raw` has a row for each launch, a column for each metric and a row of units; `--page details` has a row for
each metric of each launch, and rows of rules between them. Columns are found by name: their number and order differ
between versions.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter

from ci_perf.traces.guards import doubled
from ci_perf.traces.ncu.figures import counts_whole_things, figure, is_text
from ci_perf.traces.ncu.printed import Evidence
from ci_perf.values.errors import ProfileError

_DETAILS_COLUMNS = ("Metric Name", "Metric Unit", "Metric Value")
_EDITED = "was it edited? let ncu write it again"
_MOST_SEEN = 1 << 17
_LONGEST_HEADER = 1 << 20
_SUMMARY = re.compile(r"^.*\bInvocations\b.*\bMinimum\b.*\bMaximum\b.*\bAverage\b", re.MULTILINE)
_OF_RULES = re.compile(r"Rule |Estimated ")
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
    starts = (found.start() for found in re.finditer(r'"ID",|^ID,', text, re.MULTILINE))
    return any(_header(re.split("[\r\n]", text[start : start + _LONGEST_HEADER], maxsplit=1)[0]) for start in starts)


def has_summary(text: str) -> bool:
    """Tell whether the output holds a table of `--print-summary`, which adds up launches."""
    return _SUMMARY.search(text) is not None


@dataclass(frozen=True, slots=True)
class Cell:
    """One printed value of the details page."""

    name: str
    unit: str
    text: str
    section: str
    label: str


@dataclass(frozen=True, slots=True)
class Row:
    """A launch on a raw page, or a metric on a details page."""

    text: str
    """The cells of a page of 100,000 launches would fill the memory."""
    name: str
    """Of the kernel."""
    ranges: tuple[str, ...]
    """The cells that `--nvtx` adds."""


class _Kind:
    """Columns whose numbers say the same about the decimal mark."""

    def __init__(self, *, whole: bool, bare: bool, places: Sequence[int]) -> None:
        self.whole, self.bare, self._places = whole, bare, places
        self._pick = itemgetter(*places, places[0])  # with one place it would not return a tuple
        self._seen: set[str] = set()
        self._odd: set[str] = set()
        """Values seen that are text, of columns that have a unit."""

    def unseen(self, cells: Sequence[str]) -> set[str]:
        """Return the values of these columns that no earlier row had, or none for long."""
        found = set(self._pick(cells)) - self._seen
        if len(self._seen) > _MOST_SEEN:
            self._seen.clear()
        self._seen |= found
        if not self.bare:
            self._odd.update(filter(is_text, found))
        return found

    def texts(self, cells: Sequence[str]) -> list[str]:
        """Return the values of these columns that are no numbers."""
        return [text for text in self._pick(cells)[:-1] if text in self._odd] if self._odd else []


@dataclass
class Table:
    """One header and the rows below it."""

    header: list[str]
    quoted: bool
    """Whether its cells are in quotes."""
    rows: list[Row] = field(default_factory=list)
    units: dict[str, str] | None = None
    ignored: int = 0
    """Lines between the rows that are not ncu's."""
    short: int = 0
    """Rows with fewer cells than columns, which nobody can assign."""
    cut: bool = False
    """The last row ends inside a cell."""
    evidence: Evidence = field(default_factory=Evidence)
    """What the numbers of a raw page say about its decimal mark."""
    texts: Counter[str] = field(default_factory=Counter)
    """The values in columns of a raw page with a unit that are neither numbers nor ncu's words for none."""

    def __post_init__(self) -> None:
        missing = [column for column in _DETAILS_COLUMNS if column not in self.header]
        if 0 < len(missing) < len(_DETAILS_COLUMNS):
            raise ProfileError(f"ncu's table has no column {missing[0]}", hint=_EDITED)

    @property
    def is_raw(self) -> bool:
        """Whether a row is a launch, not one metric of a launch."""
        return "Metric Name" not in self.header

    def add(self, row: str | None, *, cut: bool = False, last: bool = False) -> None:
        """Add a row; None stands for a line that is not one.

        A row that is `cut` ends before its last cell does, and the `last` one of a file may end before its last cells.
        """
        cells = split(row) if row and "\0" not in row else []
        identity = cells[0].strip() if cells else ""
        if not identity and cells and self.is_raw and not self.rows and self.units is None:
            if not self._fits(cells):
                raise ProfileError(
                    f"the row of units has {len(cells)} cells under {len(self.header)} headings", hint=_EDITED
                )
            self.units = dict(zip(self.header, cells, strict=False))
        elif not row or not cells or not identity.isdecimal():
            self.ignored += 1
        elif not (cut or self._fits(cells) or last):
            self.short += 1
        elif len(cells) > self._name:
            self._check_doubles(cells)
            self.cut = self.cut or cut or not self._fits(cells)
            if self.is_raw:
                self._weigh(cells)
            self.rows.append(Row(row, cells[self._name], tuple([cells[at] for at in self._ranges if at < len(cells)])))
        elif self.rows:
            self.cut = True
        else:
            self.ignored += 1

    def _fits(self, cells: Sequence[str]) -> bool:
        """Say whether a row has a cell for each column, or only lacks those of rules, behind a comma or not.

        With more cells than columns, the header has lost one, and every value would get the name of its neighbour.
        """
        whole, before_rules = len(self.header), self._before_rules
        if len(cells) == whole or (not self.is_raw and len(cells) - (not cells[-1]) in {before_rules, whole}):
            return True
        if len(cells) > len(self.header):
            raise ProfileError(
                f"a row of ncu's table has {len(cells)} cells under {len(self.header)} headings", hint=_EDITED
            )
        return False

    @cached_property
    def _before_rules(self) -> int:
        return next((at for at, name in enumerate(self.header) if _OF_RULES.match(name)), len(self.header))

    @cached_property
    def _name(self) -> int:
        return self.header.index("Kernel Name")

    @cached_property
    def _ranges(self) -> tuple[int, ...]:
        return tuple(at for at, name in enumerate(self.header) if "_Range:" in name)

    @cached_property
    def _kinds(self) -> list[_Kind]:
        places: dict[tuple[bool, bool], list[int]] = {}
        for name, (at, unit) in self.metrics.items():
            places.setdefault((counts_whole_things(name, unit), not unit), []).append(at)
        return [_Kind(whole=whole, bare=bare, places=found) for (whole, bare), found in places.items()]

    def _weigh(self, cells: Sequence[str]) -> None:
        """Weigh the numbers of a row; most were seen in an earlier one."""
        if len(cells) < len(self.header):
            cells = [*cells, *[""] * (len(self.header) - len(cells))]
        for kind in self._kinds:
            for text in kind.unseen(cells):
                self.evidence.add(figure(text), whole=kind.whole, bare=kind.bare)
            self.texts.update(kind.texts(cells))

    def _check_doubles(self, cells: Sequence[str]) -> None:
        """Refuse two cells of one heading that differ, for either may be meant."""
        if self._is_distinct:
            return
        found: dict[str, str] = {}
        for heading, cell in zip(self.header, cells, strict=False):
            if found.setdefault(heading, cell) != cell:
                raise ProfileError(
                    f"ncu's table has two columns {heading} that say {found[heading][:40]!r} and {cell[:40]!r}",
                    hint=_EDITED,
                )

    @cached_property
    def _is_distinct(self) -> bool:
        return not doubled(self.header)

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
    def groups(self) -> list[tuple[Row, list[Cell]]]:
        """The launches of a details page: the first row of each, and its metrics."""
        found: dict[tuple[str, str], tuple[Row, list[Cell]]] = {}
        for row in self.rows:
            by_column = dict(zip(self.header, split(row.text), strict=False))
            _, cells = found.setdefault((by_column.get("Process ID", ""), by_column["ID"]), (row, []))
            if cell := self._cell(by_column):
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
            row, used, cut = _find_row(lines, place, quoted=table.quoted)
            table.add(row, cut=cut, last=place + used == len(lines))
        place += used
    if table:
        yield table


def _header(line: str) -> list[str] | None:
    """Return the columns if a table begins here, even behind output that the program did not end with a newline."""
    start = line.find('"ID",')
    if start < 0 and not line.startswith("ID,"):
        return None
    header = [cell.strip() for cell in split(line[max(start, 0) :])]
    return header if "Kernel Name" in header and "\0" not in line else None


def _find_row(lines: Sequence[str], place: int, *, quoted: bool) -> tuple[str | None, int, bool]:
    """Return the row that begins here, how many lines it takes, and whether it ends inside a cell; None: it is no row.

    Of a row that ends inside a cell, that cell is left out: half a number is a wrong number.
    """
    line, used = lines[place], 1
    if line.startswith('"') is not quoted:
        return None, used, False
    while line.count('"') % 2:  # a cell with a line break
        following = lines[place + used] if place + used < len(lines) else None
        if following is None or re.match(r'"\d+",|==', following):
            whole = split(line + '"')[:-1]
            return ",".join('"' + cell.replace('"', '""') + '"' for cell in whole), used, True
        line, used = f"{line}\n{following}", used + 1
    return line, used, False


def split(line: str) -> list[str]:
    """Return the cells of a row; none where it is no CSV."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []
