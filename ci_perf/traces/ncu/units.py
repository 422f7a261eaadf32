"""Converts ncu's units to base units, whatever their spelling and prefix.

Base units are ns, hz, byte, % and the plain counts (inst, sector, warp, ...); whatever is per time is per second.
Prefixes are decimal: ncu's Kbyte is 1000 byte.
"""

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache

from ci_perf.values.errors import ProfileError

_TIMES = {  # in nanoseconds
    **dict.fromkeys(["s", "sec", "second"], Fraction(10**9)),
    **dict.fromkeys(["ms", "msecond"], Fraction(10**6)),
    **dict.fromkeys(["us", "usecond"], Fraction(10**3)),
    **dict.fromkeys(["ns", "nsecond", "nanosecond"], Fraction(1)),
}
_PREFIXES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_PLURALS = {"branches": "branch", "passes": "pass", "vertices": "vertex", "accesses": "access", "queries": "query"}
_COUNT_WORDS = """
    % hz bit byte inst instruction op flop cycle warp thread block cta cluster register request sector tag wavefront
    transaction packet sample branch pass issue event access conflict bank replay instance item attribute primitive
    vertex pixel quad texel ray query workload context device link launch SM TPC GPC GPU
"""
_COUNTS = frozenset(_COUNT_WORDS.split())


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit as ncu writes it: a value in it times `factor` is the value in `base`."""

    base: str
    factor: Fraction

    @property
    def counts_whole_things(self) -> bool:
        """True for a plain count that is written out in full: its sums have no fraction."""
        return self.factor == 1 and bool(self.base) and "/" not in self.base and self.base not in {"%", "hz"}

    def scaled(self, value: float | Decimal) -> float:
        """Return a value in the base unit, rounded once; one that is too large is infinite."""
        try:
            return float(value) if self.factor == 1 else float(Fraction(value) * self.factor)
        except OverflowError:
            return math.inf


@cache
def parse(text: str) -> Unit:
    """Return the unit that ncu writes as `text`; an unknown one is a ProfileError.

    >>> parse("usecond")
    Unit(base='ns', factor=Fraction(1000, 1))
    >>> parse("cycle/nsecond")
    Unit(base='hz', factor=Fraction(1000000000, 1))
    """
    above, slash, below = text.strip().partition("/")
    if not above and not slash:
        return Unit("", Fraction(1))
    numerator = _parse_word(above, text)
    if not slash:
        return numerator
    denominator = _parse_word(below, text)
    if denominator.base == "ns":
        denominator = Unit("s", denominator.factor / 10**9)
    base = f"{numerator.base}/{denominator.base}"
    return Unit("hz" if base == "cycle/s" else base, numerator.factor / denominator.factor)


def parse_unscaled(text: str) -> Unit:
    """Return the unit as `parse` does; an unknown word is taken as a base unit."""
    try:
        return parse(text)
    except ProfileError:
        return Unit(text, Fraction(1))


def _parse_word(word: str, text: str) -> Unit:
    if word in _TIMES:
        return Unit("ns", _TIMES[word])
    for prefix, factor in _PREFIXES.items():
        stem = word.removeprefix(prefix)
        if word.startswith(prefix) and (count := _singular(stem)) in _COUNTS:
            return Unit(count, Fraction(factor))
    raise ProfileError(
        f"unknown unit {text!r}",
        hint="record with `--print-units base`, and report the unit so that ci-perf can learn it",
    )


def _singular(word: str) -> str:
    if word in _PLURALS:
        return _PLURALS[word]
    return word if word in _COUNTS or not word.endswith("s") else word[:-1]
