"""The looks at the pairs of a case: after how many pairs, at which error, and from how many pairs on a change counts.

The error of a run is shared by its looks and its cases before anything is measured (Bonferroni: it holds for any
dependence between them), so that looking again after more pairs, or at more cases, costs what it must. A part of it is
kept for the runs that continue an undecided one (`run --resume`): a case keeps its pairs and the looks that it had, and
however often it is continued, its looks together spend no more than the error of one run.

Statistics alone do not exclude that processes come in two kinds. A case whose base happened to run in the fast kind in
each pair and whose head in the slow one shows a change without any scatter. The kind may also last: all processes that
descend from one start of the workers may be of one kind (a template imports the kernel, and its forks share what that
left in memory). So the workers start anew for each further pair of a case that seems changed, and pairs of the same
start count as one draw. How often two kinds fake a change follows from the numbers of pairs of each start, and from how
many pairs do not show the change: `faked` computes it exactly, and it is allowed in half of 1 % of runs. What is left
is for the statistics.
`tests/judge/test_promise.py` simulates whole runs.

Kinds that outlast a start of the workers, for example those of the files of a side, cannot be told from a change. The
recorded A/A sessions show no sign of them: the correlation of neighbouring pairs, within 621 sets of five, is -0.26,
and -0.25 is expected of independent pairs (`tests/judge/test_promise.py`). With the new starts, of +1.5 % at a
threshold of 1 % as one of 12 cases, 99.9 % are flagged in 15.4 pairs (`scripts/simulate-verdicts recorded`).
"""

import math
from collections.abc import Iterable, Sequence
from functools import cache, reduce

LOOKS = (3, 5, 8, 12, 24)
"""After how many pairs of a case the data are looked at; the last is the budget of a run."""
SPENT = (0.35, 0.20, 0.15, 0.15, 0.10)
"""The share of the error that each look may spend. `scripts/simulate-verdicts shares` chooses them by half of the
recorded A/A sessions (`baselines/*/audit.jsonl`). On the other half equal shares take 0.1 more pairs at a threshold of
1 %, late ones 1 more; all of them flag about as many changes."""
CONTINUED = 0.05
"""The share of all runs that continue a case beyond the last look: the first has half of it, each next half of the
rest. Each of them adds as many pairs as a run has, and looks once."""
FAKED = 0.005
"""In how many runs of unchanged code, all of whose cases have two kinds of processes, one may seem changed."""
FAR = 0.20
"""Half more than two kinds of processes were ever apart in the records (13 %: lone processes on an H200).
A change that is wholly beyond it is not faked by two kinds, only by odd processes."""
ODD = 1 / 25
"""How many processes are odd from start to end by more than FAR; recorded on H100s: at most 1 in 80."""
EXCUSED = 12
"""Before the last look, one of so many pairs need not show the change: now and then a process is an odd one. At the
last look, as many as `is_faked` allows."""


