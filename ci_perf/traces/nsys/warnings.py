"""Warnings of what a trace does not hold, or holds in part: without them, zeros would look like measurements."""

import re
import sqlite3
from collections.abc import Iterator

import numpy as np

from ci_perf.traces import guards
from ci_perf.traces.guards import LeftOut
from ci_perf.traces.nsys.kernels import Calls, Kernels
from ci_perf.traces.timeline import DIAGNOSTIC, Timeline

NEWEST_SCHEMA = 3
"""The newest major version that this module was tried on."""
# Severity 2 is a warning, 3 an error; 1 and 4 are chatter. Complaints about other traces (OpenGL, OS runtime) and
# those of a child process that the rest of the trace disproves say nothing about the kernels.
_COMPLAINTS = """
    SELECT DISTINCT text FROM diagnostic WHERE severity IN (2, 3)
        AND (text GLOB '*CUDA*' OR text GLOB '*CUPTI*' OR text GLOB '*NVTX*')
        AND NOT (text GLOB 'No CUDA events*' AND EXISTS (SELECT 1 FROM kernel))
        AND NOT (text GLOB 'No NVTX events*' AND EXISTS (SELECT 1 FROM nvtx))
    ORDER BY severity DESC, text
"""
_TIMES = """
    SELECT COUNT(*), COUNT(*) FILTER (
        WHERE start = "end" OR typeof(start) != 'integer' OR typeof("end") NOT IN ('integer', 'null')
    ), (SELECT COUNT(*) FROM {0}) FROM any_{0}
"""
"""How many rows there are, how many of them have no time at all, and how many have a sound one."""
_NOT_STARTED = "CUDA profiling might have not been started"
"""Said of each process without CUDA beside those that use it: shells, data loaders, parents that only fork.

One that was to use it, of which nothing was traced, cannot be told from these: kernels are missing then that its base
or baseline has.  So it is repeated only where several processes ran kernels, or none did.
"""


def warnings_of(database: sqlite3.Connection, timeline: Timeline, calls: Calls, kernels: Kernels) -> Iterator[str]:
    """Yield the warnings of a trace; `database` has the views of an export."""
    major = re.match(r"\d+", timeline.schema_version or "")
    if major and int(major[0]) > NEWEST_SCHEMA:
        yield f"schema {timeline.schema_version} is newer than any this reader was tried on ({NEWEST_SCHEMA}.x)"
    unsound = [*_unsound(database, kernels)]
    if timeline.has_kernel_data or not any(" kernels " in text for text in unsound):  # else these say why there is none
        yield from _untraced(timeline, calls, kernels)
    yield from unsound
    if nameless := sum(kernel.count for kernel in timeline.kernels if kernel.name.isdecimal()):
        yield f"{nameless} of {timeline.kernel_count} kernels have no name in the trace, only the number of one"
    if timeline.graph_count:
        yield (
            f"{timeline.graph_count} CUDA graph launches were traced as a whole ({timeline.graph_total_ns} ns): their "
            "kernels are not listed; record with --cuda-graph-trace=node"
        )
    lost = int((kernels.calls < 0).sum())
    if timeline.ranges and lost:
        yield f"{lost} of {timeline.kernel_count} kernels have no launch call in the trace, so no NVTX range has them"
    of_helpers = timeline.has_kernel_data and len(timeline.processes) == 1
    for (text,) in database.execute(_COMPLAINTS):
        if of_helpers and text.startswith(_NOT_STARTED):
            continue
        yield f"{DIAGNOSTIC}{' '.join(text.split())}"


def _untraced(timeline: Timeline, calls: Calls, kernels: Kernels) -> Iterator[str]:
    if not timeline.has_kernel_data:
        yield _why_empty(timeline)
        return
    found = np.zeros(len(calls.launches), dtype=np.bool_)
    found[kernels.calls[kernels.calls >= 0]] = True
    if untraced := int((calls.launches & ~found).sum()):
        of_all = f"{untraced} of {timeline.launches} kernel launches"
        yield f"{of_all} have no kernel in the trace: events were lost or cut off"
    for process in timeline.processes:
        if process.launches and not process.kernel_count:
            yield f"none of the {process.launches} kernels that process {process.pid} launched is in the trace"


def _unsound(database: sqlite3.Connection, kernels: Kernels) -> Iterator[str]:
    left_out, totals = LeftOut(), {}
    for what, view in (("kernels", "kernel"), ("memory copies", "copy")):
        ((rows, no_time, sound),) = database.execute(_TIMES.format(view))
        left_out.add(what, guards.NO_TIME, no_time)
        left_out.add(what, guards.NO_END, rows - no_time - sound)
        totals[what] = rows
    left_out.add("kernels", guards.WITHIN, kernels.within)
    left_out.add("kernels", guards.ACROSS, kernels.across)
    yield from left_out.warnings(totals)


def _why_empty(timeline: Timeline) -> str:
    if timeline.graph_count:
        return "no kernel was traced: all ran inside CUDA graphs, which were traced as a whole"
    if timeline.launches:
        return f"{timeline.launches} kernels were launched but none was traced: the capture is broken, not the GPU idle"
    if timeline.call_count:
        return "no kernel was traced: the program called CUDA but launched no kernel"
    return "no kernel was traced: the trace holds no CUDA activity at all"
