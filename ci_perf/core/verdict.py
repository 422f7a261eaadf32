"""The verdict on each case, from numbers alone: a stored baseline against this run.

A stored time is wrong by several per cent on another day, so a change counts only when all of these hold: the estimate
passes the threshold in each batch of fresh processes, the interval of all of them excludes no change at a confidence
adjusted over the cases of the run (Bonferroni), and the median lies outside all that the baseline's own processes did.
What is past a threshold and not established is INCONCLUSIVE: shown, never red.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ci_perf.core.metrics import BY_NAME, Trust
from ci_perf.core.model import (
    Baseline,
    BaselineCase,
    Device,
    Gate,
    GateState,
    KernelSpec,
    Measurement,
    Policy,
    Reading,
    Run,
    Verdict,
)
from ci_perf.core.quantity import percent
from ci_perf.core.stats import Interval, process_medians, ratio_interval

_ROUNDING = 1 - 1e-9
"""Two times that are exactly 3 % apart have a quotient that rounding may put just below 1.03."""


@dataclass(frozen=True, slots=True)
class GateFinding:
    """A gate, its reading, and whether it was kept."""

    gate: Gate
    reading: Reading
    state: GateState


@dataclass(frozen=True, slots=True)
class CounterChange:
    """A counter that differs from the baseline by more than its repeatability."""

    metric: str
    unit: str
    base: float
    head: float


@dataclass(frozen=True, slots=True)
class Finding:
    """What is said of one case on one device."""

    kernel: str
    case: str
    device: str
    """The slug of the device."""
    verdict: Verdict
    code: str
    sentence: str
    base: float | None = None
    """Median of the baseline in seconds."""
    head: float | None = None
    change: Interval | None = None
    """head / base: above 1 is slower."""
    detectable: float | None = None
    """The smallest change, as a fraction, that this session could have told from none."""
    gates: tuple[GateFinding, ...] = ()
    counters: tuple[CounterChange, ...] = ()

    @property
    def id(self) -> str:
        """How the case is written on the command line."""
        return f"{self.kernel}/{self.case}"

    @property
    def broken_gates(self) -> tuple[GateFinding, ...]:
        """The gates that were measured and not kept."""
        return tuple(g for g in self.gates if g.state is GateState.BROKEN)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict on a number alone: what `decide` returns."""

    verdict: Verdict
    code: str
    sentence: str
    change: Interval | None = None
    detectable: float | None = None


def decide(
    base: Sequence[float],
    batches: Sequence[Sequence[float]],
    policy: Policy,
    *,
    comparisons: int = 1,
    better: str = "lower",
) -> Outcome:
    """Judge medians of processes against the medians of the baseline's processes.

    `batches` are the medians of this run, batch by batch; a change needs at least two. `comparisons` is the number of
    cases judged in the run. `better` says which direction is good. Only ratios count: any unit gives the same verdict.

    >>> base = [1.00, 1.001, 1.002, 1.003, 1.004, 1.005]
    >>> decide(base, [[1.05] * 6, [1.051] * 6], Policy()).code
    'slower'
    >>> decide(base, [[1.05] * 6], Policy()).code
    'slower-unconfirmed'
    >>> decide(base, [[1.0] * 6], Policy()).code
    'within-noise'
    """
    head = [value for batch in batches for value in batch]
    for side, values in (("baseline", base), ("run", head)):
        if not values:
            return Outcome(Verdict.INCONCLUSIVE, "no-values", f"the {side} holds no value")
        if not all(math.isfinite(v) and v > 0 for v in values):
            return Outcome(
                Verdict.INCONCLUSIVE, "bad-values", f"the {side} holds a value that is not positive and finite"
            )
    if better == "higher":
        base, batches = [1 / v for v in base], [[1 / v for v in batch] for batch in batches]
        head = [1 / v for v in head]
    return _decide_lower(base, head, [b for b in batches if b], policy, comparisons)


def _decide_lower(
    base: Sequence[float], head: Sequence[float], batches: Sequence[Sequence[float]], policy: Policy, comparisons: int
) -> Outcome:
    plain = ratio_interval(base, head, policy.confidence)
    adjusted = ratio_interval(base, head, 1 - (1 - policy.confidence) / max(1, comparisons))
    points = [ratio_interval(base, batch, policy.confidence).point for batch in batches]
    slow, fast = ((1 + threshold) * _ROUNDING for threshold in (policy.regression, policy.speedup))
    slower = [p >= slow for p in (plain.point, *points)]
    faster = [1 / p >= fast for p in (plain.point, *points)]
    detectable = max(plain.high / plain.point, plain.point / plain.low) - 1 if plain.low > 0 else math.inf
    if slower[0] or faster[0]:
        word, agreed = ("slower", slower) if slower[0] else ("faster", faster)
        doubt = _doubt(word, agreed[1:], base, head, adjusted)
        if doubt:
            return Outcome(Verdict.INCONCLUSIVE, *doubt, plain, detectable)
        verdict = Verdict.REGRESSION if slower[0] else Verdict.SPEEDUP
        return Outcome(verdict, word, f"{_size(plain.point)} in each batch of fresh processes", plain, detectable)
    if plain.high >= slow or 1 / max(plain.low, 1e-300) >= fast:
        return Outcome(Verdict.INCONCLUSIVE, "interval-too-wide", _allows(plain), plain, detectable)
    return Outcome(Verdict.UNCHANGED, "within-noise", _unchanged(plain, detectable), plain, detectable)


