"""The database that `nsys export --type sqlite` writes, read into a `Timeline`.

A trace may hold millions of kernels, so SQL does the sums; the views it sums over are those of `nsys_schema`.
"""

import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from ci_perf.core.errors import ProfileError
from ci_perf.profilers import filetype, nsys_schema
from ci_perf.profilers.timeline import ApiStats, CopyStats, Dim3, Gpu, KernelStats, RangeStats, Timeline

NEWEST_SCHEMA = 3
"""The newest major version that this module was tried on."""

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

_BUSY = """
    SELECT deviceId, SUM(MAX(0, end - MAX(start, COALESCE(covered, start)))) FROM (
        SELECT deviceId, start, end, MAX(end) OVER (
            PARTITION BY deviceId ORDER BY start, end ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS covered FROM kernel
    ) GROUP BY deviceId ORDER BY deviceId
"""

_VARIANT = """
    deviceId, demangledName, shortName, mangledName, gridX, gridY, gridZ, blockX, blockY, blockZ,
    registersPerThread, staticSharedMemory, dynamicSharedMemory, localMemoryPerThread
"""

# A variant is a kernel with its launch parameters; one number for it makes sorting millions of rows five times faster
# than its columns do. A launch call and its kernel share the correlation id: runtime and driver calls may both be
# listed under it, and a graph launch has one id and many kernels.
_EXECUTED = f"""
    CREATE TEMP TABLE variant (id INTEGER PRIMARY KEY, {_VARIANT}, UNIQUE ({_VARIANT}));
    INSERT OR IGNORE INTO variant ({_VARIANT}) SELECT {_VARIANT} FROM kernel;
    CREATE TEMP TABLE executed AS
    SELECT variant.id AS variant_id, kernel.end - kernel.start AS duration, call.pid, call.tid, call.called
    FROM kernel JOIN variant USING ({_VARIANT}) LEFT JOIN (
        SELECT pid, correlationId, globalTid AS tid, MIN(start) AS called FROM api
        WHERE correlationId IS NOT NULL GROUP BY pid, correlationId
    ) AS call ON call.pid = kernel.pid AND call.correlationId = kernel.correlationId;
"""  # noqa: S608 - a constant

# 59 push/pop, 60 start/end, 70 and 71 the same from a text file, 75 the creation of a domain. A range that was never
# closed lasts to the end of the trace.
_RANGES = """
    CREATE TEMP TABLE open_range AS
    SELECT
        CASE WHEN nvtx.domainId = 0 THEN '' ELSE COALESCE(domain.name, nvtx.domainId) || '@' END
            || COALESCE(nvtx.text, string.value, '') AS name,
        nvtx.start, COALESCE(nvtx.end, 9223372036854775807) AS end, nvtx.globalTid AS tid, nvtx.pid,
        nvtx.eventType IN (60, 71) AS any_thread
    FROM nvtx LEFT JOIN string ON string.id = nvtx.textId LEFT JOIN (
        SELECT nvtx.pid, nvtx.domainId, MIN(COALESCE(nvtx.text, string.value)) AS name
        FROM nvtx LEFT JOIN string ON string.id = nvtx.textId WHERE eventType = 75 GROUP BY 1, 2
    ) AS domain ON domain.pid = nvtx.pid AND domain.domainId = nvtx.domainId
    WHERE nvtx.eventType IN (59, 60, 70, 71);
    CREATE TEMP TABLE range_name (id INTEGER PRIMARY KEY, name TEXT UNIQUE, instances INTEGER);
    INSERT INTO range_name (name, instances) SELECT name, COUNT(*) FROM open_range GROUP BY name ORDER BY MIN(start);
"""

# CROSS JOIN fixes the order: few ranges outside, an index search among many launches inside. UNION also drops
# doubles: a range may lie inside another of the same name.
_MEMBERS = """
    CREATE INDEX temp.executed_by_thread ON executed (tid, called);
    CREATE INDEX temp.executed_by_process ON executed (pid, called);
    CREATE TEMP TABLE member AS
    SELECT range_name.id AS range_id, executed.rowid AS kernel_id FROM open_range
    JOIN range_name ON range_name.name = open_range.name
    CROSS JOIN executed ON executed.tid = open_range.tid AND executed.called BETWEEN open_range.start AND open_range.end
    WHERE NOT any_thread
    UNION SELECT range_name.id, executed.rowid FROM open_range
    JOIN range_name ON range_name.name = open_range.name
    CROSS JOIN executed ON executed.pid = open_range.pid AND executed.called BETWEEN open_range.start AND open_range.end
    WHERE any_thread;
"""

_IN_TRACE = "SELECT 0 AS range_id, variant_id, duration FROM executed"
_IN_RANGES = "SELECT range_id, variant_id, duration FROM member JOIN executed ON executed.rowid = kernel_id"

_IN_CHOSEN = """
    SELECT DISTINCT 0 AS range_id, variant_id, duration, kernel_id FROM member
    JOIN executed ON executed.rowid = kernel_id JOIN chosen USING (range_id)
"""

