"""Reads the Chrome trace that torch's profiler exports, into the same values as a trace of nsys.

Times are microseconds with a fraction; a kernel and the call that launched it have one `correlation`, and the range
that the worker opened is a `user_annotation`. What was not measured is left out and counted, as in a trace of nsys.
"""

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ci_perf.traces import activity, chrome_json, guards
from ci_perf.traces.activity import Work
from ci_perf.traces.chrome_events import LOCAL, Events, category, size
from ci_perf.traces.timeline import Gpu, KernelStats, Timeline
from ci_perf.values.errors import ProfileError
from ci_perf.values.trace import Reading

_LAUNCH = re.compile(r"cu(da)?Launch(Cooperative)?Kernel")
_OF_THE_HOST = ("host_name", "traceName", "trace_id")
_NO_KERNEL = "no kernel was traced: another profiler may hold CUPTI, or none was launched"
_OTHER_THREAD = "were launched by another thread than that of the range that they are counted in"

_Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ChromeTrace:
    """A trace of torch's profiler."""

    timeline: Timeline
    metrics: Mapping[str, Mapping[str, Reading]]
    """Of each range by name."""
    whole: Mapping[str, Reading]
    """The metrics over all that was traced."""


def read_trace(path: Path, local_bytes: Mapping[str, int] | None = None) -> ChromeTrace:
    """Read a trace, also one that is packed by gzip; what is none is a ProfileError.

    `local_bytes` are sizes by name of a kernel: what their loaders know of them and torch's profiler does not.
    """
    header: dict[str, Any] = {}
    with _refusing(path):
        events = Events(local_bytes or {}).add(chrome_json.read(path, header))
        return _sum_up(events, header)


def read(path: Path, local_bytes: Mapping[str, int] | None = None) -> tuple[ChromeTrace, dict[str, Any]]:
    """Read a trace as `read_trace` does, and return its document too, to which `local_bytes` are added."""
    header: dict[str, Any] = {}
    with _refusing(path):
        events = list(chrome_json.read(path, header, parse_float=float))
        document = {**header, "traceEvents": events}
        add_local_memory(document, local_bytes or {})
        return read_trace(path, local_bytes), document


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError) as error:
        raise ProfileError(
            f"{path}: no Chrome trace of torch's profiler: {error!r}", hint="`export_chrome_trace` writes one"
        ) from None


def parse(document: Mapping[str, Any]) -> ChromeTrace:
    """Read a trace that was loaded from JSON."""
    return _sum_up(Events({}).add(document["traceEvents"]), document)


