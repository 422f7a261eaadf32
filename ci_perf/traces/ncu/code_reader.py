"""Reads the machine code of kernels from an ncu report; every report has it, whatever was counted."""

import re
from collections.abc import Iterator
from dataclasses import replace
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
_SECTORS = re.compile(r"memory_l2_theoretical_sectors_(?:global|local)")
"""Of the section SourceCounters: the sectors that an instruction requests from L2, as if L1 had none of them."""
_SECTOR_BYTES = 32


def read_codes(path: Path) -> tuple[Code, ...]:
    """Return the machine code of each kernel in a report, once for each NVTX range; ProfileError as for `read`.

    What was counted of its launches is added up.
    """
    blocks.check(path)
    found: dict[tuple[str, tuple[str, ...]], Code] = {}
    firsts: dict[tuple[str, tuple[str, ...]], int | None] = {}

    def add(_: int, action: Any) -> None:  # noqa: ANN401 - the package has no types
        kernel = name_of(action), ranges_of(action)
        first = _first(action)
        if kernel not in found:
            found[kernel], firsts[kernel] = Code(*kernel, tuple(_instructions(action, first))), first
        elif first is not None and firsts[kernel] == first:
            found[kernel] = _with_more(found[kernel], action, first)

    each_launch(path, add)
    return tuple(found.values())


def _first(action: Any) -> int | None:  # noqa: ANN401
    """Return the address of a kernel's first instruction; None where the report does not have it."""
    if _FIRST not in action.metric_names():
        return None
    start = action.metric_by_name(_FIRST)
    return int(start.as_uint64(0) if start.num_instances() else start.as_uint64())


def _instructions(action: Any, first: int | None) -> Iterator[Instruction]:  # noqa: ANN401
    """Yield the instructions from the first of the function on, with their lines and what was counted of them."""
    if first is None:
        return
    samples, sectors = _counted(action, _SAMPLED), _counted(action, _SECTORS)
    for address in range(first, first + _MOST * _INSTRUCTION_BYTES, _INSTRUCTION_BYTES):
        text = action.sass_by_pc(address)
        if not text:
            return
        place = action.source_info(address)
        file, line = (place.file_name(), place.line()) if place else ("", 0)
        counted = samples.get(address, 0.0), sectors.get(address, 0.0) * _SECTOR_BYTES
        yield Instruction(text.strip(), file, line, *counted)


def _with_more(code: Code, action: Any, first: int) -> Code:  # noqa: ANN401
    """Add what was counted of another launch of the same function."""
    samples, sectors = _counted(action, _SAMPLED), _counted(action, _SECTORS)
    added = []
    for place, instruction in enumerate(code.instructions):
        address = first + place * _INSTRUCTION_BYTES
        seen = instruction.samples + samples.get(address, 0.0)
        moved = instruction.bytes + sectors.get(address, 0.0) * _SECTOR_BYTES
        added.append(replace(instruction, samples=seen, bytes=moved))
    return replace(code, instructions=tuple(added), launches=code.launches + 1)


def _counted(action: Any, names: re.Pattern[str]) -> dict[int, float]:  # noqa: ANN401
    """Return by address what was counted there, over all metrics of these names."""
    found: dict[int, float] = {}
    for name in (name for name in action.metric_names() if names.fullmatch(name)):
        metric = action.metric_by_name(name)
        addresses = metric.correlation_ids()
        for place in range(metric.num_instances()) if addresses else ():
            address = int(addresses.as_uint64(place))
            found[address] = found.get(address, 0.0) + float(metric.as_double(place))
    return found
