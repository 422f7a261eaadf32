"""Removes from an nsys export everything but the trace: environments, command lines, paths, users and hosts.

nsys keeps them in several tables, and as strings that only these tables refer to. What is removed is gone from the
bytes of the file too: the copy is written anew, without the pages that a deletion only marks as free.
"""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from ci_perf.traces import filetype
from ci_perf.values.errors import ProfileError

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
_TRACE = re.compile(
    r"StringIds|ThreadNames|PROCESSES|MODULES?|(META_DATA_EXPORT|EXPORT_META_DATA)|ANALYSIS_DETAILS|\w+_CALLCHAINS"
    r"|(DIAGNOSTIC|SCHED|COMPOSITE)_EVENTS?|PROFILER_OVERHEAD"
    r"|TARGET_INFO_(SYSTEM_ENV|SESSION_START_TIME|PROCESS|COMPONENT|(GPU|NIC|CUDA|NVTX|WDDM|PERF|NETWORK|SOC|XMC)(_\w+)?)"
    r"|(ENUM|CUPTI|CUDA|CUBLAS|CUDNN|NVTX|NCCL|MPI|UCP|OSRT|OPENACC|OPENMP|OPENGL|KHR_DEBUG|VULKAN|DX1[12]|D3D1[12])_\w+"
    r"|(GENERIC_EVENT|GPU|SOC|ETW|WDDM|SLI|FECS|NET|NIC|PERF|PMU|NVVIDEO)S?_\w+|GENERIC_EVENTS",
    re.IGNORECASE,
)
"""Tables of a trace, of which the texts are known. Of any other only numbers stay, as it may hold anything."""
_TIMES = frozenset({"start", "timestamp", "rawtimestamp"})
"""Columns of a table of events. Strings that only others refer to, of tables that nobody knows, do not stay."""
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
    for (trigger,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        database.execute(f"DROP TRIGGER {_quoted(trigger.decode())}")  # it could write down what is removed
    tables = {
        name.decode(): (sql or b"").decode(errors="replace")
        for name, sql in database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
    }
    database.execute("BEGIN")
    for table in tables:
        kept = _KEPT.get(table)
        if kept is not None or _EMPTIED.fullmatch(table) or table.startswith("sqlite_stat"):  # these hold samples
            if count := _empty(database, table, kept):
                yield f"{table}: {count} rows"
        elif not _TRACE.fullmatch(table) and (count := _empty_texts(database, table)):
            yield f"{table}: {count} texts, of a table that nsys is not known to write"
    if "StringIds" in tables and (count := _drop_orphans(database, tables)):
        yield f"StringIds: {count} strings that nothing refers to"
    database.execute("COMMIT")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [row[1].decode() for row in database.execute(f"PRAGMA table_info({_quoted(table)})")]


def _empty_texts(database: sqlite3.Connection, table: str) -> int:
    """Empty every text of a table; where it does not allow that, delete its rows."""
    emptied = 0
    try:
        for column in map(_quoted, _columns(database, table)):
            is_text = f"typeof({column}) IN ('text', 'blob') AND length({column}) > 0"
            emptied += database.execute(f"UPDATE {_quoted(table)} SET {column} = '' WHERE {is_text}").rowcount  # noqa: S608
    except sqlite3.IntegrityError:
        return database.execute(f"DELETE FROM {_quoted(table)}").rowcount  # noqa: S608
    return emptied


def _empty(database: sqlite3.Connection, table: str, kept: re.Pattern[str] | None) -> int:
    if kept is None or "name" not in _columns(database, table):
        return database.execute(f"DELETE FROM {_quoted(table)}").rowcount  # noqa: S608 - a name out of sqlite_master
    database.create_function("is_kept", 1, lambda name: bool(kept.fullmatch((name or b"").decode(errors="replace"))))
    return database.execute(f'DELETE FROM "{table}" WHERE NOT is_kept(CAST(name AS BLOB))').rowcount  # noqa: S608


def _drop_orphans(database: sqlite3.Connection, tables: dict[str, str]) -> int:
    """Delete the strings that no column refers to; tables say in comments which of their columns do, but not all."""
    references = []
    for table, sql in tables.items():
        if table == "StringIds":
            continue
        columns = _columns(database, table)
        if not _TRACE.fullmatch(table) and _TIMES.isdisjoint(map(str.lower, columns)):
            continue
        said = set(_STRING_COLUMN.findall(sql))
        references += [(column, table) for column in columns if column in said or _STRING_NAMES.fullmatch(column)]
    if not references:
        return 0
    database.execute("CREATE TEMP TABLE used (id INTEGER PRIMARY KEY)")
    for column, table in references:
        number = _quoted(column)
        query = f"SELECT {number} FROM {_quoted(table)} WHERE typeof({number}) = 'integer'"  # noqa: S608
        database.execute(f"INSERT OR IGNORE INTO used {query}")
    return database.execute("DELETE FROM StringIds WHERE id NOT IN (SELECT id FROM used)").rowcount
