"""Runs and baselines as canonical JSON, and back.

What is read is checked against the packaged schema, and so is a baseline that is written; a run is not, as it is
written again and again while it grows.

Canonical: keys sorted, two spaces, a final newline, so that a change in git shows what changed and nothing else.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from cattrs.gen import make_dict_unstructure_fn, override
from cattrs.preconf.json import JsonConverter, make_converter

from ci_perf.values.baseline import Baseline, BaselineCase, BaselineTime
from ci_perf.values.check_outcome import Fuzzed
from ci_perf.values.errors import FormatError
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.measurement import Measurement, Pair, Replicate
from ci_perf.values.provenance import Provenance
from ci_perf.values.run import Run
from ci_perf.values.schema import check
from ci_perf.values.shard import Plan

VERSION = 1
"""Of all schemas. A file of an older version is read; one of a newer version is refused."""

_T = TypeVar("_T", Run, Baseline, Plan)
_CONVERTER = make_converter()
# An integer where the model says float reads back as 128.0: written as 128, it would change when it is written again.
_CONVERTER.register_unstructure_hook(float, float)
# Nearly all values are times: what was agreed before there were other units is canonical as it is.
_absent = override(omit_if_default=True)
_CONVERTER.register_unstructure_hook(
    BaselineTime, make_dict_unstructure_fn(BaselineTime, _CONVERTER, unit=_absent, better=_absent)
)
_CONVERTER.register_unstructure_hook(
    Pair,
    make_dict_unstructure_fn(Pair, _CONVERTER, unit=_absent, better=_absent, shapes=_absent, sm_clock_hz=_absent),
)
_CONVERTER.register_unstructure_hook(
    Replicate, make_dict_unstructure_fn(Replicate, _CONVERTER, unit=_absent, better=_absent, disturbed=_absent)
)


def spare_provenance(converter: JsonConverter) -> None:
    """Let a converter leave out what only the runs of a workflow have, where there is none."""
    absent = override(omit_if_default=True)
    hook = make_dict_unstructure_fn(Provenance, converter, repository=absent, head=absent, shard=absent)
    converter.register_unstructure_hook(Provenance, hook)


spare_provenance(_CONVERTER)
_CONVERTER.register_unstructure_hook(
    BaselineCase,
    make_dict_unstructure_fn(
        BaselineCase, _CONVERTER, kernels=override(omit_if_default=True), parts=override(omit_if_default=True)
    ),
)
_CONVERTER.register_unstructure_hook(
    KernelSpec,
    make_dict_unstructure_fn(
        KernelSpec,
        _CONVERTER,
        fuzz=override(omit_if_default=True),
        refuses_strides=override(omit_if_default=True),
    ),
)
_CONVERTER.register_unstructure_hook(
    Fuzzed, make_dict_unstructure_fn(Fuzzed, _CONVERTER, refused=override(omit_if_default=True))
)
# Only programs have parts, only merged runs sessions, only checks the others. A run comes last: its hook takes those
# of what it consists of as they are by now.
_CONVERTER.register_unstructure_hook(
    Measurement,
    make_dict_unstructure_fn(
        Measurement,
        _CONVERTER,
        parts=override(omit_if_default=True),
        base_parts=override(omit_if_default=True),
        session=override(omit_if_default=True),
    ),
)
_CONVERTER.register_unstructure_hook(
    Run,
    make_dict_unstructure_fn(
        Run,
        _CONVERTER,
        sessions=override(omit_if_default=True),
        fuzzed=override(omit_if_default=True),
        sanitized=override(omit_if_default=True),
    ),
)


def canonical(document: object) -> str:
    """Write a JSON document in the one form that is committed and compared.

    >>> print(canonical({"b": 1, "a": "x"}), end="")
    {
      "a": "x",
      "b": 1
    }
    """
    return json.dumps(document, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"


def dump_run(run: Run) -> str:
    """Return the text of a `run.json`."""
    return canonical(_document(run, "run"))


def load_run(text: str, source: str) -> Run:
    """Read a `run.json`; `source` names the file in errors (FormatError)."""
    run = _load(text, source, "run", Run)
    kernels = {spec.name for spec in run.kernels}
    devices = [{device.kind for device in part.devices} for part in run.sessions or (run,)]
    for i, measurement in enumerate(run.measurements):
        known = devices[measurement.session] if measurement.session < len(devices) else ()
        if measurement.kernel not in kernels or measurement.device not in known:
            raise FormatError(
                f"{source}: key `measurements[{i}]`: the run lists no such kernel or device: "
                f"{measurement.kernel} on {measurement.device}"
            )
    checked = [(f"fuzzed[{i}]", one.device) for i, one in enumerate(run.fuzzed)]
    checked += [(f"sanitized[{i}]", one.device) for i, one in enumerate(run.sanitized)]
    for key, device in checked:
        if device not in devices[0]:
            raise FormatError(f"{source}: key `{key}.device`: the run lists no such device: {device}")
    return run


def dump_baseline(baseline: Baseline) -> str:
    """Return the text of a file of `baselines/`."""
    document = json.loads(canonical(_document(baseline, "baseline")))
    check(document, "baseline", f"baseline of {baseline.kernel}", FormatError)
    return canonical(document)


def load_baseline(text: str, source: str) -> Baseline:
    """Read a file of `baselines/`; `source` names the file in errors (FormatError)."""
    return _load(text, source, "baseline", Baseline)


def dump_plan(plan: Plan) -> str:
    """Return the text of a plan, which `ci-perf plan` hands to `ci-perf merge`."""
    return canonical(_document(plan, "plan"))


def load_plan(text: str, source: str) -> Plan:
    """Read a plan; `source` names the file in errors (FormatError)."""
    plan = _load(text, source, "plan", Plan)
    cases = {f"{spec.name}/{case}" for spec in plan.kernels for case in spec.cases}
    for i, shard in enumerate(plan.shards):
        for case in shard.cases:
            if case not in cases:
                raise FormatError(f"{source}: key `shards[{i}].cases`: the plan lists no case `{case}`")
    return plan


def _document(value: Run | Baseline | Plan, kind: str) -> dict[str, object]:
    return {"schema": f"urn:ci-perf:{kind}:{VERSION}", **_CONVERTER.unstructure(value)}


def parse_json(text: str, source: str) -> Any:  # noqa: ANN401 # any JSON; its schema is checked next
    """Read JSON that holds finite numbers and printable text only; else FormatError, which names `source`."""
    try:
        document = json.loads(text, parse_constant=_no_constant, parse_float=_finite, parse_int=_finite_int)
        if re.search(r"\\u[dD][89a-fA-F]", text):
            canonical(document).encode()  # half a surrogate pair is no character: nothing that holds one can be printed
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{source}: not JSON: {error}", hint=_looks_like(text)) from None
    return document


def _load(text: str, source: str, kind: str, cls: type[_T]) -> _T:
    document = parse_json(text, source)
    _check_version(document, kind, source)
    check(document, kind, source, FormatError)
    return _CONVERTER.structure({k: v for k, v in document.items() if k != "schema"}, cls)


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


def _check_version(document: object, kind: str, source: str) -> None:
    found = document.get("schema") if isinstance(document, Mapping) else None
    match = re.fullmatch(r"urn:ci-perf:(\w+):(\d+)", str(found))
    if match is None:
        raise FormatError(f"{source}: key `schema`: {found!r} is not a ci-perf schema", hint=f"expected a {kind} file")
    if match[1] != kind:
        raise FormatError(f"{source}: this is a {match[1]} file, expected a {kind} file")
    if int(match[2]) > VERSION:
        raise FormatError(
            f"{source}: written by a newer ci-perf (schema {match[2]}, this one reads up to {VERSION})",
            hint="upgrade ci-perf",
        )
