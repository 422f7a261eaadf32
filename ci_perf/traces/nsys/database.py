"""The database that `nsys export --type sqlite` writes, read into a `Timeline`.

A trace may hold millions of kernels: `nsys_kernels` goes over them, through the views of `nsys_schema`.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ci_perf.traces import filetype
from ci_perf.traces.nsys import kernels as nsys_kernels
from ci_perf.traces.nsys import schema as nsys_schema
from ci_perf.traces.nsys.calls import Calls
from ci_perf.traces.nsys.kernels import Kernels, Variant
from ci_perf.traces.nsys.pool import Pool
from ci_perf.traces.nsys.ranges import Range
from ci_perf.traces.nsys.tally import RangeTally, Tally
from ci_perf.traces.nsys.warnings import warnings_of
from ci_perf.traces.timeline import (
    ApiStats,
    CopyStats,
    Dim3,
    Gpu,
    KernelStats,
    Listed,
    ProcessStats,
    RangeStats,
    Timeline,
)
from ci_perf.values.errors import ProfileError

_COPY_KINDS = (
    "unknown",
    "host-to-device",
    "device-to-host",
    "host-to-array",
    "array-to-host",
    "array-to-array",
    "array-to-device",
    "device-to-array",
    "device-to-device",
    "host-to-host",
    "peer-to-peer",
    "unified-host-to-device",
    "unified-device-to-host",
    "unified-device-to-device",
)
_MEMORY_KINDS = (
    "pageable",
    "pinned",
    "device",
    "array",
    "managed",
    "device-static",
    "managed-static",
    "unknown",
)

# 59 push/pop, 60 start/end, 70 and 71 the same from a text file, 75 the creation of a domain. A range that was never
# closed lasts to the end of the trace.
_RANGES = """
    SELECT
        CASE WHEN nvtx.domainId = 0 THEN '' ELSE COALESCE(domain.name, nvtx.domainId) || '@' END
            || COALESCE(nvtx.text, string.value, '') AS name,
        nvtx.start, nvtx.end, nvtx.globalTid, nvtx.pid, nvtx.eventType IN (60, 71)
    FROM nvtx LEFT JOIN string ON string.id = nvtx.textId LEFT JOIN (
        SELECT nvtx.pid, nvtx.domainId, MIN(COALESCE(nvtx.text, string.value)) AS name
        FROM nvtx LEFT JOIN string ON string.id = nvtx.textId WHERE eventType = 75 GROUP BY 1, 2
    ) AS domain ON domain.pid = nvtx.pid AND domain.domainId = nvtx.domainId
    WHERE nvtx.eventType IN (59, 60, 70, 71) ORDER BY nvtx.start, nvtx.end
