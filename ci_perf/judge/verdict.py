"""The verdict on each case: measured in turns with its base commit (`pairs`), or against a baseline (`stored`)."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ci_perf.judge.checks import judge_checks, memory_errors
from ci_perf.judge.control import Doubt, control_doubt
from ci_perf.judge.explained import with_explanation
from ci_perf.judge.finding import Finding
from ci_perf.judge.gates import judge_gate
from ci_perf.judge.launches import launch_changes
from ci_perf.judge.memory import judge_memory, memory_peaks
from ci_perf.judge.pairs import is_paired, judge_pairs
from ci_perf.judge.parts import cause_of, compare_parts
from ci_perf.judge.stats import process_medians
from ci_perf.judge.stored import judge_stored
from ci_perf.values.baseline import Baseline, baseline_for
from ci_perf.values.device import Device
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.measurement import Failure, Measurement, Part
from ci_perf.values.reasons import Reason, Verdict
from ci_perf.values.run import Confirmation, Run, sessions_of


def judge(run: Run) -> tuple[Finding, ...]:
    """Judge every case of the run, and every case that its baselines have and its kernels no longer have."""
    baselines = {(b.device.slug, b.kernel): b for b in run.baselines}
    confirmed = {(part.session, f.id, f.device): f for part in run.confirmations for f in _in_turns(run, part)}
    specs = {spec.name: spec for spec in run.kernels}
    found = [
        (session, doubt, m, device, baseline_for(baselines, device, m.kernel))
        for session in sessions_of(run)
        for doubt in [control_doubt(session, session.against) if session.against else None]
        for m in session.measurements
        for device in session.devices
        if device.kind == m.device
    ]
    compared = [
        session
        for session, _, m, _, b in found
        if m.failure is None and (is_paired(m) if run.against else b is not None and m.case in b.cases)
    ]
    findings = [
        _judge_case(
            *(session, doubt, m, specs[m.kernel], device, baseline, _comparisons(session, compared)),
            confirmed.get((m.session, m.id, device.slug)),
        )
        for session, doubt, m, device, baseline in found
    ]
    return (*findings, *judge_checks(run), *_missing(run, run.devices, baselines.values()))


def _in_turns(run: Run, part: Confirmation) -> tuple[Finding, ...]:
    """Judge the cases of a confirmation as a run of their own, against the commit of the baseline."""
    devices = tuple(d for d in _devices_of(run, part.session) if d.kind == part.device)
    alone = replace(run, devices=devices, baselines=(), sessions=(), confirmations=(), finished=True)
    if part.against is not None:
        return judge(replace(alone, against=part.against, measurements=part.measurements, selection=part.cases))
    named = (name.partition("/") for name in part.cases)
    not_measured = (Verdict.NOT_COMPARABLE, Reason.BASE_FAILED, part.problem)
    return tuple(Finding(kernel, case, device.slug, *not_measured) for kernel, _, case in named for device in devices)


def _devices_of(run: Run, session: int) -> tuple[Device, ...]:
    return run.sessions[session].devices if run.sessions else run.devices


def _confirmed(stored: Finding, turns: Finding | None, device: Device) -> Finding:
    """Return the finding against a baseline with the verdict of the turns, where these compared the case.

    A stored time is off by several per cent on another day, which turns cancel. On a CPU it is off by any amount while
    other programs use the caches and the other thread of a core, which no statistic of the two sessions can see: there
    the turns alone establish a change. A spent budget decides nothing.
    """
    if not stored.verdict.is_change:
        return stored
    if turns is None or turns.change is None or turns.code is Reason.BUDGET_SPENT:
        why = f"; not confirmed in turns: {turns.sentence}" if turns else ""
        if device.kind != "cpu":
            return replace(stored, sentence=f"{stored.sentence}{why}")
        code = Reason.SLOWER_STORED if stored.verdict is Verdict.REGRESSION else Reason.FASTER_STORED
        doubt = "; a stored time of a CPU establishes no change"
        return stored.say(Verdict.INCONCLUSIVE, code, f"{stored.sentence}{why or doubt}")
    sentence = (
        f"in turns with the commit of the baseline: {turns.sentence}; by its stored time alone: {stored.sentence}"
    )
    said = stored.say(turns.verdict, turns.code, sentence)
    return replace(said, base=turns.base, head=turns.head, change=turns.change, detectable=turns.detectable)


def _comparisons(session: Run, compared: Sequence[Run]) -> int:
    """Return how many cases share the error with those of a session.

    That is as many as the plan has, which each of its shards is told. Otherwise it is those of the session, so that a
    merged run judges a case as its own job did, which stopped measuring once it was decided.
    """
    return max(session.among, sum(other is session for other in compared))


def _judge_case(
    run: Run,
    doubt: Doubt | None,
    measurement: Measurement,
    spec: KernelSpec,
    device: Device,
    baseline: Baseline | None,
    comparisons: int,
    turns: Finding | None = None,
) -> Finding:
    """Judge one case; `turns` is its finding in turns with the commit of its baseline, if it was confirmed."""
    not_timed = (Verdict.INCONCLUSIVE, Reason.NOT_MEASURED, "the run ended before it was timed")
    blank = Finding(measurement.kernel, measurement.case, device.slug, *not_timed, unit=measurement.unit)
    expected = spec.expected_failure(measurement.case) if measurement.target == "launch" else ""
    if failure := measurement.failure:
        return _failed(failure, expected, blank)
    broken = memory_errors(run, device.kind)
    if not (measurement.timed or measurement.unpaired or measurement.same_code):
        if broken:
            return blank.say(Verdict.INCONCLUSIVE, Reason.MEMORY_ERRORS, broken)
        if run.finished and run.against is not None:
            return blank.say(Verdict.INCONCLUSIVE, Reason.BUDGET_SPENT, "the budget was spent before it was timed")
        return blank
    agreed = baseline.cases.get(measurement.case) if baseline and run.against is None else None
    if run.against is not None:
        found = _with_head(judge_pairs(run, run.against, doubt, measurement, spec, blank, comparisons), measurement)
        base_parts = measurement.base_parts
    else:
        found = _with_head(judge_stored(run, measurement, spec, device, baseline, blank, comparisons), measurement)
        found = _confirmed(found, turns, device)
        base_parts = agreed.parts if agreed else ()
    if broken:
        blank = replace(blank, base=found.base, head=found.head)
        return blank.say(Verdict.INCONCLUSIVE, Reason.MEMORY_ERRORS, broken)
    if device.kind == "cuda":
        found = replace(found, gates=tuple(judge_gate(gate, measurement) for gate in spec.gates))
    if run.against is not None:
        found = replace(found, counters=launch_changes(measurement, device.compute_capability))
    found = _with_parts(with_explanation(found, measurement, device), base_parts, measurement.parts)
    found = judge_memory(found, memory_peaks(measurement, agreed), spec, finished=run.finished)
    return _passed(found, expected) if expected else _of_target(found, measurement.target)


def _with_head(found: Finding, measurement: Measurement) -> Finding:
    """Return a finding with the time of the head: that of the base by the change, so that a row has one estimate of it.

    Where nothing is compared it is the median of the head's processes, which the statistics of a row have in any case.
    Times of several methods have none.
    """
    if len(measurement.methods) != 1:
        return found
    if found.base is None or found.change is None:
        return replace(found, head=statistics.median(process_medians(measurement.timed)))
    ratio = found.change.point
    return replace(found, head=found.base / ratio if measurement.better == "higher" else found.base * ratio)


def _of_target(found: Finding, target: str) -> Finding:
    """Return the finding of a case; where only the reference could run, it says nothing good of the kernel."""
    if target == "launch" or found.verdict not in (Verdict.UNCHANGED, Verdict.SPEEDUP):
        return found
    sentence = f"`launch` cannot run on this device; of its reference: {found.sentence}"
    return found.say(Verdict.NOT_COMPARABLE, Reason.REFERENCE_TIMED, sentence)


def _passed(found: Finding, expected: str) -> Finding:
    """Return the finding of a case that was expected to fail, for this reason, and passed."""
    sentence = f"{Reason.UNEXPECTED_PASS.meaning} ({expected}); {found.sentence}"
    return found.say(Verdict.FAILED, Reason.UNEXPECTED_PASS, sentence)


def _failed(failure: Failure, expected: str, blank: Finding) -> Finding:
    """Return the finding of a failed case; only a fault of the kernel itself can be expected."""
    code, sentence = Reason.of(failure.code), f"{failure.stage}: {failure.message}"
    if expected and code.steps == Reason.RAISED.steps:
        return blank.say(Verdict.EXPECTED_FAILURE, Reason.EXPECTED_FAILURE, f"{expected}; {sentence}")
    return blank.say(Verdict.FAILED, code, sentence)


def _with_parts(finding: Finding, base: Sequence[Part], head: Sequence[Part]) -> Finding:
    """Add what a program's time is made of, and name the part that made most of a change."""
    parts = compare_parts(base if finding.change else (), head) if head else ()
    cause = cause_of(parts) if finding.verdict.is_change else ""
    return replace(finding, parts=parts, sentence=f"{finding.sentence}; {cause}" if cause else finding.sentence)


