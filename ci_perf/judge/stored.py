"""The decision on one number against a stored baseline: medians of processes, by ratios alone.

A stored time is off by 1 % a few minutes later and by several per cent on another day, and no statistic of the two
sessions can see that: where it matters, measure the base in turns (`pairs.py`). Here a change counts only when all of
these hold: the estimate passes the threshold in each batch of fresh processes, and what sessions of unchanged code may
differ by, which is much where the baseline holds one session (`sessions.py`); the interval of all of them, adjusted
over the cases of the run (Bonferroni) and widened by the baseline's own scatter, excludes no change; the two sides
separate, or the whole interval lies twice beyond the threshold; and the change is there in SM cycles too, where the
clocks are known. What is past a threshold and not established is INCONCLUSIVE: shown, never red. On a CPU a change that
is established here counts only if turns confirm it (`verdict.py`).

Why separation: within one session every order of the processes of unchanged code is as likely as any other, so that 6
and 12 separate once in 18,564 sessions, also where processes fall into two modes. The interval alone would let recorded
sessions of unchanged kernels with much scatter become red: `tests/judge/test_noise.py` counts both.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist

from ci_perf.judge.finding import Finding
from ci_perf.judge.gates import counter_changes, release, uncompared
from ci_perf.judge.outcome import Outcome, allows, policy_of, size, thresholds, unchanged
from ci_perf.judge.sessions import Sessions, sessions_of
from ci_perf.judge.stats import Interval, clock_of, process_medians, ratio_interval
from ci_perf.values.baseline import Baseline, BaselineCase
from ci_perf.values.device import Device, Toolchain
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.kernel_names import NameChanges, compare
from ci_perf.values.measurement import Measurement
from ci_perf.values.quantity import counted, percent
from ci_perf.values.reasons import Reason, Verdict
from ci_perf.values.run import Policy, Run

STORED = 0.01
"""A stored time is off by so much a few minutes later: no smaller change is established or called detectable. Where the
sessions of the baseline are known, what these allow is larger."""
_NOT_SIGNIFICANT = "not-significant"
CAPTURED = "cuda-graph"
"""The method id of a time from a CUDA graph."""
FAR = 2
"""An interval that lies wholly beyond the threshold twice over needs no separation: one odd process cannot hide it."""


def judge_stored(
    run: Run,
    measurement: Measurement,
    spec: KernelSpec,
    device: Device,
    baseline: Baseline | None,
    blank: Finding,
    comparisons: int,
) -> Finding:
    """Judge a case, one of so many comparisons, by its baseline; `blank` is its finding so far, to which this adds."""
    if baseline is None or measurement.case not in baseline.cases:
        return blank.say(Verdict.NEW, Reason.NO_BASELINE, f"no baseline for this case on {device.slug}")
    base = baseline.cases[measurement.case]
    agreed_with = (baseline.device, baseline.toolchain.ncu)
    changed = counter_changes(base, agreed_with, measurement, (device, run.toolchain.ncu))
    kernels = _kernel_changes(base, baseline.device, measurement, device)
    not_compared = uncompared(base, agreed_with[1], measurement, run.toolchain.ncu) if device.kind == "cuda" else ()
    say = replace(blank, base=base.time.median, counters=changed, uncompared=not_compared, kernels=kernels).say
    if len(measurement.methods) > 1:
        methods = ", ".join(measurement.methods)
        return say(
            Verdict.NOT_COMPARABLE, Reason.MIXED_METHODS, f"its processes were timed by several methods: {methods}"
        )
    obstacle = comparable(base, measurement, baseline.device, device, (baseline.toolchain, run.toolchain))
    if obstacle:
        code, sentence = obstacle
        lost = base.time.method == CAPTURED and next((r.not_captured for r in measurement.replicates), "")
        why = f"; it can no longer be captured in a CUDA graph: {lost}" if lost else ""
        return say(Verdict.NOT_COMPARABLE, code, sentence + why)
    disturbed = [replicate for replicate in measurement.replicates if replicate.disturbed]
    if disturbed:
        why = ", ".join(sorted({reason for replicate in disturbed for reason in replicate.disturbed}))
        sentence = f"{len(disturbed)} of {len(measurement.replicates)} processes were disturbed: {why}"
        return say(Verdict.INCONCLUSIVE, Reason.DISTURBED, sentence)
    batches = sorted({replicate.batch for replicate in measurement.replicates})
    before, now = base.time.sm_clock_hz, clock_of(measurement.replicates)
    outcome = decide(
        [value for medians in base.time.sessions for value in medians],
        [process_medians([r for r in measurement.replicates if r.batch == batch]) for batch in batches],
        policy_of(run.policy, spec),
        comparisons=comparisons,
        floor=base.time.noise_floor,
        clocks=(before, now) if before and now else None,
        better=measurement.better,
        sessions=sessions_of(base.time, run.policy.confidence),
    )
    finding = say(outcome.verdict, outcome.code, outcome.sentence)
    return replace(finding, change=outcome.change, detectable=outcome.detectable)


def comparable(
    base: BaselineCase, measurement: Measurement, old: Device, new: Device, tools: tuple[Toolchain, Toolchain]
) -> tuple[Reason, str] | None:
    """Return the reason and sentence why two times may not be compared, or None where they may.

    `tools` are the toolchains of baseline and run: another torch, CUDA or Triton brings other machine code.
    """
    reasons = (
        *_machines(old, new, tools),
        (Reason.OTHER_PARAMETERS, "the case's parameters", dict(base.params), dict(measurement.params)),
        (Reason.OTHER_TARGET, "what is run", base.target, measurement.target),
        (Reason.OTHER_METHOD, "the timing method", base.time.method, ", ".join(measurement.methods)),
        (Reason.OTHER_UNIT, "the unit", base.time.unit, measurement.unit),
        (Reason.OTHER_DIRECTION, "which way is better", base.time.better, measurement.better),
    )
    for code, what, before, now in reasons:
        if before != now:
            return code, f"{what} differs: baseline {_plain(before)}, now {_plain(now)}"
    return None


def same_machine(old: Baseline, new: Baseline) -> bool:
    """Return whether times of two baselines may be compared as far as the machine and its toolchain go."""
    return all(a == b for _, _, a, b in _machines(old.device, new.device, (old.toolchain, new.toolchain)))


def _machines(
    old: Device, new: Device, tools: tuple[Toolchain, Toolchain]
) -> tuple[tuple[Reason, str, object, object], ...]:
    return (
        (Reason.OTHER_DEVICE, "the device", old.name, new.name),
        (Reason.OTHER_DEVICE, "the model of the CPU", old.cpu_model or new.cpu_model, new.cpu_model or old.cpu_model),
        (Reason.OTHER_DEVICE, "the number of multiprocessors or cores", old.sm_count, new.sm_count),
        *((Reason.OTHER_TOOLCHAIN, name, before, now) for name, before, now in _tool_versions(*tools)),
        (Reason.OTHER_POWER_LIMIT, "the power limit", old.power_limit_w, new.power_limit_w),
        (Reason.OTHER_DRIVER, "the driver branch", release(old.driver, 1), release(new.driver, 1)),
        (Reason.OTHER_MIG, "the MIG mode", old.mig, new.mig),
    )


def _tool_versions(old: Toolchain, new: Toolchain) -> list[tuple[str, str | None, str | None]]:
    packages = ((name, old.packages.get(name), new.packages.get(name)) for name in ("triton", "numpy"))
    pairs = (("torch", old.torch, new.torch), ("CUDA", old.cuda, new.cuda), *packages)
    return [(name, release(a), release(b)) for name, a, b in pairs]


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={v}" for k, v in sorted(value.items()))
    return "unknown" if value is None else str(value)


def _kernel_changes(base: BaselineCase, agreed_on: Device, measurement: Measurement, device: Device) -> NameChanges:
    """Compare the GPU kernels with the baseline's. This explains a change, but decides no verdict."""
    traced = measurement.timeline.kernels if measurement.timeline else ()
    same = agreed_on.name == device.name and dict(base.params) == dict(measurement.params)
    if not same or not base.kernels or not traced:
        return NameChanges()
    return compare(base.kernels, (kernel.name for kernel in traced))


