"""`ci-perf explain`: why two sides that are on disk take another time."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from ci_perf import store
from ci_perf.cli.output import no_workflow_commands
from ci_perf.cli.two_files import compare, titles
from ci_perf.judge.causes import Explanation, explain_sides
from ci_perf.judge.causes.sides import Sides
from ci_perf.judge.finding import Finding
from ci_perf.judge.report import build_report
from ci_perf.render.explanations import explanation_document, explanation_lines
from ci_perf.values.errors import ConfigError, did_you_mean
from ci_perf.values.escape import clean
from ci_perf.values.job import matches

_RUNS = (".json", ".jsonl", ".zip")
_NO_BASE = "both sides are profiled in a run against a base: `ci-perf run --against REF`"
_NO_CHANGE = "no change of its time or its host's work is to be explained"


@dataclass(frozen=True, slots=True)
class _Part:
    """A case or another part, what is said of its time, and why it changed."""

    name: str
    time: str
    found: Explanation | None


@click.command("explain")
@click.argument("first", metavar="RUN|BASE", type=click.Path(path_type=Path))
@click.argument("second", metavar="[CASE|HEAD]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def explain(first: Path, second: str | None, as_json: bool) -> None:
    """Explain why cases became slower or faster: the causes, and the counters of both sides that matter.

    RUN is a run.json, its folder, or a zip that contains one; CASE is KERNEL or KERNEL/CASE, with wildcards. Or give
    two files of a profiler, BASE and HEAD: two ncu reports (.ncu-rep, or the CSV of the raw page), or two traces
    (nsys's .sqlite or .nsys-rep, torch's .json).
    """
    parts = list(_of_files(first, second) if _is_profile(first, second) else _of_run(first, second))
    if as_json:
        documents = [{"name": p.name, "time": p.time, **explanation_document(p.found)} for p in parts]
        click.echo(json.dumps(documents, indent=2, allow_nan=False))
        return
    with no_workflow_commands():
        for part in parts:
            click.echo(clean(f"{part.name}: {part.time}", 600))
            for line in explanation_lines(part.found) if part.found else ():
                click.echo(f"  {line}".rstrip())


def _is_profile(first: Path, second: str | None) -> bool:
    """Say whether the first argument is a file of a profiler and no run: by its name, or by a second file."""
    return (first.is_file() and first.suffix not in _RUNS) or (second is not None and Path(second).is_file())


def _of_files(base: Path, head: str | None) -> Iterator[_Part]:
    if head is None:
        raise ConfigError(f"{base}: one file of a profiler", hint="name that of the head after it")
    for name, sides in titles(compare(base, Path(head), os.environ)):
        found = explain_sides(sides)
        yield _Part(name, _time(sides) + ("" if found else ", which is no change to explain"), found)


def _time(sides: Sides) -> str:
    return f"{sides.ratio:.3g} times as long"


def _of_run(path: Path, case: str | None) -> Iterator[_Part]:
    """Yield each case that the pattern matches, and each explained one without a pattern; ConfigError for no match."""
    run = store.read_run(path)
    findings = [row.finding for row in build_report(run).rows]
    chosen = [finding for finding in findings if case is None or matches(finding.id, case)]
    if case is not None and not chosen:
        names = [finding.id for finding in findings]
        hint = did_you_mean(case, names) or "`ci-perf report` lists the cases of the run"
        raise ConfigError(f"{path}: no case matches `{case}`, and there is no such file", hint=hint)
    explained = [finding for finding in chosen if finding.explanation or case is not None]
    if not explained:
        raise ConfigError(f"{path}: no case of this run is explained", hint=_NO_BASE)
    profiled = {m.id for m in run.measurements if m.base_profile and m.base_profile.counters}
    for finding in explained:
        why = _NO_CHANGE if finding.id in profiled and not finding.verdict.is_change else _NO_BASE
        yield _Part(finding.id, _verdict(finding, why), finding.explanation)


def _verdict(finding: Finding, unexplained: str) -> str:
    said = f"{finding.verdict}, {finding.sentence}"
    return said if finding.explanation else f"{said}; not explained: {unexplained}"
