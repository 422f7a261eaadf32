"""What the events of a trace of torch's profiler say, in the few values that are needed: there may be millions."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ci_perf.traces import guards
from ci_perf.traces.activity import Call, Work
from ci_perf.traces.guards import LeftOut
from ci_perf.traces.timeline import Dim3

_CATEGORIES = {"runtime": "cuda_runtime", "driver": "cuda_driver", "memcpy": "gpu_memcpy", "memset": "gpu_memset"}
"""Today's names of those that torch 1.8 to 1.11 wrote, with a capital."""
_CALLS = ("cuda_runtime", "cuda_driver")
_WORK = {"kernel": "kernels", "gpu_memcpy": "memory copies", "gpu_memset": "memsets"}
_COPY = re.compile(r"Memcpy (\w)to(\w)(?: \((\w+) -> (\w+)\))?")
_KINDS = {"HD": "host-to-device", "DH": "device-to-host", "DD": "device-to-device"}
LOCAL = "local memory per thread"
"""An argument of a kernel that torch does not write."""
_US = 1000
"""Nanoseconds of the unit that a trace's times have."""


@dataclass(slots=True)
class Events:
    """What the events of a trace say, in the few values that are needed: there may be millions."""

    sizes: Mapping[str, int]
    calls: list[Call] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)
    """The kernels, copies and memsets."""
    variants: dict[tuple[Any, ...], int] = field(default_factory=dict)
    """A kernel with its launch parameters on one device, numbered."""
    variant: list[int] = field(default_factory=list)
    """Of each piece of work: the number of its variant, -1 where it is no kernel."""
    streams: dict[tuple[Any, ...], int] = field(default_factory=dict)
    stream: list[int] = field(default_factory=list)
    """Of each piece of work: the number of the stream whose kernels run in order; -1 where it may run beside others."""
    threads: dict[Any, int] = field(default_factory=dict)
    ranges: dict[str, list[tuple[int, int, int]]] = field(default_factory=lambda: defaultdict(list))
    """By name: begin, end and thread."""
    totals: Counter[str] = field(default_factory=Counter)
    left_out: LeftOut = field(default_factory=LeftOut)

    def add(self, events: Iterable[Mapping[str, Any]]) -> "Events":
        """Take what is needed of each event."""
        for event in events:
            if event.get("ph") == "X":
                kind = category(event)
                if kind in _WORK:
                    self._add_work(kind, event)
                elif kind in _CALLS:
                    self._add_call(event)
                elif kind == "user_annotation":
                    self._add_range(event)
        return self

    def _add_call(self, event: Mapping[str, Any]) -> None:
        start, end = _span(event)
        self.totals["CUDA calls"] += 1
        if start is None or end is None or end < start:
            self.left_out.add("CUDA calls", guards.NO_END if start is not None else guards.NO_TIME)
        else:
            self.calls.append(Call(str(event["name"]), start, end, self._thread(event), _correlation(event)))

    def _add_range(self, event: Mapping[str, Any]) -> None:
        start, end = _span(event)
        self.totals["ranges"] += 1
        if start is None or end is None or end < start:
            self.left_out.add("ranges", guards.NO_END if start is not None else guards.NO_TIME)
        else:
            self.ranges[str(event["name"])].append((start, end, self._thread(event)))

    def _add_work(self, kind: str, event: Mapping[str, Any]) -> None:
        what, name = _WORK[kind], str(event["name"])
        start, end = _span(event)
        self.totals[what] += 1
        if self.left_out.add(what, guards.fault(start, end)) or start is None or end is None:
            return
        args = event.get("args", {})
        if kind == "kernel":
            self.work.append(Work("kernel", start, end, _correlation(event)))
            self.variant.append(
                self.variants.setdefault(_variant(name, args, self.sizes.get(name)), len(self.variants))
            )
            place = (event.get("pid"), args.get("device", 0), args.get("context"), args.get("stream"))
            alone = args.get("stream") is None or args.get("graph node id")  # a graph has branches
            self.stream.append(-1 if alone else self.streams.setdefault(place, len(self.streams)))
        else:
            self.work.append(_copy(event, start, end) if kind == "gpu_memcpy" else _memset(event, start, end))
            self.variant.append(-1)
            self.stream.append(-1)

    def _thread(self, event: Mapping[str, Any]) -> int:
        thread = (event.get("pid"), str(event.get("tid")))
        return self.threads.setdefault(thread, len(self.threads))

    def drop_overlapping(self) -> int:
        """Leave out the kernels inside another one of their stream; return how many others overlap one."""
        import numpy as np  # it takes a tenth of a second

        of_graphs = {call.correlation for call in self.calls if "GraphLaunch" in call.name} - {None}
        places = [p for p, s in enumerate(self.stream) if s >= 0 and self.work[p].correlation not in of_graphs]
        if not places:
            return 0
        rows = ((self.work[place].start, self.work[place].end, self.stream[place]) for place in places)
        within, across = guards.overlaps(*np.array(list(rows), dtype=np.int64).T)
        dropped = {places[place] for place in np.flatnonzero(within).tolist()}
        if dropped:
            self.left_out.add("kernels", guards.WITHIN, len(dropped))
            kept = [place for place in range(len(self.work)) if place not in dropped]
            self.work = [self.work[place] for place in kept]
            self.variant = [self.variant[place] for place in kept]
        return across


def category(event: Mapping[str, Any]) -> str:
    """Return the kind of an event, under the name that it has today."""
    name = str(event.get("cat", "")).lower()
    return _CATEGORIES.get(name, name)


def _span(event: Mapping[str, Any]) -> tuple[int | None, int | None]:
    start, length = (guards.nanoseconds(event.get(key), _US) for key in ("ts", "dur"))
    return start, None if start is None or length is None else start + length


def _correlation(event: Mapping[str, Any]) -> tuple[int, int] | None:
    number = event.get("args", {}).get("correlation")
    return None if number is None else (0, int(number))


def _memset(event: Mapping[str, Any], start: int, end: int) -> Work:
    return Work("memset", start, end, _correlation(event))


def _copy(event: Mapping[str, Any], start: int, end: int) -> Work:
    length = int(event.get("args", {}).get("bytes", 0))
    named = _COPY.match(event["name"])
    kind = _KINDS.get(named[1] + named[2], "copy") if named else "copy"
    memories = {named[3], named[4]} if named else {None}
    crosses = kind in {"host-to-device", "device-to-host"}
    pageable = (None if None in memories else "Pageable" in memories) if crosses else False
    return Work(kind, start, end, _correlation(event), length, pageable)


def _variant(name: str, args: Mapping[str, Any], local: int | None) -> tuple[Any, ...]:
    local = size(args.get(LOCAL)) if local is None else local
    return (
        *(name, int(args.get("device", 0)), _dim(args.get("grid")), _dim(args.get("block"))),
        *(size(args.get("registers per thread")), size(args.get("shared memory")), local),
    )


def size(value: object) -> int | None:
    """Return a count; None for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _dim(sizes: object) -> Dim3 | None:
    if not isinstance(sizes, list) or len(sizes) != 3 or any(not size(length) for length in sizes):
        return None
    return (sizes[0], sizes[1], sizes[2])
