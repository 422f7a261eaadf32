"""The verdict on a case whose base commit took turns with it, and on the session as a whole."""

import statistics
from dataclasses import replace

from ci_perf.core.finding import Finding
from ci_perf.core.model import Against, KernelSpec, Measurement, Policy, Run, Verdict
from ci_perf.core.paired import LOOKS, decide_pairs, log_ratio, pair_interval
from ci_perf.core.quantity import percent

NOT_IN_BASE = "not-in-base"
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
    clocks = [pair.clocks for pair in measurement.pairs if pair.clocks]
    outcome = decide_pairs(
        [log_ratio(pair) for pair in measurement.pairs],
        policy_of(run.policy, spec),
        comparisons=comparisons,
        last=run.finished or len(measurement.pairs) >= LOOKS[-1],
        clocks=statistics.median(clocks) if len(clocks) == len(measurement.pairs) else None,
    )
    trouble = control_trouble(against)
    if trouble and outcome.verdict is not Verdict.INCONCLUSIVE:
        outcome = replace(outcome, verdict=Verdict.INCONCLUSIVE, code="control-moved", sentence=trouble)
    base = statistics.median(statistics.median(pair.base) for pair in measurement.pairs)
    return replace(
        blank,
        verdict=outcome.verdict,
        code=outcome.code,
        sentence=outcome.sentence,
        base=base,
        change=outcome.change,
        detectable=outcome.detectable,
    )


def control_trouble(against: Against) -> str:
    """Say in a sentence that base against base differed, so that this session cannot be believed; empty: it can."""
    if not against.control:
        return ""
    found = pair_interval([log_ratio(pair) for pair in against.control], 0.99)
    if found.low <= 1 <= found.high or max(found.point, 1 / found.point) - 1 < CONTROL_FLOOR:
        return ""
    moved = percent(found.point - 1, sign=True)
    return f"the base differed from itself by {moved} ({against.control_case}): this session cannot be believed"


def removed_kernels(run: Run, against: Against) -> list[Finding]:
    """Report the kernels and cases that the base has and the head has not."""
    sentence = f"{against.ref} has it, the head does not"
    slug = run.devices[0].slug
    named = [(name.partition("/")[0], name.partition("/")[2] or "*") for name in against.gone]
    return [Finding(kernel, case, slug, Verdict.MISSING, "removed", sentence) for kernel, case in named]


def policy_of(policy: Policy, spec: KernelSpec) -> Policy:
    """Return the policy with the thresholds that the kernel's own file sets."""
    return replace(policy, regression=spec.regression or policy.regression, speedup=spec.speedup or policy.speedup)