def _doubt(
    word: str, agreed: Sequence[bool], base: Sequence[float], head: Sequence[float], adjusted: Interval
) -> tuple[str, str] | None:
    """Return the reason code and sentence that keep an estimate beyond a threshold from being a verdict."""
    if len(agreed) < 2:
        return f"{word}-unconfirmed", f"{_size(adjusted.point)}, not yet measured a second time"
    if not all(agreed):
        return f"{word}-not-repeated", f"{_size(adjusted.point)} over all, but not in each batch of fresh processes"
    if adjusted.low <= 1 <= adjusted.high:
        return f"{word}-not-significant", f"{_size(adjusted.point)}, but the interval does not exclude no change"
    centre = statistics.median(head)
    if min(base) <= centre <= max(base):
        return f"{word}-within-spread", f"{_size(adjusted.point)}, but the baseline's own processes differed as much"
    return None


def _size(ratio: float) -> str:
    """Say a ratio of times as people do: how much slower, or how many times as fast.

    >>> _size(1.05), _size(0.5)
    ('5.0 % slower', '2.00 times as fast')
    """
    return f"{percent(ratio - 1)} slower" if ratio >= 1 else f"{1 / ratio:.2f} times as fast"


def _unchanged(interval: Interval, detectable: float) -> str:
    seen = percent(interval.point - 1, sign=True)
    return f"{seen}; a change of {percent(detectable)} would have been seen"


def _allows(interval: Interval) -> str:
    if interval.low <= 0:
        return "too few processes for an interval"
    return f"the interval allows {percent(interval.low - 1, sign=True)} to {percent(interval.high - 1, sign=True)}"


def comparable(base: BaselineCase, measurement: Measurement, old: Device, new: Device) -> tuple[str, str] | None:
    """Return the reason code and sentence why two times may not be compared, or None where they may."""
    reasons = (
        ("other-device", "the GPU model", old.name, new.name),
        ("other-power-limit", "the power limit", old.power_limit_w, new.power_limit_w),
        ("other-driver", "the driver branch", _branch(old.driver), _branch(new.driver)),
        ("other-mig", "the MIG mode", old.mig, new.mig),
        ("other-parameters", "the case's parameters", dict(base.params), dict(measurement.params)),
        ("other-target", "what is run", base.target, measurement.target),
        ("other-method", "the timing method", base.time.method, ", ".join(measurement.methods)),
    )
    for code, what, before, now in reasons:
        if before != now:
            return code, f"{what} differs: baseline {_plain(before)}, now {_plain(now)}"
    return None


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={v}" for k, v in sorted(value.items()))
    return "unknown" if value is None else str(value)


def _branch(driver: str | None) -> str | None:
    return driver.split(".")[0] if driver else None


def judge(run: Run) -> tuple[Finding, ...]:
    """Judge every case of the run, and every case that its baselines promise and it does not have."""
    devices = {device.kind: device for device in run.devices}
    specs = {spec.name: spec for spec in run.kernels}
    baselines = {(b.device.slug, b.kernel): b for b in run.baselines}
    judged = [_context(m, devices[m.device], baselines) for m in run.measurements]
    comparisons = sum(1 for m, case, _ in judged if case is not None and m.failure is None)
    findings = [
        _judge_case(m, devices[m.device], case, baseline, specs[m.kernel], run.policy, comparisons)
        for m, case, baseline in judged
    ]
    return (*findings, *_missing(run, devices.values(), baselines.values()))


def _context(
    measurement: Measurement, device: Device, baselines: Mapping[tuple[str, str], Baseline]
) -> tuple[Measurement, BaselineCase | None, Baseline | None]:
    baseline = baselines.get((device.slug, measurement.kernel))
    return measurement, baseline.cases.get(measurement.case) if baseline else None, baseline


