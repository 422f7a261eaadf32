"""Removes from an nsys export what it holds beside the trace: environments, command lines, files, people and places.

nsys keeps them in several tables, and as strings that only these tables refer to. What is removed is gone from the
bytes of the file too: the copy is written anew, without the pages that a deletion only marks as free.
"""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from ci_perf.core.errors import ProfileError
from ci_perf.profilers import filetype

_EMPTIED = re.compile(
    r"META_DATA_CAPTURE|ProcessStreams|ANALYSIS_FILE|(?!ENUM_)\w*ENV(IRONMENT)?(_\w+)?", re.IGNORECASE
)
"""Tables of which nothing is kept but the rows of `_KEPT`."""
_KEPT = {
    "TARGET_INFO_SYSTEM_ENV": re.compile(r"CpuCores|CpuArchitecture|NvDriverVersion|OsDescription|CudaDriverVersion"),
    "META_DATA_EXPORT": (
        _EXPORT := re.compile(
            r"EXPORT_(PRODUCT|SCHEMA|PLATFORM|ARCH|CONFIG_TIME|(PARAM_)?(TIME|OVERWRITE|APPEND|LAZY))\w*"
        )
    ),
    "EXPORT_META_DATA": _EXPORT,
}
"""Of tables of names and values: the names that say nothing of a user or a job."""
_STRING_COLUMN = re.compile(r'^\s*"?(\w+)"?\s[^\n]*REFERENCES StringIds', re.MULTILINE)
_STRING_NAMES = re.compile(
    r"\w*(?:nameid|textid|contentid|valueid|demangledname|shortname|mangledname|filename|name|symbol|module)",
    re.IGNORECASE,
)
"""Columns that may refer to a string where the table does not say so: nsys 2022 leaves it out for kernels."""


def is_database(path: Path) -> bool:
    """Say whether a file is an SQLite database, as exports are."""
    return filetype.read_head(path).startswith(filetype.SQLITE_MAGIC)


def clean(source: Path, target: Path) -> tuple[str, ...]:
    """Write `source` without its environments to `target`, a new file; return what was removed, one line each."""
    target.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(filetype.database_uri(source), uri=True)) as database:
            database.execute("VACUUM INTO ?", (str(target),))
        with closing(sqlite3.connect(target, isolation_level=None)) as database:
            database.text_factory = bytes
            database.execute("PRAGMA journal_mode = OFF")
            database.execute("PRAGMA secure_delete = ON")  # a freed page is overwritten, not only forgotten
            removed = tuple(_remove(database))
            database.execute("VACUUM")
    except sqlite3.Error as error:
        target.unlink(missing_ok=True)
        raise ProfileError(f"{source}: cannot be cleaned: {error}", hint="export the trace again") from None
    return removed


def _remove(database: sqlite3.Connection) -> Iterator[str]:
    tables = {
        name.decode(): (sql or b"").decode(errors="replace")
        for name, sql in database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
    }
    database.execute("BEGIN")
    for table in tables:
        kept = _KEPT.get(table)
        if kept is None and not _EMPTIED.fullmatch(table):
            continue
        if count := _empty(database, table, kept):
            yield f"{table}: {count} rows"
    if "StringIds" in tables and (count := _drop_orphans(database, tables)):
        yield f"StringIds: {count} strings that nothing refers to"
    database.execute("COMMIT")


def _empty(database: sqlite3.Connection, table: str, kept: re.Pattern[str] | None) -> int:
    columns = {row[1] for row in database.execute(f'PRAGMA table_info("{table}")')}
    if kept is None or b"name" not in columns:
        return database.execute(f'DELETE FROM "{table}"').rowcount  # noqa: S608 - a name out of sqlite_master
    names = {bytes(name) for (name,) in database.execute(f'SELECT DISTINCT CAST(name AS BLOB) FROM "{table}"')}  # noqa: S608
    deleted = 0
    for name in names:
        if not kept.fullmatch(name.decode(errors="replace")):
            query = f'DELETE FROM "{table}" WHERE CAST(name AS BLOB) = ?'  # noqa: S608
            deleted += database.execute(query, (name,)).rowcount
    return deleted


def _drop_orphans(database: sqlite3.Connection, tables: dict[str, str]) -> int:
    """Delete the strings that no column refers to; tables say in comments which of their columns do, but not all."""
    references = []
    for table, sql in tables.items():
        if table == "StringIds":
            continue
        columns = [row[1].decode() for row in database.execute(f'PRAGMA table_info("{table}")')]
        said = set(_STRING_COLUMN.findall(sql))
        references += [(column, table) for column in columns if column in said or _STRING_NAMES.fullmatch(column)]
    if not references:
        return 0
    database.execute("CREATE TEMP TABLE used (id INTEGER PRIMARY KEY)")
    for column, table in references:
        query = f'SELECT "{column}" FROM "{table}" WHERE typeof("{column}") = \'integer\''  # noqa: S608
        database.execute(f"INSERT OR IGNORE INTO used {query}")
    return database.execute("DELETE FROM StringIds WHERE id NOT IN (SELECT id FROM used)").rowcount
