"""A run, judged and put in order for people: what every renderer draws from."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ci_perf.judge.checks import check_flags, could_not_check, summary_of_checks
from ci_perf.judge.finding import Finding
from ci_perf.judge.pairs import makes_other_inputs
from ci_perf.judge.ratios import mean_change, usable_ratios
from ci_perf.judge.roofline import Roofline, roofline
from ci_perf.judge.stats import Summary, summarize
from ci_perf.judge.verdict import is_red, judge
from ci_perf.values.device import Device, Toolchain
from ci_perf.values.errors import EXIT_ENVIRONMENT, EXIT_OK, EXIT_RED
from ci_perf.values.measurement import Measurement
from ci_perf.values.provenance import Provenance
from ci_perf.values.quantity import counted, percent
from ci_perf.values.reasons import Reason
from ci_perf.values.run import Against, Note, Run
from ci_perf.values.sessions import sessions_of
from ci_perf.values.trace import Reading
from ci_perf.values.verdict import Verdict

ORDER = (
    Verdict.FAILED,
    Verdict.REGRESSION,
    Verdict.MISSING,
    Verdict.SPEEDUP,
    Verdict.NOT_COMPARABLE,
    Verdict.INCONCLUSIVE,
    Verdict.NEW,
    Verdict.UNCHANGED,
)
"""The order of rows: what needs someone's attention first."""

WORDS: Mapping[Verdict, tuple[str, str]] = {
    Verdict.FAILED: ("failed kernel", "failed kernels"),
    Verdict.REGRESSION: ("regression", "regressions"),
    Verdict.MISSING: ("missing case", "missing cases"),
    Verdict.SPEEDUP: ("speedup", "speedups"),
    Verdict.NOT_COMPARABLE: ("not comparable", "not comparable"),
    Verdict.INCONCLUSIVE: ("inconclusive", "inconclusive"),
    Verdict.NEW: ("new case", "new cases"),
    Verdict.UNCHANGED: ("unchanged", "unchanged"),
}


_BROKEN_GATE = "A counter broke its limit: fix the kernel, or change `[gates]` in its kernel.toml."
_UNMEASURED_GATE = "Some gates were not measured, which is no pass: see why, and what `ci-perf doctor` advises."
_NO_BASE = "Nothing was compared: the base has none of these cases, or could not run them."


@dataclass(frozen=True, slots=True)
class Row:
    """One case on one device: the finding, and the numbers behind it."""

    finding: Finding
    red: bool
    measurement: Measurement | None = None
    summary: Summary | None = None
    roofline: Roofline | None = None
    warnings: tuple[str, ...] = ()

    @property
    def flagged(self) -> bool:
        """Whether the row belongs into the part of the report that nobody may overlook."""
        loud = (Verdict.FAILED, Verdict.REGRESSION, Verdict.SPEEDUP, Verdict.MISSING)
        return self.red or self.finding.verdict in loud or bool(self.finding.broken_gates)


@dataclass(frozen=True, slots=True)
class Report:
    """What a run has to say."""

    headline: str
    next_step: str
    rows: tuple[Row, ...]
    notes: tuple[Note, ...]
    devices: tuple[Device, ...]
    toolchain: Toolchain
    provenance: Provenance
    compared: int
    """How many cases were held against a baseline; with none, nothing was shown to be fine."""
    agreed: tuple[str, ...]
    """Which baselines those were: date and commit of each."""
    exit_status: int
    finished: bool
    """False where the run was cut short: what is missing may be anything."""
    gpu_seconds: float
    planted: float | None
    patterns: tuple[str, ...]
    trace: Mapping[str, Reading]
    """The metrics of the timeline over all that was traced."""
    base: str = ""
    """The commit that took turns with this one; empty: none did."""
    check_flags: tuple[str, ...] = ()
    """What makes `ci-perf run` check in place of measuring, as this run did."""

    def of(self, *verdicts: Verdict) -> tuple[Row, ...]:
        """Return the rows with one of these verdicts."""
        return tuple(row for row in self.rows if row.finding.verdict in verdicts)


