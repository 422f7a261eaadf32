"""What baselines know of the scatter of a case, for turns that measure the case again.

The processes of a baseline ran one after another, those of a pair in turns. So the scatter of a pair is at most that of
the difference of two processes, and what is known from a baseline errs towards more pairs.
"""

import math
import statistics
from collections.abc import Iterable

from ci_perf.judge.ratios import MOST_DEGREES, USUAL, Scatter
from ci_perf.values.baseline import Baseline, BaselineTime, KnownScatter
from ci_perf.values.measurement import Measurement
from ci_perf.values.run import Against

LARGEST_SD = 0.01
"""One odd process among six makes their scatter useless. The recorded sessions scatter by at most 1 %; where pairs
scatter more, they show it themselves."""


def known_scatter(baselines: Iterable[Baseline]) -> dict[str, KnownScatter]:
    """Return by `kernel/case` what the processes of these baselines, of one device, say of the scatter of a pair."""
    found = {f"{b.kernel}/{name}": _of_processes(case.time) for b in baselines for name, case in b.cases.items()}
    return {case: scatter for case, scatter in found.items() if scatter}


def _of_processes(time: BaselineTime) -> KnownScatter | None:
    sessions = [[math.log(value) for value in medians] for medians in time.sessions if len(medians) > 1]
    if not sessions:
        return None
    degrees = sum(len(logs) - 1 for logs in sessions)
    variance = sum(statistics.variance(logs) * (len(logs) - 1) for logs in sessions) / degrees
    return KnownScatter(time.method, round(math.sqrt(2 * variance), 9), degrees)


def expected_scatter(against: Against, measurement: Measurement) -> Scatter:
    """Return what is known of the scatter of a case: the usual one, and that of its baseline in the base commit.

    Their variances are averaged by their degrees of freedom. Times of another method say nothing.
    """
    known = against.scatter.get(measurement.id)
    if known is None or {pair.method for pair in measurement.sound_pairs} != {known.method}:
        return USUAL
    degrees = USUAL.degrees + known.degrees
    variance = (USUAL.degrees * USUAL.sd**2 + known.degrees * min(known.sd, LARGEST_SD) ** 2) / degrees
    return Scatter(math.sqrt(variance), min(degrees, MOST_DEGREES))
