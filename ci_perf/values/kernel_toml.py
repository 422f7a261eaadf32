"""Reads `kernel.toml`: parses it, checks it, and expands the sweep into cases."""

import itertools
import math
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from ci_perf.values.errors import ConfigError, did_you_mean
from ci_perf.values.kernel import (
    BENCHMARKS,
    KINDS,
    PLACES,
    RANDOM_CASE,
    STRIDES,
    USUAL_STRIDES,
    FuzzRange,
    Gate,
    KernelSpec,
    Package,
    Params,
    Program,
    Scalar,
    ToleranceRule,
    placeholders,
    unfilled,
)
from ci_perf.values.measurement import PEAK_MEMORY
from ci_perf.values.metrics import BY_NAME as COUNTERS
from ci_perf.values.quantity import base_unit
from ci_perf.values.schema import VERSIONS, check, check_version
from ci_perf.values.timeline_metrics import BY_NAME as TIMELINE
from ci_perf.values.toml_text import parse_toml

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")

MOST_SWEPT = 10_000
"""Cases that a sweep may make: each is measured by itself, in seconds."""
REFUSED = "refused"
"""The value of `fuzz.strides` in place of a list: `launch` may raise a ValueError for all but contiguous inputs."""
DATA_TYPES = ("float64", "float32", "float16", "bfloat16", "bool")
"""Those of `[tolerance]` that are suggested for a misspelt one."""
_DATA_TYPE = re.compile(r"float(16|32|64)|bfloat16|float[468]_\w+|complex(32|64|128)|u?int([1-7]|8|16|32|64)|bool")
GATED = (*COUNTERS, *TIMELINE, PEAK_MEMORY)
"""The names that `[gates]` of a kernel.toml accepts."""


def parse_kernel(text: str, *, name: str, folder: str) -> KernelSpec:
    """Read the text of `FOLDER/kernel.toml`; every error names the file and the key."""
    source = f"{folder}/kernel.toml"
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{folder}: `{name}` cannot be a kernel's name", hint="use letters, digits, '.', '_' and '-' for the folder"
        )
    document = parse_toml(text, source, finite=True)
    newer = "schema" in document and check_version(document, "kernel", source)
    try:
        check(document, "kernel", source)
    except ConfigError as error:
        raise ConfigError(str(error), hint=_newer_hint(document["schema"]) if newer else error.hint) from None
    try:
        return _spec(document, name, folder)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}", hint=error.hint) from None


def _newer_hint(schema: str) -> str:
    major, minor = VERSIONS["kernel"]
    written = schema.rpartition(":")[2]
    return f"kernel.toml is written for format {written}; this ci-perf reads {major}.{minor}: upgrade ci-perf"


def _spec(document: Mapping[str, Any], name: str, folder: str) -> KernelSpec:
    cases = _cases(document)
    program = _program(document, cases)
    _check_selections(document, cases)
    _check_package(document)
    if (document.get("time"), document.get("l2")) == ("wall", "cold"):
        raise _wrong("time", '"wall" cannot be combined with l2 = "cold"', "the wall clock would time the flush, too")
    policy, fuzz = document.get("policy", {}), document.get("fuzz", {})
    given: dict[str, Any] = {"devices": ("cpu", "cuda") if program else ("cuda",)}
    copied = ("entry", "description", "l2", "rng", "time", "env", "expected_failures")
    given |= {key: document[key] for key in copied if key in document}
    given |= _tolerance(document.get("tolerance", {}), cases, _declared(cases, fuzz))
    listed = ("devices", "ranges", "kernels", "cpu_cases", "sanitize")
    given |= {key: tuple(document[key]) for key in listed if key in document}
    for key in ("regression", "speedup", "memory"):
        if key in policy:
            given[key] = parse_fraction(policy[key], f"key `policy.{key}`")
    return KernelSpec(
        name=name,
        folder=folder,
        program=program,
        package=Package(**{key: tuple(names) for key, names in document.get("package", {}).items()}),
        cases=cases,
        timeout_s=policy.get("timeout"),
        gates=tuple(_gate(metric, limit) for metric, limit in document.get("gates", {}).items()),
        fuzz=_fuzz(fuzz, cases),
        refuses_strides=fuzz.get(STRIDES) == REFUSED,
        **given,
    )


