"""Selects the one metric of a benchmark file that a kernel.toml names, in base units and with its direction."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ci_perf.traces.benchmarks.results import MAIN_METRIC, BenchmarkCase, BenchmarkFile, scaled, select
from ci_perf.values.base_unit import base_unit
from ci_perf.values.errors import ProfileError
from ci_perf.values.kernel import Params, Program
from ci_perf.values.program import fill

_WRITES: Mapping[str, tuple[str, ...]] = {
    "nvbench": ("nvbench-json", "nvbench-csv"),
    "google_benchmark": ("google-benchmark", "google-benchmark-csv"),
    "pytest_benchmark": ("pytest-benchmark",),
    "triton_csv": ("triton-csv",),
}


MOST_SAMPLES = 1000
"""Of a benchmark that keeps more, every so many-th is taken: their median is as good, and a run stays readable."""


class NoNumber(ProfileError):
    """The file does not hold the number that was asked of it; `code` is that of a Failure."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Chosen:
    """The samples of one run of a benchmark."""

    values: tuple[float, ...]
    method: str
    """The kind of file, the metric where it is not the one that the kind is about, and whether it has samples."""
    unit: str
    better: str


def choose(found: BenchmarkFile, program: Program, params: Params) -> Chosen:
    """Return the selected metric; no match, several matches and an unknown unit are errors (NoNumber)."""
    if found.kind not in _WRITES[program.kind]:
        raise NoNumber("wrong-format", f"kernel.toml promises `{program.kind}`, but the program wrote {found.kind}")
    case = _find(found, program, params)
    unit, factor, better = _unit(case, program)
    step = -(-len(case.values) // MOST_SAMPLES)
    values = tuple(scaled(value, factor) for value in case.values[:: step or 1])
    if any(value < 0 or not math.isfinite(value) for value in values):
        raise NoNumber("wrong-format", f"{case} holds a value that is negative or not finite")
    method = found.kind if case.metric == MAIN_METRIC[found.kind] else f"{found.kind}/{case.metric}"
    if found.kind == "nvbench-json" and len(values) > 1:
        method += "/samples"  # their median is not the mean that the file has without them
    return Chosen(values, method, unit, better)


def _find(found: BenchmarkFile, program: Program, params: Params) -> BenchmarkCase:
    pattern = fill(program.benchmark, params) or "*"
    metric = program.metric or MAIN_METRIC[found.kind]
    fitting = select(found.cases, params, lambda name: name == pattern or fnmatchcase(name, pattern), metric)
    if not fitting:
        raise NoNumber(
            "no-benchmark",
            f"no `{metric}` of a benchmark `{pattern}` has this case's parameters; the file holds {_some(found.cases)}",
        )
    if len(fitting) > 1:
        raise NoNumber(
            "no-benchmark",
            f"{len(fitting)} benchmarks of the file fit, expected one: {_some(fitting)}; tell them apart by the key "
            "`benchmark` or by parameters",
        )
    if fitting[0].skipped:
        raise NoNumber("skipped", f"{fitting[0]}: {fitting[0].skipped}")
    return fitting[0]


def _some(cases: Sequence[BenchmarkCase]) -> str:
    return "; ".join(str(case)[:80] for case in cases[:4]) + ("; ..." if len(cases) > 4 else "")


def _unit(case: BenchmarkCase, program: Program) -> tuple[str, float, str]:
    """Return base unit, factor and direction: from the file, else from kernel.toml; they must not contradict."""
    said = base_unit(program.unit) if program.unit else None
    for what, file, toml in (("unit", case.unit, said and said[0]), ("better", case.better, program.better)):
        if file and toml and file != toml:
            raise NoNumber("wrong-format", f"key `{what}` of kernel.toml says {toml}, the file says {file}")
        if not file and not toml:
            raise NoNumber("wrong-format", f"the file does not say the {what} of {case}: set `{what}` in kernel.toml")
    unit, factor = (case.unit, 1.0) if case.unit or said is None else said
    return unit, factor, case.better or program.better
