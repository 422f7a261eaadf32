"""Rows that fit a terminal of any width from 60 columns on: as a table, or if it is too wide as a block for each row.

No cell with a number is shortened or divided between lines: a table is drawn only where all of its cells fit.
"""

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ci_perf.values.escape import plain, spans
from ci_perf.values.reasons import Verdict

LEAST_WHY = 40
"""Columns: a narrower column of sentences is harder to read than a block."""
MOST_TABLES = 2
"""The largest number of tables below each other that the columns of the statistics are divided among."""
GAP = 2
_INDENT = 4

_UNIT = re.compile(
    r"(?<=\d) (?=(?:%|[kMGT]|x|[num]?s|[kMGT]?(?:B|Hz|FLOP)(?:/s)?|points?|bytes?|blocks?|threads?)(?:[\s,;:.)\]]|$))"
)
"""The space between a number and its unit."""
_KEPT = "\0"
"""Stands for such a space while lines are divided: the text has none, since it was cleaned."""

STYLES = {
    Verdict.FAILED: "bold red",
    Verdict.REGRESSION: "bold red",
    Verdict.MISSING: "yellow",
    Verdict.SPEEDUP: "bold green",
    Verdict.NOT_COMPARABLE: "yellow",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NEW: "cyan",
    Verdict.EXPECTED_FAILURE: "yellow",
    Verdict.UNCHANGED: "green",
}


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """The cells of a row of the verdicts."""

    verdict: Verdict
    names: Sequence[str]
    numbers: Sequence[str]
    """Base, head and change."""
    why: str

    def sign(self, options: ConsoleOptions) -> Text:
        """Return the verdict with its sign, in its colour."""
        sign = self.verdict.ascii_sign if options.ascii_only else self.verdict.sign
        return Text(f"{sign} {self.verdict}", STYLES[self.verdict])


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The verdicts: a table with the column `why` where this is at least LEAST_WHY wide, else blocks."""

    titles: Sequence[str]
    """Of the names, the verdict, the numbers and the sentence."""
    rows: Sequence[VerdictRow]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yield the table, or a line with the titles and the blocks."""
        base, head, change, _ = self.titles[-4:]
        if _width(self._table(console, options, why=False), console, options) + GAP + LEAST_WHY <= options.max_width:
            yield self._table(console, options, why=True)
            return
        yield Text(f"{base} -> {head}   {change}", style="dim")
        for row in self.rows:
            yield from self._block(row, options)

    def _table(self, console: Console, options: ConsoleOptions, *, why: bool) -> Table:
        *names, verdict, base, head, change, last = self.titles
        table = _table([*names, verdict])
        for title in (base, head, change):
            table.add_column(title, justify="right", no_wrap=True)
        whys = [row.why for row in self.rows]
        if why:
            left = options.max_width - GAP - _width(self._table(console, options, why=False), console, options)
            table.add_column(last, overflow="fold")
            whys = ["\n".join(_lines(sentence, left)) for sentence in whys]
        for row, sentence in zip(self.rows, whys, strict=True):
            words = (*row.numbers, sentence) if why else row.numbers
            table.add_row(*map(Text, row.names), row.sign(options), *map(Text, words))
        return table

    @staticmethod
    def _block(row: VerdictRow, options: ConsoleOptions) -> Iterator[RenderableType]:
        base, head, change = row.numbers
        yield Text.assemble(row.sign(options), "  ", "  ".join(row.names))
        times = [f"{base} -> {head}"] if base != "-" and head != "-" else [x for x in (base, head) if x != "-"]
        if items := [*times, *([change] if change != "-" else [])]:
            yield from _packed(items, options.max_width)
        yield from map(_indented, _lines(row.why, options.max_width - _INDENT))


@dataclass(frozen=True, slots=True)
class Numbers:
    """The statistics of each case: in at most MOST_TABLES tables, else as blocks."""

    name_titles: Sequence[str]
    titles: Sequence[str]
    rows: Sequence[tuple[Sequence[str], Sequence[str]]]
    """The names of a case, and its numbers."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yield the tables or the blocks."""
        tables = self._tables(lambda table: _width(table, console, options) <= options.max_width)
        if 0 < len(tables) <= MOST_TABLES:
            for table in tables:
                yield from ("", table)
            return
        yield ""
        for names, numbers in self.rows:
            yield Text("  ".join(names))
            items = [f"{title} {value}" for title, value in zip(self.titles, numbers, strict=True) if value != "-"]
            yield from _packed(items, options.max_width)

    def _tables(self, fits: Callable[[Table], bool]) -> list[Table]:
        """Return tables of as many columns as fit; none where a column does not fit beside the names."""
        tables: list[Table] = []
        first = 0
        while first < len(self.titles):
            ends = range(len(self.titles), first, -1)
            found = next(((end, t) for end in ends if fits(t := self._table(first, end))), None)
            if found is None:
                return []
            first, table = found
            tables.append(table)
        return tables

    def _table(self, first: int, end: int) -> Table:
        table = _table(self.name_titles)
        for title in self.titles[first:end]:
            table.add_column(title, justify="right", no_wrap=True)
        for names, numbers in self.rows:
            table.add_row(*map(Text, (*names, *numbers[first:end])))
        return table


def _table(names: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
    for title in names:
        table.add_column(title, no_wrap=True)
    return table


def _width(table: Table, console: Console, options: ConsoleOptions) -> int:
    """Return the columns that a table takes if no cell is wrapped."""
    return table.__rich_measure__(console, options.update_width(10_000)).maximum


def _packed(items: Sequence[str], width: int) -> Iterator[RenderableType]:
    """Yield lines with as many items as fit; an item is divided between lines only if it is wider than a line."""
    line = ""
    for item in items:
        longer = f"{line}   {item}" if line else item
        if line and len(longer) > width - _INDENT:
            yield _indented(line)
            longer = item
        line = longer
    yield _indented(line)


def _lines(text: str, width: int) -> list[str]:
    """Divide a sentence into lines of a width, none between a number and its unit.

    >>> _lines("L2 sectors 4.274 -> 18.98 M", 25)
    ['L2 sectors 4.274 ->', '18.98 M']
    """
    kept = _UNIT.sub(_KEPT, text)
    return [line.replace(_KEPT, " ") for line in textwrap.wrap(kept, width, break_on_hyphens=False)]


@dataclass(frozen=True, slots=True)
class Message:
    """A message that may hold code between backticks: on a terminal it is bold, in a file or a log `plain`."""

    text: str
    style: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yield the message."""
        parts = spans(self.text) if console.is_terminal else [(plain(self.text), False)]
        yield Text.assemble(*((part, f"{self.style} bold" if is_code else self.style) for part, is_code in parts))


def _indented(text: str) -> Padding:
    return Padding(Text(text), (0, 0, 0, _INDENT), expand=False)
