"""The verdict on each case: a stored baseline against this run.

What may be compared, what is missing, failed or new, is settled here; the decision on the numbers in `decision.py`,
counters in `gates.py`.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ci_perf.judge.checks import judge_checks
from ci_perf.judge.decision import decide
from ci_perf.judge.finding import Finding
from ci_perf.judge.gates import counter_changes, judge_gate, release, uncompared
from ci_perf.judge.parts import cause_of, compare_parts
from ci_perf.judge.stats import clock_of, process_medians
from ci_perf.judge.versus import is_paired, judge_pairs, policy_of, removed_kernels
from ci_perf.values.baseline import Baseline, BaselineCase
from ci_perf.values.device import Device, Toolchain
from ci_perf.values.kernel_names import NameChanges, compare
from ci_perf.values.measurement import Measurement, Part
from ci_perf.values.run import Run
from ci_perf.values.sessions import MEMORY_ERRORS, sessions_of
from ci_perf.values.verdict import Verdict


def comparable(
    base: BaselineCase, measurement: Measurement, old: Device, new: Device, tools: tuple[Toolchain, Toolchain]
) -> tuple[str, str] | None:
    """Return the reason code and sentence why two times may not be compared, or None where they may.

    `tools` are the toolchains of baseline and run: another torch, CUDA or Triton brings other machine code.
    """
    reasons: tuple[tuple[str, str, object, object], ...] = (
        ("other-device", "the device", old.name, new.name),
        ("other-device", "the number of multiprocessors or cores", old.sm_count, new.sm_count),
        *(("other-toolchain", name, before, now) for name, before, now in _tool_versions(*tools)),
        ("other-power-limit", "the power limit", old.power_limit_w, new.power_limit_w),
        ("other-driver", "the driver branch", _branch(old.driver), _branch(new.driver)),
        ("other-mig", "the MIG mode", old.mig, new.mig),
        ("other-parameters", "the case's parameters", dict(base.params), dict(measurement.params)),
        ("other-target", "what is run", base.target, measurement.target),
        ("other-method", "the timing method", base.time.method, ", ".join(measurement.methods)),
        ("other-unit", "the unit", base.time.unit, measurement.unit),
        ("other-direction", "which way is better", base.time.better, measurement.better),
    )
    for code, what, before, now in reasons:
        if before != now:
            return code, f"{what} differs: baseline {_plain(before)}, now {_plain(now)}"
    return None


def _tool_versions(old: Toolchain, new: Toolchain) -> list[tuple[str, str | None, str | None]]:
    packages = ((name, old.packages.get(name), new.packages.get(name)) for name in ("triton", "numpy"))
    pairs = (("torch", old.torch, new.torch), ("CUDA", old.cuda, new.cuda), *packages)
    return [(name, release(a), release(b)) for name, a, b in pairs]


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={v}" for k, v in sorted(value.items()))
    return "unknown" if value is None else str(value)


def _branch(driver: str | None) -> str | None:
    return driver.split(".")[0] if driver else None


def judge(run: Run) -> tuple[Finding, ...]:
    """Judge every case of the run, and every case that its baselines promise and its kernels no longer have."""
    baselines = {(b.device.slug, b.kernel): b for b in run.baselines}
    found = [
        (session, m, device, baselines.get((device.slug, m.kernel)))
        for session in sessions_of(run)
        for m in session.measurements
        for device in session.devices
        if device.kind == m.device
    ]
    held = [
        m for _, m, _, b in found if m.failure is None and (is_paired(m) if run.against else b and m.case in b.cases)
    ]
    findings = [
        _unless_memory_broke(session, device, _judge_case(session, m, device, baseline, len(held)))
        for session, m, device, baseline in found
    ]
    return (*findings, *judge_checks(run), *_missing(run, run.devices, baselines.values()))


def _unless_memory_broke(run: Run, device: Device, finding: Finding) -> Finding:
    """Believe nothing but a failure of a session in which the GPU's memory lost bits."""
    errors = [note.message for note in run.notes if note.code == MEMORY_ERRORS] if device.kind == "cuda" else []
    if not errors or finding.verdict is Verdict.FAILED:
        return finding
    blank = Finding(finding.kernel, finding.case, finding.device, Verdict.INCONCLUSIVE, "", "", unit=finding.unit)
    return replace(blank, code=MEMORY_ERRORS, sentence=errors[0], base=finding.base, head=finding.head)


def _judge_case(
    run: Run, measurement: Measurement, device: Device, baseline: Baseline | None, comparisons: int
) -> Finding:
    blank = Finding(measurement.kernel, measurement.case, device.slug, Verdict.FAILED, "", "", unit=measurement.unit)
    if measurement.failure is not None:
        failure = measurement.failure
        return replace(blank, code=failure.code, sentence=f"{failure.stage}: {failure.message}")
    if not measurement.timed and not measurement.unpaired:
        spent = run.finished and run.against is not None
        code, ended = ("budget-spent", "the budget was spent") if spent else ("not-measured", "the run ended")
        return replace(blank, verdict=Verdict.INCONCLUSIVE, code=code, sentence=f"{ended} before it was timed")
    spec = next(spec for spec in run.kernels if spec.name == measurement.kernel)
    if len(measurement.methods) == 1:
        blank = replace(blank, head=statistics.median(process_medians(measurement.timed)))
    if device.kind == "cuda":
        blank = replace(blank, gates=tuple(judge_gate(gate, measurement) for gate in spec.gates))
    agreed = baseline.cases.get(measurement.case) if baseline else None
    if run.against is not None:
        found = judge_pairs(run, run.against, measurement, spec, blank, comparisons)
        return _with_parts(found, measurement.base_parts, measurement.parts)
    found = _judge_by_baseline(run, measurement, device, baseline, blank, comparisons)
    return _with_parts(found, agreed.parts if agreed else (), measurement.parts)


