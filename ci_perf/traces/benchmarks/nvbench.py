"""nvbench's JSON and CSV: a state is a benchmark with one value of each axis, its summaries are looked up by tag.

With `--jsonbin` nvbench writes the samples of each state to a file of their own, `X.json-bin/0.bin` beside `X.json`:
float32, little-endian, in seconds. They stand in place of the mean that the JSON has. Where nvbench could not write the
file, the summary has neither its name nor its size.
"""

import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import PureWindowsPath
from typing import Any

from ci_perf.traces.benchmarks.results import BenchmarkCase, BenchmarkFile, Scalar, measured, number, scalar
from ci_perf.values.errors import ProfileError

Beside = Callable[[str, str], bytes | None]
"""Returns the content of a file, named by its folder and its name, beside the JSON; None: it is not there.

Both names are empty where nvbench could not write the file.
"""
UNWRITTEN = ""
"""In place of the name of such a file."""

_TIME: tuple[str, str | None] = ("s", "lower")
# metric: (unit and direction, tags, names in files without tags and headings of the CSV)
_METRICS: Mapping[str, tuple[tuple[str, str | None], tuple[str, ...], tuple[str, ...]]] = {
    "gpu_time": (_TIME, ("nv/cold/time/gpu/mean",), ("GPU Time", "GPU Time (sec)")),
    "cpu_time": (_TIME, ("nv/cold/time/cpu/mean", "nv/cpu_only/time/cpu/mean"), ("CPU Time", "CPU Time (sec)")),
    "batch_gpu_time": (_TIME, ("nv/batch/time/gpu/mean",), ("Batch GPU", "Batch GPU (sec)")),
    "item_rate": (("item/s", "higher"), ("nv/cold/bw/item_rate",), ("Elem/s", "Elem/s (elem/sec)")),
    "bandwidth": (
        ("byte/s", "higher"),
        ("nv/cold/bw/global/bytes_per_second",),
        ("GlobalMem BW", "GlobalMem BW (bytes/sec)"),
    ),
}
_TESTED_MAJOR = 1
"""The newest version of the JSON layout that this module was tried on."""
_SAMPLES = "nv/json/bin:"
"""Begins the tag of a summary that names a file of samples; there follows the tag of what was sampled."""
_SAMPLED: Mapping[str, str] = {"nv/cpu_only/": "cpu_time", "": "gpu_time"}


def parse_json(document: Mapping[str, Any], beside: Beside) -> BenchmarkFile:
    """Read a parsed JSON file, and the samples beside it where it names any.

    Samples that are not there leave the mean in their place, with a warning; damaged ones are a ProfileError.
    """
    cases: list[BenchmarkCase] = []
    missing: dict[str, None] = {}
    for benchmark in _listed(document["benchmarks"]):
        for state in _listed(benchmark.get("states")):
            cases += _state(str(benchmark.get("name", "?")), state, _samples(state, beside, missing))
    warnings = (*_version_warnings(document), *_missing_warnings(missing))
    return BenchmarkFile("nvbench-json", tuple(cases), warnings)


def _missing_warnings(missing: Collection[str]) -> Iterator[str]:
    if UNWRITTEN in missing:
        yield "nvbench could not write all samples, so means are used: its own output says why"
    if names := [name for name in missing if name != UNWRITTEN]:
        listed = names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
        yield (
            f"the samples are not next to the file ({listed}), so the means are used: copy the folder too, "
            "under its own name"
        )


def _samples(state: Mapping[str, Any], beside: Beside, missing: dict[str, None]) -> dict[str, list[float]]:
    """Return the samples of a state by metric; the names of files that are not there go into `missing`."""
    found: dict[str, list[float]] = {}
    for summary in _listed(state.get("summaries")):
        tag = str(summary.get("tag", ""))
        if not tag.startswith(_SAMPLES):
            continue
        place = PureWindowsPath(str(_datum(summary, "filename") or ""))  # it splits at both kinds of slash
        name = f"{place.parent.name}/{place.name}" if place.name else UNWRITTEN
        content = beside(place.parent.name, place.name)
        if content is None:
            missing[name] = None
            continue
        expected = number(_datum(summary, "size"))
        if not content or len(content) % 4 or (expected is not None and len(content) != 4 * expected):
            raise ProfileError(
                f"{name}: {len(content)} bytes, but the JSON names {expected:.0f} samples of 4 bytes each"
                if expected is not None
                else f"{name}: {len(content)} bytes are not samples of 4 bytes each",
                hint="the file was cut off, or belongs to another run: copy the JSON and its folder together",
            )
        metric = next(metric for start, metric in _SAMPLED.items() if tag.startswith(_SAMPLES + start))
        # Nine digits are all that a float32 has.
        found[metric] = [float(f"{value:.9g}") for (value,) in struct.iter_unpack("<f", content)]
    return found