def _wrong(key: str, problem: str, hint: str) -> ConfigError:
    return ConfigError(f"key `{key}`: {problem}", hint=hint)


def _program(document: Mapping[str, Any], cases: Mapping[str, Params]) -> Program | None:
    """Return the program in place of an entry. A file must have exactly one of both, and no key of the other."""
    named = [kind for kind in ("entry", *KINDS) if kind in document]
    if len(named) != 1:
        missing = "`entry` is missing but required, or a program in its place"
        raise ConfigError(
            f"keys {_listed(named)} exclude each other" if named else missing,
            hint=f"write exactly one of {_listed(('entry', *KINDS))}",
        )
    (kind,) = named
    for key, kinds in ((key, kinds) for keys, kinds in _BELONGS.items() for key in keys):
        if key in document and kind not in kinds:
            raise _wrong(key, f"cannot be combined with `{kind}`", f"it belongs to {_listed(kinds)}")
    if kind == "entry":
        return None
    program = Program(kind, tuple(document[kind]), *(document.get(key, "") for key in _PROGRAM_KEYS))
    _check_program(program)
    for case, params in cases.items():
        _check_places(program, document, case, params)
    return program


_PROGRAM_KEYS = ("benchmark", "metric", "unit", "better")
_BELONGS: Mapping[tuple[str, ...], tuple[str, ...]] = {
    _PROGRAM_KEYS: BENCHMARKS,
    ("ranges",): ("command",),
    ("kernels", "gates", "time"): ("entry", "command"),
    ("l2", "rng", "tolerance", "fuzz"): ("entry",),
}
"""For each group of keys, the kinds of entry or program that use them."""


_OUTPUTS = frozenset({"output", "output_folder"})


def _check_program(program: Program) -> None:
    if program.unit and base_unit(program.unit) is None:
        raise _wrong("unit", f"{program.unit!r} is not known", "write s, ms, us, ns, GB/s, TFLOP/s or items/s")
    if program.kind == "triton_csv" and not program.better:
        raise ConfigError(
            "`better` is missing but required: a CSV of Triton does not say it",
            hint='write for example better = "higher", and unit = "GB/s" where ylabel of the benchmark is not the unit',
        )
    if program.kind in BENCHMARKS and not any(_OUTPUTS.intersection(placeholders(word)) for word in program.argv):
        hint = "{output} stands for the file that the program must write its results to, {output_folder} for a folder"
        raise _wrong(program.kind, "no argument holds {output}", hint)


def _check_places(program: Program, document: Mapping[str, Any], case: str, params: Params) -> None:
    """Check what stands in braces in the texts of a program: parameters of the case and, in its arguments, places."""
    if taken := [name for name in params if name in PLACES]:
        problem = f"{{{taken[0]}}} stands for {PLACES[taken[0]]}"
        raise _wrong(f"cases.{case}.{taken[0]}", problem, "call the parameter something else")
    usable = [place for place in PLACES if place not in _OUTPUTS or program.kind in BENCHMARKS]
    texts = {program.kind: program.argv, "benchmark": (program.benchmark,)}
    texts |= {key: document.get(key, ()) for key in ("ranges", "kernels")}
    for key, words in texts.items():
        places = usable if key == program.kind else []
        if lacking := unfilled(words, params, places):
            known = ", ".join(f"{{{name}}}" for name in (*params, *places)) or "no parameter"
            hint = f"known here: {known}; double braces stay braces"
            raise _wrong(key, f"case `{case}` has no parameter `{lacking[0]}`", hint)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def parse_fraction(value: object, where: str) -> float:
    """Read a threshold, written `3%` or `0.03`. A number without `%` must be below 1, so that it is not ambiguous.

    >>> parse_fraction("3%", "regression"), parse_fraction(0.1, "speedup")
    (0.03, 0.1)
    """
    text = str(value).strip()
    try:
        fraction = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise ConfigError(f"{where}: {value!r} is not a fraction", hint="write 3% or 0.03") from None
    if not 0 < fraction < (math.inf if text.endswith("%") else 1):
        hint = "a number without % must be below 1" if 1 <= fraction < math.inf else "write 3% or 0.03"
        hint += f": did you mean {text}%?" if 1 <= fraction < 100 else ""
        raise ConfigError(f"{where}: {value!r} is not between 0 and 1", hint=hint)
    return round(fraction, 12)