"""


def read(path: Path) -> Timeline:
    """Read an nsys export; one that holds no kernel is not an error."""
    head = filetype.read_head(path)
    if not head.startswith(filetype.SQLITE_MAGIC):
        raise filetype.refusal(path, "an nsys export", head)
    try:
        with _opened(path) as (database, pool):
            return _read_timeline(database, pool)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter: sqlite3 trips on the bytes of a broken schema
        if str(error).startswith(("no such", "ambiguous", "near ")):
            raise  # a mistake in a query of this module, not in the file
        raise ProfileError(f"{path}: {error}", hint="the export is damaged or cut off; export it again") from None
    except (
        AttributeError,
        TypeError,
        ValueError,
        OverflowError,
    ) as error:  # SQLite keeps text in a column of numbers, and Python trips
        raise ProfileError(
            f"{path}: a table holds values that nsys does not write ({error})", hint="export the trace again"
        ) from error


def read_inside(path: Path, names: Iterable[str]) -> tuple[KernelStats, ...]:
    """Return the kernels launched inside any range of these names, each once however many ranges it lies in.

    The file is one that `read` took.
    """
    wanted = set(names)
    with _opened(path) as (database, pool):
        # Ranges of one name are taken together, so one name for all of them counts a kernel once.
        ranges = [Range("", *row[1:]) for row in database.execute(_RANGES) if row[0] in wanted]
        if not ranges:
            return ()
        kernels = nsys_kernels.read(pool, ranges)
        return _Names(database, kernels.variants).listed(kernels.ranges[""])


@contextmanager
def _opened(path: Path) -> Iterator[tuple[sqlite3.Connection, Pool]]:
    """Open a trace twice: for what is little, and for what is long."""
    uri = filetype.database_uri(path)
    with closing(sqlite3.connect(uri, uri=True)) as database:
        # NOTE: nsys <= 2022 stores binary messages in text columns
        database.text_factory = lambda raw: raw.decode(errors="replace")
        with Pool(path, uri, nsys_schema.create_views(database, path)) as pool:
            yield database, pool


def _read_timeline(database: sqlite3.Connection, pool: Pool) -> Timeline:
    metadata = dict(database.execute("SELECT name, value FROM metadata"))
    graph_count, graph_total = _first(database, "SELECT COUNT(*), COALESCE(SUM(end - start), 0) FROM graph")
    ranges = [Range(*row) for row in database.execute(_RANGES)]
    kernels = nsys_kernels.read(pool, ranges)
    names = _Names(database, kernels.variants)
    timeline = Timeline(
        tool_version=metadata.get("EXPORT_PRODUCT_VERSION"),
        schema_version=metadata.get("EXPORT_SCHEMA_VERSION"),
        devices=tuple(_gpus(database)),
        kernel_count=kernels.count,
        kernel_total_ns=kernels.total_ns,
        kernel_busy_ns=kernels.busy_ns,
        graph_count=graph_count,
        graph_total_ns=graph_total,
        copies=tuple(_copies(database)),
        memset_count=_first(database, "SELECT COUNT(*) FROM memset")[0],
        nvtx_count=_first(database, "SELECT COUNT(*) FROM nvtx")[0],
        api=_api(database, kernels.calls),
        kernels=names.kernel_stats(kernels.tallies),
        ranges=tuple(_ranges(kernels, ranges, names)),
        launches=sum(kernels.calls.launches_by_process.values()),
        processes=tuple(_processes(kernels)),
    )
    return replace(timeline, warnings=tuple(warnings_of(database, timeline, kernels)))


def _first(database: sqlite3.Connection, query: str) -> tuple[int, ...]:
    row: tuple[int, ...] = database.execute(query).fetchone()
    return row


def _gpus(database: sqlite3.Connection) -> Iterator[Gpu]:
    query = """
        -- no compute capability: a display adapter, which CUDA gives no number
        SELECT DISTINCT CASE WHEN computeMajor = 0 THEN NULL ELSE COALESCE(cuDevice, deviceId, id) END, name,
            COALESCE(computeMajor, computeCapabilityMajor),
            COALESCE(computeMinor, computeCapabilityMinor), COALESCE(smCount, numMultiprocessors)
        FROM gpu ORDER BY 1
    """
    for index, name, major, minor, sm_count in database.execute(query):
        yield Gpu(index, (name or "?").strip(), f"{major}.{minor}" if major else None, sm_count or None)


def _copies(database: sqlite3.Connection) -> Iterator[CopyStats]:
    query = """
        SELECT copyKind, srcKind, dstKind, COUNT(*), SUM(bytes), SUM(end - start) FROM copy
        GROUP BY copyKind, srcKind, dstKind ORDER BY 1, 2, 3
    """
    for kind, source, destination, count, size, total in database.execute(query):
        yield CopyStats(
            kind=_label(_COPY_KINDS, kind),
            source=None if source is None else _label(_MEMORY_KINDS, source),
            destination=None if destination is None else _label(_MEMORY_KINDS, destination),
            count=count,
            bytes=size,
            total_ns=total,
        )


def _label(labels: Sequence[str], number: int) -> str:
    return labels[number] if 0 <= number < len(labels) else f"kind {number}"


def _api(database: sqlite3.Connection, calls: Calls) -> dict[str, ApiStats]:
    sums: dict[str, tuple[int, int]] = {}
    for number, (more, longer) in calls.functions.items():
        row = database.execute("SELECT value FROM string WHERE id = ?", (number,)).fetchone()
        name = row[0] if row else calls.own_names.get(number, "?")
        count, total = sums.get(name, (0, 0))
        sums[name] = count + more, total + longer
    ordered = sorted(sums.items(), key=lambda item: (-item[1][1], item[0]))
    return {name: ApiStats(count, total) for name, (count, total) in ordered}


class _Names:
    """What the variants are called."""

    def __init__(self, database: sqlite3.Connection, variants: Iterable[Variant]) -> None:
        self._database = database
        self._found: dict[int, str | None] = {-1: None}
        self._told = [self._tell(variant) for variant in variants]

    def kernel_stats(self, tallies: Iterable[Tally]) -> tuple[KernelStats, ...]:
        """Return the stats of each variant, the longest total first."""
        stats = (
            KernelStats(*self._told[variant][:2], *numbers, *self._told[variant][2:]) for variant, *numbers in tallies
        )
        return tuple(sorted(stats, key=lambda kernel: (-kernel.total_ns, kernel.name)))

    def listed(self, tally: RangeTally) -> tuple[KernelStats, ...]:
        """Return the stats of each variant inside the ranges of a name."""
        return self.kernel_stats(tally.rows())

    def _find(self, number: int) -> str | None:
        if number not in self._found:
            row = self._database.execute("SELECT value FROM string WHERE id = ?", (number,)).fetchone()
            self._found[number] = None if row is None else str(row[0])
        return self._found[number]

    def _tell(self, variant: Variant) -> tuple[Any, ...]:
        """Return what a kernel is called, its device and its launch parameters."""
        device, full_id, short_id, raw_id, *launch = variant
        full, short, raw = self._find(full_id), self._find(short_id), self._find(raw_id)
        numbers = [str(number) for number in (full_id, short_id, raw_id) if number != -1]  # where there are no strings
        name = full or short or raw or next(iter(numbers), "?")
        sizes = [None if size == -1 else size for size in launch[6:]]
        return name, short or full or next(iter(numbers), "?"), device, _dim(*launch[:3]), _dim(*launch[3:6]), *sizes


def _dim(x: int, y: int, z: int) -> Dim3 | None:
    return None if x == -1 else (x, y, z)


def _ranges(kernels: Kernels, ranges: Iterable[Range], names: _Names) -> Iterator[RangeStats]:
    for name, instances in Counter(found.name for found in ranges).items():
        tally = kernels.ranges[name]
        yield RangeStats(
            name=name,
            instances=instances,
            kernels=Listed(partial(names.listed, tally)),
            count=tally.count,
            total_ns=tally.total_ns,
            median_ns=tally.median_ns,
        )


def _processes(kernels: Kernels) -> Iterator[ProcessStats]:
    launches = kernels.calls.launches_by_process
    for process in sorted((launches.keys() | kernels.by_process.keys()) - {0}):
        pid = process >> 24 & 0xFFFFFF  # of a globalPid
        yield ProcessStats(pid, launches.get(process, 0), kernels.by_process.get(process, 0))