def _version_warnings(document: Mapping[str, Any]) -> Iterator[str]:
    meta = document.get("meta")
    version = meta.get("version", {}) if isinstance(meta, Mapping) else {}
    layout = version.get("json", {}) if isinstance(version, Mapping) else {}
    if not isinstance(layout, Mapping) or "major" not in layout:
        yield "the file does not say which version of nvbench's layout it has"
    elif (number(layout["major"]) or 0) > _TESTED_MAJOR:
        yield f"layout {layout.get('string', layout['major'])} is newer than any this reader was tried on"


def _listed(value: object) -> list[dict[str, Any]]:
    """Return objects as a list; the first layouts kept them in an object under their names."""
    if isinstance(value, Mapping):
        return [{"name": name, **entry} for name, entry in value.items() if isinstance(entry, Mapping)]
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _state(name: str, state: Mapping[str, Any], samples: dict[str, list[float]]) -> Iterator[BenchmarkCase]:
    params = {str(axis.get("name", "?")): scalar(axis.get("value", "")) for axis in _listed(state.get("axis_values"))}
    if "device" in state and state["device"] is not None:
        params["device"] = scalar(state["device"])
    skipped = str(state.get("skip_reason") or "skipped without a reason") if state.get("is_skipped") else ""
    found = {metric: [value] for summary in _listed(state.get("summaries")) for metric, value in _summary(summary)}
    return _cases(name, params, found | samples, skipped, "the state has no summary of a time or a rate")


def _cases(
    name: str, params: Mapping[str, Scalar], found: Mapping[str, list[float]], skipped: str, nothing: str
) -> Iterator[BenchmarkCase]:
    """Yield a case for each metric, or one that says why there is none."""
    if skipped or not found:
        yield BenchmarkCase(name, params, "gpu_time", *_TIME, (), skipped or nothing)
        return
    for metric in (m for m in _METRICS if m in found):
        yield measured(name, params, metric, _METRICS[metric][0], found[metric])


def _summary(summary: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Return the metric that a summary is and its value; most summaries are none."""
    tag = summary.get("tag")
    names = [tag] if tag else [_datum(summary, "short_name"), summary.get("name")]
    for metric, (_, tags, headings) in _METRICS.items():
        value = number(_datum(summary, "value"))
        if value is not None and any(name in (*tags, *headings) for name in names):
            yield metric, value


def _datum(summary: Mapping[str, Any], name: str) -> object:
    """Return a named value: an entry of `data`, or, in the first layouts, of the summary itself."""
    entry = next((e for e in _listed(summary.get("data")) if e.get("name") == name), summary.get(name))
    return entry.get("value") if isinstance(entry, Mapping) else entry


def is_csv(header: Sequence[str]) -> bool:
    """Tell whether these are the headings of nvbench's CSV."""
    return header[:1] == ["Benchmark"] and "Skipped" in header


def parse_csv(header: Sequence[str], rows: Iterable[Sequence[str]]) -> BenchmarkFile:
    """Read the rows of a CSV by place: two of its headings occur twice."""
    end = header.index("Skipped")
    axes = {
        place: heading
        for place, heading in enumerate(header[:end])
        if place and heading not in ("Device", "Device Name") and not heading.endswith(" (pow2)")
    }
    columns = {
        metric: place
        for metric, (_, _, headings) in _METRICS.items()
        for place, heading in enumerate(header)
        if heading in headings
    }
    cases: list[BenchmarkCase] = []
    for row in rows:
        params: dict[str, Scalar] = {heading: scalar(row[place]) for place, heading in axes.items() if row[place]}
        if "Device" in header[:end]:
            params["device"] = scalar(row[header.index("Device")])
        found = {metric: [value] for metric, at in columns.items() if (value := number(row[at])) is not None}
        skipped = {"": "", "No": "", "Yes": "skipped"}.get(row[end], f"skipped: {row[end]}")
        cases += _cases(row[0], params, found, skipped, "the row has no time or rate in a unit that is known")
    return BenchmarkFile("nvbench-csv", tuple(cases))
