"""Baselines: what was agreed for one kernel on one GPU model."""

import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

from ci_perf.values.device import Device, Provenance, Toolchain
from ci_perf.values.extensible import (
    NOT_EMPTY,
    OMIT_DEFAULT,
    Better,
    Count,
    Extensible,
    Keyword,
    Name,
    NonNegative,
    Positive,
    Target,
    Text,
    Unit,
)
from ci_perf.values.kernel import KernelSpec, Params
from ci_perf.values.measurement import Part


@dataclass(frozen=True, slots=True)
class EarlierSession(Extensible):
    """A session before that of the baseline, of the same code, on another day."""

    date: Text
    """When it was measured, as in `provenance`."""
    medians: Annotated[tuple[Positive, ...], NOT_EMPTY]
    """The medians of its processes, ascending."""


@dataclass(frozen=True, slots=True)
class BaselineTime(Extensible):
    """The agreed time of a case: a summary for people, and the values for any other statistic."""

    method: Text
    """How the time was taken; times of different methods are never compared."""
    median: Positive
    """The median of the medians of the processes, per launch."""
    noise_floor: NonNegative
    """The largest distance of a replicate's median from `median`, as a fraction."""
    replicates: Annotated[tuple[Annotated[tuple[Positive, ...], NOT_EMPTY], ...], NOT_EMPTY]
    """The samples of each process, ascending; processes in ascending order of their median."""
    sm_clock_hz: Positive | None = None
    """The median SM clock of the processes: a change of the clock is not a change of the code."""
    unit: Unit = "s"
    """Base unit of the values; default: s."""
    better: Better = "lower"
    """Which values are better; default: lower."""
    earlier: Annotated[tuple[EarlierSession, ...], OMIT_DEFAULT] = ()
    """Other sessions of the same code, the newest first."""

    @property
    def sessions(self) -> tuple[tuple[float, ...], ...]:
        """The medians of the processes of each session, the newest session first."""
        newest = tuple(statistics.median(values) for values in self.replicates)
        return newest, *(session.medians for session in self.earlier)


@dataclass(frozen=True, slots=True)
class KnownScatter(Extensible):
    """What the processes of a baseline say of the scatter of a pair of processes."""

    method: Text
    """How the processes were timed."""
    sd: NonNegative
    """Of the logarithm of head / base, for unchanged code."""
    degrees: Count
    """The degrees of freedom of `sd`."""


@dataclass(frozen=True, slots=True)
class BaselineCounter(Extensible):
    """The agreed readings of one counter."""

    unit: str
    values: Annotated[tuple[float, ...], NOT_EMPTY]
    """One for each profiled launch, ascending."""


@dataclass(frozen=True, slots=True)
class BaselineCase(Extensible):
    """What was agreed for one case."""

    params: Params
    target: Target
    """The function that ran: `reference` where `launch` does not run on the device."""
    time: BaselineTime
    counters: Mapping[str, BaselineCounter] = field(default_factory=dict)
    """By the name of the counter; those that every profiled launch had."""
    kernels: Annotated[tuple[Text, ...], NOT_EMPTY, OMIT_DEFAULT] = ()
    """The GPU kernels that ran, by the names that the trace has: demangled, else short, else mangled (`_Z...`)."""
    parts: Annotated[tuple[Part, ...], OMIT_DEFAULT] = ()
    """The parts of a program's time."""
    memory_bytes: Annotated[Count | None, OMIT_DEFAULT] = None
    """The peak of device memory, the largest of all processes; None: not known."""


@dataclass(frozen=True, slots=True)
class Baseline(Extensible):
    """A baseline: what was agreed for one kernel on one GPU model."""

    kernel: Name
    device: Device
    toolchain: Toolchain
    provenance: Provenance
    cases: Annotated[Mapping[str, BaselineCase], Keyword("minProperties", 1)]
    """By the name of the case."""


def path_of(device: Device, kernel: str) -> str:
    """Return where a baseline lies below the baselines folder.

    >>> path_of(Device("cuda", "NVIDIA L4"), "sdpa")
    'l4/sdpa.json'
    """
    return f"{device.slug}/{kernel}.json"


def baseline_for(baselines: Mapping[tuple[str, str], Baseline], device: Device, kernel: str) -> Baseline | None:
    """Return the baseline of a kernel on a device; `baselines` is by the slug of the device and the kernel."""
    return next((baselines[slug, kernel] for slug in device.slugs if (slug, kernel) in baselines), None)


def usual_cases(spec: KernelSpec, device: Device) -> tuple[str, ...]:
    """Return the cases of a kernel that a baseline of the device must hold: those that run by default."""
    return spec.cpu_cases if device.kind == "cpu" and spec.cpu_cases is not None else tuple(spec.cases)


def selected_rows(baseline: Baseline, spec: KernelSpec, selected: Collection[str]) -> Baseline:
    """Return the baseline without the rows that a selection of cases does not need.

    Such are the rows of usual cases that are not selected. Others stay, as a later merge finds removed cases by them,
    and so do all rows if every usual case is selected: then the run may replace the baseline.
    """
    dropped = {*usual_cases(spec, baseline.device)} - {*selected}
    return replace(baseline, cases={name: case for name, case in baseline.cases.items() if name not in dropped})


def contradictions(baseline: Baseline, path: str) -> list[str]:
    """Return what is wrong with a baseline file whatever the kernels are; `path` is relative to the folder."""
    problems = []
    expected = path_of(baseline.device, baseline.kernel)
    if path != expected:
        problems.append(f"holds {baseline.kernel} on {baseline.device.name}, so its place is {expected}")
    for name, case in baseline.cases.items():
        middle = statistics.median(statistics.median(values) for values in case.time.replicates)
        if abs(middle / case.time.median - 1) > 1e-9:
            problems.append(f"key `cases.{name}.time.median`: does not follow from the values beside it")
    return problems
