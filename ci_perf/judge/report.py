"""The report of a run: its findings in order, with numbers, headline and next step. Every renderer uses it."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ci_perf.judge.agreed import agreed
from ci_perf.judge.checks import check_flags, could_not_check, summary_of_checks
from ci_perf.judge.finding import Finding
from ci_perf.judge.memory import memory_warning
from ci_perf.judge.outcome import policy_of, thresholds
from ci_perf.judge.pairs import makes_other_inputs
from ci_perf.judge.roofline import Roofline, roofline
from ci_perf.judge.stats import Summary, summarize
from ci_perf.judge.verdict import is_red, judge
from ci_perf.values.device import Device, Provenance, Toolchain
from ci_perf.values.errors import EXIT_ENVIRONMENT, EXIT_OK, EXIT_RED
from ci_perf.values.measurement import Measurement
from ci_perf.values.merged import Creep
from ci_perf.values.quantity import counted, percent
from ci_perf.values.reasons import NO_BASE_CODES, REGRESSIONS, Reason, Verdict
from ci_perf.values.run import Note, Run, sessions_of
from ci_perf.values.trace import Reading

ORDER = (
    Verdict.FAILED,
    Verdict.REGRESSION,
    Verdict.MISSING,
    Verdict.SPEEDUP,
    Verdict.NOT_COMPARABLE,
    Verdict.INCONCLUSIVE,
    Verdict.NEW,
    Verdict.EXPECTED_FAILURE,
    Verdict.UNCHANGED,
)
"""The order of rows: the most urgent first."""

_NOUNS = {
    Verdict.FAILED: "failed kernel",
    Verdict.REGRESSION: "regression",
    Verdict.MISSING: "missing case",
    Verdict.SPEEDUP: "speedup",
    Verdict.NEW: "new case",
    Verdict.EXPECTED_FAILURE: "expected failure",
}
"""Of the other verdicts the headline has the word itself: "3 unchanged"."""
_BROKEN_GATE = "A counter broke its limit: fix the kernel, or change `[gates]` in its kernel.toml."
_UNMEASURED_GATE = "Some gates were not measured, which is no pass: see why, and what `ci-perf doctor` advises."
_NO_BASELINE = "Nothing was compared: `ci-perf baseline accept ci-perf-run` makes this run the baseline."
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
    base_roofline: Roofline | None = None
    """That of the base's time for the same cost; None where there is no base."""
    limits: tuple[float, float] = (math.inf, 0.0)
    """head / base from which the case counts as slower, and up to which it counts as faster."""

    @property
    def flagged(self) -> bool:
        """Whether the row belongs to the part of the report that is always shown."""
        return self.red or self.finding.verdict in ORDER[:4] or bool(self.finding.broken_gates)


@dataclass(frozen=True, slots=True)
class Report:
    """The whole report of a run."""

    headline: str
    next_step: str
    rows: tuple[Row, ...]
    notes: tuple[Note, ...]
    devices: tuple[Device, ...]
    toolchain: Toolchain
    provenance: Provenance
    compared: int
    """How many cases were compared with a baseline or the base commit; with none, the run shows nothing."""
    agreed: tuple[str, ...]
    """What they were compared with: date and commit of each baseline, or the base commit and how its control moved."""
    exit_status: int
    finished: bool
    """False where the run was cut short."""
    gpu_seconds: float
    planted: float | None
    patterns: tuple[str, ...]
    trace: Mapping[str, Reading]
    """The metrics of the timeline over all that was traced."""
    base: str = ""
    """The base commit that took turns with this one; empty where none did."""
    creep: tuple[Creep, ...] = ()
    """The cases that merges before this change made slower, the most first."""
    fails_on_creep: bool = False
    """Whether that makes the exit status 1."""
    check_flags: tuple[str, ...] = ()
    """The flags of `ci-perf run` that repeat the checks of this run; empty for a run that measured."""

    @property
    def other_notes(self) -> tuple[Note, ...]:
        """The notes without that on creep, where `creep` says more."""
        return tuple(note for note in self.notes if not (self.creep and note.code == Reason.CREEP))

    def of(self, *verdicts: Verdict) -> tuple[Row, ...]:
        """Return the rows with one of these verdicts."""
        return tuple(row for row in self.rows if row.finding.verdict in verdicts)


