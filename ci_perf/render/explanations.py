"""Why a case changed: its causes, and the counters of both sides that matter for it."""

from collections.abc import Sequence
from dataclasses import asdict

from tabulate import tabulate

from ci_perf.judge.causes import Cause, Explanation, moved
from ci_perf.judge.causes.sides import both_sides
from ci_perf.judge.gates import CounterChange
from ci_perf.judge.report import Row
from ci_perf.render.tables import FOLDED, table
from ci_perf.values.escape import clean, code, prose
from ci_perf.values.measurement import Measurement
from ci_perf.values.metrics import typical
from ci_perf.values.quantity import number, percent, signed
from ci_perf.values.trace import Reading

_MANY_TIMES = 10.0
COMPARED = ("counter", "base", "head", "change")
"""Titles of the counters of both sides of a case."""


def explained(row: Row) -> str:
    """Return the causes of a row and its comparison as Markdown, folded; empty without an explanation."""
    found = row.finding.explanation
    if found is None:
        return ""
    parts = ["\n".join(cause_lines(found))]
    if found.line:
        parts.append(f"{found.line.title}: {code(found.line.place)}, {prose(str(found.line))}.")
    if rows := compared(found):
        parts.append(table(COMPARED, rows, COMPARED[1:]))
    if unmoved := as_before(found):
        parts.append(prose(unmoved))
    case = prose(row.finding.id)
    title = f"What changed on the host in {case}" if found.host_only else f"Why the time of {case} changed"
    return FOLDED.format(title=title, body="\n\n".join(parts))


def explanation_lines(explanation: Explanation) -> list[str]:
    """Return the lines for a terminal: each cause, where to look, and the counters of both sides."""
    lines = []
    for place, cause in enumerate(explanation.causes, start=1):
        lines += [
            f"{place}. {clean(cause.sentence, 600)}; {_part(cause)}",
            *([f"   {cause.look}"] if cause.look else []),
            f"   source: {cause.source}",
        ]
    if explanation.line:
        lines.append(clean(f"{explanation.line.title}: {explanation.line.place}, {explanation.line}", 600))
    rows = compared(explanation)
    printed = tabulate(rows, headers=COMPARED, tablefmt="simple", disable_numparse=True).split("\n") if rows else []
    unmoved = [as_before(explanation)] if as_before(explanation) else []
    return [*(lines or [clean(explanation.sentence, 600)]), *printed, *unmoved]


def explanation_document(explanation: Explanation | None) -> dict[str, object]:
    """Return an explanation as JSON has it; of no explanation the same keys without content."""
    causes = explanation.causes if explanation else ()
    limiters = explanation.limiters if explanation else None
    return {
        "explanation": explanation.sentence if explanation else None,
        "causes": [
            {
                "mechanism": cause.mechanism,
                "share": cause.share,
                "sentence": cause.sentence,
                "look": cause.look,
                "source": cause.source,
                "counters": counters_document(cause.counters),
            }
            for cause in causes
        ],
        "line": asdict(explanation.line) if explanation and explanation.line else None,
        "occupancy_limiter": dict(zip(("base", "head"), limiters, strict=True)) if limiters else None,
        "compared": counters_document(explanation.compared if explanation else ()),
    }


def counters_document(changes: Sequence[CounterChange]) -> list[dict[str, object]]:
    """Return counters of both sides as JSON has them."""
    return [{"metric": c.metric, "unit": c.unit, "base": c.base, "head": c.head} for c in changes]


def counters_of_sides(measured: Measurement) -> tuple[dict[str, Reading], dict[str, Reading]]:
    """Return the counters of base and head; the base has none where it was not profiled.

    Those of the head that were counted beside the base's come before those of the first profile.
    """
    base, more = (profile.counters if profile else () for profile in (measured.base_profile, measured.head_profile))
    return typical(base), {**typical(measured.counters), **typical(more)}


def cause_lines(explanation: Explanation) -> list[str]:
    """Return a line of a numbered list for each cause; without one the sentence that says so."""
    return [
        f"{place}. {prose(cause.sentence)}; {_part(cause)}. {cause.look}".rstrip()
        for place, cause in enumerate(explanation.causes, start=1)
    ] or [prose(explanation.sentence)]


def compared(explanation: Explanation) -> list[tuple[str, str, str, str]]:
    """Return the cells of COMPARED for each counter that matters for a case and moved.

    >>> from ci_perf.judge.gates import CounterChange
    >>> compared(Explanation((), (), (CounterChange("registers_per_thread", "register", 16.0, 76.0),)))
    [('registers_per_thread', '16', '76', '+375.0 %')]
    """
    rows = [
        (c.metric, *both_sides(c.base, c.head, c.unit), counter_change(c)) for c in explanation.compared if moved(c)
    ]
    if rows and explanation.limiters and len(set(explanation.limiters)) > 1:
        rows.append(("occupancy_limiter", *explanation.limiters, "changed"))
    return rows


def as_before(explanation: Explanation) -> str:
    """Return a sentence that names the counters that matter for a case and did not move; empty without one."""
    names = [change.metric for change in explanation.compared if not moved(change)]
    limiters = set(explanation.limiters or ())
    names += [f"occupancy_limiter ({limiter})" for limiter in limiters if len(limiters) == 1]
    return f"As before: {', '.join(names)}." if names else ""


def counter_change(change: CounterChange) -> str:
    """Write how a counter changed: from ten times on, how many times as large it is.

    >>> counter_change(CounterChange("a", "inst", 34920, 16.38e6)), counter_change(CounterChange("a", "%", 50, 38.5))
    ('469 x', '-11.5 points')
    """
    if change.unit == "%":
        return f"{signed(change.head - change.base)} points"
    if not change.base:
        return "-" if change.head == change.base else "new"
    times = change.head / change.base
    return f"{number(float(f'{times:.3g}'))} x" if times >= _MANY_TIMES else percent(times - 1, sign=True)


def _part(cause: Cause) -> str:
    return f"this can account for {percent(cause.share, digits=0)} of the change"
