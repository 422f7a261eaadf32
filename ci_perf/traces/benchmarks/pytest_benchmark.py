"""pytest-benchmark's JSON of every version: seconds; old files lack fields, so only one summary is needed."""

from collections.abc import Iterator, Mapping
from typing import Any

from ci_perf.traces.benchmarks.results import BenchmarkCase, BenchmarkFile, measured, number, scalar


def parse_json(document: Mapping[str, Any]) -> BenchmarkFile:
    """Read a parsed JSON file."""
    entries = [entry for entry in document["benchmarks"] if isinstance(entry, dict)]
    return BenchmarkFile("pytest-benchmark", tuple(_cases(entries)))


def _cases(entries: list[dict[str, Any]]) -> Iterator[BenchmarkCase]:
    for entry in entries:
        stats = entry.get("stats")
        stats = stats if isinstance(stats, Mapping) else {}
        params = entry.get("params")
        params = params if isinstance(params, Mapping) else {}
        plain = {str(k): scalar(v) for k, v in params.items() if isinstance(v, str | int | float)}
        name = str(entry.get("fullname") or entry.get("name") or "?")
        if entry.get("has_error") or number(stats.get("rounds")) == 0:  # its numbers are zeros
            yield BenchmarkCase(name, plain, "time", "s", "lower", (), "the benchmark failed or ran for no round")
        else:
            yield measured(name, plain, "time", ("s", "lower"), _values(stats))


def _values(stats: Mapping[str, Any]) -> list[float]:
    """Return the rounds where they were saved, else the median, else the mean."""
    data = stats.get("data")
    rounds = [number(value) for value in data] if isinstance(data, list) else []
    found = rounds or [number(stats.get(key)) for key in ("median", "mean") if key in stats][:1]
    return [value for value in found if value is not None]