def _exit_status(rows: Sequence[Row], compared: int, run: Run) -> int:
    verdicts = {row.finding.verdict for row in rows}
    base_is_useless = run.against is not None and not compared and Verdict.NOT_COMPARABLE in verdicts
    if any(row.red for row in rows) or _fails_on_creep(run) or (base_is_useless and run.policy.fail_on):
        return EXIT_RED
    lost = any(row.finding.code == Reason.MEMORY_ERRORS for row in rows) or _lacks_gpu(run)
    nothing = not (rows or run.fuzzed or run.sanitized)
    return EXIT_ENVIRONMENT if lost or nothing or not run.finished or could_not_check(run) else EXIT_OK


def _fails_on_creep(run: Run) -> bool:
    return "creep" in run.policy.fail_on and bool(run.against and run.against.creep)


def _lacks_gpu(run: Run) -> bool:
    """Return whether the run fell back to the CPU where the repository or the machine expects a GPU."""
    return any(note.code == Reason.GPU_EXPECTED for note in run.notes)


def build_report(run: Run) -> Report:
    """Judge a run and put its rows in order."""
    found = [(m, device) for s in sessions_of(run) for device in s.devices for m in s.measurements]
    measured = {(m.kernel, m.case, device.slug): (m, device) for m, device in found if m.device == device.kind}
    rows = [_row(f, measured.get((f.kernel, f.case, f.device)), run) for f in judge(run)]
    rows.sort(key=_urgency)
    compared = sum(row.finding.change is not None and row.finding.code is not Reason.REFERENCE_TIMED for row in rows)
    return Report(
        headline=_headline(
            [row.finding for row in rows], [*summary_of_checks(run), *_crept(run)], lacks_gpu=_lacks_gpu(run)
        ),
        next_step=_next_step(rows, compared or len(run.fuzzed or run.sanitized), run),
        rows=tuple(rows),
        notes=run.notes,
        devices=run.devices,
        toolchain=run.toolchain,
        provenance=run.provenance,
        compared=compared,
        agreed=agreed(run),
        exit_status=_exit_status(rows, compared, run),
        finished=run.finished,
        gpu_seconds=run.gpu_seconds,
        planted=run.planted,
        patterns=run.selection,
        trace=run.trace,
        base=run.against.commit if run.against else "",
        creep=tuple(sorted(run.against.creep, key=lambda one: -one.change)) if run.against else (),
        fails_on_creep=_fails_on_creep(run),
        check_flags=check_flags(run),
    )


def _crept(run: Run) -> list[str]:
    number = len({one.case for one in run.against.creep}) if run.against else 0
    return [f"creep in {counted(number, 'case')}"] if number else []


def _urgency(row: Row) -> tuple[int, float]:
    """Return the place of a row: the most urgent verdict first, of one verdict the largest change."""
    change = row.finding.change
    size = abs(math.log(change.point)) if change and row.finding.verdict.is_change and change.point > 0 else 0.0
    return ORDER.index(row.finding.verdict), -size


def _row(finding: Finding, measured: tuple[Measurement, Device] | None, run: Run) -> Row:
    red = is_red(finding, run.policy.fail_on)
    if measured is None or not measured[0].timed:
        return Row(finding, red, measured[0] if measured else None)
    measurement, device = measured
    summary = summarize(measurement.timed, clock_max_hz=device.sm_clock_max_hz)
    cost = measurement.cost
    dtype = str(measurement.params.get("dtype", "float32"))
    ceiling = roofline(cost, summary.median.point, device, dtype) if cost else None
    before = roofline(cost, finding.base, device, dtype) if cost and finding.base else None
    slow, fast = thresholds(policy_of(run.policy, run.spec_of(measurement)))
    warnings = _warnings(finding, measurement, summary, run)
    return Row(finding, red, measurement, summary, ceiling, warnings, before, (slow, 1 / fast))


def _warnings(finding: Finding, measurement: Measurement, summary: Summary, run: Run) -> tuple[str, ...]:
    warnings = []
    if round(summary.cv, 3) > run.policy.cv_warning:  # as printed: 12.0 % is not more than 12 %
        warnings.append(
            f"CV {percent(summary.cv)}: the samples scatter by more than {percent(run.policy.cv_warning, digits=0)}"
        )
    if any(method.startswith("cuda-events") and "cold" not in method for method in measurement.methods):
        warnings.append(
            "timed by events, launch gaps included: no CUDA graph could be captured (logs/worker.stderr.txt)"
        )
    if measurement.device == "cuda" and (said := memory_warning(finding, run.spec_of(measurement))):
        warnings.append(said)
    if any(pair.other_inputs for pair in measurement.pairs) and not makes_other_inputs(measurement.sound_pairs):
        warnings.append("base and head made other inputs: their times may be of other work")
    read = [r.temperature_c for r in measurement.replicates] + [p.temperature_c for p in measurement.pairs]
    hottest = max((celsius for celsius in read if celsius is not None), default=0.0)
    if hottest > run.policy.temperature_warning_c:
        warnings.append(f"{hottest:.0f} C: above {run.policy.temperature_warning_c:.0f} C the GPU may slow itself down")
    unchecked = measurement.verification is not None and measurement.verification.checked == "status"
    if unchecked and finding.verdict is Verdict.SPEEDUP and finding.change and finding.change.point <= 0.5:
        warnings.append("at most half of the time, and its output is not checked: does it still do the same work?")
    return (*warnings, *finding.uncompared)


