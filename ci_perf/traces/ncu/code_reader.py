"""Reads the machine code of kernels from an ncu report; every report has it, whatever was counted."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ci_perf.traces.ncu import blocks
from ci_perf.traces.ncu.code import Code, Instruction
from ci_perf.traces.ncu.report_file import each_launch, name_of, ranges_of

_FIRST = "launch__function_pcs"
"""The address of a kernel's first instruction."""
_INSTRUCTION_BYTES = 16
"""Since Volta."""
_MOST = 100_000
"""Instructions of one kernel; no kernel has as many."""
_SAMPLED = re.compile(r"smsp__pcsamp_warps_issue_stalled_(?!.*_not_issued)\w+")


def read_codes(path: Path) -> tuple[Code, ...]:
    """Return the machine code of each kernel in a report, once for each NVTX range; ProfileError as for `read`."""
    blocks.check(path)
    found: dict[tuple[str, tuple[str, ...]], Code] = {}

    def add(_: int, action: Any) -> None:  # noqa: ANN401 - the package has no types
        name, ranges = name_of(action), ranges_of(action)
        if (name, ranges) not in found:
            found[name, ranges] = Code(name, ranges, tuple(_instructions(action)))

    each_launch(path, add)
    return tuple(found.values())


def _instructions(action: Any) -> Iterator[Instruction]:  # noqa: ANN401
    """Yield the instructions from the first of the function on, with their lines and samples where there are any."""
    if _FIRST not in action.metric_names():
        return
    start = action.metric_by_name(_FIRST)
    first = start.as_uint64(0) if start.num_instances() else start.as_uint64()
    samples = _samples(action)
    for address in range(first, first + _MOST * _INSTRUCTION_BYTES, _INSTRUCTION_BYTES):
        text = action.sass_by_pc(address)
        if not text:
            return
        place = action.source_info(address)
        file, line = (place.file_name(), place.line()) if place else ("", 0)
        yield Instruction(text.strip(), file, line, samples.get(address, 0.0))


def _samples(action: Any) -> dict[int, float]:  # noqa: ANN401
    """Return by address how often warps were sampled there, over all reasons to wait."""
    found: dict[int, float] = {}
    for name in (name for name in action.metric_names() if _SAMPLED.fullmatch(name)):
        metric = action.metric_by_name(name)
        addresses = metric.correlation_ids()
        for place in range(metric.num_instances()) if addresses else ():
            address = int(addresses.as_uint64(place))
            found[address] = found.get(address, 0.0) + float(metric.as_double(place))
    return found
