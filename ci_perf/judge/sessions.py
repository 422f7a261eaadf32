"""The sessions of a baseline: how far another session of unchanged code may be off.

Processes of one session agree far better than sessions do: other cards, other placements in memory, another day. The
times of unchanged code in two sessions on H100s differed by more than 6.5 % in 1 % of all pairs of sessions, on H200s
in 3.5 % (`baselines/*/audit.jsonl`); some cases never by more than 0.4 %.
"""

import math
import statistics
from dataclasses import dataclass, replace

from ci_perf.judge.ratios import POWER, Scatter
from ci_perf.judge.stats import Interval, t_quantile
from ci_perf.values.baseline import BaselineTime

USUAL = Scatter(0.01, 4)
"""Of the sessions of a case of which one was recorded: it allows 6.5 % at 99 %, which the records confirm."""


@dataclass(frozen=True, slots=True)
class Sessions:
    """What the sessions of a baseline allow another session of the same code."""

    number: int
    margin: float
    """How far the logarithm of its time may be off."""
    detectable: float
    """The smallest change, as a fraction, that is beyond the margin in four of five sessions."""

    def widened(self, change: Interval) -> Interval:
        """Return the interval of a ratio with the scatter between sessions; independent errors add by their squares."""
        low, high = change.low, change.high
        if low > 0:
            low = change.point * math.exp(-math.hypot(math.log(change.point / low), self.margin))
        if high < math.inf:
            high = change.point * math.exp(math.hypot(math.log(high / change.point), self.margin))
        return replace(change, low=low, high=high)


def sessions_of(time: BaselineTime, confidence: float) -> Sessions:
    """Return what the sessions of a baseline allow one case of another session, with this confidence.

    The variance between sessions is the mean of the usual and the seen one, weighted by their degrees of freedom.

    >>> one = sessions_of(BaselineTime("cuda-graph", 1.0, 0.0, ((1.0,),)), 0.99)
    >>> f"{one.margin:.3f} {one.detectable:.3f}"
    '0.065 0.080'
    """
    centres = [math.log(statistics.median(medians)) for medians in time.sessions]
    degrees = USUAL.degrees + len(centres) - 1
    seen = statistics.variance(centres) * (len(centres) - 1) if len(centres) > 1 else 0.0
    error = math.sqrt((USUAL.degrees * USUAL.sd**2 + seen) / degrees * (1 + 1 / len(centres)))
    margin = t_quantile(1 - (1 - confidence) / 2, degrees) * error
    return Sessions(len(centres), margin, math.exp(margin + statistics.NormalDist().inv_cdf(POWER) * error) - 1)