def _with_parts(finding: Finding, base: Sequence[Part], head: Sequence[Part]) -> Finding:
    """Say what a program's time is made of, and of a change which part of it made most."""
    parts = compare_parts(base if finding.change else (), head) if head else ()
    cause = cause_of(parts) if finding.verdict.is_change else ""
    return replace(finding, parts=parts, sentence=f"{finding.sentence}; {cause}" if cause else finding.sentence)


def _judge_by_baseline(
    run: Run, measurement: Measurement, device: Device, baseline: Baseline | None, blank: Finding, comparisons: int
) -> Finding:
    def say(verdict: Verdict, code: str, sentence: str) -> Finding:
        return replace(blank, verdict=verdict, code=code, sentence=sentence)

    if baseline is None or measurement.case not in baseline.cases:
        return say(Verdict.NEW, "no-baseline", f"no baseline for this case on {device.slug}")
    base = baseline.cases[measurement.case]
    agreed_with = (baseline.device, baseline.toolchain.ncu)
    changed = counter_changes(base, agreed_with, measurement, (device, run.toolchain.ncu))
    kernels = _kernel_changes(base, baseline.device, measurement, device)
    unheld = uncompared(base, agreed_with[1], measurement, run.toolchain.ncu) if device.kind == "cuda" else ()
    blank = replace(blank, base=base.time.median, counters=changed, uncompared=unheld, kernels=kernels)
    if len(measurement.methods) > 1:
        methods = ", ".join(measurement.methods)
        return say(Verdict.NOT_COMPARABLE, "mixed-methods", f"its processes were timed by several methods: {methods}")
    obstacle = comparable(base, measurement, baseline.device, device, (baseline.toolchain, run.toolchain))
    if obstacle:
        return say(Verdict.NOT_COMPARABLE, *obstacle)
    spoilt = [replicate for replicate in measurement.replicates if replicate.disturbed]
    if spoilt:
        why = ", ".join(sorted({reason for replicate in spoilt for reason in replicate.disturbed}))
        sentence = f"{len(spoilt)} of {len(measurement.replicates)} processes were disturbed: {why}"
        return say(Verdict.INCONCLUSIVE, "disturbed", sentence)
    spec = next(spec for spec in run.kernels if spec.name == measurement.kernel)
    outcome = decide(
        [statistics.median(values) for values in base.time.replicates],
        _batches(measurement),
        policy_of(run.policy, spec),
        comparisons=comparisons,
        floor=base.time.noise_floor,
        clocks=_clocks(base, measurement),
        better=measurement.better,
    )
    finding = say(outcome.verdict, outcome.code, outcome.sentence)
    return replace(finding, change=outcome.change, detectable=outcome.detectable)


def _kernel_changes(base: BaselineCase, agreed_on: Device, measurement: Measurement, device: Device) -> NameChanges:
    """Hold the GPU kernels against the baseline's. They explain and judge nothing: another GPU may need others."""
    traced = measurement.timeline.kernels if measurement.timeline else ()
    same = agreed_on.name == device.name and dict(base.params) == dict(measurement.params)
    if not same or not base.kernels or not traced:
        return NameChanges()
    return compare(base.kernels, (kernel.name for kernel in traced))


def _clocks(base: BaselineCase, measurement: Measurement) -> tuple[float, float] | None:
    """Return the SM clocks of baseline and run in hertz, where both were recorded for every process."""
    now = clock_of(measurement.replicates)
    return (base.time.sm_clock_hz, now) if base.time.sm_clock_hz and now else None


def _batches(measurement: Measurement) -> list[list[float]]:
    batches: dict[int, list[float]] = {}
    for replicate, median in zip(measurement.replicates, process_medians(measurement.replicates), strict=True):
        batches.setdefault(replicate.batch, []).append(median)
    return [batches[number] for number in sorted(batches)]


def _missing(run: Run, devices: Iterable[Device], baselines: Iterable[Baseline]) -> list[Finding]:
    """Find the cases that a baseline holds and the kernels, though all were asked for, no longer have."""
    if run.selection or run.fuzzed or run.sanitized:
        return []
    if run.against is not None:
        return removed_kernels(run, run.against)
    slugs = {device.slug for device in devices}
    known = {(spec.name, case) for spec in run.kernels for case in spec.cases}
    sentence = "the baseline holds this case, the kernels do not"
    return [
        Finding(
            b.kernel, name, b.device.slug, Verdict.MISSING, "removed", sentence, case.time.median, unit=case.time.unit
        )
        for b in baselines
        if b.device.slug in slugs
        for name, case in b.cases.items()
        if (b.kernel, name) not in known
    ]


def is_red(finding: Finding, fail_on: Iterable[str]) -> bool:
    """Say whether a finding makes the run fail under `fail-on`."""
    causes = {
        "regression": finding.verdict is Verdict.REGRESSION,
        "failed": finding.verdict is Verdict.FAILED,
        "missing": finding.verdict is Verdict.MISSING,
        "inconclusive": finding.verdict is Verdict.INCONCLUSIVE,
        "not-comparable": finding.verdict is Verdict.NOT_COMPARABLE,
        "new": finding.verdict is Verdict.NEW,
        "gate": bool(finding.broken_gates),
        "gate-not-measured": bool(finding.unmeasured_gates),
    }
    return any(causes[cause] for cause in fail_on)
