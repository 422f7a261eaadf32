"""Compares the measurements with the goals of goals.toml. A goal that was not measured is not met."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).with_name("goals.toml")
OURS = "ours"

Document = dict[str, Any]
"""The benchmark's JSON."""
Measured = dict[str, Any]
"""A case of it."""


APART = 0.03
"""If the rounds differ by at least this fraction, both are shown."""


class Reached(NamedTuple):
    """What a case reached of a goal, as a number, if there is one, and in words."""

    value: float | None
    text: str
    met: bool | None


class Judged(NamedTuple):
    """A goal beside what was reached."""

    case: str
    goal: str
    reached: str
    met: bool | None
    """None where there is nothing to judge, or the rounds differ in it."""


def judge_all(document: Document, goals: dict[str, Any]) -> list[Judged]:
    """Compare a benchmark with all goals; on a device that is neither theirs nor similar, no goal is judged."""
    rows = [row for goal in goals["goal"] for row in judge(goal, document["cases"])]
    if _named(document["provenance"]["device"], [*goals["devices"], *goals.get("like", ())]):
        return rows
    return [row._replace(met=None) for row in rows]


def is_alike(document: Document, goals: dict[str, Any]) -> bool:
    """Say whether the benchmark ran on a device that is only like the one that the goals were set for."""
    return _named(document["provenance"]["device"], goals.get("like", []))


def judge(goal: dict[str, Any], cases: list[Measured]) -> list[Judged]:
    """Return a row for each measured case that a goal names, or the one that says that there is none."""
    text = describe(goal)
    found = [case for case in cases if fnmatchcase(label(case), goal["case"])]
    if not found:
        return [Judged(goal["case"], text, "not measured", None)]
    return [Judged(label(case), text, *_reached(goal, case)) for case in found]


def label(case: Measured) -> str:
    """Name a case as on the command line."""
    return f"{case['kernel']}/{case['case']}"


def describe(goal: dict[str, Any]) -> str:
    """Write a goal as a phrase."""
    return _KINDS[_kind(goal)][0](goal)


def seconds_of(case: Measured, name: str) -> float | None:
    """Return the time of an implementation, None where it failed."""
    return next((row.get("seconds") for row in case["rows"] if row["name"] == name), None)


def alternatives(case: Measured, patterns: list[str], but_not: list[str]) -> list[dict[str, Any]]:
    """Return the rows of the alternatives that a pattern names."""
    names = (row for row in case["rows"] if row["name"] != OURS)
    return [row for row in names if _named(row["name"], patterns) and not _named(row["name"], but_not)]