def _judge_case(
    measurement: Measurement,
    device: Device,
    base: BaselineCase | None,
    baseline: Baseline | None,
    spec: KernelSpec,
    policy: Policy,
    comparisons: int,
) -> Finding:
    blank = Finding(measurement.kernel, measurement.case, device.slug, Verdict.FAILED, "", "")
    if measurement.failure is not None:
        failure = measurement.failure
        return replace(blank, code=failure.code, sentence=f"{failure.stage}: {failure.message}")
    if not measurement.replicates:
        return replace(
            blank, verdict=Verdict.INCONCLUSIVE, code="not-measured", sentence="the run ended before it was timed"
        )
    medians = process_medians(measurement.replicates)
    finding = replace(
        blank,
        head=statistics.median(medians) if len(measurement.methods) == 1 else None,
        gates=tuple(judge_gate(gate, measurement) for gate in spec.gates) if device.kind == "cuda" else (),
    )
    if base is None or baseline is None:
        return replace(
            finding, verdict=Verdict.NEW, code="no-baseline", sentence=f"no baseline for this case on {device.slug}"
        )
    finding = replace(finding, base=base.time.median, counters=counter_changes(base, baseline, measurement, device))
    if len(measurement.methods) > 1:
        sentence = "processes of one case were timed by different methods: " + ", ".join(measurement.methods)
        return replace(finding, verdict=Verdict.NOT_COMPARABLE, code="mixed-methods", sentence=sentence)
    obstacle = comparable(base, measurement, baseline.device, device)
    if obstacle:
        return replace(finding, verdict=Verdict.NOT_COMPARABLE, code=obstacle[0], sentence=obstacle[1])
    outcome = decide(
        [statistics.median(values) for values in base.time.replicates],
        _batches(measurement),
        policy_of(policy, spec),
        comparisons=comparisons,
    )
    return replace(
        finding,
        verdict=outcome.verdict,
        code=outcome.code,
        sentence=outcome.sentence,
        change=outcome.change,
        detectable=outcome.detectable,
    )


def policy_of(policy: Policy, spec: KernelSpec) -> Policy:
    """Return the policy with the thresholds that the kernel's own file sets."""
    return replace(policy, regression=spec.regression or policy.regression, speedup=spec.speedup or policy.speedup)


def _batches(measurement: Measurement) -> list[list[float]]:
    batches: dict[int, list[float]] = {}
    for replicate, median in zip(measurement.replicates, process_medians(measurement.replicates), strict=True):
        batches.setdefault(replicate.batch, []).append(median)
    return [batches[number] for number in sorted(batches)]


def _missing(run: Run, devices: Iterable[Device], baselines: Iterable[Baseline]) -> list[Finding]:
    """Find the cases that a baseline holds and the kernels, though all were asked for, no longer have."""
    if run.selection:
        return []
    slugs = {device.slug for device in devices}
    known = {(spec.name, case) for spec in run.kernels for case in spec.cases}
    sentence = "the baseline holds this case, the kernels do not"
    return [
        Finding(b.kernel, name, b.device.slug, Verdict.MISSING, "removed", sentence, base=case.time.median)
        for b in baselines
        if b.device.slug in slugs
        for name, case in b.cases.items()
        if (b.kernel, name) not in known
    ]


def judge_gate(gate: Gate, measurement: Measurement) -> GateFinding:
    """Hold a limit against the worst of the profiled launches; a counter that is not available keeps no gate."""
    readings = [counters[gate.metric] for counters in measurement.counters if gate.metric in counters]
    if not readings:
        return GateFinding(gate, Reading(None, "", "no counters were measured"), GateState.NOT_MEASURED)
    for reading in readings:
        if reading.value is None or not math.isfinite(reading.value):
            return GateFinding(gate, reading, GateState.NOT_MEASURED)
    values = [r.value for r in readings if r.value is not None]
    worst = min(values) if gate.operator == ">=" else max(values)
    kept = worst >= gate.limit if gate.operator == ">=" else worst <= gate.limit
    return GateFinding(gate, Reading(worst, readings[0].unit), GateState.KEPT if kept else GateState.BROKEN)


def counter_changes(
    base: BaselineCase, baseline: Baseline, measurement: Measurement, device: Device
) -> tuple[CounterChange, ...]:
    """Compare exact and banded counters; a counter that one side lacks is not compared."""
    if not measurement.counters or baseline.device.name != device.name or dict(base.params) != dict(measurement.params):
        return ()
    changes = []
    for name, agreed in base.counters.items():
        metric = BY_NAME.get(name)
        now = [c[name].value for c in measurement.counters if name in c]
        values = [v for v in now if v is not None]
        if metric is None or metric.trust is Trust.EXPLAINING or len(values) < len(now) or not values:
            continue
        low, high = min(agreed.values) * (1 - metric.band), max(agreed.values) * (1 + metric.band)
        head = statistics.median(values)
        if not low <= head <= high:
            changes.append(CounterChange(name, metric.unit, statistics.median(agreed.values), head))
    return tuple(changes)


def is_red(finding: Finding, fail_on: Iterable[str]) -> bool:
    """Say whether a finding makes the run fail under `fail-on`."""
    causes = {
        "regression": finding.verdict is Verdict.REGRESSION,
        "failed": finding.verdict is Verdict.FAILED,
        "missing": finding.verdict is Verdict.MISSING,
        "inconclusive": finding.verdict is Verdict.INCONCLUSIVE,
        "not-comparable": finding.verdict is Verdict.NOT_COMPARABLE,
        "gate": bool(finding.broken_gates),
        "gate-not-measured": any(g.state is GateState.NOT_MEASURED for g in finding.gates),
    }
    return any(causes[cause] for cause in fail_on)