def decide(
    base: Sequence[float],
    batches: Sequence[Sequence[float]],
    policy: Policy,
    *,
    comparisons: int = 1,
    floor: float = 0.0,
    clocks: tuple[float, float] | None = None,
    better: str = "lower",
    sessions: Sessions | None = None,
) -> Outcome:
    """Judge medians of processes against the medians of the baseline's processes.

    `batches` are the medians of this run, batch by batch; a change needs at least two. `comparisons` is the number of
    cases judged in the run; `floor` is the scatter of the baseline's processes, as a fraction; `clocks` are the SM
    clocks of baseline and run in hertz; `sessions` is what the scatter between sessions allows (None: STORED). `better`
    says which direction is good. Only ratios count: any unit gives the same verdict.

    >>> base = [1.00, 1.001, 1.002, 1.003, 1.004, 1.005]
    >>> print(decide(base, [[1.05] * 6, [1.051] * 6], Policy()).code)
    slower
    >>> print(decide(base, [[1.05] * 6], Policy()).code)
    slower-unconfirmed
    >>> print(decide(base, [[1.0] * 6], Policy()).code)
    within-noise
    """
    head = [value for batch in batches for value in batch]
    for side, values in (("baseline", base), ("run", head)):
        if not values:
            return Outcome(Verdict.INCONCLUSIVE, Reason.NO_VALUES, f"the {side} holds no value")
        if not all(math.isfinite(v) and v > 0 for v in values):
            return Outcome(
                Verdict.INCONCLUSIVE, Reason.BAD_VALUES, f"the {side} holds a value that is not positive and finite"
            )
    if better == "higher":
        base, batches = [1 / v for v in base], [[1 / v for v in batch] for batch in batches]
        head = [1 / v for v in head]
    return _decide_lower(base, head, [b for b in batches if b], policy, comparisons, floor, clocks, sessions)


