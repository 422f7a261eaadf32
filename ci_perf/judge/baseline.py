"""Baselines: make them from a run, check them, and compare them with the run that replaces them."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ci_perf.judge.checks import memory_errors
from ci_perf.judge.sessions import sessions_of
from ci_perf.judge.stats import clock_of, process_medians, spread
from ci_perf.judge.stored import same_machine
from ci_perf.values.baseline import (
    Baseline,
    BaselineCase,
    BaselineCounter,
    BaselineTime,
    EarlierSession,
    contradictions,
    usual_cases,
)
from ci_perf.values.device import Device, Toolchain
from ci_perf.values.errors import ConfigError
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.measurement import PEAK_MEMORY, Measurement
from ci_perf.values.metrics import BY_NAME, Trust
from ci_perf.values.run import Run, on_device
from ci_perf.values.trace import Reading

FEWEST_PROCESSES = 5
"""With fewer, no interval of 99 % is finite, for any number of processes of the later run."""
MOST_SESSIONS = 8
"""A baseline keeps so many; the oldest one is left out."""


def make_baselines(run: Run, kernels: Sequence[str], accepted_by: str | None, source: str) -> tuple[Baseline, ...]:
    """Make baselines of whole kernels from a run; `source` names its file in errors.

    Raises ConfigError for a run that did not finish, was disturbed or slowed down on purpose, or has no usable time
    for a case of one of the kernels: the error names the case.
    """
    _check_run(run, kernels, source)
    chosen = list(_chosen(run, kernels, source))
    for device, _, spec, measurements in chosen:
        _check_whole(spec, device, measurements, source)
    for _, _, _, measurements in chosen:
        for measurement in measurements:
            _check_enough(measurement, source)
    provenance = replace(run.provenance, accepted_by=accepted_by, repository=None, head=None, shard=None)
    return tuple(
        Baseline(spec.name, device, toolchain, provenance, {m.case: _baseline_case(m) for m in measurements})
        for device, toolchain, spec, measurements in chosen
    )


def _check_run(run: Run, kernels: Sequence[str], source: str) -> None:
    """Refuse a run that as a whole does not measure these kernels as they are."""
    known = sorted({measurement.kernel for measurement in run.measurements})
    lacking = [name for name in kernels if name not in known]
    ref = run.against.ref if run.against else ""
    for refused, message, hint in (
        (run.planted is not None, "this run was slowed down on purpose", "a baseline needs an honest run"),
        (ref, f"measured in turns with {ref}", "accept a run without --against"),
        (run.fuzzed or run.sanitized, "this run measured nothing", "accept a run without --fuzz and --sanitize"),
        (not run.finished, "this run did not finish", "`ci-perf run` again and accept that run"),
        (lacking, f"the run has no kernel `{lacking[0] if lacking else ''}`", "it has " + ", ".join(known)),
    ):
        if refused:
            raise ConfigError(f"{source}: {message}", hint=hint)


def _chosen(
    run: Run, kernels: Sequence[str], source: str
) -> Iterator[tuple[Device, Toolchain, KernelSpec, list[Measurement]]]:
    """Yield each kernel on each model of device, with all its measurements; their sessions must be on like machines."""
    for model in run.devices:
        sessions = on_device(run, model)
        for spec in run.kernels:
            by = [session for session in sessions if any(m.kernel == spec.name for m in session.measurements)]
            if not by or (kernels and spec.name not in kernels):
                continue
            if broken := next(filter(None, (memory_errors(session, model.kind) for session in by)), ""):
                raise ConfigError(f"{source}: {broken}", hint="run again on a GPU whose memory is sound")
            machines = [(next(d for d in s.devices if d.slug == model.slug), s.toolchain) for s in by]
            if any(machine != machines[0] for machine in machines):
                raise ConfigError(
                    f"{source}: the cases of `{spec.name}` were measured on machines that differ",
                    hint="accept a run of one machine: `ci-perf run` without shards, or on runners that are alike",
                )
            yield *machines[0], spec, [m for session in by for m in session.measurements if m.kernel == spec.name]


def _check_whole(spec: KernelSpec, device: Device, measurements: Sequence[Measurement], source: str) -> None:
    usable = {
        m.case
        for m in measurements
        if not m.failure and len(m.methods) == 1 and all(s > 0 for r in m.replicates for s in r.seconds)
    }
    for case in usual_cases(spec, device):
        if case not in usable:
            raise ConfigError(
                f"{source}: no usable time for case `{spec.name}/{case}` on {device.slug}",
                hint=f"`ci-perf run {spec.name}` measures the whole kernel; mend a case that failed first",
            )


def _check_enough(measurement: Measurement, source: str) -> None:
    if disturbed := sorted({reason for replicate in measurement.replicates for reason in replicate.disturbed}):
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
        measurement.params,
        measurement.target,
        time,
        _counters(measurement.counters),
        names,
        measurement.parts,
        max((r.memory_bytes for r in measurement.replicates if r.memory_bytes), default=None),
    )


def add_session(old: Baseline | None, new: Baseline, confidence: float) -> Baseline:
    """Return the new baseline with the sessions of the old one, for each case whose code and time agree.

    A session replaces one of the same day: it does not show how days differ.
    """
    if old is None or not same_machine(old, new):
        return new
    first_day = old.provenance.date[:10] != new.provenance.date[:10]
    cases = dict(new.cases)
    for name, case in new.cases.items():
        before = old.cases.get(name)
        if before and _agree(before, case, confidence):
            newest = (EarlierSession(old.provenance.date, before.time.sessions[0]),) if first_day else ()
            earlier = (*newest, *before.time.earlier)[: MOST_SESSIONS - 1]
            cases[name] = replace(case, time=replace(case.time, earlier=earlier))
    return replace(new, cases=cases)


def _agree(old: BaselineCase, new: BaselineCase, confidence: float) -> bool:
    """Return whether two sessions may be of the same code: what ran, its exact counters, and the time."""
    before, now = ((dict(c.params), c.target, c.kernels, c.time.method, c.time.unit, c.time.better) for c in (old, new))
    exact = {name for name, metric in BY_NAME.items() if metric.trust is Trust.EXACT}
    differ = [n for n in exact & {*old.counters} & {*new.counters} if old.counters[n] != new.counters[n]]
    centre = statistics.fmean(math.log(statistics.median(medians)) for medians in old.time.sessions)
    off = abs(math.log(new.time.median) - centre)
    return before == now and not differ and off < sessions_of(old.time, confidence).margin


def _counters(launches: Sequence[Mapping[str, Reading]]) -> dict[str, BaselineCounter]:
    """Return the counters that every launch has; exact ones only where all launches agree."""
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
    """One change that accepting a run would make."""

    kernel: str
    case: str
    device: str
    what: str
    """`added`, `removed`, `time` or the name of a counter."""
    old: float | None
    new: float | None
    unit: str = "s"


def diff_baselines(old: Baseline | None, new: Baseline) -> tuple[Difference, ...]:
    """List what `new` changes: cases added and removed, medians, counters."""
    before = old.cases if old else {}
    rows = []
    for case in sorted({*before, *new.cases}):
        a, b = before.get(case), new.cases.get(case)
        unit = next(known.time.unit for known in (b, a) if known)
        rows += [Difference(new.kernel, case, new.device.slug, *row, unit) for row in _diff_case(a, b)]
    return tuple(rows)


def _diff_case(old: BaselineCase | None, new: BaselineCase | None) -> list[tuple[str, float | None, float | None]]:
    if old is None or new is None:
        what = "added" if old is None else "removed"
        return [(what, old.time.median if old else None, new.time.median if new else None)]
    rows: list[tuple[str, float | None, float | None]] = []
    if old.time.median != new.time.median:
        rows.append(("time", old.time.median, new.time.median))
    if old.memory_bytes != new.memory_bytes:
        rows.append((PEAK_MEMORY, old.memory_bytes, new.memory_bytes))
    for name in sorted({*old.counters, *new.counters}):
        a, b = (statistics.median(c.counters[name].values) if name in c.counters else None for c in (old, new))
        if a != b:
            rows.append((name, a, b))
    return rows


def check_baseline(baseline: Baseline, path: str, specs: Mapping[str, KernelSpec]) -> list[str]:
    """Return the errors of a baseline file that its schema does not find; `path` is relative to the folder."""
    problems = contradictions(baseline, path)
    spec = specs.get(baseline.kernel)
    if spec is None:
        return [*problems, f"there is no kernel `{baseline.kernel}`: remove the file or restore the kernel"]
    for name, case in baseline.cases.items():
        if name not in spec.cases:
            problems.append(f"key `cases.{name}`: the kernel has no such case")
        elif dict(spec.cases[name]) != dict(case.params):
            problems.append(f"key `cases.{name}.params`: differ from {spec.folder}/kernel.toml")
    return problems
