"""google-benchmark's JSON and CSV: repetitions are samples; an aggregate is used only without repetitions."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ci_perf.traces import guards
from ci_perf.traces.benchmarks.results import BenchmarkCase, BenchmarkFile, Scalar, measured, number, scaled
from ci_perf.values.quantity import base_unit, counted

_RATES = {"bytes_per_second": "byte/s", "items_per_second": "item/s"}
_TIMES = ("real_time", "cpu_time")
_NO_COUNTER = {
    *_TIMES, *_RATES, "iterations", "repetitions", "repetition_index", "threads", "family_index",
    "per_family_instance_index", "cpu_coefficient", "real_coefficient", "rms", "allocs_per_iter", "max_bytes_used",
    "total_allocated_bytes", "net_heap_growth", "error_occurred", "skipped",
}  # fmt: skip
"""What is neither a text nor a counter that the author of the benchmark added."""
_PREFERRED = ("median", "mean")
"""Aggregates that stand for the samples, best first."""
_HEADER = ("name", "iterations", "real_time", "cpu_time", "time_unit")


def parse_json(document: Mapping[str, Any]) -> BenchmarkFile:
    """Read a parsed JSON file."""
    entries = [e for e in document["benchmarks"] if isinstance(e, dict)]
    if not any("run_type" in entry for entry in entries):  # the first versions told aggregates by their names alone
        entries = [entry | _named_aggregate(entry) for entry in entries]
    return _parse("google-benchmark", entries)


def as_json(text: str) -> str:
    """Write as JSON the literals that google-benchmark writes and JSON has not: `inf`, `nan`, and `12%` of a fit.

    >>> as_json('{"ratio": -inf, "rms": 12%, "label": "inf, 12%"}')
    '{"ratio": -Infinity, "rms": 12, "label": "inf, 12%"}'
    """
    return _LITERALS.sub(lambda found: found[0] if found[0][0] == '"' else _literal(found[0]), text)


_LITERALS = re.compile(r'"(?:[^"\\]|\\.)*"|-?\b(?:inf|nan)\b|\d%')


def _literal(text: str) -> str:
    return "NaN" if text.endswith("nan") else text.replace("inf", "Infinity").rstrip("%")


def _named_aggregate(entry: Mapping[str, Any]) -> dict[str, str]:
    """Return what a newer file would say of an aggregate, which its name ends in; nothing for a repetition.

    >>> _named_aggregate({"name": "BM_copy/8_mean"})
    {'run_name': 'BM_copy/8', 'run_type': 'aggregate', 'aggregate_name': 'mean'}
    """
    found = re.fullmatch(r"(.*)_(mean|median|stddev|cv|BigO|RMS)", str(entry.get("name", "")))
    return {"run_name": found[1], "run_type": "aggregate", "aggregate_name": found[2]} if found else {}


def header_line(lines: Sequence[str]) -> int | None:
    """Return the line with the CSV's headings, which may follow what the program printed."""
    start = ",".join(_HEADER)
    return next((place for place, line in enumerate(lines) if line.replace('"', "").startswith(start)), None)


def parse_csv(header: Sequence[str], rows: Iterable[Sequence[str]]) -> BenchmarkFile:
    """Read the rows below the headings."""
    entries: list[dict[str, Any]] = []
    for row in rows:
        entry: dict[str, Any] = {key: value for key, value in zip(header, row, strict=False) if value != ""}
        entry["error_occurred"] = entry.get("error_occurred", "").lower() == "true"
        entries.append(entry | _named_aggregate(entry))
    return _parse("google-benchmark-csv", entries)


def _parse(kind: str, entries: Sequence[Mapping[str, Any]]) -> BenchmarkFile:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    fits = 0
    for entry in entries:
        if _is_fit(entry):
            fits += 1
        else:
            groups.setdefault(str(entry.get("run_name") or entry.get("name", "?")), []).append(entry)
    warnings = [f"left out, as a complexity fit has no time: {counted(fits, 'row')}"] if fits else []
    cases = [case for name, group in groups.items() for case in _cases(name, group)]
    return BenchmarkFile(kind, tuple(cases), tuple(warnings))