def _headline(findings: Sequence[Finding], checked: Sequence[str], *, lacks_gpu: bool) -> str:
    """Count the verdicts, and the gates that are broken or were not measured."""
    verdicts = Counter(finding.verdict for finding in findings)
    broken = sum(len(finding.broken_gates) for finding in findings)
    unmeasured = sum(len(finding.unmeasured_gates) for finding in findings)

    def words(order: Sequence[Verdict]) -> list[str]:
        return [
            counted(verdicts[v], _NOUNS[v]) if v in _NOUNS else f"{verdicts[v]} {v.lower().replace('_', ' ')}"
            for v in order
            if verdicts[v]
        ]

    gates = [counted(broken, "broken gate")] if broken else []
    gaps = [f"{counted(unmeasured, 'gate')} not measured"] if unmeasured else []
    counts = ", ".join([*words(ORDER[:4]), *gates, *words(ORDER[4:]), *gaps, *checked]) or "no case ran"
    return f"no usable GPU: measured on the CPU ({counts})" if lacks_gpu else counts


def _next_step(rows: Sequence[Row], compared: int, run: Run) -> str:
    """Return what to do next: the step of the most urgent reason."""
    if not run.finished:
        return "This run was cut short: run it again."
    in_turns = run.against is not None
    verdicts = {row.finding.verdict: row.finding.code for row in reversed(rows)}
    failed = [row.finding.code for row in rows if row.finding.verdict is Verdict.FAILED]
    wrong = [code for code in failed if code.steps == Reason.RAISED.steps]  # the kernel's own fault is more urgent
    codes = {row.finding.code for row in rows}
    regressions = sum(row.finding.verdict is Verdict.REGRESSION for row in rows)
    ungated = any(row.finding.unmeasured_gates for row in rows)
    nothing = next((code for code in NO_BASE_CODES if code in codes), _NO_BASE) if in_turns else _NO_BASELINE
    nothing = nothing if rows else "No case ran: see why, and choose others."
    steps = (
        (_lacks_gpu(run), Reason.GPU_EXPECTED),
        (Reason.MEMORY_ERRORS in codes, Reason.MEMORY_ERRORS),
        (bool(failed), next(iter(wrong or failed), "")),
        (regressions > 1, REGRESSIONS[in_turns]),
        (regressions == 1, Reason.SLOWER),
        (any(row.finding.broken_gates for row in rows), _BROKEN_GATE),
        (Verdict.MISSING in verdicts, Reason.REMOVED),
        (ungated and "gate-not-measured" in run.policy.fail_on, _UNMEASURED_GATE),
        (_fails_on_creep(run), Reason.CREEP),
        (Reason.DISTURBED in codes, Reason.DISTURBED),
        (Reason.OTHER_INPUTS in codes, Reason.OTHER_INPUTS),
        (not compared and Reason.REFERENCE_TIMED in codes, Reason.REFERENCE_TIMED),
        (not compared and Verdict.INCONCLUSIVE not in verdicts, nothing),
        *((code in codes, code) for code in (Reason.SANITIZER_NOT_CHECKED, Reason.FASTER)),
        *((code in codes, code) for code in (Reason.CONTROL_MOVED, Reason.NO_CONTROL)),
        *((code in codes, code) for code in (*NO_BASE_CODES, Reason.BASE_FAILED)),
        (Reason.BUDGET_SPENT in codes, Reason.BUDGET_SPENT),
        (Verdict.INCONCLUSIVE in verdicts, verdicts.get(Verdict.INCONCLUSIVE)),
        (ungated, _UNMEASURED_GATE),
        (bool(run.against and run.against.creep), Reason.CREEP),
    )
    found = next((step for holds, step in steps if holds and step), "Nothing to do.")
    return found.steps[in_turns] if isinstance(found, Reason) else found
