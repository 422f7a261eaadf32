"""Creep: changes of several merges, each too small to be flagged, that add up."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ci_perf.judge.control import control_doubt
from ci_perf.judge.verdict import judge
from ci_perf.values.baseline import Baseline
from ci_perf.values.merged import Creep, Merged, MergedChange
from ci_perf.values.quantity import counted, percent, signed
from ci_perf.values.reasons import Reason
from ci_perf.values.run import Note, Run, sessions_of

MOST_NAMED = 5
ERRORS = 1.5
"""A sum counts from so many times its error on: it may begin at any merge, so the largest of many sums is looked at.
Of 2,000 simulated cases with 100 merges that change nothing, measured with a scatter of 0.5 % and an interval of 99 %,
2.5 % creep with 1, 0.4 % with 1.25, and 0.1 % with 1.5 (`tests/judge/test_creep.py`)."""
LARGEST_ERROR = 2
"""An undecided change whose error is more than so many times the limit is left out. It says nothing of changes below
the limit, and in the sum it would hide them."""


def sentence(one: Creep) -> str:
    """Return a creep in words."""
    interval = f"[{signed(100 * one.low)}, {signed(100 * one.high)}]"
    since = f"{counted(one.merges, 'merge')} since {one.first[:8]}"
    return f"{one.case} on {one.device}: {percent(one.change, sign=True)} {interval} in {since}"


def changes_of(run: Run) -> tuple[Merged, ...]:
    """Return what a finished run of a merged commit against the one before says, for each device that was measured.

    A case that was not compared has no change; one that was not timed, because its code is the same, has none either.
    A session that is not reliable adds nothing.
    """
    if run.against is None or run.provenance.commit is None:
        return ()
    cases: dict[str, dict[str, MergedChange]] = {}
    reliable = tuple(
        measurement
        for session in sessions_of(run)
        if session.against and not control_doubt(session, session.against)
        for measurement in session.measurements
    )
    for found in judge(replace(run, measurements=reliable)):
        interval = found.change
        if interval is None or found.code is Reason.REFERENCE_TIMED or not 0 < interval.low <= interval.high < math.inf:
            continue
        change, error = math.log(interval.point), math.log(interval.high / interval.low) / 2
        cases.setdefault(found.device, {})[found.id] = MergedChange(round(change, 6), round(error, 6))
    commits = run.against.commit, run.provenance.commit
    return tuple(Merged(device, *commits, run.provenance.date, known) for device, known in cases.items())


def without_overlaps(merges: Iterable[Merged], parents: Mapping[str, str]) -> tuple[Merged, ...]:
    """Return the merges that can be added up, so that no change counts twice: those of one commit each.

    `parents` has the first parent of each head that git knows: a merge that was measured against another commit is left
    out, because its change contains those of other merges. Of two with one base, as two branches leave them, the latter
    counts.
    """
    kept: dict[tuple[str, str], Merged] = {}
    for merged in merges:
        if parents.get(merged.head, merged.base) == merged.base:
            kept[merged.device, merged.base] = merged
    return tuple(kept.values())


def creep(
    merges: Iterable[Merged],
    limit: float,
    since: Mapping[tuple[str, str], str],
    limits: Mapping[str, float] = MappingProxyType({}),
) -> tuple[Creep, ...]:
    """Return the cases whose small changes add up to `limit` (0.03 is 3 %) or more, from the oldest merge on.

    `limits` has the limit of each kernel that sets its own threshold. The sum begins again where it is not above zero,
    and after an established change of at least the limit, which was flagged by itself. It counts if it exceeds its own
    error, that of a sum of independent changes. `since` says by device and kernel when a baseline was accepted: what
    was merged until then is agreed.
    """
    series: dict[tuple[str, str], list[tuple[str, MergedChange]]] = {}
    for merged in merges:
        for case, change in merged.cases.items():
            if merged.date > since.get((merged.device, case.partition("/")[0]), ""):
                series.setdefault((case, merged.device), []).append((merged.head, change))
    found = (
        _of_case(case, device, changes, math.log1p(limits.get(case.partition("/")[0], limit)))
        for (case, device), changes in series.items()
    )
    return tuple(one for one in found if one)


def accepted(baselines: Iterable[Baseline]) -> dict[tuple[str, str], str]:
    """Return by device and kernel when the newest session of a baseline was measured."""
    return {(baseline.device.slug, baseline.kernel): baseline.provenance.date for baseline in baselines}


def creep_notes(found: Sequence[Creep]) -> tuple[Note, ...]:
    """Return a note that names the cases that creep, at most MOST_NAMED of them."""
    if not found:
        return ()
    named = [sentence(one) for one in sorted(found, key=lambda one: -one.change)[:MOST_NAMED]]
    more = [f"{len(found) - MOST_NAMED} more"] if len(found) > MOST_NAMED else []
    message = "merges before this change made cases slower by less than their threshold each, and together by more"
    return (Note(Reason.CREEP, f"{message}: {'; '.join([*named, *more])}", Reason.CREEP.hint),)


def _of_case(case: str, device: str, changes: Sequence[tuple[str, MergedChange]], limit: float) -> Creep | None:
    total, variance, heads = 0.0, 0.0, list[str]()
    for head, change in changes:
        established = abs(change.change) > change.error
        if not established and change.error > LARGEST_ERROR * limit:
            continue
        total, variance = total + change.change, variance + change.error**2
        heads.append(head)
        if (established and abs(change.change) >= limit) or total <= 0:
            total, variance, heads = 0.0, 0.0, []
    if len(heads) < 2 or total < limit or total <= ERRORS * math.sqrt(variance):
        return None
    error = math.sqrt(variance)
    summed, low, high = (round(math.expm1(x), 6) for x in (total, total - error, total + error))
    return Creep(case, device, summed, low, high, len(heads), heads[0])