def _is_sound(run: Run, rows: Sequence[Row]) -> bool:
    """Say whether what is not red can be believed: a run that ended by itself, on a GPU that lost nothing."""
    lost = any(row.finding.code == Reason.MEMORY_ERRORS for row in rows)
    return run.finished and not lost and not could_not_check(run)


def _base_was_no_base(run: Run, verdicts: Counter[Verdict], compared: int) -> bool:
    """Say whether a run against a base held nothing against it though it has the cases: that is no pass."""
    wanted = run.against is not None and bool(run.policy.fail_on)
    return wanted and not compared and Verdict.NOT_COMPARABLE in verdicts


def build_report(run: Run) -> Report:
    """Judge a run and put its rows in order."""
    found = [(m, device) for s in sessions_of(run) for device in s.devices for m in s.measurements]
    measured = {(m.kernel, m.case, device.slug): (m, device) for m, device in found if m.device == device.kind}
    rows = [_row(f, measured.get((f.kernel, f.case, f.device)), run) for f in judge(run)]
    rows.sort(key=lambda row: ORDER.index(row.finding.verdict))
    verdicts = Counter(row.finding.verdict for row in rows)
    compared = sum(1 for row in rows if row.finding.change is not None)
    red = any(row.red for row in rows) or _base_was_no_base(run, verdicts, compared)
    return Report(
        headline=_headline(verdicts, _gate_counts(rows), summary_of_checks(run)),
        next_step=_next_step(rows, compared or len(run.fuzzed or run.sanitized), run)
        if run.finished
        else "This run was cut short: run it again.",
        rows=tuple(rows),
        notes=run.notes,
        devices=run.devices,
        toolchain=run.toolchain,
        provenance=run.provenance,
        compared=compared,
        agreed=_agreed(run),
        exit_status=EXIT_RED if red else EXIT_OK if _is_sound(run, rows) else EXIT_ENVIRONMENT,
        finished=run.finished,
        gpu_seconds=run.gpu_seconds,
        planted=run.planted,
        patterns=run.selection,
        trace=run.trace,
        base=run.against.commit if run.against else "",
        check_flags=check_flags(run),
    )


def _agreed(run: Run) -> tuple[str, ...]:
    if run.sessions:
        held = [s for s in sessions_of(run) if run.against is None or any(m.pairs for m in s.measurements)]
        return tuple(sorted({line for session in held for line in _agreed(session)}))
    if run.against is not None:
        return (f"{run.against.ref} at commit {run.against.commit[:8]}, measured in turns; {_control(run.against)}",)
    judged = {(m.kernel, m.device) for m in run.measurements}
    used = [b.provenance for b in run.baselines if (b.kernel, b.device.kind) in judged]
    return tuple(
        sorted({f"the baseline of {p.date[:10]} at commit {p.commit[:8] if p.commit else 'unknown'}" for p in used})
    )


def _row(finding: Finding, measured: tuple[Measurement, Device] | None, run: Run) -> Row:
    red = is_red(finding, run.policy.fail_on)
    if measured is None or not measured[0].timed:
        return Row(finding, red, measured[0] if measured else None)
    measurement, device = measured
    summary = summarize(measurement.timed, clock_max_hz=device.sm_clock_max_hz)
    cost = measurement.cost
    dtype = str(measurement.params.get("dtype", "float32"))
    return Row(
        finding,
        red,
        measurement,
        summary,
        roofline(cost, summary.median.point, device, dtype) if cost else None,
        (*_warnings(measurement, summary, run), *_doubts(finding, measurement), *finding.uncompared),
    )


def _warnings(measurement: Measurement, summary: Summary, run: Run) -> list[str]:
    warnings = []
    if summary.cv > run.policy.cv_warning:
        warnings.append(
            f"CV {percent(summary.cv)}: the samples scatter by more than {percent(run.policy.cv_warning, digits=0)}"
        )
    if any(method.startswith("cuda-events") and "cold" not in method for method in measurement.methods):
        warnings.append(
            "timed by events, launch gaps included: no CUDA graph could be captured (logs/worker.stderr.txt)"
        )
    if any(pair.other_inputs for pair in measurement.pairs) and not makes_other_inputs(measurement.sound_pairs):
        warnings.append("base and head made other inputs: their times may be of other work")
    read = [r.temperature_c for r in measurement.replicates] + [p.temperature_c for p in measurement.pairs]
    hottest = max((celsius for celsius in read if celsius is not None), default=0.0)
    if hottest > run.policy.temperature_warning_c:
        warnings.append(f"{hottest:.0f} C: above {run.policy.temperature_warning_c:.0f} C the GPU may slow itself down")
    return warnings


