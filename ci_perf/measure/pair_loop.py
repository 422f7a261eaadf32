"""Pairs of base and head until each verdict is clear or the budget is spent, and the base against itself."""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ci_perf.judge.control import ENOUGH_IDENTICAL, LEAST_CONTROL, identical_pairs
from ci_perf.judge.looks import LOOKS
from ci_perf.judge.ratios import usable_ratios
from ci_perf.judge.verdict import judge
from ci_perf.measure.backend import Progress
from ci_perf.measure.budget import WAVE, Budget, BudgetLeft
from ci_perf.measure.journal import Journal
from ci_perf.measure.machine import Machine
from ci_perf.measure.open_cases import OpenCases
from ci_perf.values.job import Job
from ci_perf.values.measurement import Pair
from ci_perf.values.quantity import counted, duration, rounded_up
from ci_perf.values.reasons import Reason, Verdict
from ci_perf.values.run import Note

SPARE_PAIRS = 3
"""How many disturbed pairs are repeated for each case (and the control) at each look."""
MOST_FAILURES = 2
"""After this many failures in a row the control is given up for this look."""
CONTROL_PAIRS = LEAST_CONTROL
"""How many pairs of base against base there are at the first look."""
PAIRS_OF_A_CONTROL = 3 * WAVE
"""With a limited budget there is one more after so many pairs, otherwise at each look after the first."""
LONG_ENOUGH_S = 20e-6
"""The control is a case of at least this duration, if there is one: shorter ones scatter more."""


def take_turns(journal: Journal, machine: Machine, jobs: Sequence[Job], budget: Budget, progress: Progress) -> None:
    """Measure pairs of every case until its verdict is clear or the budget is spent, and the control.

    A batch of cases is measured up to its next look: without a limit for all cases together all of them, with one those
    that the budget decides next. The pairs of a run that this one continues count; the control is that of both
    sessions, and as long as that of one.
    """
    if not jobs:
        return
    left = BudgetLeft(budget, machine.now, machine.touched)
    cases = OpenCases(journal, jobs)
    against = journal.run.against
    known = len(usable_ratios(against.control)) if against else 0
    looks: set[int] = set()
    if left.is_limited:
        progress.begin("pairs", LOOKS[0] * len(jobs))
    while True:
        batch, look = cases.next_look(left.batch(cases))
        if not left.is_limited:
            lacking = cases.lacking(batch, look)
            progress.begin(f"pairs to {look}", sum(look - len(journal.of(job).sound_pairs) for job in lacking))
        measured = _measure(journal, machine, cases, batch, look, left, progress)
        looks.add(look)
        more = left.pairs // PAIRS_OF_A_CONTROL if left.is_limited else len(looks) - 1
        _control(journal, machine, _timed(journal, jobs), known + CONTROL_PAIRS + more)
        cases.look(measured, look)
        left.decided = cases.number_decided
        cases.keep(left.allows)
        if not (batch and cases.jobs):
            break
    if left.is_limited:
        _note_lack_of_time(journal, cases, left, budget)


def _measure(
    journal: Journal,
    machine: Machine,
    cases: OpenCases,
    batch: Sequence[Job],
    look: int,
    left: BudgetLeft,
    progress: Progress,
) -> list[Job]:
    """Measure a batch up to a look; return the jobs that were measured so far, or cannot be measured.

    Disturbed pairs are repeated SPARE_PAIRS times. A job for which the budget does not suffice, or that meanwhile seems
    to take too long for what is left of it, is left for later.
    """
    numbers = range(cases.pairs_before(batch), look + SPARE_PAIRS)
    tried: Counter[str] = Counter()
    for number in numbers:
        lacking = cases.lacking(batch, look)
        going_on = {job.id for job in left.batch(cases)}
        lacking = [job for job in lacking if job.id in going_on]
        if not lacking:
            break
        starts = {job.id: cases.further_starts(job) for job in lacking if left.allows(job)}
        changed = [job for job in lacking if starts.get(job.id)]
        if changed:
            left.start(changed, partial(machine.start_anew, changed, max(starts.values())))
        for job, found in left.spend(machine.pairs, [*changed, *(j for j in lacking if j not in changed)], number):
            journal.add_pair(job, found)
            progress.step(job.id)
            tried[job.id] += 1
    short = {job.id for job in cases.lacking(batch, look) if tried[job.id] < len(numbers)}
    return [job for job in batch if job.id not in short]


def _note_lack_of_time(journal: Journal, cases: OpenCases, left: BudgetLeft, budget: Budget) -> None:
    """Note which budget would decide the cases that there was no time for."""
    found = judge(replace(journal.run, finished=True))  # the end of a run is a look, too
    undecided = {finding.id for finding in found if finding.verdict is Verdict.INCONCLUSIVE}
    lacking = [job for job in (*cases.jobs, *cases.out_of_time) if job.id in undecided and left.allows_case(job)]
    if not lacking:
        return
    message = f"there was no time to decide {counted(len(lacking), 'case')} within {duration(budget.total_s)}"
    more = "a larger `--budget`"
    if more_s := sum(left.decision_s(job, cases.expected_pairs(job)) for job in lacking):  # 0: none was measured
        whole = rounded_up(budget.total_s + more_s)
        message = f"{message}: about {duration(whole)} in all would decide each case that can be decided"
        more = f"`--budget {whole:g}`"
    hint = f"{more}, `--resume` to measure on, or `ci-perf plan` to divide the cases among jobs"
    journal.note(Note(Reason.BUDGET_SPENT, message, hint))


def _timed(journal: Journal, jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs that have pairs; of others it is not known yet whether the base has them."""
    return [job for job in journal.paired(jobs) if journal.of(job).pairs]


def _control(journal: Journal, machine: Machine, jobs: Sequence[Job], wanted: int) -> None:
    """Measure the base against itself, on one of the jobs, until `wanted` pairs in all are undisturbed.

    Cases of identical code that were timed check the session as well: with enough of their pairs there is no control.
    Disturbed and failed pairs are repeated as often as those of a case; MOST_FAILURES in a row end it.
    """
    against = journal.run.against
    if against is None or not (jobs or journal.control_job):
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

    for number in range(len(pairs), len(pairs) + wanted - sound() + SPARE_PAIRS):
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
        journal.note(Note(Reason.NO_CONTROL, message, "see the worker's log; without a control no verdict is reliable"))


def _steadiest(journal: Journal, jobs: Sequence[Job]) -> Job:
    """Return the shortest case of at least LONG_ENOUGH_S, else the longest."""
    pairs = {job.id: journal.of(job).pairs for job in jobs}
    seconds = {name: statistics.median(found[0].base) if found else 0.0 for name, found in pairs.items()}
    enough = [job for job in jobs if seconds[job.id] >= LONG_ENOUGH_S]
    if enough:
        return min(enough, key=lambda job: seconds[job.id])
    return max(jobs, key=lambda job: seconds[job.id])