def _cases(document: Mapping[str, dict[str, dict[str, Scalar]]]) -> dict[str, Params]:
    """Return all cases: the named ones, then the sweep. Two with one name or the same parameters are an error."""
    defaults: Params = document.get("defaults", {})  # type: ignore[assignment] # the schema has checked its values
    named: dict[str, Params] = {name: {**defaults, **params} for name, params in document["cases"].items()}
    cases: dict[str, Params] = {}
    seen: dict[tuple[tuple[str, Scalar], ...], str] = {}
    swept = _sweep(document.get("sweep", {}), defaults or next(iter(named.values())))  # type: ignore[arg-type]
    for name, params in itertools.chain(named.items(), swept):
        key = tuple(sorted(params.items()))
        table = "cases" if name in named and name not in cases else "sweep"
        if name in cases:
            raise _wrong(table, f"case `{name}` repeats", "rename the case or drop the value")
        if key in seen:
            hint = "a case that repeats another measures nothing new: remove one"
            raise _wrong(f"{table}.{name}", f"the same parameters as case `{seen[key]}`", hint)
        cases[name], seen[key] = params, name
    return cases


def _sweep(lists: Mapping[str, list[Scalar]], fixed: Params) -> list[tuple[str, Params]]:
    """Return the product of the lists; parameters that are not swept come from `fixed`."""
    if not lists:
        return []
    if (count := math.prod(map(len, lists.values()))) > MOST_SWEPT:
        raise _wrong(
            "sweep", f"{count:,} cases, more than {MOST_SWEPT:,}", "drop values, or write the cases that matter"
        )
    points = (dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values()))
    return [("-".join(f"{k}{_slug(v)}" for k, v in point.items()), {**fixed, **point}) for point in points]


def _slug(value: Scalar) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", str(value).lower()).strip("-")


def _check_selections(document: Mapping[str, Any], cases: Mapping[str, Params]) -> None:
    """Check that `cpu_cases` and `sanitize` name cases of the kernel."""
    for name in document.get("cpu_cases", ()):
        if name not in cases:
            raise _wrong("cpu_cases", f"no case is called `{name}`", _similar(name, cases))
    for entry in document.get("sanitize", ()):
        _, slash, pattern = entry.partition("/")
        if slash and not any(fnmatchcase(name, pattern) for name in cases):
            raise _wrong("sanitize", f"`{entry}`: no case matches `{pattern}`", _similar(pattern, cases))
    for pattern in document.get("expected_failures", ()):
        if not any(fnmatchcase(name, pattern) for name in cases):
            raise _wrong("expected_failures", f"no case matches `{pattern}`", _similar(pattern, cases))


def _check_package(document: Mapping[str, Any]) -> None:
    """Check that the folders of `package.path` are relative, and what stands in braces in the values of `env`."""
    for folder in document.get("package", {}).get("path", ()):
        if folder.startswith(("/", "~")):
            hint = "write it relative to the folder of kernel.toml, so that each commit has its own: ../../src"
            raise _wrong("package.path", f"`{folder}` is one folder for all commits", hint)
    if "entry" not in document and "imports" in document.get("package", {}):
        raise _wrong("package.imports", "only the imports of an `entry` are known", "leave it out")
    for name, value in document.get("env", {}).items():
        if lacking := unfilled([value], {}, ["folder"]):
            hint = "known here: {folder}; double braces stay braces"
            raise _wrong(f"env.{name}", f"`{{{lacking[0]}}}` is not known", hint)