def _is_fit(entry: Mapping[str, Any]) -> bool:
    return entry.get("aggregate_name") in ("BigO", "RMS") or "rms" in entry or "big_o" in entry


def _is_summary(entry: Mapping[str, Any]) -> bool:
    return bool(entry.get("run_type", "iteration") != "iteration")


def _why_none(group: Sequence[Mapping[str, Any]]) -> str:
    """Say why the entries of one name hold no result; empty: they do."""
    if guards.doubled([str(e["repetition_index"]) for e in group if "repetition_index" in e and not _is_summary(e)]):
        return "several benchmarks have this name: give each its own"  # no repetitions of one, to be averaged
    for entry in group:
        if entry.get("error_occurred") or entry.get("skipped"):
            return str(entry.get("error_message") or entry.get("skip_message") or "skipped without a reason")
        if number(entry.get("iterations")) == 0:
            return "it ran for no iteration"
    return ""


def _cases(name: str, group: Sequence[Mapping[str, Any]]) -> Iterator[BenchmarkCase]:
    params = _params(name)
    if reason := _why_none(group):
        yield BenchmarkCase(name, params, "real_time", "s", "lower", (), reason)
        return
    samples = [e for e in group if not _is_summary(e)] or _summary(group)
    if not samples:
        held = ", ".join(f"`{entry.get('aggregate_name', '?')}`" for entry in group)
        reason = f"the file holds only the statistic {held} of it: no repetition, no median and no mean"
        yield BenchmarkCase(name, params, "real_time", "s", "lower", (), reason)
        return
    unknown = sorted({str(entry["time_unit"]) for entry in samples if _factor(entry) is None})
    for metric in _TIMES:
        if unknown:
            reason = f"the unit of its times is not known: {unknown[0]}"
            yield BenchmarkCase(name, params, metric, "s", "lower", (), reason)
        else:
            yield measured(name, params, metric, ("s", "lower"), list(_seconds(samples, metric)))
    for metric, unit in _RATES.items():
        if rates := _numbers(samples, metric):
            yield measured(name, params, metric, (unit, "higher"), rates)
    # The counters that the author added: nobody says what they are, so kernel.toml must.
    added = dict.fromkeys(key for entry in samples for key, value in entry.items() if isinstance(value, int | float))
    for metric in (key for key in added if key not in _NO_COUNTER):
        yield measured(name, params, metric, ("", None), _numbers(samples, metric))


def _numbers(samples: Sequence[Mapping[str, Any]], metric: str) -> list[float]:
    return [value for entry in samples if (value := number(entry.get(metric))) is not None]


def _summary(aggregates: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the one aggregate that stands for samples that the file does not have."""
    return next(
        ([a] for wanted in _PREFERRED for a in aggregates if a.get("aggregate_name") == wanted),
        [a for a in aggregates if "aggregate_name" not in a][:1],
    )


def _seconds(samples: Sequence[Mapping[str, Any]], metric: str) -> Iterator[float]:
    for entry in samples:
        value, factor = number(entry.get(metric)), _factor(entry)
        if value is not None and factor is not None:
            yield scaled(value, factor)


def _factor(entry: Mapping[str, Any]) -> float | None:
    """Return how many seconds the entry's unit of time is; None: it is no unit of time."""
    unit = base_unit(str(entry.get("time_unit", "ns")))
    return unit[1] if unit and unit[0] == "s" else None


def _params(name: str) -> dict[str, Scalar]:
    """Read the arguments out of a name: `BM_copy/1024/bytes:4/threads:2` has arg0=1024, bytes=4, threads=2."""
    params: dict[str, Scalar] = {}
    for part in name.split("/")[1:]:
        if found := re.fullmatch(r"(?:(\w+):)?([+-]?\d+)", part):
            params[found[1] or f"arg{sum(key.startswith('arg') for key in params)}"] = int(found[2])
    return params
