"""The steps of a run as lines of JSON: what a run that was killed is recovered from.

The first line is the run as it starts, in the form of run.json. Each further line is a step: a list of changes. A
change names a value by its keys and indices, and sets it, or adds elements to the list that it is:
`{"at": ["measurements", 3, "replicates"], "add": [...]}`.
"""

import json
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from ci_perf.values.codec import parse_json, run_from, to_document, to_json
from ci_perf.values.errors import FormatError
from ci_perf.values.extensible import Extensible
from ci_perf.values.run import Run

Step = Any
"""A line: JSON."""


def step_of(before: Run | None, now: Run) -> Step:
    """Return the step from one state of a run to the next; from None it is the first line.

    The cost depends on the size of the changes, apart from one comparison of identity for each measurement.
    """
    return to_document(now, "run") if before is None else list(_changes(before, now, ()))


def _changes(before: object, now: object, at: tuple[str | int, ...]) -> Iterator[dict[str, Any]]:
    if before is now:
        return
    if isinstance(before, Extensible) and type(before) is type(now):
        for field in fields(before):
            yield from _changes(getattr(before, field.name), getattr(now, field.name), (*at, field.name))
    elif isinstance(before, tuple) and isinstance(now, tuple) and len(before) <= len(now):
        for index, pair in enumerate(zip(before, now, strict=False)):
            yield from _changes(*pair, (*at, index))
        if len(before) < len(now):
            yield {"at": list(at), "add": to_json(now[len(before) :])}
    elif before != now:
        yield {"at": list(at), "set": to_json(now)}


def dump_step(step: Step) -> str:
    """Return the line of a step, final newline included."""
    return json.dumps(step, allow_nan=False, ensure_ascii=False, separators=(",", ":")) + "\n"


def load_steps(text: str, source: str) -> Run:
    """Return the run after the last step that is complete; `source` names the file in errors (FormatError).

    A last line without its newline was interrupted while it was written: it is ignored.
    """
    first, *steps = text.split("\n")[:-1] or [""]
    document = parse_json(first, f"{source}:1")
    for number, line in enumerate(steps, start=2):
        where = f"{source}:{number}"
        try:
            for change in parse_json(line, where):
                _apply(document, change)
        except (LookupError, TypeError, AttributeError):
            raise FormatError(f"{where}: the line is not a step of this run") from None
    return run_from(document, source)


def _apply(document: Any, change: Any) -> None:  # noqa: ANN401 # JSON
    *parents, last = change["at"]
    place = document
    for key in parents:
        place = place[key]
    if "add" not in change:
        place[last] = change["set"]
    elif isinstance(place, dict):
        place.setdefault(last, []).extend(change["add"])  # a list with its default value may be left out
    else:
        place[last].extend(change["add"])
