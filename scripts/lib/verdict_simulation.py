"""Simulates pull requests that change nothing or one thing, under several kinds of noise, and judges their cases.

Each model returns the log ratios of pairs of processes, as `ci_perf.judge.pairs.decide_pairs` takes them.
"""

import math
import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from unittest.mock import patch

from ci_perf.audit.session import AuditSession
from ci_perf.judge import looks
from ci_perf.judge.continued import UNDECIDED
from ci_perf.judge.looks import LOOKS, goal, is_faked
from ci_perf.judge.outcome import Outcome, thresholds
from ci_perf.judge.pairs import decide_pairs, further_starts
from ci_perf.judge.ratios import trimmed_mean
from ci_perf.values.reasons import Reason, Verdict
from ci_perf.values.run import Policy
from lib.computed_once import computed_once

Draw = Callable[[int], float]
"""Returns the log ratio of the next pair of a case, whose processes are from this start of the workers."""
Noise = Callable[[random.Random], Draw]
"""Begins a case."""


def normal(sd: float) -> Noise:
    """Return pairs that scatter normally."""
    return lambda chance: lambda _: chance.gauss(0, sd)


def heavy(sd: float) -> Noise:
    """Return pairs that scatter as Student's t with three degrees of freedom."""
    return lambda chance: lambda _: sd * chance.gauss(0, 1) / math.sqrt(chance.gammavariate(1.5, 2 / 3))


def kinds(apart: float, often: float, sd: float = 0.002, stay: float = 0.0) -> Noise:
    """Return pairs whose processes are slower by `apart` with probability `often`, from start to end.

    With probability `stay` a process has the kind of the one before it on its side.
    """

    def begin(chance: random.Random) -> Draw:
        sides = [chance.random() < often, chance.random() < often]

        def pair(_: int) -> float:
            for side in (0, 1):
                if chance.random() >= stay:
                    sides[side] = chance.random() < often
            return math.log(1 + apart) * (sides[1] - sides[0]) + chance.gauss(0, sd)

        return pair

    return begin


def lasting(apart: float, sd: float = 0.002) -> Noise:
    """Return pairs whose kinds last as long as the workers: of half of the starts all processes are slower."""

    def begin(chance: random.Random) -> Draw:
        known: dict[int, float] = {}

        def pair(start: int) -> float:
            if start not in known:
                known[start] = math.log(1 + apart) * chance.choice((-1, 0, 0, 1))
            return known[start] + chance.gauss(0, sd)

        return pair

    return begin