def _decide_lower(
    base: Sequence[float],
    head: Sequence[float],
    batches: Sequence[Sequence[float]],
    policy: Policy,
    comparisons: int,
    floor: float,
    clocks: tuple[float, float] | None,
    sessions: Sessions | None,
) -> Outcome:
    plain = ratio_interval(base, head, policy.confidence)
    points = [ratio_interval(base, batch, policy.confidence).point for batch in batches]
    slow, fast = thresholds(policy)
    spread = max(plain.high / plain.point, plain.point / plain.low) - 1 if plain.low > 0 else math.inf
    detectable = max((1 + spread) ** times_half(policy.confidence) - 1, sessions.detectable if sessions else STORED)
    adjusted = ratio_interval(base, head, 1 - (1 - policy.confidence) / max(1, comparisons))
    shown, shared = (sessions.widened(i) if sessions else i for i in (plain, adjusted))
    sure, beside = (adjusted, floor) if _includes(adjusted, floor) else (shared, 0.0)
    if plain.point >= slow or 1 / plain.point >= fast:
        slower = plain.point >= slow
        verdict, word = (Verdict.REGRESSION, Reason.SLOWER) if slower else (Verdict.SPEEDUP, Reason.FASTER)
        beyond = [p >= slow if slower else 1 / p >= fast for p in points]
        doubt = (
            _doubt_of_estimate(plain.point, beyond, sessions)
            or _doubt_of_interval(sure, (len(base), len(head)), comparisons, beside)
            or _doubt_of_overlap(base, head, adjusted, (slow, fast))
            or _doubt_of_clock(plain.point, clocks, slow if slower else fast)
        )
        if doubt:
            code, sentence = doubt
            text = f"{size(plain.point)}, but {sentence}"
            shown = sure if code == _NOT_SIGNIFICANT else shown
            return Outcome(Verdict.INCONCLUSIVE, Reason(f"{word}-{code}"), text, shown, detectable)
        return Outcome(verdict, word, f"{size(plain.point)} in each batch of fresh processes", sure, detectable)
    if plain.high >= slow or 1 / max(plain.low, 1e-300) >= fast:
        sentence = "too few processes for an interval" if plain.low <= 0 else allows(shown)
        return Outcome(Verdict.INCONCLUSIVE, Reason.INTERVAL_TOO_WIDE, sentence, shown, detectable)
    found = unchanged(shown, detectable, policy)
    held = f"; the baseline holds {counted(sessions.number, 'session')}" if sessions else ""
    return replace(found, sentence=found.sentence + held)


