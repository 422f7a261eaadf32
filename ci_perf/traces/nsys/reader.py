"""Reads an export into a `Timeline`; a trace may hold millions of kernels."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ci_perf.traces import guards
from ci_perf.traces.nsys.kernels import Ints, Kernels, read_calls, read_kernels
from ci_perf.traces.nsys.ranges import Launches, Range, read_ranges
from ci_perf.traces.nsys.views import opened
from ci_perf.traces.nsys.warnings import warnings_of
from ci_perf.traces.timeline import Dim3, Gpu, KernelStats, ProcessStats, Timeline


def read(path: Path) -> Timeline:
    """Read an nsys export; one that holds no kernel is not an error."""
    with opened(path) as database:
        return _read(database)


def _read(database: sqlite3.Connection) -> Timeline:
    metadata = dict(database.execute("SELECT name, value FROM metadata"))
    (graph_total,) = database.execute("SELECT COALESCE(SUM(end - start), 0) FROM graph").fetchone()
    calls = read_calls(database)
    kernels = read_kernels(database, calls)
    launches = calls.launches_by_process()
    by_name: dict[str, list[Range]] = {}
    for found in read_ranges(database):
        by_name.setdefault(found.name, []).append(found)
    launched = Launches.of(calls, kernels)
    listing = _Listing(kernels, tuple(_variants(database, kernels)), launched, by_name)
    timeline = Timeline(
        tool_version=metadata.get("EXPORT_PRODUCT_VERSION"),
        schema_version=metadata.get("EXPORT_SCHEMA_VERSION"),
        devices=tuple(_gpus(database)),
        kernel_count=len(kernels.variant),
        kernel_total_ns=int(kernels.durations.sum()),
        kernel_busy_ns=kernels.busy_ns(),
        graph_count=_count(database, "graph"),
        graph_total_ns=graph_total,
        memcpy_count=_count(database, "copy"),
        memset_count=_count(database, "memset"),
        nvtx_count=_count(database, "nvtx"),
        call_count=_count(database, "api"),
        kernels=listing.stats(slice(None)),
        ranges={name: len(all_) for name, all_ in by_name.items()},
        inside=listing.inside,
        launches=sum(launches.values()),
        processes=tuple(_processes(launches, kernels.by_process())),
    )
    warnings = [*warnings_of(database, timeline, calls, kernels)]
    if foreign := launched.of_other_threads([found for ranges in by_name.values() for found in ranges]):
        warnings.append(f"{foreign} of {timeline.kernel_count} kernels {guards.OTHER_THREAD}")
    return replace(timeline, warnings=tuple(warnings))


def _count(database: sqlite3.Connection, view: str) -> int:
    (rows,) = database.execute(f"SELECT COUNT(*) FROM {view}").fetchone()  # noqa: S608
    return int(rows)


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


@dataclass(frozen=True, slots=True)
class _Listing:
    """Lists kernels when someone looks: a trace may have hundreds of thousands in its ranges, and few are read."""

    _kernels: Kernels
    _variants: Sequence[tuple[Any, ...]]
    """The name, the short name, the device and the launch parameters of each."""
    _launches: Launches
    _ranges: Mapping[str, Sequence[Range]]

    def inside(self, names: Iterable[str]) -> tuple[KernelStats, ...]:
        """Return the kernels launched inside any range of these names, each once however many ranges it lies in."""
        return self.stats(self._launches.inside(found for name in set(names) for found in self._ranges.get(name, ())))

    def stats(self, chosen: Ints | slice) -> tuple[KernelStats, ...]:
        """Return the stats of each variant of the chosen kernels, the longest total first."""
        stats = (
            KernelStats(*self._variants[variant][:2], *numbers, *self._variants[variant][2:])
            for variant, *numbers in self._kernels.tallies(chosen)
        )
        return tuple(sorted(stats, key=lambda kernel: (-kernel.total_ns, kernel.name)))


def _variants(database: sqlite3.Connection, kernels: Kernels) -> Iterator[tuple[Any, ...]]:
    ids = {number for variant in kernels.variants for number in variant[1:4]}
    rows = (database.execute("SELECT id, value FROM string WHERE id = ?", (number,)).fetchone() for number in ids)
    names = {row[0]: str(row[1]) for row in rows if row and row[1] is not None}
    for device, *variant in kernels.variants:
        name_ids, grid, block, sizes = variant[:3], variant[3:6], variant[6:9], variant[9:]
        full, short, raw = (names.get(number) for number in name_ids)
        otherwise = next((str(number) for number in name_ids if number != -1), "?")  # the trace has no such string
        known = (None if size == -1 else size for size in sizes)
        if lost := next((name for name in (full, short, raw) if name and "\0" in name), None):
            raise ValueError(f"{lost[:40]!r} for the name of a kernel")
        yield full or short or raw or otherwise, short or full or otherwise, device, _dim(grid), _dim(block), *known


def _dim(sizes: Sequence[int]) -> Dim3 | None:
    return None if sizes[0] == -1 else (sizes[0], sizes[1], sizes[2])


def _processes(launches: Mapping[int, int], kernels: Mapping[int, int]) -> Iterator[ProcessStats]:
    for process in sorted((launches.keys() | kernels.keys()) - {0}):
        pid = process >> 24 & 0xFFFFFF  # of a globalPid
        yield ProcessStats(pid, launches.get(process, 0), kernels.get(process, 0))