def _named(name: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _kind(goal: dict[str, Any]) -> str:
    kinds = [kind for kind in _KINDS if kind in goal]
    if len(kinds) != 1:
        raise ValueError(f"{FILE.name}: {goal}: expected exactly one of {', '.join(_KINDS)}")
    return kinds[0]


def _reached(goal: dict[str, Any], case: Measured) -> tuple[str, bool | None]:
    kind = _kind(goal)
    ours = seconds_of(case, OURS)
    if kind == "fastest_named":
        return _fastest(case)
    if ours is None:
        return "not measured: ours failed", None
    reached: Reached = _KINDS[kind][1](goal, case, ours)
    number = len(next(row for row in case["rows"] if row["name"] == OURS).get("rounds", ()))
    rounds: list[Reached] = [_KINDS[kind][1](goal, *_of_round(case, i)) for i in range(number)]
    met = reached.met if all(each.met == reached.met for each in rounds) else None
    values = [each.value for each in rounds if each.value is not None]
    if met == reached.met and (not values or max(values) < (1 + APART) * min(values)):
        return reached.text, met
    return f"{reached.text} ({_side_by_side([reached.text, *(each.text for each in rounds)])})", met


def _side_by_side(texts: list[str]) -> str:
    """Write all but the first, as numbers alone where they are of what the first is of.

    >>> _side_by_side(["1.1 x torch", "1.2 x torch", "1.0 x torch"]), _side_by_side(["1.1 x a", "1.2 x a", "1.0 x b"])
    ('1.2, 1.0', '1.2 x a, 1.0 x b')
    """
    alike = len({text.partition(" ")[2] for text in texts}) == 1
    return ", ".join(text.partition(" ")[0] if alike else text for text in texts[1:])


def _of_round(case: Measured, number: int) -> tuple[Measured, float]:
    """Return the case as one round has it, and the time of ours."""
    rows = [{**row, "seconds": row["rounds"][number]} if "rounds" in row else row for row in case["rows"]]
    alone = {**case, "rows": rows}
    return alone, float(seconds_of(alone, OURS) or 0)


def _time(goal: dict[str, Any], case: Measured, ours: float) -> Reached:
    del case
    return Reached(ours, f"{ours * 1e6:.3g} us", ours * 1e6 <= goal["most_us"])


def _copy_speed(goal: dict[str, Any], case: Measured, ours: float) -> Reached:
    if not case.get("copy"):
        return Reached(None, "not measured: no copy", None)
    share = case["copy"]["seconds"] / ours
    return Reached(share, f"{share:.0%}".replace("%", " %"), share >= goal["least_copy_speed"])


def _items(goal: dict[str, Any], case: Measured, ours: float) -> Reached:
    rate = case["params"][goal["count"]] / ours
    return Reached(rate, f"{rate / 1e9:.3g} billion/s", rate >= goal["least_per_second"])


def _tflop(goal: dict[str, Any], case: Measured, ours: float) -> Reached:
    if not case.get("cost"):
        return Reached(None, "not measured: no cost", None)
    rate = case["cost"]["flop"] / ours / 1e12
    return Reached(rate, f"{rate:.3g} TFLOP/s", rate >= goal["least_tflop_per_s"])


def _speedup(goal: dict[str, Any], case: Measured, ours: float) -> Reached:
    limit = goal.get("least_speedup", 1.0)
    others = alternatives(case, goal.get("over") or goal["faster_than"], goal.get("except", []))
    ran = [row for row in others if row.get("seconds")]
    if not ran:
        return Reached(None, "not measured: " + ("none of them ran" if others else "no such alternative"), None)
    best = min(ran, key=lambda row: row["seconds"])
    speedup = best["seconds"] / ours
    met = speedup >= limit if "least_speedup" in goal else speedup > limit
    return Reached(speedup, f"{speedup:.2f} x {best['name']}", met)


def _fastest(case: Measured) -> tuple[str, bool | None]:
    others = alternatives(case, ["*"], [])
    ran = [row for row in others if row.get("seconds")]
    if not ran:
        return "not measured: no backend ran", None
    best = min(ran, key=lambda row: row["seconds"])
    return f"{best['name']}, of {len(ran)} that ran; {len(others)} offered", len(ran) == len(others)


def _over(goal: dict[str, Any]) -> str:
    names = ", ".join(goal.get("over") or goal["faster_than"])
    left_out = ", ".join(goal.get("except", []))
    names = "any alternative" if names == "*" else names
    return names + (f" but {left_out}" if left_out else "")


_KINDS: dict[str, Any] = {
    "most_us": (lambda goal: f"<= {goal['most_us']:g} us", _time),
    "least_copy_speed": (lambda goal: f">= {goal['least_copy_speed'] * 100:g} % of the speed of a copy", _copy_speed),
    "least_per_second": (lambda goal: f">= {goal['least_per_second'] / 1e9:g} billion {goal['count']}/s", _items),
    "least_tflop_per_s": (lambda goal: f">= {goal['least_tflop_per_s']:g} TFLOP/s", _tflop),
    "least_speedup": (lambda goal: f">= {goal['least_speedup']:g} x {_over(goal)}", _speedup),
    "faster_than": (lambda goal: f"faster than {_over(goal)}", _speedup),
    "fastest_named": (lambda _: "every backend, the fastest named", None),
}
