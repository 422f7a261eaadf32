"""Reads any benchmark file; its kind follows from the content, not from the name."""

import contextlib
import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ci_perf.traces import filetype, guards
from ci_perf.traces.benchmarks import google, nvbench, pytest_benchmark, triton
from ci_perf.traces.benchmarks.nvbench import Beside
from ci_perf.traces.benchmarks.results import BenchmarkCase, BenchmarkFile
from ci_perf.values.errors import ProfileError

_Parser = Callable[[Mapping[str, Any]], BenchmarkFile]
_CsvParser = Callable[[Sequence[str], Sequence[Sequence[str]]], BenchmarkFile]
_MOST_SAMPLES = 256 << 20
"""Bytes of one file of samples; a larger one is not read."""
_WANTED = "a benchmark's results"
_HINT = "known: nvbench JSON and CSV, google-benchmark JSON and CSV, pytest-benchmark JSON, the CSV of Triton"


def read(path: Path) -> BenchmarkFile:
    """Read a file; one that is no benchmark's, or holds none, is a ProfileError that says what it looks like."""
    head = filetype.read_head(path)
    encoding = filetype.text_encoding(head)
    if encoding is None:
        raise filetype.refusal(path, _WANTED, head)
    try:
        return parse(path.read_text(encoding), str(path), beside=partial(beside, path))
    except UnicodeDecodeError:
        raise _refusal(str(path), "binary data") from None


def beside(path: Path, folder: str, name: str) -> bytes | None:
    """Return the content of a file in a folder beside `path`; None: it is not there.

    Where `path` was renamed together with its folder, the folder's name is that of `path` with nvbench's ending.
    """
    for place in (path.parent / folder, path.with_name(f"{path.name}-bin")):
        file = place / name
        if folder not in ("", "..") and file.is_file() and file.stat().st_size <= _MOST_SAMPLES:
            return file.read_bytes()
    return None


def parse(text: str, name: str, *, declared: str = "", beside: Beside = lambda *_: None) -> BenchmarkFile:
    """Read the text of a file; `name` names it in errors, `beside` reads the files that nvbench writes beside it.

    `declared` is the key of kernel.toml that says what the file is. Under `triton_csv` any table of numbers is one of
    Triton's; else one that does not show it is refused.
    """
    text = text.removeprefix("\ufeff")
    start = text.lstrip()[:40]
    if not start:
        raise ProfileError(f"{name}: the file is empty", hint="the output of the benchmark may say why")
    if start[0] != "{" and filetype.find_look(start.encode()):
        raise filetype.refusal(Path(name), _WANTED, start.encode())
    if "\0" in text:
        raise ProfileError(f"{name}: {filetype.LOST}", hint="the disk or the upload may have filled up; measure again")
    found = _parse_json(text, name, beside) if start[0] in "[{" else _parse_csv(text, name, declared)
    if not found.cases:
        raise ProfileError(
            f"{name}: a file of {found.kind} without a benchmark", hint="did the filter of the benchmark match nothing?"
        )
    return replace(found, warnings=(*found.warnings, *_doubts(found.cases)))


def _doubts(cases: Sequence[BenchmarkCase]) -> Iterator[str]:
    """Yield a warning for each kind of result that may not be what it seems."""
    if twice := guards.doubled([str(case) for case in cases]):
        yield f"{len(twice)} results occur more than once, among them {twice[0][:80]}"
    below = [case for case in cases if any(guards.impossible(value, case.unit) for value in case.values)]
    if below:
        yield f"{len(below)} results have a time below zero, among them {str(below[0])[:80]}"


def _refusal(name: str, look: str) -> ProfileError:
    return ProfileError(f"{name}: not {_WANTED}: it looks like {look}", hint=_HINT)


def _parse_json(text: str, name: str, beside: Beside) -> BenchmarkFile:
    document = _loaded(text, name)
    if isinstance(document, list):
        is_objects = bool(document) and isinstance(document[0], dict)
        held = f"objects with the keys {_keys(document[0])}" if is_objects else "values"
        raise _refusal(name, f"a list of {held} in JSON")
    benchmarks = document.get("benchmarks")
    if isinstance(benchmarks, list | dict):
        entries = list(benchmarks.values()) if isinstance(benchmarks, dict) else benchmarks
        if kind := _json_kind(document, [entry for entry in entries if isinstance(entry, dict)], beside):
            try:
                return kind(document)
            except ProfileError as error:
                raise ProfileError(f"{name}: {error}", hint=error.hint) from None
    raise _refusal(name, f"JSON with the keys {_keys(document)}" if document else "JSON that holds nothing")


