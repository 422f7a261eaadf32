"""Opens an nsys export, and gives its tables one shape whatever version of nsys wrote them.

Tables and columns come, go and change their names, and a table exists only if it has rows. So each is looked up once,
to make a temporary view that every query can rely on. Only the tables named here are read: others hold the
environment of the traced process.
"""

import re
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ci_perf.traces import filetype
from ci_perf.values.errors import ProfileError


@dataclass(frozen=True, slots=True)
class _View:
    """What the queries see of a table."""

    tables: str
    """Names under which the table is known; the last one that exists wins."""
    columns: str
    """Each with what replaces it where it is missing or null; one without is in every trace."""
    where: str = "1"


# SQLite keeps any value in a column of integers; a binary64 would have lost the nanoseconds.
_SPAN = """"end" > start AND typeof(start) = 'integer' AND typeof("end") = 'integer'"""
_VIEWS = {
    "kernel": _View(
        "CUPTI_ACTIVITY_KIND_KERNEL",
        "start end deviceId=0 contextId=0 streamId=NULL graphNodeId=NULL correlationId=NULL "
        "demangledName=-1 shortName=-1 mangledName=-1 "
        "gridX=-1 gridY=-1 gridZ=-1 blockX=-1 blockY=-1 blockZ=-1 "
        "registersPerThread=-1 staticSharedMemory=-1 dynamicSharedMemory=-1 localMemoryPerThread=-1",
        _SPAN,
    ),
    "any_kernel": _View("CUPTI_ACTIVITY_KIND_KERNEL", "start end=NULL"),
    "graph": _View("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "start end", _SPAN),
    "copy": _View(
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        "start end bytes=0 copyKind=0 srcKind=NULL dstKind=NULL correlationId=NULL",
        _SPAN,
    ),
    "any_copy": _View("CUPTI_ACTIVITY_KIND_MEMCPY", "start end=NULL"),
    "memset": _View("CUPTI_ACTIVITY_KIND_MEMSET", "start end=NULL correlationId=NULL"),
    "api": _View(
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "start end nameId=NULL name=NULL correlationId=NULL returnValue=0 globalTid=0",
    ),
    "nvtx": _View("NVTX_EVENTS", "start end=NULL eventType=59 text=NULL textId=NULL domainId=0 globalTid=0"),
    "string": _View("StringIds", "id value"),
    "diagnostic": _View("DIAGNOSTIC_EVENT", "severity=0 text"),
    "metadata": _View("EXPORT_META_DATA META_DATA_EXPORT", "name value"),
    "gpu": _View(
        "TARGET_INFO_CUDA_GPU TARGET_INFO_GPU",
        "id=NULL cuDevice=NULL deviceId=NULL name computeMajor=NULL computeMinor=NULL smCount=NULL "
        "computeCapabilityMajor=NULL computeCapabilityMinor=NULL numMultiprocessors=NULL",  # the names of 2020
    ),
}


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open an export with one view for each entry of `_VIEWS`; a damaged file or other data is a ProfileError.

    Every view has a column `pid`. A table that is missing is an empty view.
    """
    head = filetype.read_head(path)
    if not head.startswith(filetype.SQLITE_MAGIC):
        raise filetype.refusal(path, "an nsys export", head)
    try:
        with closing(sqlite3.connect(filetype.database_uri(path), uri=True)) as database:
            # NOTE: nsys <= 2022 stores binary messages in text columns
            database.text_factory = lambda raw: raw.decode(errors="replace")
            _check_whole(database)
            _create_views(database, path)
            yield database
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter: the schema of a damaged file
        if str(error).startswith(("no such", "ambiguous", "near ")):
            raise  # a mistake in a query, not in the file
        raise ProfileError(f"{path}: a damaged file: {error}", hint="was it cut off? export it again") from None
    except (AttributeError, TypeError, ValueError, OverflowError) as error:  # SQLite keeps text in a column of numbers
        raise ProfileError(
            f"{path}: a table holds values that nsys does not write ({error})", hint="export the trace again"
        ) from error


def _check_whole(database: sqlite3.Connection) -> None:
    """Refuse a database with damaged pages: the rest of it would be read without an error."""
    (found,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise sqlite3.DatabaseError(" ".join(str(found).replace("*** in database main ***", "").split()))


def _create_views(database: sqlite3.Connection, path: Path) -> None:
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")]
    if not any(re.match(r"CUPTI_ACTIVITY_KIND_|TARGET_INFO_|NVTX_EVENTS|(EXPORT_)?META_DATA", name) for name in tables):
        held = ", ".join(sorted(tables)[:8]) or "none"
        raise ProfileError(
            f"{path}: an SQLite database, but no nsys export (its tables: {held})",
            hint="`nsys export --type sqlite REPORT` writes one",
        )
    has_pid = False
    for name, view in _VIEWS.items():
        table = _find_table(tables, view.tables.split())
        present = {row[1]: bool(row[3]) for row in database.execute(f'PRAGMA table_info("{table}")')} if table else {}
        wanted = {column: default for column, _, default in (word.partition("=") for word in view.columns.split())}
        missing = [column for column, default in wanted.items() if not default and column not in present]
        if table and missing:
            raise ProfileError(f"{path}: the table {table} has no column {missing[0]}", hint="export the trace again")
        if name == "kernel":
            has_pid = "globalPid" in present
        columns = [_column(column, default, present) for column, default in wanted.items()]
        columns.append(f"{_pid(present, has_pid)} AS pid")
        source = f'FROM main."{table}" WHERE {view.where}' if table else "WHERE 0"
        database.execute(f'CREATE TEMP VIEW "{name}" AS SELECT {", ".join(columns)} {source}')


def _column(column: str, default: str, present: Mapping[str, bool]) -> str:
    """Return the column; `present` says of each column of the table whether it is declared NOT NULL."""
    replacement = default or "NULL"
    if present.get(column) or (column in present and replacement == "NULL"):
        return f'"{column}"'
    return f'COALESCE("{column}", {replacement}) AS "{column}"' if column in present else f'{replacement} AS "{column}"'


def _pid(present: Collection[str], has_pid: bool) -> str:
    """Return the process of a row, the same for all where kernels have none.

    A globalTid is the globalPid plus the thread in the low 24 bits.
    """
    if has_pid and "globalPid" in present:
        return "globalPid"
    return "globalTid & ~16777215" if has_pid and "globalTid" in present else "0"


def _find_table(tables: Sequence[str], candidates: Sequence[str]) -> str | None:
    """Return the name of the table, which newer versions of nsys may give a suffix (`_V2`)."""
    found = [
        (rank, len(name), name)
        for rank, candidate in enumerate(candidates)
        for name in tables
        if re.fullmatch(rf"{candidate}(_V\d+)?", name)
    ]
    return max(found)[2] if found else None
