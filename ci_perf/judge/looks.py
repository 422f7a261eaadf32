"""When the pairs of a case are looked at, what each look may err, and from how many pairs on a change counts.

The error of a run is shared by its looks and its cases before anything is measured (Bonferroni: it holds for any
dependence between them), so that looking again after more pairs, or at more cases, costs what it must.

Statistics alone do not exclude that processes come in two kinds. A case whose base happened to run in the fast kind in
each pair and whose head in the slow one shows a change without any scatter. How often that happens follows from the
number of pairs alone: `faked` computes it exactly, and `least_pairs` allows it in half of 1 % of runs. What is left is
for the statistics. `tests/judge/test_promise.py` simulates whole runs.
"""

import math
from functools import cache

LOOKS = (3, 5, 8, 12, 24)
"""After how many pairs of a case the data are looked at; the last is the budget."""
SPENT = (0.35, 0.20, 0.15, 0.15, 0.15)
"""The share of the error that each look may spend. `scripts/simulate-verdicts shares` chooses them by half of the
recorded A/A sessions (`baselines/*/audit.jsonl`). On the other half equal shares take 0.1 more pairs at a threshold of
1 %, late ones 1 more; all of them flag about as many changes."""
FAKED = 0.005
"""In how many runs of unchanged code, all of whose cases have two kinds of processes, one may seem changed."""
FAR = 0.20
"""Half more than two kinds of processes were ever apart in the records (13 %: lone processes on an H200).
A change that is wholly beyond it is not faked by two kinds, only by odd processes."""
ODD = 1 / 25
"""How many processes are odd from start to end by more than FAR; recorded on H100s: at most 1 in 80."""
EXCUSED = 12
"""One of so many pairs need not show the change."""


def share(pairs: int) -> float:
    """Return the share of the error that belongs to the look at so many pairs; between two looks, to the next."""
    return next((share for look, share in zip(LOOKS, SPENT, strict=True) if pairs <= look), SPENT[-1])


def level(confidence: float, pairs: int, comparisons: int = 1) -> float:
    """Return the confidence of the interval at so many pairs, where so many cases share the error of the run.

    >>> f"{level(0.99, 3):.4f} {level(0.99, 5, 100):.6f}"
    '0.9965 0.999980'
    """
    return 1 - (1 - confidence) * share(pairs) / max(1, comparisons)


@cache
def least_pairs(comparisons: int, *, far: bool) -> int:
    """Return from how many pairs on a change counts, in a run of so many cases; `far`: a change beyond FAR.

    >>> [least_pairs(cases, far=False) for cases in (1, 12, 1000)], [least_pairs(c, far=True) for c in (1, 12, 1000)]
    ([5, 8, 12], [3, 3, 5])
    """
    chance = odd if far else faked
    return next((look for look in LOOKS if comparisons * chance(look) <= FAKED), LOOKS[-1])


def odd(pairs: int) -> float:
    """Return how probably the head, and not the base, is odd in each of so many pairs."""
    return (ODD * (1 - ODD)) ** pairs


@cache
def faked(pairs: int) -> float:
    """Return how probably two kinds of processes, as frequent as each other, fake a slower head in so many pairs.

    In each pair, but for the excused, the base is of the fast kind and the head of the slow one: by chance in one pair
    of four. Other frequencies fake less.

    >>> f"{faked(5):.5f} {faked(8):.2e} {faked(12):.2e}"
    '0.00098 1.53e-05 2.21e-06'
    """
    most = excused(pairs)
    return math.fsum(math.comb(pairs, k) * 0.75**k * 0.25 ** (pairs - k) for k in range(most + 1))


def excused(pairs: int) -> int:
    """Return how many of so many pairs need not show the change: now and then a process is an odd one."""
    return pairs // EXCUSED
