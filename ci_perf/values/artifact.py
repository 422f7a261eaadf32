"""The files of the artifact folder: the one list by which they are described, cleared, admitted and uploaded."""

from collections.abc import Mapping

FILES: Mapping[str, str] = {
    "index.md": "the list of these files",
    "report.md": "**open this first**: verdicts, changes and their causes",
    "report.html": "the report as a page with charts, a table to sort and filter; one file, for any browser",
    "key_metrics.csv": "every number of the report, with counters and timeline, in base units, for a spreadsheet",
    "run.json": "all measurements; `ci-perf replay` makes the report from it on any machine",
    "run.jsonl": "the measurements of a run that is not finished or was killed, one line for each step",
    "baseline.patch": "the change that `ci-perf baseline accept` would make, for `git apply`; from `ci-perf publish`",
    "nsys_summary.txt": "the timeline as text: GPU kernels and host overhead",
    "timeline.nsys-rep": "the timeline for Nsight Systems (`nsys-ui timeline.nsys-rep`)",
    "timeline.sqlite": "the timeline as a database, without the environments that nsys records",
    "traces/": "the timelines of programs: the last run of each case; with `--against`, `@base` is the base's",
    "timeline.trace.json": "the timeline of torch's profiler; https://ui.perfetto.dev opens it",
    "kernels.ncu-rep": "the counters for Nsight Compute (`ncu-ui kernels.ncu-rep`)",
    "timeline-base.nsys-rep": "with `--against`, the base's timeline of cases that changed or have other files",
    "timeline-base.sqlite": "the base's timeline as a database",
    "timeline-base.trace.json": "the base's timeline of torch's profiler",
    "explain.ncu-rep": "the counters that explain what became slower or faster; without a base, all there are",
    "explain-base.ncu-rep": "the same counters of the base, with `--against`",
    "sass/": "how the machine code of each changed case differs from the base's, instruction by instruction",
    "counters/": "the counters of programs for Nsight Compute, one report for each case",
    "smoke.txt": "the error of each output against its reference",
    "env.txt": "devices and versions; no environment variables",
    "benchmarks/": "the last result file of each benchmark program",
    "logs/": "the output of kernels and profilers, by stage",
}
"""What each file is, and each folder of files. The names are a promise: scripts may rely on them. Files of a tool that
did not run are not there."""


def is_listed(name: str) -> bool:
    """Say whether a file, by its path in the artifact folder, is one that ci-perf writes.

    >>> is_listed("logs/nsys.log"), is_listed("nsys.log")
    (True, False)
    """
    return any(name == listed or (listed.endswith("/") and name.startswith(listed)) for listed in FILES)


def listed_paths(folder: str) -> tuple[str, ...]:
    """Return where the listed files and folders of an artifact folder are, for an upload of these alone."""
    return tuple(f"{folder}/{listed}" for listed in FILES)