def _declared(cases: Mapping[str, Params], fuzz: Mapping[str, Any]) -> set[str]:
    """Return the data types that cases declare in their parameter `dtype`, without `torch.`."""
    drawn = fuzz.get("dtype", ())
    values = [params["dtype"] for params in cases.values() if "dtype" in params]
    return {str(value).replace("torch.", "") for value in (*values, *(drawn if isinstance(drawn, list) else ()))}


def _tolerance(table: Mapping[str, Any], cases: Mapping[str, Params], declared: set[str]) -> dict[str, Any]:
    """Return the general tolerance, and the rules for single outputs and for cases with some parameters."""
    known = {name for params in cases.values() for name in params}
    rules: list[ToleranceRule] = []
    for part in (table, *table.get("when", ())):
        params = part.get("params", {})
        for name in params:
            if name not in known:
                raise _wrong(f"tolerance.when.params.{name}", "no case has this parameter", _similar(name, known))
        if params:
            rules.append(ToleranceRule(_by_type(part, declared, "tolerance.when"), "", params))
        for output, own in part.get("outputs", {}).items():
            rules.append(ToleranceRule(_by_type(own, declared, f"tolerance.outputs.{output}"), output, params))
    return {"tolerance": _by_type(table, declared, "tolerance"), "tolerance_rules": tuple(rules)}


def _by_type(table: Mapping[str, Any], declared: set[str], where: str) -> dict[str, float]:
    """Return the tolerances by data type; ConfigError for a name that is neither one nor the `dtype` of a case."""
    found = {key: value for key, value in table.items() if key not in {"outputs", "when", "params"}}
    for name in found:
        if not _DATA_TYPE.fullmatch(name) and name not in declared:
            hint = _similar(name, (*DATA_TYPES, *declared.difference(DATA_TYPES)))
            raise _wrong(f"{where}.{name}", "no data type of torch, and no `dtype` of a case", hint)
    return found


def _fuzz(table: Mapping[str, object], cases: Mapping[str, Params]) -> dict[str, FuzzRange]:
    """Return the ranges of the parameters of random cases; a name that random cases use is an error."""
    if table and (taken := [name for name in cases if RANDOM_CASE.fullmatch(name)]):
        raise _wrong(f"cases.{taken[0]}", "random cases have such names", "rename the case")
    if table and (taken := [name for name, params in cases.items() if STRIDES in params]):
        problem = f"in a kernel with a [fuzz] table, `{STRIDES}` says how inputs lie in memory"
        raise _wrong(f"cases.{taken[0]}.{STRIDES}", problem, "rename the parameter")
    known = {name for params in cases.values() for name in params}
    return {name: _range(name, value, known) for name, value in table.items()}


def _range(name: str, value: object, known: set[str]) -> FuzzRange:
    if name not in known and name != STRIDES:
        raise _wrong(f"fuzz.{name}", "no case has this parameter", _similar(name, sorted(known)))
    if value == REFUSED:
        return USUAL_STRIDES
    if isinstance(value, list):
        return FuzzRange(values=tuple(value))
    if not isinstance(value, Mapping):
        raise TypeError("the schema accepts only tables and lists")
    whole: dict[str, Any] = {key: int(number) for key, number in value.items()}  # the schema takes 8.0 for an integer
    found = FuzzRange(**whole)
    if not found.multiples:
        step = f"multiple of {found.multiple_of}" if found.multiple_of > 1 else "number"
        raise _wrong(f"fuzz.{name}", f"no {step} lies from {found.min} to {found.max}", "min <= max")
    return found


def _gate(metric: str, limit: str) -> Gate:
    if metric not in GATED:
        problem = "no counter has this name, nor a metric of the timeline"
        raise _wrong(f"gates.{metric}", problem, _similar(metric, GATED))
    return Gate(metric, limit.strip()[:2], float(limit.strip()[2:]))


def _similar(name: str, known: Iterable[str]) -> str:
    known = tuple(known)
    return did_you_mean(name, known) or "known: " + ", ".join(known)
