"""Reads the Chrome trace that torch's profiler exports, into the same values as a trace of nsys.

Times are microseconds with a fraction; a kernel and the call that launched it have one `correlation`, and the range
that the worker opened is a `user_annotation`.
"""

import gzip
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ci_perf.traces import activity
from ci_perf.traces.activity import Call, Work
from ci_perf.traces.timeline import Dim3, Gpu, KernelStats, Timeline
from ci_perf.values.errors import ProfileError
from ci_perf.values.trace import Reading

_CALLS = ("cuda_runtime", "cuda_driver")
_LAUNCH = re.compile(r"cu(da)?Launch(Cooperative)?Kernel")
_COPY = re.compile(r"Memcpy (\w)to(\w)(?: \((\w+) -> (\w+)\))?")
_KINDS = {"HD": "host-to-device", "DH": "device-to-host", "DD": "device-to-device"}
_OF_THE_HOST = ("host_name", "traceName", "trace_id")
_LOCAL = "local memory per thread"
_NO_KERNEL = "no kernel was traced: another profiler may hold CUPTI, or none was launched"
LARGEST = 1 << 30
"""Bytes of a trace that are read: JSON takes ten times its size in memory."""


@dataclass(frozen=True, slots=True)
class ChromeTrace:
    """A trace of torch's profiler."""

    timeline: Timeline
    metrics: Mapping[str, Mapping[str, Reading]]
    """Of each range by name."""
    whole: Mapping[str, Reading]
    """The metrics over all that was traced."""


def read(path: Path, local_bytes: Mapping[str, int] | None = None) -> tuple[ChromeTrace, dict[str, Any]]:
    """Read a trace, also one that is packed by gzip, and return its document too; what is none is refused.

    `local_bytes` are sizes by name of a kernel, which are added to the document.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            raw = file.read(LARGEST + 1)
        document = json.loads(raw) if len(raw) <= LARGEST else None
    except (OSError, EOFError, ValueError, RecursionError) as error:
        raise ProfileError(f"{path}: no Chrome trace: {error}", hint="was the program that wrote it cut off?") from None
    if document is None:
        raise ProfileError(f"{path}: larger than {LARGEST >> 20} MiB", hint="trace fewer launches")
    try:
        add_local_memory(document, local_bytes or {})
        return parse(document), document
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProfileError(
            f"{path}: no Chrome trace of torch's profiler: {error!r}", hint="`export_chrome_trace` writes one"
        ) from None


def parse(document: Mapping[str, Any]) -> ChromeTrace:
    """Read a trace that was loaded from JSON."""
    events = [event for event in document["traceEvents"] if event.get("ph") == "X"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    calls = (_call(event) for event in events if event.get("cat") in _CALLS)
    record = activity.Record(calls, (*(_work("kernel", event) for event in kernels), *_copies(events)))
    ranges: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for event in sorted((e for e in events if e.get("cat") == "user_annotation"), key=lambda event: event["ts"]):
        ranges[event["name"]].append(_span(event))

    def inside(names: Iterable[str]) -> tuple[KernelStats, ...]:
        spans = [span for name in set(names) for span in ranges.get(name, ())]
        started = {call.correlation for span in spans for call in record.begun(*span)} - {None}
        return _stats([kernel for kernel in kernels if _correlation(kernel) in started])

    metrics = {
        name: activity.readings(activity.add([record.measure(*span, record.begun(*span)) for span in spans]))
        for name, spans in ranges.items()
    }
    timeline = Timeline(
        tool_version=None,
        schema_version=str(document["schemaVersion"]) if "schemaVersion" in document else None,
        devices=tuple(map(_gpu, document.get("deviceProperties", ()))),
        kernel_count=len(kernels),
        kernel_total_ns=sum(end - start for start, end in map(_span, kernels)),
        kernel_busy_ns=_busy(kernels),
        graph_count=0,
        graph_total_ns=0,
        memcpy_count=sum(event.get("cat") == "gpu_memcpy" for event in events),
        memset_count=sum(event.get("cat") == "gpu_memset" for event in events),
        nvtx_count=sum(map(len, ranges.values())),
        call_count=len(record.calls),
        kernels=_stats(kernels),
        ranges={name: len(found) for name, found in ranges.items()},
        inside=inside,
        launches=sum(bool(_LAUNCH.match(call.name)) for call in record.calls),
        warnings=() if kernels else (_NO_KERNEL,),
        kind="torch-profiler",
    )
    return ChromeTrace(timeline, metrics, record.whole())


def add_local_memory(document: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
    """Write into the kernels of a trace what their loaders know of them and torch's profiler does not."""
    for event in document["traceEvents"]:
        if event.get("cat") == "kernel" and event["name"] in sizes:
            event.setdefault("args", {})[_LOCAL] = sizes[event["name"]]


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


def _span(event: Mapping[str, Any]) -> tuple[int, int]:
    start = round(float(event["ts"]) * 1000)
    return start, start + round(float(event["dur"]) * 1000)


def _correlation(event: Mapping[str, Any]) -> tuple[int, int] | None:
    number = event.get("args", {}).get("correlation")
    return None if number is None else (0, int(number))


def _call(event: Mapping[str, Any]) -> Call:
    return Call(event["name"], *_span(event), int(event["tid"]), _correlation(event))


def _work(kind: str, event: Mapping[str, Any], size: int = 0, pageable: bool | None = None) -> Work:
    return Work(kind, *_span(event), _correlation(event), size, pageable)


def _copies(events: Sequence[Mapping[str, Any]]) -> Iterator[Work]:
    for event in events:
        if event.get("cat") == "gpu_memset":
            yield _work("memset", event)
        elif event.get("cat") == "gpu_memcpy":
            size = int(event.get("args", {}).get("bytes", 0))
            named = _COPY.match(event["name"])
            kind = _KINDS.get(named[1] + named[2], "copy") if named else "copy"
            memories = {named[3], named[4]} if named else {None}
            crosses = kind in {"host-to-device", "device-to-host"}
            yield _work(kind, event, size, (None if None in memories else "Pageable" in memories) if crosses else False)


def _busy(kernels: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for kernel in kernels:
        spans[kernel.get("args", {}).get("device", 0)].append(_span(kernel))
    return {device: activity.union(found)[0] for device, found in sorted(spans.items())}


def _gpu(device: Mapping[str, Any]) -> Gpu:
    major, minor = device.get("computeMajor"), device.get("computeMinor")
    capability = None if major is None or minor is None else f"{major}.{minor}"
    return Gpu(device.get("id"), device.get("name", "?"), capability, device.get("numSms"))


def _stats(kernels: Sequence[Mapping[str, Any]]) -> tuple[KernelStats, ...]:
    """Group kernels by name and launch parameters; the longest total first."""
    groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for event in kernels:
        args = event.get("args", {})
        start, end = _span(event)
        key = (
            *(event["name"], args.get("device", 0), _dim(args.get("grid")), _dim(args.get("block"))),
            *(args.get("registers per thread"), args.get("shared memory"), args.get(_LOCAL)),
        )
        groups[key].append(end - start)
    stats = [
        KernelStats(
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
        for (name, device, grid, block, registers, shared, local), durations in groups.items()
    ]
    return tuple(sorted(stats, key=lambda k: (-k.total_ns, k.name)))


def _dim(sizes: Sequence[int] | None) -> Dim3 | None:
    return (int(sizes[0]), int(sizes[1]), int(sizes[2])) if sizes else None
