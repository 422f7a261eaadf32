"""The verdict on a case whose base commit took turns with it, and on the session as a whole."""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ci_perf.judge.decision import Outcome
from ci_perf.judge.finding import Finding
from ci_perf.judge.paired import LOOKS, decide_pairs, knows_clocks, log_ratio, mean_change, pair_interval, usable_ratios
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.measurement import Measurement, Pair
from ci_perf.values.quantity import percent
from ci_perf.values.run import Against, Policy, Run
from ci_perf.values.verdict import Verdict

NOT_IN_BASE = "not-in-base"
NO_CONTROL = "no-control"
OTHER_INPUTS = "other-inputs"
CONTROL_MOVED = "control-moved"
LEAST_CONTROL = 4
"""Of fewer pairs the interval is too wide to see that the base differs from itself by what casts doubt: 3 pairs that
scatter by 0.3 %, which is usual, allow 1.7 % either way."""
CONTROL_FLOOR = 0.01
"""How far base against base may be off without casting doubt on the session: ten times its usual scatter."""


def judge_pairs(
    run: Run, against: Against, measurement: Measurement, spec: KernelSpec, blank: Finding, comparisons: int
) -> Finding:
    """Judge a case, one of so many comparisons, by the base commit that took turns with it."""
    if measurement.unpaired:
        new = measurement.unpaired == NOT_IN_BASE
        verdict, code = (Verdict.NEW, NOT_IN_BASE) if new else (Verdict.NOT_COMPARABLE, "base-failed")
        sentence = f"{against.ref} has no such case" if new else f"{against.ref}: {measurement.unpaired}"
        return replace(blank, verdict=verdict, code=code, sentence=sentence)
    pairs = measurement.sound_pairs
    if not pairs:
        sentence = f"every pair was disturbed: {_reasons(measurement.pairs)}"
        return replace(blank, verdict=Verdict.INCONCLUSIVE, code="disturbed", sentence=sentence)
    if makes_other_inputs(pairs):
        sentence = f"the inputs differ in shape or type; measured {mean_change(usable_ratios(pairs))}, of other work"
        return replace(blank, verdict=Verdict.NOT_COMPARABLE, code=OTHER_INPUTS, sentence=sentence)
    trouble = control_trouble(run, against)
    outcome = believe(_decide(run, measurement, spec, comparisons), trouble)
    if is_identical(measurement) and not trouble:
        outcome = _same_code(outcome, usable_ratios(pairs), run.policy)
    return replace(
        blank,
        verdict=outcome.verdict,
        code=outcome.code,
        sentence=outcome.sentence + _left_out(measurement),
        base=statistics.median(statistics.median(pair.base) for pair in pairs),
        change=outcome.change,
        detectable=outcome.detectable,
    )


def _decide(run: Run, measurement: Measurement, spec: KernelSpec, comparisons: int) -> Outcome:
    pairs = measurement.sound_pairs
    clocks = [pair.clocks for pair in pairs]
    outcome = decide_pairs(
        [log_ratio(pair) for pair in pairs],
        policy_of(run.policy, spec),
        comparisons=comparisons,
        last=run.finished or len(pairs) >= LOOKS[-1],
        clocks=clocks,
    )
    has_clocks = measurement.device == "cuda" and spec.program is None
    if outcome.verdict.is_change and has_clocks and not knows_clocks(clocks, len(pairs)):
        return replace(outcome, sentence=f"{outcome.sentence}; the SM clocks are not known")
    if outcome.code == "interval-too-wide" and len(measurement.pairs) < LOOKS[-1]:
        number = f"{len(pairs)} pairs" if len(pairs) > 1 else "one pair"
        sentence = f"{outcome.sentence} after {number}, and the budget is spent"
        return replace(outcome, code="budget-spent", sentence=sentence)
    return outcome


def is_identical(measurement: Measurement) -> bool:
    """Say whether the GPU was made to do the very same on both sides, so that no change can be the code's."""
    return bool(usable_ratios(measurement.sound_pairs)) and all(pair.identical for pair in measurement.sound_pairs)


def is_paired(measurement: Measurement) -> bool:
    """Say whether a case has pairs that are compared."""
    return bool(measurement.sound_pairs) and not makes_other_inputs(measurement.sound_pairs)


