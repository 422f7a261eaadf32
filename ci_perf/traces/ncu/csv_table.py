"""Reads counters out of the tables that `ncu --csv` prints, the raw page and the details page."""

import re
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import replace
from functools import lru_cache

from ci_perf.traces.ncu import figures, units
from ci_perf.traces.ncu.counters import Counters, Launch, failed_launches, range_name
from ci_perf.traces.ncu.printed import Evidence
from ci_perf.traces.ncu.table import Cell, Table, find_tables, lines_of, split
from ci_perf.values.errors import ProfileError
from ci_perf.values.trace import Reading

_SPEECH = re.compile(r"==(?:ERROR|WARNING)==\s*(.*)")


def parse(text: str) -> Counters:
    """Read all tables in ncu's output; rows that cannot be used are counted in the warnings."""
    lines = lines_of(text)
    tables = list(find_tables(lines))
    mark = _decimal_mark(tables)
    keys = _metric_keys(cells for table in tables if not table.is_raw for _, cells in table.groups)
    found = [
        launch for table in tables for launch in (_raw(table, mark) if table.is_raw else _details(table, keys, mark))
    ]
    launches = tuple(replace(launch, index=index) for index, launch in enumerate(found))
    if not launches:
        ignored = sum(table.ignored for table in tables)
        below = f": {ignored} lines below its header are no rows of its columns" if ignored else ""
        raise ProfileError(f"ncu's table has no launch{below}", hint="ncu profiled no kernel; its output says why")
    if not any(launch.metrics for launch in launches):
        raise ProfileError(
            f"ncu listed {len(launches)} launches but not one metric",
            hint="the set, section or metric names may be unknown to this ncu, or its section files missing",
        )
    suspects = (x for x in launches if not isinstance(x.metrics, _RawMetrics) or x.metrics.may_fail())
    return Counters(launches, (*_warnings(lines, tables), *failed_launches(suspects)))


def _warnings(lines: Iterable[str], tables: Iterable[Table]) -> Iterator[str]:
    for speech in dict.fromkeys(match[1].strip() for match in map(_SPEECH.search, lines) if match):
        yield f"ncu: {speech}"
    for table in tables:
        if table.ignored:
            yield f"{table.ignored} lines inside ncu's table are not ncu's and were ignored"
        if table.short:
            yield f"{table.short} rows of ncu's table have fewer cells than it has columns and were left out"
        if texts := table.texts.total():
            yield f"{texts} values in columns of numbers are text, among them {next(iter(table.texts))[:40]!r}"
        if table.cut:
            yield "ncu's table is cut off: the last row is not whole"
        if table.is_raw and table.units is None:
            yield "ncu's table has no row of units: values are taken as they are"


def _decimal_mark(tables: Iterable[Table]) -> str:
    evidence = Evidence()
    for table in tables:
        if table.is_raw:
            evidence.join(table.evidence)
        else:
            for cell in (cell for _, cells in table.groups for cell in cells):
                whole = figures.counts_whole_things(cell.name, cell.unit)
                evidence.add(figures.figure(cell.text), whole=whole, bare=not cell.unit)
    return evidence.mark()


class _RawMetrics(Mapping[str, Reading]):
    """The metrics of a launch, read from its row at each look: those of all launches would fill the memory."""

    def __init__(self, table: Table, row: str, mark: str) -> None:
        self._table, self._row, self._mark = table, row, mark

    def _read(self, places: Iterable[tuple[str, tuple[int, str]]]) -> dict[str, Reading]:
        cells, mark = split(self._row), self._mark
        if len(cells) < len(self._table.header):
            cells += [figures.CUT] * (len(self._table.header) - len(cells))
        return {name: figures.reading(cells[at], unit, mark) for name, (at, unit) in places}

    def __getitem__(self, name: str) -> Reading:
        return self._read([(name, self._table.metrics[name])])[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table.metrics)

    def __len__(self) -> int:
        return len(self._table.metrics)

    def items(self) -> ItemsView[str, Reading]:
        return self._read(self._table.metrics.items()).items()

    def values(self) -> ValuesView[Reading]:
        return self._read(self._table.metrics.items()).values()

    def may_fail(self) -> bool:
        """Say whether any reading may be nan, without reading all of a large page."""
        return "nan" in self._row or "NaN" in self._row or "NAN" in self._row


def _raw(table: Table, mark: str) -> Iterator[Launch]:
    for unit in {unit for _, unit in table.metrics.values()}:
        units.parse(unit)  # one that is not known is an error
    for row in table.rows:
        yield Launch(0, row.name, _ranges(row.ranges), _RawMetrics(table, row.text, mark))


def _details(table: Table, keys: "_Keys", mark: str) -> Iterator[Launch]:
    for row, cells in table.groups:
        yield Launch(0, row.name, _ranges(row.ranges), _metrics(cells, keys, mark))


@lru_cache(maxsize=1 << 12)
def _ranges(cells: Sequence[str]) -> tuple[str, ...]:
    """Read the columns that `--nvtx` adds: a thread or range number, then each range in quotes, outermost first.

    A range is its domain, its name, and six fields about payload, colour and message.
    """
    return tuple(_range(quoted) for cell in cells for quoted in re.findall(r'"(.+?)"(?=\s|$)', cell))


def _range(quoted: str) -> str:
    domain, _, name = quoted.rsplit(":", 6)[0].partition(":")
    if domain.isdecimal():  # start/stop ranges may have their number inside
        domain, _, name = name.partition(":")
    return range_name(domain, name)


_Keys = Mapping[tuple[str, str, str], str]
"""By name, section and label of a metric: the key under which it is found."""


def _metric_keys(launches: Iterable[Sequence[Cell]]) -> _Keys:
    """Give each metric its key: the name alone where it has one meaning in the whole file."""
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


def _metrics(cells: Sequence[Cell], keys: _Keys, mark: str) -> dict[str, Reading]:
    metrics: dict[str, Reading] = {}
    meanings: dict[str, list[str]] = {}
    for cell in cells:
        key, reading = keys[cell.name, cell.section, cell.label], figures.reading(cell.text, cell.unit, mark)
        if key != cell.name:
            meanings.setdefault(cell.name, []).append(key)
        several = Reading(None, "", "ambiguous: several values in one place of the report")
        metrics[key] = reading if metrics.get(key, reading) == reading else several
    for name, meant in meanings.items():
        metrics[name] = Reading(None, "", f"ambiguous: it may be {' or '.join(dict.fromkeys(meant))}")
    return metrics
