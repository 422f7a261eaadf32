"""The values that ncu prints: numbers of any locale, and its words for none."""

import re
from functools import cache, lru_cache

from ci_perf.traces import guards
from ci_perf.traces.ncu import printed, units
from ci_perf.values.trace import Reading

CUT = "cut off"
"""Stands in place of the values that a row no longer has."""
_WHOLE_METRICS = re.compile(r".*\.(?:sum|min|max)|launch__.*|Duration|Elapsed Cycles")
"""Metrics that count whole things, if their unit does; an average may have a fraction."""


def figure(text: str) -> str:
    """Return a value without ncu's failure mark, and without the values of single instances behind a total."""
    bare = text.strip()
    if "(" not in bare:
        return bare
    return re.sub(r"\s+\([^()]*;[^()]*\)$", "", bare.removeprefix("(!)").strip())


@cache
def counts_whole_things(name: str, unit: str) -> bool:
    """Say whether a metric in a unit can have no fraction."""
    return _WHOLE_METRICS.fullmatch(name) is not None and units.parse(unit).counts_whole_things


@lru_cache(maxsize=1 << 16)  # most values of a page occur in many launches
def reading(text: str, unit_text: str, mark: str) -> Reading:
    """Return a printed value in the base unit of its unit, given the decimal mark of the file."""
    unit, bare = units.parse(unit_text), figure(text)
    value = printed.parse(bare, mark)
    if value is None:
        return Reading(None, unit.base, why_none(bare))
    number = unit.scaled(value)
    if reason := guards.impossible(number, unit.base):
        return Reading(None, unit.base, reason if reason != "inf" else f"{bare} is not finite")
    return Reading(number, unit.base)


def why_none(bare: str) -> str:
    """Say why a text is no number: one of ncu's words, `empty`, or `text: ` and what it is."""
    if re.fullmatch(r"[+-]?nan(?:\(.*\))?", bare, re.IGNORECASE):
        return "nan"
    if bare == CUT or re.fullmatch(r"n/a|no data|[+-]?inf(?:inity)?", bare, re.IGNORECASE):
        return bare.lower()
    return f"text: {bare}" if bare else "empty"


def is_text(text: str) -> bool:
    """Say whether a value is neither a number of some locale nor one of ncu's words for none."""
    bare = figure(text)
    return not printed.may_be_number(bare) and why_none(bare).startswith("text")