def goal(looked: Sequence[int] = ()) -> int:
    """Return with how many pairs a run decides a case; `looked`: with how many the runs before it ended undecided.

    >>> goal(), goal([13]), goal([24]), goal([24, 48])
    (24, 24, 48, 72)
    """
    return (max(looked, default=0) // LOOKS[-1] + 1) * LOOKS[-1]


def share(pairs: int, looked: Sequence[int] = ()) -> float:
    """Return the share of the error that so many pairs may spend, where earlier runs ended with `looked` pairs.

    A run may end between two looks. It then takes half of what is left of the share of the next one.

    >>> share(24), share(20), share(24, [20]), share(22, [20]), share(48, [24]), share(72, [24, 48])
    (0.1, 0.05, 0.05, 0.025, 0.025, 0.0125)
    """
    run = -(-pairs // LOOKS[-1]) - 1  # 0: the first
    if run > 0:
        before, look, whole = run * LOOKS[-1], (run + 1) * LOOKS[-1], CONTINUED * 0.5**run
    else:
        place = next(place for place, look in enumerate(LOOKS) if pairs <= look)
        before, look, whole = (0, *LOOKS)[place], LOOKS[place], SPENT[place]
    halves = sum(before < number <= look for number in looked) + (pairs < look)
    return whole * 0.5**halves


def level(confidence: float, pairs: int, comparisons: int = 1, looked: Sequence[int] = ()) -> float:
    """Return the confidence of the interval at so many pairs, where so many cases share the error of the run.

    >>> f"{level(0.99, 3):.4f} {level(0.99, 5, 100):.6f}"
    '0.9965 0.999980'
    """
    return 1 - (1 - confidence) * share(pairs, looked) / max(1, comparisons)


@cache
def least_far_pairs(comparisons: int) -> int:
    """Return from how many pairs on a change beyond FAR counts, in a run of so many cases.

    >>> [least_far_pairs(cases) for cases in (1, 88, 89)]
    [3, 3, 5]
    """
    return next((look for look in LOOKS if comparisons * odd(look) <= FAKED), LOOKS[-1])


def odd(pairs: int) -> float:
    """Return how probably the head, and not the base, is odd in each of so many pairs."""
    return (ODD * (1 - ODD)) ** pairs


def faked(starts: Sequence[int], hidden: int) -> float:
    """Return how probably two kinds of processes, as frequent as each other, fake a slower head.

    `starts` has the number of pairs of each start of the workers, whose processes are all of one kind. Of one start in
    four the base is by chance of the fast kind and the head of the slow one. `hidden`: at most so many pairs do not
    show the change. Other frequencies fake less.

    >>> f"{faked([1] * 5, 0):.5f} {faked([1] * 8, 0):.2e} {faked([1] * 12, 1):.2e} {faked([3, 1, 1], 0):.5f}"
    '0.00098 1.53e-05 2.21e-06 0.01562'
    """
    return math.fsum(_shown(starts, hidden))


def _shown(starts: Iterable[int], hidden: int) -> list[float]:
    """Return how probably, by chance, 0, 1, ... `hidden` pairs of two kinds do not show a slower head."""
    return reduce(_with_start, starts, [1.0, *[0.0] * hidden])


def _with_start(chances: list[float], pairs: int) -> list[float]:
    return [c / 4 + (chances[n - pairs] * 3 / 4 if n >= pairs else 0.0) for n, c in enumerate(chances)]


def is_faked(starts: Sequence[int], hidden: int, comparisons: int = 1, looked: Sequence[int] = ()) -> bool:
    """Return whether two kinds of processes may fake a change that so many pairs do not show, of one in so many cases.

    The last look, and each of the runs that continue an undecided one, may spend their `share` of FAKED. The looks
    before have what is left of it; together they spend hardly more than the one at which fewest pairs suffice.

    >>> is_faked([3, 1, 1, 1, 1, 1], 0, 17), is_faked([3, 1, 1, 1, 1, 1], 0, 18), is_faked([1] * 8, 1, 1)
    (False, True, True)
    >>> is_faked([3] + [1] * 21, 7, 12), is_faked([3] + [1] * 21, 8, 12), is_faked([3] + [1] * 21, 5, 1000)
    (False, True, False)
    """
    pairs = sum(starts)
    early = pairs < LOOKS[-1]
    if early and hidden > excused(pairs):
        return True
    spent = 1 - SPENT[-1] - CONTINUED if early else share(pairs, looked)
    return max(1, comparisons) * faked(starts, hidden) > FAKED * spent


def starts_of(starts: Sequence[int | None], pairs: int) -> list[int]:
    """Return the number of pairs of each start, from which start each of so many pairs is; None or none: of its own.

    >>> starts_of([0, 0, 0, 1, 2], 5), starts_of([], 3), starts_of([None, None], 2)
    ([3, 1, 1], [1, 1, 1], [1, 1])
    """
    known = list(starts)[:pairs] or [None] * pairs
    sizes: list[int] = []
    for place, start in enumerate(known):
        if place and start is not None and start == known[place - 1]:
            sizes[-1] += 1
        else:
            sizes.append(1)
    return sizes


def lacking_starts(starts: Sequence[int], hidden: int, comparisons: int) -> int:
    """Return how many further starts, of a pair each, a case that seems changed needs for the last look to decide it.

    `hidden`: how many of its pairs do not show the change so far. As many in proportion, and those that are excused,
    are expected at the last look.

    >>> lacking_starts([3], 0, 1), lacking_starts([3, 1, 1], 0, 1), lacking_starts([3] + [1] * 9, 0, 1)
    (9, 7, 0)
    >>> lacking_starts([3, 1, 1], 1, 12)
    19
    """
    expected = math.ceil(hidden * LOOKS[-1] / sum(starts)) + excused(LOOKS[-1])
    further, most = 0, goal([sum(starts)]) - sum(starts)
    chances = _shown(starts, expected)
    while further < most and comparisons * math.fsum(chances) > FAKED * SPENT[-1]:
        chances, further = _with_start(chances, 1), further + 1
    return further


def excused(pairs: int) -> int:
    """Return how many of so many pairs need not show the change before the last look."""
    return pairs // EXCUSED
