"""Pairs of base and head until each verdict is clear or the budget is spent, and the base against itself."""

import statistics
from collections.abc import Sequence
from dataclasses import replace

from ci_perf.judge.control import ENOUGH_IDENTICAL, LEAST_CONTROL, identical_pairs
from ci_perf.judge.looks import LOOKS, goal
from ci_perf.judge.next_pairs import expected_pairs
from ci_perf.judge.outcome import policy_of
from ci_perf.judge.pairs import further_starts
from ci_perf.judge.ratios import usable_ratios
from ci_perf.judge.stats import Interval
from ci_perf.judge.verdict import judge
from ci_perf.measure.backend import Progress
from ci_perf.measure.budget import Budget, BudgetLeft
from ci_perf.measure.journal import Journal
from ci_perf.measure.machine import Machine
from ci_perf.values.job import Job
from ci_perf.values.measurement import Pair
from ci_perf.values.reasons import Reason
from ci_perf.values.run import Note

SPARE_PAIRS = 3
"""How many disturbed pairs are repeated for each case (and the control) at each look."""
MOST_FAILURES = 2
"""After this many failures in a row the control is given up for this look."""
CONTROL_PAIRS = LEAST_CONTROL
"""How many pairs of base against base there are at the first look; one more at each look after it."""
LONG_ENOUGH_S = 20e-6
"""The control is a case of at least this duration, if there is one: shorter ones scatter more."""


def take_turns(journal: Journal, machine: Machine, jobs: Sequence[Job], budget: Budget, progress: Progress) -> None:
    """Measure pairs of every case until its verdict is clear or the budget is spent, then the control.

    The pairs of a run that this one continues count; the control is that of both sessions, and as long as that of one.
    """
    if not jobs:
        return
    left = BudgetLeft(budget, machine.now)
    compared = len(jobs)
    before = min(max(journal.of(job).looked, default=0) for job in jobs)
    known = len(usable_ratios(journal.run.against.control)) if journal.run.against else 0
    changes = _changes(journal) if before else {}
    for index, look in enumerate(_looks(journal, jobs, before)):
        progress.begin(f"pairs to {look}", sum(max(0, look - len(journal.of(job).sound_pairs)) for job in jobs))
        for number in range(before, look + SPARE_PAIRS):
            lacking = [job for job in journal.paired(jobs) if len(journal.of(job).sound_pairs) < look]
            lacking = left.nearest(lacking, lambda job: expected_pairs(journal.run, journal.of(job), compared))
            starts = {job.id: _further_starts(journal, job, changes.get(job.id), compared) for job in lacking}
            changed = [job for job in lacking if starts[job.id]]
            if changed:
                machine.start_anew(changed, max(starts.values()))
            for job, found in left.spend(machine.pairs, [*changed, *(j for j in lacking if j not in changed)], number):
                journal.add_pair(job, found)
                progress.step(job.id)
        _control(journal, machine, journal.paired(jobs), before, known + CONTROL_PAIRS + index)
        before = look
        changes = _changes(journal)
        jobs = [job for job in journal.paired(jobs) if job.id in changes and left.allows(job)]
        if not jobs:
            break


def _looks(journal: Journal, jobs: Sequence[Job], before: int) -> list[int]:
    """Return after how many pairs this run looks at its cases, which had so many before it at least."""
    goals = {goal(journal.of(job).looked) for job in jobs}
    return sorted(look for look in {*LOOKS, *goals} if look > before)


def _changes(journal: Journal) -> dict[str, Interval | None]:
    """Return the changes of the cases that are not decided yet; None of those that have no pair, for want of budget."""
    undecided = (Reason.NEEDS_MORE_PAIRS, Reason.NOT_MEASURED)
    return {f.id: f.change for f in judge(journal.run) if f.code in undecided}


def _further_starts(journal: Journal, job: Job, change: Interval | None, compared: int) -> int:
    """Return of how many further starts the pairs should be that will probably decide a case."""
    if change is None:
        return 0
    measurement = journal.of(job)
    pairs, cases = measurement.sound_pairs, max(journal.run.among, len(journal.run.measurements))
    policy = policy_of(journal.run.policy, job.spec)
    starts = further_starts(change, policy, [pair.start for pair in pairs], len(pairs), cases)
    return min(starts, expected_pairs(journal.run, measurement, compared)) if starts else 0


def _control(journal: Journal, machine: Machine, jobs: Sequence[Job], first: int, wanted: int) -> None:
    """Measure the base against itself, on a case that has a base, until `wanted` pairs in all are undisturbed.

    Cases of identical code that were timed check the session as well: with enough of their pairs there is no control.
    Disturbed and failed pairs are repeated as often as those of a case; MOST_FAILURES in a row end it.
    """
    against = journal.run.against
    if against is None or not (jobs or against.control_case):
        return
    identical = 0 if journal.continues else len(identical_pairs(journal.run))  # those of another session say nothing
    if not against.control_case and identical >= ENOUGH_IDENTICAL:
        return
    begun = next((job for job in jobs if job.id == against.control_case), None)  # by a run that is resumed
    journal.control_job = job = journal.control_job or begun or _steadiest(journal, jobs)
    pairs = list(against.control)
    failures: list[str] = []

    def sound() -> int:
        return len(usable_ratios(pairs))

    for number in range(first, first + wanted - sound() + SPARE_PAIRS):
        if sound() >= wanted or len(failures) == MOST_FAILURES:
            break
        found = machine.control(job, number)
        if isinstance(found, Pair):
            pairs.append(found)
            failures.clear()
        else:
            failures.append(found if isinstance(found, str) else found.message)
    journal.set(against=replace(against, control_case=job.id, control=tuple(pairs)))
    known = any(note.code == Reason.NO_CONTROL for note in journal.run.notes)
    if failures and not known and sound() < LEAST_CONTROL:
        message = f"the base could not be measured against itself: {failures[-1]}"
        journal.note(Note(Reason.NO_CONTROL, message, "see the worker's log; without a control no verdict is believed"))


def _steadiest(journal: Journal, jobs: Sequence[Job]) -> Job:
    """Return the shortest case of at least LONG_ENOUGH_S, else the longest."""
    pairs = {job.id: journal.of(job).pairs for job in jobs}
    seconds = {name: statistics.median(found[0].base) if found else 0.0 for name, found in pairs.items()}
    enough = [job for job in jobs if seconds[job.id] >= LONG_ENOUGH_S]
    if enough:
        return min(enough, key=lambda job: seconds[job.id])
    return max(jobs, key=lambda job: seconds[job.id])