def times_half(confidence: float) -> float:
    """Return how many times half of an interval a change must be to be seen in four of five runs; once: in one of two.

    >>> f"{times_half(0.99):.2f} {times_half(0.95):.2f}"
    '1.33 1.43'
    """
    return 1 + NormalDist().inv_cdf(0.8) / NormalDist().inv_cdf(1 - (1 - confidence) / 2)


def _doubt_of_estimate(point: float, beyond: Sequence[bool], sessions: Sessions | None) -> tuple[str, str] | None:
    """Return why an estimate is not established; `beyond` says of each batch whether it passes the threshold."""
    if len(beyond) < 2:
        return "unconfirmed", "not yet measured a second time"
    if not all(beyond):
        return "not-repeated", "not in each batch of fresh processes"
    if sessions and abs(math.log(point)) < sessions.margin:
        held, limit = counted(sessions.number, "session"), percent(math.exp(sessions.margin) - 1)
        return "too-small", f"a baseline of {held} shows changes from {limit} on"
    if max(point, 1 / point) < 1 + STORED:
        return "too-small", f"a stored time is off by up to {percent(STORED)} a few minutes later"
    return None


def _doubt_of_interval(
    interval: Interval, processes: tuple[int, int], comparisons: int, floor: float
) -> tuple[str, str] | None:
    """Return why an interval, the error shared by the cases, does not exclude the scatter of the baseline."""
    among = f" among {comparisons} cases" if comparisons > 1 else ""
    if interval.low <= 0:
        return "too-few-processes", f"{processes[0]} and {processes[1]} processes are too few to be sure{among}"
    if _includes(interval, floor):
        scatter = f", and processes of the baseline scatter by {percent(floor)}" if floor else ""
        return _NOT_SIGNIFICANT, f"{allows(interval)}{among}{scatter}"
    return None


def _includes(interval: Interval, change: float) -> bool:
    """Return whether an interval reaches into the changes up to this one, a fraction; 0: whether it holds no change."""
    return interval.low <= 1 + change and interval.high >= 1 / (1 + change)


def _doubt_of_overlap(
    base: Sequence[float], head: Sequence[float], adjusted: Interval, beyond: tuple[float, float]
) -> tuple[str, str] | None:
    separate = max(base) < min(head) or max(head) < min(base)
    far_slower, far_faster = (ratio**FAR for ratio in beyond)
    if not separate and adjusted.low < far_slower and adjusted.high > 1 / far_faster:
        return "overlapping", "some processes of the baseline took as long as some of this run"
    return None


def _doubt_of_clock(point: float, clocks: tuple[float, float] | None, threshold: float) -> tuple[str, str] | None:
    """Time x clock is cycles: a change that is not there in cycles is one of the clock."""
    if clocks is None:
        return None
    before, now = clocks
    cycles = point * now / before
    if max(cycles, 1 / cycles) >= threshold and (cycles > 1) == (point > 1):
        return None
    return "clock", f"the SM clock was {now / 1e6:.0f} MHz, in the baseline {before / 1e6:.0f} MHz"


def confirming_processes(base: int, measured: int, comparisons: int, confidence: float, at_least: int) -> int:
    """Return how many processes a confirming batch needs, so that its verdict can be sure among so many cases.

    With complete separation the interval of `base` against n processes has the level 1 - 2 / (base + n choose base).
    Never more than three times `at_least`: a baseline of few processes cannot be made up for by many of the run.

    >>> confirming_processes(6, 6, 12, 0.99, 6), confirming_processes(6, 6, 1000, 0.99, 6)
    (6, 14)
    """
    needed = at_least
    while (
        2 / math.comb(base + measured + needed, base) > (1 - confidence) / max(1, comparisons) and needed < 3 * at_least
    ):
        needed += 1
    return needed