def add_local_memory(document: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
    """Write into the kernels of a trace what their loaders know of them and torch's profiler does not."""
    for event in document["traceEvents"]:
        if category(event) == "kernel" and event.get("name") in sizes:
            event.setdefault("args", {})[LOCAL] = sizes[event["name"]]


def merge(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Put several traces of one machine into one, for people to look at.

    The arrows of a trace are numbered, and so are the processes of each: the numbers of the next trace follow on.
    """
    merged = {k: v for k, v in documents[0].items() if k not in _OF_THE_HOST} | {"traceEvents": []}
    for index, document in enumerate(documents):
        for event in document["traceEvents"]:
            arrow = event.get("ph") in {"s", "t", "f"} and isinstance(event.get("id"), int)
            merged["traceEvents"].append({**event, "id": event["id"] + (index << 32)} if arrow else event)
    return merged


def _sum_up(events: Events, header: Mapping[str, Any]) -> ChromeTrace:
    """Sum up the trace; `header` has the keys beside the events."""
    across = events.drop_overlapping()
    record = activity.Record(events.calls, events.work)
    kernels = [place for place, variant in enumerate(events.variant) if variant >= 0]
    listing = _Listing(events.work, events.variant, tuple(events.variants), kernels, record, events.ranges)
    spans = {name: sorted(found) for name, found in events.ranges.items()}
    metrics = {
        name: activity.readings(activity.add([record.measure(s, e, record.begun(s, e)) for s, e, _ in found]))
        for name, found in sorted(spans.items(), key=lambda item: item[1][0])
    }
    warnings = [*events.left_out.warnings(dict(events.totals)), *listing.told()]
    if across:
        warnings.append(f"{across} of {events.totals['kernels']} kernels {guards.ACROSS}")
    timeline = Timeline(
        tool_version=None,
        schema_version=str(header["schemaVersion"]) if "schemaVersion" in header else None,
        devices=tuple(map(_gpu, header.get("deviceProperties") or ())),
        kernel_count=len(kernels),
        kernel_total_ns=sum(events.work[place].end - events.work[place].start for place in kernels),
        kernel_busy_ns=listing.busy(),
        graph_count=0,
        graph_total_ns=0,
        memcpy_count=sum(work.kind not in {"kernel", "memset"} for work in events.work),
        memset_count=sum(work.kind == "memset" for work in events.work),
        nvtx_count=sum(map(len, spans.values())),
        call_count=len(record.calls),
        kernels=listing.stats(kernels),
        ranges={name: len(spans[name]) for name in metrics},
        inside=listing.inside,
        launches=sum(bool(_LAUNCH.match(call.name)) for call in record.calls),
        warnings=(*warnings, *(() if events.totals["kernels"] else (_NO_KERNEL,))),
        kind="torch-profiler",
    )
    return ChromeTrace(timeline, metrics, record.whole())


@dataclass(frozen=True, slots=True)
class _Listing:
    """Lists the kernels of a trace."""

    work: Sequence[Work]
    variant: Sequence[int]
    variants: Sequence[tuple[Any, ...]]
    kernels: Sequence[int]
    """Places in `work`."""
    record: activity.Record
    ranges: Mapping[str, Sequence[tuple[int, int, int]]]

    def _launched(self, names: Iterable[str]) -> set[tuple[int, int] | None]:
        spans = [span for name in set(names) for span in self.ranges.get(name, ())]
        return {call.correlation for start, end, _ in spans for call in self.record.begun(start, end)} - {None}

    def inside(self, names: Iterable[str]) -> tuple[KernelStats, ...]:
        """Return the kernels whose launch any thread began inside a range of these names."""
        started = self._launched(names)
        return self.stats(place for place in self.kernels if self.work[place].correlation in started)

    def told(self) -> Iterator[str]:
        """Yield a warning of the kernels in ranges that another thread than that of the range launched."""
        if len({call.thread for call in self.record.calls}) < 2:
            return
        own: set[tuple[int, int] | None] = set()
        foreign: set[tuple[int, int] | None] = set()
        for start, end, thread in (span for spans in self.ranges.values() for span in spans):
            for call in self.record.begun(start, end):
                (own if call.thread == thread else foreign).add(call.correlation)
        others = foreign - own - {None}
        if count := sum(self.work[place].correlation in others for place in self.kernels):
            yield f"{count} of {len(self.kernels)} kernels {_OTHER_THREAD}"

    def stats(self, places: Iterable[int]) -> tuple[KernelStats, ...]:
        """Group kernels by name and launch parameters; the longest total first."""
        groups: dict[int, list[int]] = defaultdict(list)
        for place in places:
            groups[self.variant[place]].append(self.work[place].end - self.work[place].start)
        stats = (_stats(self.variants[number], durations) for number, durations in groups.items())
        return tuple(sorted(stats, key=lambda kernel: (-kernel.total_ns, kernel.name)))

    def busy(self) -> dict[int, int]:
        """Return the time during which at least one kernel ran, by device."""
        spans: dict[int, list[_Span]] = defaultdict(list)
        for place in self.kernels:
            spans[self.variants[self.variant[place]][1]].append((self.work[place].start, self.work[place].end))
        return {device: activity.union(found)[0] for device, found in sorted(spans.items())}


def _gpu(device: Mapping[str, Any]) -> Gpu:
    major, minor = device.get("computeMajor"), device.get("computeMinor")
    capability = None if major is None or minor is None else f"{major}.{minor}"
    return Gpu(size(device.get("id")), str(device.get("name", "?")), capability, size(device.get("numSms")))


def _stats(variant: tuple[Any, ...], durations: Sequence[int]) -> KernelStats:
    name, device, grid, block, registers, shared, local = variant
    return KernelStats(
        name=name,
        short_name=name,
        count=len(durations),
        total_ns=sum(durations),
        median_ns=statistics.median(durations),
        min_ns=min(durations),
        max_ns=max(durations),
        device=device,
        grid=grid,
        block=block,
        registers_per_thread=registers,
        static_shared=None,
        dynamic_shared=shared,  # torch gives the sum of both
        local_per_thread=local,
    )
