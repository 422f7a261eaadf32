"""Reads the machine code of kernels from an ncu report; every report has it, whatever was counted."""

import re
from collections.abc import Iterator, Mapping
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
_SECTOR_BYTES = 32
_METRICS: Mapping[str, tuple[re.Pattern[str], int]] = {
    "samples": (re.compile(r"smsp__pcsamp_warps_issue_stalled_(?!.*_not_issued)\w+"), 1),
    "bytes": (re.compile(r"memory_l2_theoretical_sectors_(?:global|local)"), _SECTOR_BYTES),
    "shared_wavefronts": (re.compile(r"memory_l1_wavefronts_shared"), 1),
    "excessive_wavefronts": (re.compile(r"derived__memory_l1_wavefronts_shared_excessive"), 1),
}
"""By field of an instruction: the metrics of the section SourceCounters that are added up for it, and their unit.

The sectors are those that an instruction requests from L2, as if L1 had none of them. The excessive wavefronts are
those beyond `memory_l1_wavefronts_shared_ideal`.
"""


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
    counted = _counted(action)
    for address in range(first, first + _MOST * _INSTRUCTION_BYTES, _INSTRUCTION_BYTES):
        text = action.sass_by_pc(address)
        if not text:
            return
        place = action.source_info(address)
        file, line = (place.file_name(), place.line()) if place else ("", 0)
        yield Instruction(text.strip(), file, line, **{field: of.get(address, 0.0) for field, of in counted.items()})


def _with_more(code: Code, action: Any, first: int) -> Code:  # noqa: ANN401
    """Add what was counted of another launch of the same function."""
    counted = _counted(action)
    added = []
    for place, instruction in enumerate(code.instructions):
        address = first + place * _INSTRUCTION_BYTES
        sums = {field: getattr(instruction, field) + of.get(address, 0.0) for field, of in counted.items()}
        added.append(replace(instruction, **sums))
    return replace(code, instructions=tuple(added), launches=code.launches + 1)


def _counted(action: Any) -> dict[str, dict[int, float]]:  # noqa: ANN401
    """Return by field of an instruction what was counted at each address."""
    return {field: _by_address(action, names, unit) for field, (names, unit) in _METRICS.items()}


def _by_address(action: Any, names: re.Pattern[str], unit: int) -> dict[int, float]:  # noqa: ANN401
    """Return by address what was counted there, over all metrics of these names."""
    found: dict[int, float] = {}
    for name in (name for name in action.metric_names() if names.fullmatch(name)):
        metric = action.metric_by_name(name)
        addresses = metric.correlation_ids()
        for place in range(metric.num_instances()) if addresses else ():
            address = int(addresses.as_uint64(place))
            found[address] = found.get(address, 0.0) + unit * float(metric.as_double(place))
    return found