def _loaded(text: str, name: str) -> Any:  # noqa: ANN401 - what json.loads returns
    """Parse JSON, also with the literals of google-benchmark that JSON has not; ProfileError with what is seen."""
    try:
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            with contextlib.suppress(json.JSONDecodeError):
                return json.loads(google.as_json(text))
            raise _syntax_error(error, text, name) from None
    except RecursionError:
        raise ProfileError(f"{name}: not JSON that can be read: nested too deeply", hint=_HINT) from None
    except ValueError as error:  # a number of too many digits
        raise ProfileError(f"{name}: not JSON that can be read: {error}", hint=_HINT) from None


def _syntax_error(error: json.JSONDecodeError, text: str, name: str) -> ProfileError:
    if error.msg == "Extra data":
        return _refusal(name, f"several JSON documents one after another: {text.lstrip().splitlines()[0][:40]}")
    if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated"):
        hint = "the file ends in the middle: run the benchmark to its end"
    else:
        hint = f"the text there: {text[error.pos :].splitlines()[0][:40].strip()}"
    return ProfileError(f"{name}: not JSON: {error}", hint=hint)


def _json_kind(document: Mapping[str, Any], entries: Sequence[Mapping[str, Any]], beside: Beside) -> _Parser | None:
    """Return the parser of the program that writes such entries; of a file without any, by what stands beside them."""
    parse_nvbench: _Parser = partial(nvbench.parse_json, beside=beside)
    first = {key for entry in entries for key in entry}  # a fit may come first, and has few of them
    kinds = (
        (parse_nvbench, "states" in first or ("meta" in document and not entries)),
        (pytest_benchmark.parse_json, "stats" in first or ("machine_info" in document and not entries)),
        (google.parse_json, bool({"real_time", "run_type", "iterations", "error_occurred"} & first)),
        (google.parse_json, "context" in document and not entries),
    )
    listed = isinstance(document["benchmarks"], list)
    return next((kind for kind, fits in kinds if fits and (listed or kind is parse_nvbench)), None)


def _keys(entry: Mapping[str, Any]) -> str:
    return ", ".join(list(entry)[:6]) + (", ..." if len(entry) > 6 else "")


def _parse_csv(text: str, name: str, declared: str) -> BenchmarkFile:
    lines = text.splitlines()
    below = google.header_line(lines)
    try:
        table = [row for row in csv.reader(lines[below or 0 :]) if row]
    except csv.Error as error:
        raise ProfileError(f"{name}: not CSV: {error}", hint=_HINT) from None
    header = [heading.strip() for heading in table[0]]
    if below is not None:
        parse_csv: _CsvParser = google.parse_csv
    elif nvbench.is_csv(header):
        parse_csv = nvbench.parse_csv
    elif triton.is_csv(header, table[1:]):
        parse_csv = triton.parse_csv
    else:
        raise _refusal(name, "text" if len(header) < 2 else f"CSV with the columns {', '.join(header[:6])}")
    rows = [row for row in table[1:] if len(row) == len(header)]
    if len(rows) < len(table) - 1:
        ragged = next(row for row in table[1:] if len(row) != len(header))
        cut = ragged is table[-1] and len(ragged) < len(header)
        raise ProfileError(
            f"{name}: a row has {len(ragged)} cells under {len(header)} headings: {','.join(ragged)[:60]}",
            hint="it is the last row: run the benchmark to its end" if cut else "a cell with a comma needs quotes",
        )
    if parse_csv is triton.parse_csv and declared != "triton_csv" and not triton.is_signed(header, rows):
        raise _refusal(name, f"a table of numbers without any sign that Triton wrote it: {', '.join(header[:6])}")
    found = parse_csv(header, rows)
    if text.endswith(("\n", "\r")):
        return found
    return replace(found, warnings=(*found.warnings, "the last row has no line break behind it: it may be cut off"))
