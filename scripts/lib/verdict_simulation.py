"""Simulates pull requests that change nothing or one thing, under several kinds of noise, and judges their cases.

Each model returns the log ratio of one pair of processes, as `ci_perf.judge.pairs.decide_pairs` takes them.
"""

import math
import random
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from unittest.mock import patch

from ci_perf.audit.session import AuditSession
from ci_perf.judge import looks
from ci_perf.judge.continued import UNDECIDED
from ci_perf.judge.looks import LOOKS, goal
from ci_perf.judge.outcome import Outcome
from ci_perf.judge.pairs import decide_pairs
from ci_perf.values.reasons import Reason, Verdict
from ci_perf.values.run import Policy

Noise = Callable[[random.Random], float]


def normal(sd: float) -> Noise:
    """Return pairs that scatter normally."""
    return lambda chance: chance.gauss(0, sd)


def heavy(sd: float) -> Noise:
    """Return pairs that scatter as Student's t with three degrees of freedom."""
    return lambda chance: sd * chance.gauss(0, 1) / math.sqrt(chance.gammavariate(1.5, 2 / 3))


def kinds(apart: float, often: float, sd: float = 0.002) -> Noise:
    """Return pairs whose processes are slower by `apart` with probability `often`, from start to end."""

    def pair(chance: random.Random) -> float:
        base, head = chance.random() < often, chance.random() < often
        return math.log(1 + apart) * (head - base) + chance.gauss(0, sd)

    return pair


MODELS: Mapping[str, Noise] = {
    "quiet, sd 0.2 %": normal(0.002),
    "restless, sd 1 %": normal(0.01),
    "hopeless, sd 24 %": normal(0.24),
    "heavy tails, 1 %": heavy(0.01),
    "two kinds 50:50, 4 % apart": kinds(0.04, 0.5),
    "two kinds 50:50, 13 % apart": kinds(0.13, 0.5),
    "two kinds 20:80, 8 % apart": kinds(0.08, 0.2),
    "1 process in 25 odd by 30 %": kinds(0.3, 1 / 25),
}
"""By their names, as the table prints them."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """What became of the simulated cases of one model."""

    cases: int
    red: int
    unchanged: int
    pairs: float
    """The mean number of pairs of a case."""

    def of_requests(self, comparisons: int) -> float:
        """Return the share of pull requests of so many cases in which at least one is red."""
        return 1 - (1 - self.red / self.cases) ** comparisons


STEPS = ((0.03, 0.0), (0.03, 0.035), (0.03, 0.3), (0.01, 0.0), (0.01, 0.015))
"""The thresholds and true changes of the table of recorded noise."""
FEWEST_PAIRS = 20
"""Cases of which fewer pairs were recorded say too little of their scatter to be drawn from."""


def recorded(sessions: Iterable[AuditSession]) -> tuple[Noise, ...]:
    """Return for each case of A/A sessions a noise that draws from its recorded pairs, with either sign."""
    pools: dict[tuple[str, str], list[float]] = {}
    for session in sessions:
        for case in session.cases if session.planted == 0 else ():
            pools.setdefault((session.device.slug, case.id), []).extend(case.ratios)
    enough = [tuple(pool) for pool in pools.values() if len(pool) >= FEWEST_PAIRS]
    return tuple(lambda chance, pool=pool: chance.choice((1, -1)) * chance.choice(pool) for pool in enough)


def simulate(
    noise: Noise,
    cases: int,
    comparisons: int,
    *,
    change: float = 0.0,
    seed: int = 1,
    threshold: float = 0.03,
    continuations: int = 0,
) -> Simulated:
    """Judge so many cases, each as one of `comparisons` in its pull request, whose undecided runs are continued."""
    chance, policy = random.Random(seed), Policy(regression=threshold)
    red = unchanged = pairs = 0
    for _ in range(cases):
        outcome, used = judge(lambda: math.log1p(change) + noise(chance), comparisons, policy, continuations)
        red += outcome.verdict is Verdict.REGRESSION
        unchanged += outcome.verdict is Verdict.UNCHANGED
        pairs += used
    return Simulated(cases, red, unchanged, pairs / cases)


def judge(pair: Callable[[], float], comparisons: int, policy: Policy, continuations: int = 0) -> tuple[Outcome, int]:
    """Measure pairs of a case as a run does, until one of the looks decides; return also how many were used.

    Where the last look leaves it undecided, the run is continued up to so many times.
    """
    values: list[float] = []
    looked: list[int] = []
    for _ in range(continuations + 1):
        last = goal(looked)
        for look in (look for look in (*LOOKS, last) if look > len(values)):
            values += [pair() for _ in range(look - len(values))]
            outcome = decide_pairs(values, policy, comparisons=comparisons, last=look == last, looked=looked)
            if outcome.code != Reason.NEEDS_MORE_PAIRS:
                break
        if outcome.code not in UNDECIDED:
            break
        looked.append(len(values))
    return outcome, len(values)


Shares = tuple[float, ...]
SHARES: tuple[Shares, ...] = (
    (0.05, 0.10, 0.20, 0.30, 0.30),
    (0.20, 0.20, 0.20, 0.20, 0.15),
    (0.35, 0.20, 0.15, 0.15, 0.10),
    (0.50, 0.20, 0.10, 0.10, 0.05),
    (0.75, 0.05, 0.05, 0.05, 0.05),
)
"""Ways to share the error among the looks: late, equally, and ever earlier. Each leaves CONTINUED for further runs."""
DRAWS = 20
"""How often each case is simulated for each change, in the comparison of shares."""
TOLERATED = 0.01
"""How many more changes shares may miss than the best ones."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """What shares cost and bring, each at thresholds of 3 % and 1 %."""

    pairs: tuple[float, float]
    """The mean number of pairs of unchanged code."""
    seen: tuple[float, float]
    """The share of changes of 3.5 % and 1.5 % that is flagged."""


def weigh(noises: Iterable[Noise], shares: Shares) -> Weighed:
    """Simulate every noise with the error shared so, each case as one of 12."""
    noises = tuple(noises)
    with patch.object(looks, "SPENT", shares):

        def of(threshold: float, change: float) -> list[Simulated]:
            return [simulate(noise, DRAWS, 12, change=change, threshold=threshold) for noise in noises]

        pairs = (statistics.fmean(found.pairs for found in of(threshold, 0.0)) for threshold in (0.03, 0.01))
        steps = ((0.03, 0.035), (0.01, 0.015))
        seen = (statistics.fmean(found.red / found.cases for found in of(*step)) for step in steps)
        return Weighed((next(pairs), next(pairs)), (next(seen), next(seen)))


def choose(found: Mapping[Shares, Weighed]) -> Shares:
    """Return the shares with the fewest pairs among those that miss hardly more changes than the best."""
    most = max(sum(each.seen) for each in found.values())
    good = [shares for shares, each in found.items() if sum(each.seen) >= most - TOLERATED]
    return min(good, key=lambda shares: sum(found[shares].pairs))
