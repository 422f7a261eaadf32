"""Reads any benchmark file: what kind it is shows in its content, never in its name."""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ci_perf.benchmarks import google, nvbench, pytest_benchmark, triton
from ci_perf.benchmarks.results import BenchmarkFile
from ci_perf.core.errors import ProfileError

_Parser = Callable[[Mapping[str, Any]], BenchmarkFile]
_HINT = "known: nvbench JSON and CSV, google-benchmark JSON and CSV, pytest-benchmark JSON, the CSV of Triton"


def read(path: Path) -> BenchmarkFile:
    """Read a file; one that is no benchmark's, or holds none, is a ProfileError that says what it looks like."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ProfileError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    try:
        return parse(content.decode("utf-8-sig"), str(path))
    except UnicodeDecodeError:
        look = "an SQLite database" if content.startswith(b"SQLite format 3\0") else "binary data"
        raise _refusal(str(path), look) from None


def parse(text: str, name: str) -> BenchmarkFile:
    """Read the text of a file; `name` names it in errors."""
    text = text.removeprefix("\ufeff")
    start = text.lstrip()[:40]
    if not start:
        raise ProfileError(f"{name}: the file is empty", hint="did the benchmark run, and to its end?")
    if start.startswith("version https://git-lfs"):
        raise ProfileError(f"{name}: a git-lfs pointer, not the file itself", hint="fetch it with `git lfs pull`")
    if start.lower().startswith(("<!doctype html", "<html")):
        raise _refusal(name, "an HTML page, such as a sign-in page in place of the file")
    found = _parse_json(text, name) if start[0] in "[{" else _parse_csv(text, name)
    if not found.cases:
        raise ProfileError(
            f"{name}: a file of {found.kind} without a benchmark", hint="did the filter of the benchmark match nothing?"
        )
    return found


def _refusal(name: str, look: str) -> ProfileError:
    return ProfileError(f"{name}: not a benchmark's results: it looks like {look}", hint=_HINT)


def _parse_json(text: str, name: str) -> BenchmarkFile:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ProfileError(
            f"{name}: not JSON: {reason}", hint="was the benchmark stopped while it wrote the file?"
        ) from None
    if isinstance(document, list):
        raise _refusal(name, f"a list of {_objects(document)} in JSON")
    benchmarks = document.get("benchmarks")
    if isinstance(benchmarks, list | dict):
        entries = list(benchmarks.values()) if isinstance(benchmarks, dict) else benchmarks
        if kind := _json_kind(document, [entry for entry in entries if isinstance(entry, dict)]):
            return kind(document)
    raise _refusal(name, f"JSON with the keys {_keys(document)}")


def _json_kind(document: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> _Parser | None:
    """Return the parser of the program that writes such entries; of a file without any, by what stands beside them."""
    first = entries[0] if entries else {}
    kinds = (
        (nvbench.parse_json, "states" in first or ("meta" in document and not entries)),
        (pytest_benchmark.parse_json, "stats" in first or ("machine_info" in document and not entries)),
        (google.parse_json, bool({"real_time", "run_type", "iterations", "error_occurred"} & first.keys())),
        (google.parse_json, "context" in document and not entries),
    )
    listed = isinstance(document["benchmarks"], list)
    return next((kind for kind, fits in kinds if fits and (listed or kind is nvbench.parse_json)), None)


def _keys(entry: Mapping[str, Any]) -> str:
    return ", ".join(list(entry)[:6]) + (", ..." if len(entry) > 6 else "") or "none"


def _objects(entries: Sequence[object]) -> str:
    first = entries[0] if entries else None
    return f"objects with the keys {_keys(first)}" if isinstance(first, dict) else "values"


def _parse_csv(text: str, name: str) -> BenchmarkFile:
    lines = text.splitlines()
    below = google.header_line(lines)
    try:
        table = [row for row in csv.reader(lines[below or 0 :]) if row]
    except csv.Error as error:
        raise ProfileError(f"{name}: not CSV: {error}", hint=_HINT) from None
    header = [heading.strip() for heading in table[0]]
    if below is None and not nvbench.is_csv(header) and not _is_table(table):
        raise _refusal(name, "text" if len(header) < 2 else f"CSV with the columns {', '.join(header[:6])}")
    rows = [row for row in table[1:] if len(row) == len(header)]
    if len(rows) < len(table) - 1:
        ragged = next(row for row in table[1:] if len(row) != len(header))
        raise ProfileError(
            f"{name}: a row has {len(ragged)} cells under {len(header)} headings: {','.join(ragged)[:60]}",
            hint="was the benchmark stopped while it wrote the file?",
        )
    if below is not None:
        return google.parse_csv(header, rows)
    return nvbench.parse_csv(header, rows) if nvbench.is_csv(header) else triton.parse_csv(header, rows)


def _is_table(table: Sequence[Sequence[str]]) -> bool:
    return triton.is_csv([heading.strip() for heading in table[0]], table[1:])
