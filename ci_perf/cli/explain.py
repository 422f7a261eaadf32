"""`ci-perf explain`: why the cases of recorded runs, reports or traces became slower or faster."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from ci_perf import store
from ci_perf.cli.output import no_workflow_commands
from ci_perf.cli.two_files import Part, compare, titles
from ci_perf.cli.two_runs import compare_runs, is_run
from ci_perf.judge.causes import Explanation, explain_sides
from ci_perf.judge.causes import explain as explain_change
from ci_perf.judge.causes.of_readings import ratio_of
from ci_perf.judge.explained import at_line
from ci_perf.judge.finding import Finding
from ci_perf.judge.report import build_report
from ci_perf.render.explanations import explanation_document, explanation_lines
from ci_perf.values.errors import ConfigError, did_you_mean
from ci_perf.values.escape import clean, plain
from ci_perf.values.job import matches

_NO_BASE = "both sides are profiled in a run against a base: `ci-perf run --against REF`"
_NO_PROFILE = "causes need profiles of both sides, from a GPU with nsys or ncu: see the notes of `ci-perf report`"
_NO_CHANGE = "no change of its time or its host's work is to be explained"


@dataclass(frozen=True, slots=True)
class _Part:
    """A case or another part, what is said of its time, and why it changed."""

    name: str
    time: str
    found: Explanation | None
    notes: tuple[str, ...] = ()
    """What makes the explanation doubtful."""


@click.command("explain")
@click.argument("first", metavar="RUN|BASE", type=click.Path(path_type=Path))
@click.argument("second", metavar="[CASE|HEAD]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def explain(first: Path, second: str | None, as_json: bool) -> None:
    """Explain why cases became slower or faster: the causes, and the counters of both sides that matter.

    RUN is a run.json, its folder, or a zip that contains one; CASE is KERNEL or KERNEL/CASE, with wildcards. Or give
    two sides, BASE and HEAD: two ncu reports (.ncu-rep, or the CSV of the raw page), two traces (nsys's .sqlite or
    .nsys-rep, torch's .json), or two runs.
    """
    parts = list(_parts(first, second))
    if as_json:
        documents = [
            {"name": p.name, "time": p.time, **explanation_document(p.found), "notes": list(p.notes)} for p in parts
        ]
        click.echo(json.dumps(documents, indent=2, allow_nan=False))
        return
    with no_workflow_commands():
        for note in dict.fromkeys(note for part in parts for note in part.notes):
            click.echo(plain(clean(f"note: {note}", 600)))
        for part in parts:
            click.echo(plain(clean(f"{part.name}: {part.time}", 600)))
            for line in explanation_lines(part.found) if part.found else ():
                click.echo(f"  {plain(line)}".rstrip())


def _parts(first: Path, second: str | None) -> Iterator[_Part]:
    """Yield what there is to say of a run, of two runs or of two files of a profiler."""
    if second is None or not Path(second).exists():
        if first.is_file() and not is_run(first):
            what = f"{first}: one file, and no run" if second is None else f"{second}: no such file"
            raise ConfigError(what, hint="give the file of the head after that of the base")
        return _of_run(first, second)
    head = Path(second)
    runs = [path for path in (first, head) if is_run(path)]
    if len(runs) == 1 and first.exists():
        (other,) = {first, head} - {*runs}
        raise ConfigError(f"{runs[0]} is a run, and {other} is none", hint="give two runs, or two files of a profiler")
    return _of_sides(compare_runs(first, head) if runs else titles(compare(first, head, os.environ)))


def _of_sides(parts: Iterable[tuple[str, Part]]) -> Iterator[_Part]:
    for name, part in parts:
        sides = part.sides
        if sides.ratio == 1 and ratio_of(sides.base, sides.head) is None:
            yield _Part(name, "the time is not known of both sides", explain_change(sides), part.notes)
            continue
        found = explain_sides(sides)
        if found:
            found = at_line(found, part.base_lines, part.head_lines, sides.ratio)
        time = f"{sides.ratio:.3g} times as long"
        yield _Part(name, time if found else f"{time}, which is no change to explain", found, part.notes)


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
    missing = _NO_PROFILE if run.against else _NO_BASE
    if not explained:
        raise ConfigError(f"{path}: no case of this run is explained", hint=missing)
    profiled = {m.id for m in run.measurements if m.base_profile and m.base_profile.counters}
    for finding in explained:
        why = _NO_CHANGE if finding.id in profiled and not finding.verdict.is_change else missing
        yield _Part(finding.id, _verdict(finding, why), finding.explanation)


def _verdict(finding: Finding, unexplained: str) -> str:
    said = f"{finding.verdict}, {finding.sentence}"
    return said if finding.explanation else f"{said}; not explained: {unexplained}"
