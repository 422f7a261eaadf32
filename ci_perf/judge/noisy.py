"""Why a run would be a poor baseline: its times scatter, or the machine was busy.

A change is established only beyond the scatter of its baseline's processes (`stored`): a noisy one hides slowdowns.
"""

import statistics
from collections.abc import Collection, Iterator, Sequence

from ci_perf.judge.witness import BUSY
from ci_perf.values.baseline import Baseline
from ci_perf.values.measurement import Measurement
from ci_perf.values.quantity import percent
from ci_perf.values.reasons import Reason
from ci_perf.values.run import Run, on_device

MUCH = 0.03
"""Processes that differ from their median by more scatter too much: a slowdown of 3 %, the usual threshold, would not
be seen. None of the 141 cases with a baseline of an H100 or H200 in this repository does: the most is 2.1 %."""
TIMES = 4.0
"""More than chance: of two sets of six normal values one differs from its median by more than 3.7 times as much as the
other in 1 % of all pairs of sets (200,000 pairs were simulated)."""
NEGLIGIBLE = 0.005
"""Less scatter hides no change that any threshold asks for."""
SLOWED = frozenset({"hw-slowdown", "hw-thermal", "hw-power-brake", "sw-thermal"})
"""Why the driver holds the clock down where something is wrong; the power limit is usual."""
_NOTES = (Reason.CPU_BUSY, Reason.FOREIGN_PROCESSES, Reason.MEASURED_AGAIN)


def doubts(run: Run, new: Baseline, old: Baseline | None) -> tuple[str, ...]:
    """Return sentences that speak against a baseline that was made of a run; `old` is the one that it replaces."""
    measured = [m for session in on_device(run, new.device) for m in session.measurements if m.kernel == new.kernel]
    return tuple(sentence for m in measured for sentence in _doubts_of(m, new, old))


def doubts_of_machine(run: Run, *, said: Collection[str] = ()) -> tuple[str, ...]:
    """Return what the notes of a run say of other programs on the machine, but not those with the codes in `said`."""
    return tuple(note.message for note in run.notes if note.code in _NOTES and note.code not in said)


def _doubts_of(measurement: Measurement, new: Baseline, old: Baseline | None) -> Iterator[str]:
    held = old.cases.get(measurement.case) if old else None
    scatter = new.cases[measurement.case].time.noise_floor
    before = held.time.noise_floor if held else 0.0
    hides = f"{measurement.id}: its processes differ by {percent(scatter)}, so no smaller slowdown can be seen"
    if before and scatter > max(NEGLIGIBLE, TIMES * before):
        yield f"{hides}; those of the baseline that it replaces differ by {percent(before)}"
    elif scatter > MUCH:
        yield hides
    waited = statistics.fmean(replicate.waited for replicate in measurement.replicates)
    if waited >= BUSY:
        yield f"{measurement.id}: the machine was busy: its processes waited for a core {percent(waited)} of the time"
    slowed = [SLOWED.intersection(replicate.throttle_reasons) for replicate in measurement.replicates]
    if reasons := sorted(set().union(*slowed)):
        number = f"{sum(map(bool, slowed))} of {len(slowed)} processes"
        yield f"{measurement.id}: the GPU slowed itself down in {number}: {', '.join(reasons)}"


def shown(sentences: Sequence[str], most: int) -> tuple[str, ...]:
    """Return the first sentences, and how many more there are."""
    more = len(sentences) - most
    return (*sentences[:most], *([f"and {more} more of such cases"] if more > 0 else []))
