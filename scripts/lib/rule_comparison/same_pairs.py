"""The rules of other systems on as many pairs as ci-perf takes, on twelve, and on three: recorded ones, and drawn ones.

Drawn pairs go on until ci-perf decides, which the records of planted sessions do not.
"""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ci_perf.audit.session import AuditSession, replay
from ci_perf.judge.looks import LOOKS
from ci_perf.values.reasons import Verdict
from ci_perf.values.run import Policy
from lib.computed_once import computed_once
from lib.rule_comparison.pair_rules import PAIR_RULES
from lib.rule_comparison.rules import Call
from lib.verdict_simulation import Draw, Noise, changed, kinds, normal, recorded

OWN = "ci-perf"
AMONG = 12
"""How many cases a drawn case shares the error of ci-perf's rule with."""
POLICY = Policy()


class Taken(StrEnum):
    """How many pairs the rules of other systems get."""

    AS_OWN = "as many as ci-perf"
    TWELVE = "12"
    THREE = "3"

    def of(self, values: Sequence[float], used: int) -> Sequence[float]:
        """Return the pairs that a rule gets, of which ci-perf used so many."""
        return values[: used if self is Taken.AS_OWN else int(self)]


@dataclass(frozen=True, slots=True)
class Flagged:
    """How many of `n` cases were flagged as slower, and with how many pairs in all."""

    slower: int = 0
    n: int = 0
    pairs: int = 0

    def __add__(self, other: "Flagged") -> "Flagged":
        return Flagged(self.slower + other.slower, self.n + other.n, self.pairs + other.pairs)


Flags = dict[tuple[str, Taken], Flagged]
"""By the name of the rule, and the pairs that it got."""


@computed_once()
def flag_recorded(sessions: Iterable[AuditSession]) -> dict[float, Flags]:
    """Judge the recorded pairs by every rule; return what each flags, by the planted step that was requested."""
    found: dict[float, Flags] = {}
    for session in sessions:
        cases = [case for case in session.cases if case.has_pairs]
        for case in cases:
            _, used, _ = replay(case.ratios, case.clocks, POLICY, comparisons=len(cases), starts=case.starts)
            _add(found.setdefault(session.planted, {}), _by_rivals(case.ratios[:used], Taken.AS_OWN))
    return found


@computed_once()
def flag_drawn(noises: Sequence[Noise], cases: int, change: float) -> Flags:
    """Draw so many cases of each noise, whose head is slower by `change`, and judge their pairs by every rule."""
    found: Flags = {}
    for noise in noises:
        chance = random.Random(1)
        for _ in range(cases):
            draw = changed(noise(chance), change)
            values = [draw(number) for number in range(LOOKS[-1])]
            used = _add_own(found, values, Taken.AS_OWN)
            _add_own(found, Taken.TWELVE.of(values, used), Taken.TWELVE)
            for taken in Taken:
                _add(found, _by_rivals(taken.of(values, used), taken))
    return found


def _add_own(found: Flags, values: Sequence[float], taken: Taken) -> int:
    """Judge the pairs by ci-perf's rule, and return how many it used."""
    outcome, used, _ = replay(values, (), POLICY, comparisons=AMONG)
    _add(found, {(OWN, taken): Flagged(int(outcome.verdict is Verdict.REGRESSION), 1, used)})
    return used


def _by_rivals(values: Sequence[float], taken: Taken) -> Flags:
    return {(r.name, taken): Flagged(int(r.call(values) is Call.SLOWER), 1, len(values)) for r in PAIR_RULES}


def _add(found: Flags, more: Flags) -> None:
    for key, flagged in more.items():
        found[key] = found.get(key, Flagged()) + flagged


def wandering(step: float, *, turns: bool, sd: float = 0.002) -> Noise:
    """Return pairs whose speed does a random walk, by `step` from one sample to the next, of ten for each process.

    With turns the samples of a pair alternate as A B B A. Without, all processes of the base come
    before all of the head.
    """
    samples = 10

    def begin(chance: random.Random) -> Draw:
        level = 0.0
        levels = [level := level + chance.gauss(0, step) for _ in range(2 * samples * LOOKS[-1])]

        def pair(number: int) -> float:
            if turns:
                both = levels[2 * samples * number :][: 2 * samples]
                base, head = both[0::4] + both[3::4], both[1::4] + both[2::4]
            else:
                base = levels[samples * number :][:samples]
                head = levels[samples * (LOOKS[-1] + number) :][:samples]
            return (sum(head) - sum(base)) / samples + chance.gauss(0, sd)

        return pair

    return begin


def one_process_a_side(noise: Noise) -> Noise:
    """Return pairs of the same two processes: what differs between them stays; their samples scatter by 0.2 %."""

    def begin(chance: random.Random) -> Draw:
        kept = noise(chance)(0)
        return lambda _: kept + chance.gauss(0, 0.002)

    return begin


KINDS = kinds(0.04, 0.5)
NOISES: Mapping[str, Noise] = {
    "scatter 1 %": normal(0.01),
    "two kinds 4 % apart": KINDS,
    "same, one process a side": one_process_a_side(KINDS),
    "1 process in 25 odd by 30 %": kinds(0.3, 1 / 25),
    "drift": wandering(0.001, turns=True),
    "same, no turns": wandering(0.001, turns=False),
}
"""By their names, as the table prints them: in turns and in fresh processes, unless they say otherwise."""
STEPS = (0.0, 0.02, 0.035, 0.05, 0.1)
CASES = 1000


def flag_drawn_from(sessions: Iterable[AuditSession], cases: int = CASES) -> dict[float, Flags]:
    """Draw about so many cases from the pairs of A/A sessions for each of STEPS; nothing where these are too few."""
    noises = recorded(sessions)
    return {step: flag_drawn(noises, -(-cases // len(noises)), step) for step in STEPS} if noises else {}


def flag_noises(change: float, cases: int = CASES) -> dict[str, Flags]:
    """Draw so many cases of each of NOISES, by its name."""
    return {name: flag_drawn([noise], cases, change) for name, noise in NOISES.items()}


def share(flagged: Flagged) -> float:
    """Return the share that was flagged; NaN where nothing was compared."""
    return flagged.slower / flagged.n if flagged.n else math.nan
