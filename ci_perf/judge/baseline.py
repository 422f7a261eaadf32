"""Baselines: make them from a run, check them, and compare them with the run that replaces them."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ci_perf.judge.stats import clock_of, process_medians, spread
from ci_perf.values.baseline import Baseline, BaselineCase, BaselineCounter, BaselineTime, path_of, usual_cases
from ci_perf.values.device import Device, Toolchain
from ci_perf.values.errors import ConfigError
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.measurement import Measurement
from ci_perf.values.metrics import BY_NAME, Trust
from ci_perf.values.reasons import Reason
from ci_perf.values.run import Run
from ci_perf.values.sessions import on_device
from ci_perf.values.trace import Reading

FEWEST_PROCESSES = 5
"""With fewer no interval of 99 % is finite, however many processes the later run has."""


def make_baselines(run: Run, kernels: Sequence[str], accepted_by: str | None, source: str) -> tuple[Baseline, ...]:
    """Turn what a run measured into baselines, whole kernels at a time.

    A run that was cut short, was disturbed or slowed down on purpose, or lacks a number for one of a kernel's cases is
    refused with the case's name: half a baseline would be compared with half a kernel.
    """
    _check_fit(run, source)
    known = {measurement.kernel for measurement in run.measurements}
    for name in kernels:
        if name not in known:
            raise ConfigError(f"{source}: the run has no kernel `{name}`", hint="it has " + ", ".join(sorted(known)))
    provenance = replace(run.provenance, accepted_by=accepted_by, repository=None, head=None, shard=None)
    chosen = list(_chosen(run, kernels, source))
    for device, _, spec, mine in chosen:
        _check_whole(spec, device, mine, source)
    for _, _, _, mine in chosen:
        for measurement in mine:
            _check_enough(measurement, source)
    baselines = [
        Baseline(spec.name, device, toolchain, provenance, {m.case: _baseline_case(m) for m in mine})
        for device, toolchain, spec, mine in chosen
    ]
    return tuple(baselines)


def _check_fit(run: Run, source: str) -> None:
    """Refuse a run that as a whole is no measurement of the kernels as they are."""
    if run.planted is not None:
        raise ConfigError(f"{source}: this run was slowed down on purpose", hint="a baseline needs an honest run")
    if run.against is not None:
        raise ConfigError(f"{source}: measured in turns with {run.against.ref}", hint="accept a run without --against")
    if run.fuzzed or run.sanitized:
        raise ConfigError(f"{source}: this run measured nothing", hint="accept a run without --fuzz and --sanitize")
    if not run.finished:
        raise ConfigError(f"{source}: this run did not finish", hint="`ci-perf run` again and accept that run")


def _chosen(
    run: Run, kernels: Sequence[str], source: str
) -> Iterator[tuple[Device, Toolchain, KernelSpec, list[Measurement]]]:
    """Return each kernel on each model of device, with all that any session measured of it."""
    for model in run.devices:
        sessions = on_device(run, model)
        for spec in run.kernels:
            by = [session for session in sessions if any(m.kernel == spec.name for m in session.measurements)]
            mine = [m for session in by for m in session.measurements if m.kernel == spec.name]
            if not mine or (kernels and spec.name not in kernels):
                continue
            broken = [note.message for session in by for note in session.notes if note.code == Reason.MEMORY_ERRORS]
            if broken and model.kind == "cuda":
                raise ConfigError(f"{source}: {broken[0]}", hint="run again on a GPU whose memory is sound")
            machines = [(next(d for d in s.devices if d.slug == model.slug), s.toolchain) for s in by]
            if any(machine != machines[0] for machine in machines):
                raise ConfigError(
                    f"{source}: the cases of `{spec.name}` were measured on machines that differ",
                    hint="accept a run of one machine: `ci-perf run` without shards, or on runners that are alike",
                )
            yield *machines[0], spec, mine


def _check_whole(spec: KernelSpec, device: Device, measurements: Sequence[Measurement], source: str) -> None:
    measured = {m.case for m in measurements if not m.failure and len(m.methods) == 1 and _positive(m)}
    for case in usual_cases(spec, device):
        if case not in measured:
            raise ConfigError(
                f"{source}: no usable time for case `{spec.name}/{case}` on {device.slug}",
                hint=f"`ci-perf run {spec.name}` measures the whole kernel; mend a case that failed first",
            )


def _positive(measurement: Measurement) -> bool:
    return all(sample > 0 for replicate in measurement.replicates for sample in replicate.seconds)


def _check_enough(measurement: Measurement, source: str) -> None:
    disturbed = sorted({reason for replicate in measurement.replicates for reason in replicate.disturbed})
    if disturbed:
        raise ConfigError(
            f"{source}: `{measurement.id}` was disturbed: {', '.join(disturbed)}",
            hint="measure again where nothing disturbs the GPU, and accept that run",
        )
    if len(measurement.replicates) < FEWEST_PROCESSES:
        raise ConfigError(
            f"{source}: `{measurement.id}` was timed in {len(measurement.replicates)} processes",
            hint=f"a baseline needs {FEWEST_PROCESSES} or more: run with --processes 6",
        )


def _baseline_case(measurement: Measurement) -> BaselineCase:
    medians = process_medians(measurement.replicates)
    ordered = sorted(measurement.replicates, key=lambda r: statistics.median(r.seconds))
    time = BaselineTime(
        method=measurement.methods[0],
        median=statistics.median(medians),
        noise_floor=round(spread(medians), 6),
        replicates=tuple(tuple(sorted(r.seconds)) for r in ordered),
        sm_clock_hz=clock_of(measurement.replicates),
        unit=measurement.unit,
        better=measurement.better,
    )
    kernels = measurement.timeline.kernels if measurement.timeline else ()
    names = tuple(dict.fromkeys(kernel.name for kernel in kernels))
    return BaselineCase(
        measurement.params, measurement.target, time, _counters(measurement.counters), names, measurement.parts
    )


def _counters(launches: Sequence[Mapping[str, Reading]]) -> dict[str, BaselineCounter]:
    """Keep the counters that every launch has; those said to be exact only where they repeated."""
    counters = {}
    for name, metric in BY_NAME.items():
        values = [r.value for launch in launches if (r := launch.get(name)) is not None and r.value is not None]
        if not values or len(values) < len(launches):
            continue
        if metric.trust is Trust.EXACT and (len(values) < 2 or len(set(values)) > 1):
            continue
        counters[name] = BaselineCounter(metric.unit, tuple(sorted(values)))
    return counters


@dataclass(frozen=True, slots=True)
class Difference:
    """One line of what accepting a run would change."""

    kernel: str
    case: str
    device: str
    what: str
    """`added`, `removed`, `time` or the name of a counter."""
    old: float | None
    new: float | None
    unit: str = "s"


def diff_baselines(old: Baseline | None, new: Baseline) -> tuple[Difference, ...]:
    """List what `new` changes: cases that come and go, medians, counters; what is equal is left out."""
    before = old.cases if old else {}
    rows = []
    for case in sorted({*before, *new.cases}):
        a, b = before.get(case), new.cases.get(case)
        unit = next(known.time.unit for known in (b, a) if known)
        rows += [Difference(new.kernel, case, new.device.slug, *row, unit) for row in _diff_case(a, b)]
    return tuple(rows)


def _diff_case(old: BaselineCase | None, new: BaselineCase | None) -> list[tuple[str, float | None, float | None]]:
    if old is None or new is None:
        return [
            ("added" if old is None else "removed", old.time.median if old else None, new.time.median if new else None)
        ]
    rows: list[tuple[str, float | None, float | None]] = []
    if old.time.median != new.time.median:
        rows.append(("time", old.time.median, new.time.median))
    for name in sorted({*old.counters, *new.counters}):
        a, b = (statistics.median(c.counters[name].values) if name in c.counters else None for c in (old, new))
        if a != b:
            rows.append((name, a, b))
    return rows


def check_baseline(baseline: Baseline, path: str, specs: Mapping[str, KernelSpec]) -> list[str]:
    """Return what is wrong with a baseline file that its schema cannot see; `path` is relative to the folder."""
    problems = []
    expected = path_of(baseline.device, baseline.kernel)
    if path != expected:
        problems.append(f"holds {baseline.kernel} on {baseline.device.name}, so its place is {expected}")
    spec = specs.get(baseline.kernel)
    if spec is None:
        return [*problems, f"there is no kernel `{baseline.kernel}`: remove the file or restore the kernel"]
    for name, case in baseline.cases.items():
        if name not in spec.cases:
            problems.append(f"key `cases.{name}`: the kernel has no such case")
        elif dict(spec.cases[name]) != dict(case.params):
            problems.append(f"key `cases.{name}.params`: differ from {spec.folder}/kernel.toml")
        medians = [statistics.median(values) for values in case.time.replicates]
        if abs(statistics.median(medians) / case.time.median - 1) > 1e-9:
            problems.append(f"key `cases.{name}.time.median`: does not follow from the values beside it")
    return problems