def _doubts(finding: Finding, measurement: Measurement) -> list[str]:
    """Doubt a large improvement of what is not held against a reference: it may do less than before."""
    unchecked = measurement.verification is not None and measurement.verification.checked == "status"
    if not unchecked or finding.verdict is not Verdict.SPEEDUP or not finding.change or finding.change.point > 0.5:
        return []
    return ["at most half of the time, and nobody checked its output: does it still do the same work?"]


def _gate_counts(rows: Sequence[Row]) -> tuple[int, int]:
    """Return how many gates are broken, and how many were not measured."""
    findings = [row.finding for row in rows]
    return sum(len(f.broken_gates) for f in findings), sum(len(f.unmeasured_gates) for f in findings)


def _headline(verdicts: Mapping[Verdict, int], gates: tuple[int, int], checked: Sequence[str] = ()) -> str:
    """Count in words the verdicts, and the gates that are broken or were not measured: silence would be a pass.

    >>> _headline({Verdict.REGRESSION: 1, Verdict.UNCHANGED: 3}, (2, 1))
    '1 regression, 2 broken gates, 3 unchanged, 1 gate not measured'
    """
    broken, unmeasured = gates
    parts = [f"{verdicts[v]} {WORDS[v][verdicts[v] != 1]}" for v in ORDER if verdicts.get(v)]
    if broken:
        loud = sum(1 for v in ORDER[:4] if verdicts.get(v))
        parts.insert(loud, counted(broken, "broken gate"))
    if unmeasured:
        parts.append(f"{counted(unmeasured, 'gate')} not measured")
    return ", ".join([*parts, *checked]) or "no case ran"


def _next_step(rows: Sequence[Row], compared: int, run: Run) -> str:
    """Return what to do next: the step of the most urgent reason."""
    in_turns = run.against is not None
    verdicts = {row.finding.verdict: row.finding.code for row in reversed(rows)}
    codes = {row.finding.code for row in rows}
    ungated = any(row.finding.unmeasured_gates for row in rows)
    nothing = "" if rows else "No case ran: see why, and choose others."
    nothing = nothing or (_NO_BASE if in_turns else Reason.NO_BASELINE.steps[False])
    steps = (
        (Reason.MEMORY_ERRORS in codes, Reason.MEMORY_ERRORS),
        (Verdict.FAILED in verdicts, verdicts.get(Verdict.FAILED)),
        (Verdict.REGRESSION in verdicts, Reason.SLOWER),
        (any(row.finding.broken_gates for row in rows), _BROKEN_GATE),
        (Verdict.MISSING in verdicts, Reason.REMOVED),
        (ungated and "gate-not-measured" in run.policy.fail_on, _UNMEASURED_GATE),
        (Reason.DISTURBED in codes, Reason.DISTURBED),
        (Reason.OTHER_INPUTS in codes, Reason.OTHER_INPUTS),
        (not compared, nothing),
        *((code in codes, code) for code in (Reason.SANITIZER_NOT_CHECKED, Reason.FASTER)),
        *((code in codes, code) for code in (Reason.CONTROL_MOVED, Reason.NO_CONTROL, Reason.BASE_FAILED)),
        (Reason.BUDGET_SPENT in codes, Reason.BUDGET_SPENT),
        (Verdict.INCONCLUSIVE in verdicts, Reason.INTERVAL_TOO_WIDE),
        (ungated, _UNMEASURED_GATE),
    )
    found = next((step for holds, step in steps if holds and step), "Nothing to do.")
    return found.steps[in_turns] if isinstance(found, Reason) else found


def _control(against: Against) -> str:
    """Say how the base did against itself, by which the session is judged."""
    values = usable_ratios(against.control)
    if not values:
        return "the base against itself was not measured"
    return f"the base against itself {mean_change(values)} in {len(values)} pairs"