def _missing(run: Run, devices: Iterable[Device], baselines: Iterable[Baseline]) -> list[Finding]:
    """Find the cases that the kernels no longer have; of a run that was asked for some cases only, none."""
    if run.selection or run.fuzzed or run.sanitized:
        return []
    missing = (Verdict.MISSING, Reason.REMOVED)
    if run.against is not None:
        sentence = f"{run.against.ref} has it, the head does not"
        slug = run.devices[0].slug
        named = (name.partition("/") for name in run.against.gone)
        return [Finding(kernel, case or "*", slug, *missing, sentence) for kernel, _, case in named]
    slugs = {slug for device in devices for slug in device.slugs}
    known = {(spec.name, case) for spec in run.kernels for case in spec.cases}
    sentence = "the baseline holds this case, the kernels do not"
    return [
        Finding(b.kernel, name, b.device.slug, *missing, sentence, base=case.time.median, unit=case.time.unit)
        for b in baselines
        if b.device.slug in slugs
        for name, case in b.cases.items()
        if (b.kernel, name) not in known
    ]


def is_red(finding: Finding, fail_on: Iterable[str]) -> bool:
    """Return whether a finding makes the run fail under `fail-on`."""
    causes = {
        finding.verdict.lower().replace("_", "-"): True,
        "gate": bool(finding.broken_gates),
        "gate-not-measured": bool(finding.unmeasured_gates),
    }
    return any(causes.get(cause) for cause in fail_on)