def makes_other_inputs(pairs: Sequence[Pair]) -> bool:
    """Say whether the inputs of base and head differ in shape or type, each side's being the same in every pair.

    Those that differ from pair to pair are random, which one pair cannot tell. Other values are a warning: how a kernel
    is called, and how its data are laid out, is a part of what a commit may change.
    """
    made = {pair.shapes for pair in pairs}
    return len(pairs) > 1 and len(made) == 1 and len(set(*made)) > 1


def _same_code(outcome: Outcome, values: Sequence[float], policy: Policy) -> Outcome:
    sentence = f"machine code, launch parameters and inputs are the same on both sides; measured {mean_change(values)}"
    change = outcome.change or pair_interval(values, policy.confidence)
    return replace(outcome, verdict=Verdict.UNCHANGED, code="same-machine-code", sentence=sentence, change=change)


def _left_out(measurement: Measurement) -> str:
    """Say which pairs did not count, and why."""
    left = [pair for pair in measurement.pairs if pair not in measurement.sound_pairs]
    if not left:
        return ""
    other = {f"timed by {pair.method}" for pair in left if not pair.disturbed}
    why = ", ".join(filter(None, (_reasons(left), *sorted(other))))
    return f"; {len(left)} more {'pair does' if len(left) == 1 else 'pairs do'} not count: {why}"


def _reasons(pairs: Sequence[Pair]) -> str:
    return ", ".join(sorted({reason for pair in pairs for reason in pair.disturbed}))


class Trouble(NamedTuple):
    """Why nothing in a session can be believed."""

    code: str
    """`control-moved`, or `no-control` where nothing vouches for the session."""
    sentence: str


def control_trouble(run: Run, against: Against) -> Trouble | None:
    """Say that what cannot have changed did change in this session; None: it can be believed.

    That is the base against itself, and every case whose machine code is the same on both sides.
    """
    if not run.finished and not against.control_case:
        return Trouble(NO_CONTROL, "the run ended before the base was measured against itself: nothing vouches for it")
    trouble = base_trouble(usable_ratios(against.control), against.control_case, _reasons(against.control))
    identical = [m for m in run.measurements if is_identical(m)]
    for measurement in identical if not trouble else ():
        values = usable_ratios(measurement.sound_pairs)
        trouble = trouble or _moved(values, measurement.id, "identical code differed", comparisons=len(identical))
    return trouble


def base_trouble(values: Sequence[float], case: str, disturbed: str = "") -> Trouble | None:
    """Say what the control casts doubt on, from the log ratios of its sound pairs; no control case, no doubt.

    `disturbed` says what spoilt the other pairs.
    """
    if case and len(values) < LEAST_CONTROL:
        why = f", which was disturbed by {disturbed}" if disturbed else ""
        pairs = f"in {len(values)} of at least {LEAST_CONTROL} pairs"
        sentence = f"the base was measured against itself {pairs} ({case}){why}: nothing vouches for this session"
        return Trouble(NO_CONTROL, sentence)
    return _moved(values, case, "the base differed from itself") if values else None


def _moved(values: Sequence[float], case: str, what: str, comparisons: int = 1) -> Trouble | None:
    found = pair_interval(values, 1 - 0.01 / comparisons)
    if found.low <= 1 <= found.high or max(found.point, 1 / found.point) - 1 < CONTROL_FLOOR:
        return None
    moved = percent(found.point - 1, sign=True)
    return Trouble(CONTROL_MOVED, f"{what} by {moved} ({case}): this session cannot be believed")


def believe(outcome: Outcome, trouble: Trouble | None) -> Outcome:
    """Return the outcome, which is INCONCLUSIVE in a session that cannot be believed."""
    if not trouble or outcome.verdict is Verdict.INCONCLUSIVE:
        return outcome
    return replace(outcome, verdict=Verdict.INCONCLUSIVE, code=trouble.code, sentence=trouble.sentence)


def removed_kernels(run: Run, against: Against) -> list[Finding]:
    """Report the kernels and cases that the base has and the head has not."""
    sentence = f"{against.ref} has it, the head does not"
    slug = run.devices[0].slug
    named = [(name.partition("/")[0], name.partition("/")[2] or "*") for name in against.gone]
    return [Finding(kernel, case, slug, Verdict.MISSING, "removed", sentence) for kernel, case in named]


def policy_of(policy: Policy, spec: KernelSpec) -> Policy:
    """Return the policy with the thresholds that the kernel's own file sets."""
    return replace(policy, regression=spec.regression or policy.regression, speedup=spec.speedup or policy.speedup)