_KERNEL_STATS = """
    WITH ranked AS (
        SELECT range_id, variant_id, duration,
            ROW_NUMBER() OVER (PARTITION BY range_id, variant_id ORDER BY duration) AS place,
            COUNT(*) OVER (PARTITION BY range_id, variant_id) AS size
        FROM ({source})
    ), summed AS (
        SELECT range_id, variant_id, COUNT(*) AS count, SUM(duration) AS total,
            AVG(CASE WHEN place IN ((size + 1) / 2, (size + 2) / 2) THEN duration END) AS median,
            MIN(duration) AS shortest, MAX(duration) AS longest
        FROM ranked GROUP BY range_id, variant_id
    )
    SELECT range_id,
        COALESCE(full.value, NULLIF(demangledName, -1), short.value, NULLIF(shortName, -1), raw.value, mangledName),
        COALESCE(short.value, NULLIF(shortName, -1), full.value, NULLIF(demangledName, -1)),
        count, total, median, shortest, longest, deviceId, gridX, gridY, gridZ, blockX, blockY, blockZ,
        registersPerThread, staticSharedMemory, dynamicSharedMemory, localMemoryPerThread
    FROM summed JOIN variant ON variant.id = variant_id
    LEFT JOIN string AS full ON full.id = demangledName
    LEFT JOIN string AS short ON short.id = shortName
    LEFT JOIN string AS raw ON raw.id = mangledName
    ORDER BY range_id, total DESC, 2
"""

_RANGE_MEDIANS = f"""
    SELECT range_id, AVG(duration) FROM (
        SELECT range_id, duration,
            ROW_NUMBER() OVER (PARTITION BY range_id ORDER BY duration) AS place,
            COUNT(*) OVER (PARTITION BY range_id) AS size
        FROM ({_IN_RANGES})
    ) WHERE place IN ((size + 1) / 2, (size + 2) / 2) GROUP BY range_id
"""  # noqa: S608 - a constant

_LAUNCHES = """
    SELECT COUNT(*), COUNT(*) - COUNT(traced.correlationId) FROM (
        SELECT DISTINCT api.pid, correlationId FROM api LEFT JOIN string ON string.id = api.nameId
        WHERE (COALESCE(string.value, api.name) GLOB 'cudaLaunch*' OR COALESCE(string.value, api.name) GLOB 'cuLaunch*')
            AND COALESCE(string.value, api.name) NOT GLOB '*HostFunc*' AND COALESCE(returnValue, 0) = 0
    ) AS call LEFT JOIN (SELECT DISTINCT pid, correlationId FROM kernel) AS traced
    ON traced.pid = call.pid AND traced.correlationId = call.correlationId
"""

# Severity 2 is a warning, 3 an error; 1 and 4 are chatter. Complaints about other traces (OpenGL, OS runtime) and
# those of a child process that the rest of the trace disproves say nothing about the kernels.
_COMPLAINTS = """
    SELECT DISTINCT text FROM diagnostic WHERE severity IN (2, 3)
        AND (text GLOB '*CUDA*' OR text GLOB '*CUPTI*' OR text GLOB '*NVTX*')
        AND NOT (text GLOB 'No CUDA events*' AND EXISTS (SELECT 1 FROM kernel))
        AND NOT (text GLOB 'No NVTX events*' AND EXISTS (SELECT 1 FROM nvtx))
    ORDER BY severity DESC, text
"""


def read(path: Path) -> Timeline:
    """Read an nsys export; one that holds no kernel is not an error."""
    head = filetype.read_head(path)
    if not head.startswith(filetype.SQLITE_MAGIC):
        raise filetype.refusal(path, "an nsys export", head)
    try:
        # immutable: no lock, no journal, nothing is ever written beside the file
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            # NOTE: nsys <= 2022 stores binary messages in text columns
            database.text_factory = lambda raw: raw.decode(errors="replace")
            nsys_schema.create_views(database, path)
            return _read_timeline(database)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter: sqlite3 trips on the bytes of a broken schema
        if str(error).startswith(("no such", "ambiguous", "near ")):
            raise  # a mistake in a query of this module, not in the file
        raise ProfileError(f"{path}: {error}", hint="the export is damaged or cut off; export it again") from None


def read_inside(path: Path, names: Iterable[str]) -> tuple[KernelStats, ...]:
    """Return the kernels launched inside any range of these names, each once however many ranges it lies in.

    The file is one that `read` took.
    """
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        database.text_factory = lambda raw: raw.decode(errors="replace")
        nsys_schema.create_views(database, path)
        database.executescript(_EXECUTED + _RANGES + _MEMBERS)
        database.execute("CREATE TEMP TABLE chosen (range_id INTEGER PRIMARY KEY)")
        database.executemany(
            "INSERT OR IGNORE INTO chosen SELECT id FROM range_name WHERE name = ?", [(name,) for name in names]
        )
        return tuple(kernel for _, kernel in _kernel_stats(database, _IN_CHOSEN))