MODELS: Mapping[str, Noise] = {
    "quiet, sd 0.2 %": normal(0.002),
    "restless, sd 1 %": normal(0.01),
    "hopeless, sd 24 %": normal(0.24),
    "heavy tails, 1 %": heavy(0.01),
    "two kinds 50:50, 1.5 % apart": kinds(0.015, 0.5),
    "two kinds 50:50, 4 % apart": kinds(0.04, 0.5),
    "two kinds 50:50, 13 % apart": kinds(0.13, 0.5),
    "two kinds 20:80, 8 % apart": kinds(0.08, 0.2),
    "two kinds 50:50, 13 % apart, that stay for 2.5 pairs": kinds(0.13, 0.5, stay=0.2),
    "two kinds 50:50, 1.5 % apart, for as long as the workers": lasting(0.015),
    "two kinds 50:50, 4 % apart, for as long as the workers": lasting(0.04),
    "two kinds 50:50, 13 % apart, for as long as the workers": lasting(0.13),
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
    return tuple(lambda chance, pool=pool: lambda _: chance.choice((1, -1)) * chance.choice(pool) for pool in enough)


def changed(draw: Draw, change: float) -> Draw:
    """Return pairs whose head is slower by `change`, beside their noise."""
    return lambda start: math.log1p(change) + draw(start)


@computed_once()
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
        outcome, used = judge(changed(noise(chance), change), comparisons, policy, continuations)
        red += outcome.verdict is Verdict.REGRESSION
        unchanged += outcome.verdict is Verdict.UNCHANGED
        pairs += used
    return Simulated(cases, red, unchanged, pairs / cases)


class Case:
    """A case of a pull request as it is measured: its pairs, and from which start of the workers each is."""

    def __init__(self, draw: Draw, comparisons: int, policy: Policy) -> None:
        self._draw, self._comparisons, self._policy = draw, comparisons, policy
        self.values: list[float] = []
        self._starts: list[int] = []
        self.outcome: Outcome | None = None

    def measure_to(self, pairs: int) -> None:
        """Add pairs until there are so many; one that seems changed has new starts of the workers, as in a run."""
        while len(self.values) < pairs:
            self._starts.append(self._starts[-1] + self._starts_anew() if self._starts else 0)
            self.values.append(self._draw(self._starts[-1]))

    def judge(self, *, last: bool, looked: Sequence[int] = ()) -> Outcome:
        """Look at the pairs."""
        more = {"comparisons": self._comparisons, "last": last, "looked": looked, "starts": self._starts}
        self.outcome = decide_pairs(self.values, self._policy, **more)
        return self.outcome

    def judge_estimate(self, *, last: bool) -> Outcome:
        """Look at the pairs if their mean reaches a threshold; else they are not red, and need no new starts."""
        slow, fast = thresholds(self._policy)
        if not -math.log(fast) < trimmed_mean(self.values) < math.log(slow):
            return self.judge(last=last)
        self.outcome = None
        return Outcome(Verdict.INCONCLUSIVE, Reason.NEEDS_MORE_PAIRS, "the estimate does not reach the threshold")

    def _starts_anew(self) -> bool:
        change = self.outcome.change if self.outcome else None
        if change is None:
            return False
        return further_starts(self.values, change, self._policy, self._starts, self._comparisons) > 0


def judge(draw: Draw, comparisons: int, policy: Policy, continuations: int = 0) -> tuple[Outcome, int]:
    """Measure pairs of a case as a run does, until one of the looks decides; return also how many were used.

    Where the last look leaves it undecided, the run is continued up to so many times.
    """
    case = Case(draw, comparisons, policy)
    looked: list[int] = []
    while True:
        outcome = judge_run(case, looked)
        if outcome.code not in UNDECIDED or len(looked) == continuations:
            return outcome, len(case.values)
        looked.append(len(case.values))


def judge_run(case: Case, looked: Sequence[int]) -> Outcome:
    """Measure pairs until one of the looks decides; `looked`: with how many the runs before ended undecided."""
    last = goal(looked)
    for look in (look for look in LOOKS if len(case.values) < look < last):
        case.measure_to(look)
        outcome = case.judge(last=False, looked=looked)
        if outcome.code != Reason.NEEDS_MORE_PAIRS:
            return outcome
    case.measure_to(last)
    return case.judge(last=True, looked=looked)


@computed_once()
def false_alarms(noise: Noise, cases: int, comparisons: int, *, threshold: float = 0.03, seed: int = 1) -> int:
    """Return at most how many unchanged cases are red, of so many, each as one of `comparisons` in its pull request.

    It judges a case only at the looks at which its estimate reaches the threshold, as that of a red case does, and
    takes no case for unchanged before. So it simulates many more cases than `simulate` in the same time.
    """
    chance, policy, most = random.Random(seed), Policy(regression=threshold), most_hidden(comparisons)
    return sum(is_red(Case(noise(chance), comparisons, policy), most) for _ in range(cases))


def most_hidden(comparisons: int) -> int:
    """Return how many pairs of a red case, one of so many, do not show the change at most."""
    return max(number for number in range(LOOKS[-1]) if not is_faked([1] * LOOKS[-1], number, comparisons))


def is_red(case: Case, most: int) -> bool:
    """Return whether a case is red at one of the looks, if at most so many pairs need not be slower."""
    for look in LOOKS:
        case.measure_to(look)
        if sum(value <= 0 for value in case.values) > most:
            return False
        if case.judge_estimate(last=look == LOOKS[-1]).verdict is Verdict.REGRESSION:
            return True
    return False


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
TOLERATED = 0.02
"""How many more changes shares may miss than the best ones: about the error of this simulation."""


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
