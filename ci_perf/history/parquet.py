"""Points in Parquet files, written and read by DuckDB: in a folder, or below any URL that fsspec knows.

Each call writes one new file, whose name is a hash of its points: machines of a fleet write without a lock, and the
same points twice are one file.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ci_perf.values.errors import ConfigError, MachineError
from ci_perf.values.series import Point

if TYPE_CHECKING:
    import duckdb

_COLUMNS = ", ".join(
    f'"{field.name}" {"DOUBLE" if field.type is float or field.type == "float" else "VARCHAR"}'
    for field in fields(Point)
)


def add_points(store: str, points: Sequence[Point]) -> str:
    """Write the points as one file below `store`, a folder or a URL such as `s3://bucket/perf`; return its place.

    ConfigError where an extra is not installed, MachineError where the store cannot be used.
    """
    rows = sorted(points)
    place = f"{store.rstrip('/')}/{hashlib.sha256(repr(rows).encode()).hexdigest()[:16]}.parquet"
    with _connected(store, make=True) as database:
        database.execute(f"CREATE TABLE points ({_COLUMNS})")
        if rows:
            marks = ", ".join("?" for _ in fields(Point))
            database.executemany(f"INSERT INTO points VALUES ({marks})", [astuple(row) for row in rows])  # noqa: S608
        _try(store, database, f"COPY points TO {_quoted(place)} (FORMAT parquet)")
    return place


def read_points(store: str, kernel: str | None = None) -> tuple[Point, ...]:
    """Read the points of a kernel, or of all, from every file below `store`; errors as `add_points`."""
    names = ", ".join(f'"{field.name}"' for field in fields(Point))
    files = _quoted(f"{store.rstrip('/')}/*.parquet")
    query = f"SELECT DISTINCT {names} FROM read_parquet({files}) WHERE ? IS NULL OR kernel = ?"  # noqa: S608
    with _connected(store) as database:
        rows = _try(store, database, query, [kernel, kernel]).fetchall()
    return tuple(sorted(Point(*row) for row in rows))


def _connected(store: str, *, make: bool = False) -> "duckdb.DuckDBPyConnection":
    """Return a database in memory that knows the file system of the store."""
    try:
        import duckdb
        import fsspec
    except ImportError as error:
        hint = "install the extra: `ci-perf[fleet] @ git+https://github.com/org/ci-perf`"
        raise ConfigError(f"--store needs the package `{error.name}`, which is not installed", hint=hint) from None
    database = duckdb.connect()
    scheme, mark, _ = store.partition("://")
    try:
        if mark:
            database.register_filesystem(fsspec.filesystem(scheme))
        elif make:
            Path(store).mkdir(parents=True, exist_ok=True)
    except (ImportError, ValueError, OSError) as error:  # such as s3fs, which fsspec needs for s3://
        raise ConfigError(f"--store {store}: {error}", hint="name a folder, or a URL that fsspec can open") from None
    return database


def _try(store: str, database: "duckdb.DuckDBPyConnection", query: str, values: Sequence[Any] = ()) -> Any:  # noqa: ANN401
    import duckdb

    try:
        return database.execute(query, values)
    except (duckdb.Error, OSError) as error:
        line = str(error).splitlines()[0]
        raise MachineError(f"--store {store}: {line}", hint="see that it exists, and that you may use it") from None


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