def _read_timeline(database: sqlite3.Connection) -> Timeline:
    metadata = dict(database.execute("SELECT name, value FROM metadata"))
    count, total = _first(database, "SELECT COUNT(*), COALESCE(SUM(end - start), 0) FROM kernel")
    graph_count, graph_total = _first(database, "SELECT COUNT(*), COALESCE(SUM(end - start), 0) FROM graph")
    database.executescript(_EXECUTED + _RANGES + _MEMBERS)
    timeline = Timeline(
        tool_version=metadata.get("EXPORT_PRODUCT_VERSION"),
        schema_version=metadata.get("EXPORT_SCHEMA_VERSION"),
        devices=tuple(_gpus(database)),
        kernel_count=count,
        kernel_total_ns=total,
        kernel_busy_ns=dict(database.execute(_BUSY)),
        graph_count=graph_count,
        graph_total_ns=graph_total,
        copies=tuple(_copies(database)),
        memset_count=_first(database, "SELECT COUNT(*) FROM memset")[0],
        nvtx_count=_first(database, "SELECT COUNT(*) FROM nvtx")[0],
        api=_api(database),
        kernels=tuple(kernel for _, kernel in _kernel_stats(database, _IN_TRACE)),
        ranges=tuple(_ranges(database)),
    )
    return replace(timeline, warnings=tuple(_warnings(database, timeline)))


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
    return labels[number] if number < len(labels) else f"kind {number}"


def _api(database: sqlite3.Connection) -> dict[str, ApiStats]:
    query = """
        SELECT COALESCE(string.value, api.name, '?'), COUNT(*), SUM(end - start) FROM api
        LEFT JOIN string ON string.id = api.nameId GROUP BY 1 ORDER BY 3 DESC, 1
    """
    return {name: ApiStats(count, total) for name, count, total in database.execute(query)}


def _kernel_stats(database: sqlite3.Connection, source: str) -> Iterator[tuple[int, KernelStats]]:
    rows = database.execute(_KERNEL_STATS.format(source=source))
    for range_id, name, short_name, count, total, median, shortest, longest, device, *launch in rows:
        sizes = [None if size == -1 else size for size in launch[6:]]
        kernel = KernelStats(
            name="?" if name == -1 else str(name),
            short_name="?" if short_name is None else str(short_name),
            count=count,
            total_ns=total,
            median_ns=median,
            min_ns=shortest,
            max_ns=longest,
            device=device,
            grid=_dim(*launch[:3]),
            block=_dim(*launch[3:6]),
            registers_per_thread=sizes[0],
            static_shared=sizes[1],
            dynamic_shared=sizes[2],
            local_per_thread=sizes[3],
        )
        yield range_id, kernel


def _dim(x: int, y: int, z: int) -> Dim3 | None:
    return None if x == -1 else (x, y, z)


def _ranges(database: sqlite3.Connection) -> Iterator[RangeStats]:
    kernels: dict[int, list[KernelStats]] = {}
    for range_id, kernel in _kernel_stats(database, _IN_RANGES):
        kernels.setdefault(range_id, []).append(kernel)
    medians = dict(database.execute(_RANGE_MEDIANS))
    for range_id, name, instances in database.execute("SELECT id, name, instances FROM range_name ORDER BY id"):
        members = kernels.get(range_id, [])
        yield RangeStats(
            name=name,
            instances=instances,
            kernels=tuple(members),
            count=sum(kernel.count for kernel in members),
            total_ns=sum(kernel.total_ns for kernel in members),
            median_ns=medians.get(range_id),
        )


def _warnings(database: sqlite3.Connection, timeline: Timeline) -> Iterator[str]:
    launches, untraced = _first(database, _LAUNCHES)
    unfinished = _first(database, "SELECT COUNT(*) FROM unfinished")[0]
    attributed = _first(database, "SELECT COUNT(called) FROM executed")[0]
    major = re.match(r"\d+", timeline.schema_version or "")
    if major and int(major[0]) > NEWEST_SCHEMA:
        yield f"schema {timeline.schema_version} is newer than any this reader was tried on ({NEWEST_SCHEMA}.x)"
    if not timeline.has_kernel_data:
        yield _why_empty(timeline, launches)
    elif untraced:
        yield f"{untraced} of {launches} kernel launches have no kernel in the trace: events were lost or cut off"
    if unfinished:
        yield f"{unfinished} kernels have no end in the trace and were left out"
    if timeline.graph_count:
        yield (
            f"{timeline.graph_count} CUDA graph launches were traced as a whole ({timeline.graph_total_ns} ns): their "
            "kernels are not listed; record with --cuda-graph-trace=node"
        )
    if timeline.ranges and attributed < timeline.kernel_count:
        lost = timeline.kernel_count - attributed
        yield f"{lost} of {timeline.kernel_count} kernels have no launch call in the trace, so no NVTX range has them"
    for (text,) in database.execute(_COMPLAINTS):
        yield f"nsys: {' '.join(text.split())}"


def _why_empty(timeline: Timeline, launches: int) -> str:
    if timeline.graph_count:
        return "no kernel was traced: all ran inside CUDA graphs, which were traced as a whole"
    if launches:
        return f"{launches} kernels were launched but none was traced: the capture is broken, not the GPU idle"
    if timeline.api:
        return "no kernel was traced: the program called CUDA but launched no kernel"
    return "no kernel was traced: the trace holds no CUDA activity at all"
