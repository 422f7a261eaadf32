"""Runs, baselines, plans and sessions of an audit as JSON, and back.

Everything that is read is checked against the packaged schema, and so is a baseline that is written.

Canonical form: sorted keys, an indent of two spaces, a final newline, so that a change in git shows what changed and
nothing else.

A run as it grows is a journal of JSON lines. The first is the run as it starts, in the form of run.json. Each further
line is a step: a list of changes. A change names a value by its keys and indices, and sets it, or adds elements to the
list that it is: `{"at": ["measurements", 3, "replicates"], "add": [...]}`.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any, TypeVar, get_type_hints

from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override
from cattrs.preconf.json import JsonConverter, make_converter

from ci_perf.values.baseline import Baseline
from ci_perf.values.errors import FormatError
from ci_perf.values.extensible import OMIT_DEFAULT, Extensible
from ci_perf.values.job import Plan
from ci_perf.values.measurement import Pair
from ci_perf.values.run import Run
from ci_perf.values.schema import check, check_version, schema_id

_T = TypeVar("_T", bound=Extensible)
Step = Any
"""A line of the journal: JSON."""


def canonical(document: object) -> str:
    """Return a JSON document in canonical form.

    >>> print(canonical({"b": 1, "a": "x"}), end="")
    {
      "a": "x",
      "b": 1
    }
    """
    return json.dumps(document, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"


def to_document(value: Extensible, kind: str) -> dict[str, Any]:
    """Return the JSON document of a file of this kind, with its `schema`.

    A file of a newer minor version keeps its `schema`, and every object its unknown keys.
    """
    return {"schema": schema_id(kind), **_converter().unstructure(value)}


def from_document(document: Any, source: str, kind: str, cls: type[_T]) -> _T:  # noqa: ANN401 # any JSON
    """Check a JSON document of this kind and return its value; `source` names the file in errors (FormatError)."""
    newer = check_version(document, kind, source, FormatError)
    check(document, kind, source, FormatError)
    known = {key: part for key, part in document.items() if newer or key != "schema"}
    return _converter().structure(known, cls)


def to_json(value: object) -> Any:  # noqa: ANN401 # any JSON
    """Return a part of a file as JSON: a dataclass, a tuple, a mapping, a scalar."""
    return _converter().unstructure(value)


def dump_run(run: Run) -> str:
    """Return the text of a `run.json`."""
    return canonical(to_document(run, "run"))


def load_run(text: str, source: str) -> Run:
    """Read a `run.json`; `source` names the file in errors (FormatError)."""
    return run_from(parse_json(text, source), source)


def run_from(document: object, source: str) -> Run:
    """Return the run of a JSON document; `source` names the file in errors (FormatError)."""
    run = from_document(document, source, "run", Run)
    kernels = {spec.name for spec in run.kernels}
    devices = [{device.kind for device in part.devices} for part in run.sessions or (run,)]
    for i, measurement in enumerate(run.measurements):
        known = devices[measurement.session] if measurement.session < len(devices) else ()
        if measurement.kernel not in kernels or measurement.device not in known:
            raise FormatError(
                f"{source}: key `measurements[{i}]`: the run lists no such kernel or device: "
                f"{measurement.kernel} on {measurement.device}"
            )
    listed = {device.slug for device in run.devices}
    for i, part in enumerate(run.sessions):
        if missing := [device.name for device in part.devices if device.slug not in listed]:
            raise FormatError(f"{source}: key `devices`: lacks {missing[0]}, which session {i} used")
    for key, pair in _pairs_of(run):
        if len(pair.base) != len(pair.head):
            raise FormatError(
                f"{source}: key `{key}`: {len(pair.base)} rounds of `base` and {len(pair.head)} of `head`, "
                "which took turns",
                hint="was it edited, or damaged? measure again",
            )
    _check_confirmations(run, kernels, source)
    checked = [(f"fuzzed[{i}]", one.device) for i, one in enumerate(run.fuzzed)]
    checked += [(f"sanitized[{i}]", one.device) for i, one in enumerate(run.sanitized)]
    for key, device in checked:
        if device not in devices[0]:
            raise FormatError(f"{source}: key `{key}.device`: the run lists no such device: {device}")
    return run


def _check_confirmations(run: Run, kernels: set[str], source: str) -> None:
    sessions = max(1, len(run.sessions))
    for i, part in enumerate(run.confirmations):
        if part.session >= sessions or any(m.kernel not in kernels for m in part.measurements):
            raise FormatError(f"{source}: key `confirmations[{i}]`: the run lists no such kernel or session")


def _pairs_of(run: Run) -> Iterator[tuple[str, Pair]]:
    for i, measurement in enumerate(run.measurements):
        yield from ((f"measurements[{i}].pairs[{j}]", pair) for j, pair in enumerate(measurement.pairs))
    for i, confirmation in enumerate(run.confirmations):
        for j, measurement in enumerate(confirmation.measurements):
            at = f"confirmations[{i}].measurements[{j}].pairs"
            yield from ((f"{at}[{k}]", pair) for k, pair in enumerate(measurement.pairs))
    confirmed = ((f"confirmations[{i}].", one.against) for i, one in enumerate(run.confirmations))
    sessions = [
        ("", run.against),
        *confirmed,
        *((f"sessions[{i}].", part.against) for i, part in enumerate(run.sessions)),
    ]
    for prefix, against in sessions:
        if against:
            yield from ((f"{prefix}against.control[{j}]", pair) for j, pair in enumerate(against.control))


def dump_baseline(baseline: Baseline) -> str:
    """Return the text of a file of `baselines/`; FormatError if it could not be read again."""
    document = json.loads(canonical(to_document(baseline, "baseline")))
    check(document, "baseline", f"baseline of {baseline.kernel}", FormatError)
    return canonical(document)


def load_baseline(text: str, source: str) -> Baseline:
    """Read a file of `baselines/`; `source` names the file in errors (FormatError)."""
    return from_document(parse_json(text, source), source, "baseline", Baseline)


def dump_plan(plan: Plan) -> str:
    """Return the text of a plan, which `ci-perf plan` writes for `ci-perf merge`."""
    return canonical(to_document(plan, "plan"))


def load_plan(text: str, source: str) -> Plan:
    """Read a plan; `source` names the file in errors (FormatError)."""
    plan = from_document(parse_json(text, source), source, "plan", Plan)
    cases = {f"{spec.name}/{case}" for spec in plan.kernels for case in spec.cases}
    for i, shard in enumerate(plan.shards):
        for case in shard.cases:
            if case not in cases:
                raise FormatError(f"{source}: key `shards[{i}].cases`: the plan lists no case `{case}`")
    return plan


def parse_json(text: str, source: str) -> Any:  # noqa: ANN401 # any JSON; its schema is checked next
    """Read JSON with finite numbers and printable text only; `source` names the file in errors (FormatError)."""
    try:
        document = json.loads(text, parse_constant=_no_constant, parse_float=_finite, parse_int=_finite_int)
        if re.search(r"\\u[dD][89a-fA-F]", text):
            canonical(document).encode()  # fails on half a surrogate pair, which cannot be printed
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{source}: not JSON: {error}", hint=_looks_like(text)) from None
    return document


@cache
def _converter() -> JsonConverter:
    """Return the converter of all dataclasses of a file."""
    converter = make_converter()
    # An integer of a field of type float is read as 128.0; written as 128 it would change when it is written again.
    converter.register_unstructure_hook(float, float)
    converter.register_unstructure_hook_factory(_is_extensible, lambda cls: _unstructure(cls, converter))
    converter.register_structure_hook_factory(_is_extensible, lambda cls: _structure(cls, converter))
    return converter


def _is_extensible(cls: object) -> bool:
    return isinstance(cls, type) and issubclass(cls, Extensible)


def _unstructure(cls: type[_T], converter: JsonConverter) -> Callable[[_T], dict[str, Any]]:
    hints = get_type_hints(cls, include_extras=True)
    absent: dict[str, Any] = {
        field.name: override(omit_if_default=True)
        for field in fields(cls)
        if OMIT_DEFAULT in getattr(hints[field.name], "__metadata__", ())
    }
    of_known = make_dict_unstructure_fn(cls, converter, unknown_keys=override(omit=True), **absent)

    def unstructure(value: _T) -> dict[str, Any]:
        document = of_known(value)
        return document | dict(value.unknown_keys) if value.unknown_keys else document

    return unstructure


def _structure(cls: type[_T], converter: JsonConverter) -> Callable[[Mapping[str, Any], Any], _T]:
    of_known = make_dict_structure_fn(cls, converter, unknown_keys=override(omit=True))
    known = {field.name for field in fields(cls)} - {"unknown_keys"}

    def structure(document: Mapping[str, Any], _: object) -> _T:
        value = of_known(document, cls)
        if document.keys() <= known:
            return value
        return replace(value, unknown_keys=tuple((k, part) for k, part in document.items() if k not in known))

    return structure


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is too large a number")
    return number


def _finite_int(text: str) -> int:
    _finite(text)
    return int(text)


def _looks_like(text: str) -> str:
    if text.startswith("version https://git-lfs"):
        return "this is a git-lfs pointer: run `git lfs pull`"
    return "" if text.strip() else "the file is empty"


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
