"""Finds the reader for a file of a profiler or a benchmark, or says what the file looks like."""

import mmap
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ci_perf.measure import proc, tools
from ci_perf.traces import chrome, filetype, ncu, nsys
from ci_perf.traces.benchmarks import reader as benchmarks
from ci_perf.traces.document import Found
from ci_perf.traces.ncu.table import has_summary, has_table
from ci_perf.traces.timeline import Timeline
from ci_perf.values.errors import ProfileError

_EXPORT_TIMEOUT_S = 600.0
_NCU_SPEECH = re.compile(r"^==(?:PROF|ERROR|WARNING)==|ERR_NVGPUCTRPERM", re.MULTILINE)
_PRINTED = (
    (
        r"^\s*(?:Processing \[|Generating SQLite file|SKIPPED: |\*\* .+ \(.+\):)"
        r"|^\s*\"?(?:Time ?\(%\)|Start ?\([a-z]+\)|PID\"?,\"?TID\"?,\"?DevId)",
        "what `nsys stats` prints",
        "`nsys export --type sqlite REPORT` writes the file to inspect",
    ),
    (
        r"^={5,} COMPUTE-SANITIZER",
        "what compute-sanitizer prints",
        "`ci-perf run --sanitize memcheck` runs cases under it and reads what it finds",
    ),
    (
        r"^==\d+== NVPROF is profiling",
        "what nvprof prints",
        "nvprof knows no GPU after Volta: record with nsys, `nsys export --type sqlite REPORT`",
    ),
    (
        r"^(?:NVIDIA \(R\) Nsight Compute Command|NVIDIA Nsight Systems version)",
        "what a profiler says of its version",
        "name the file that it wrote",
    ),
    (
        r"^\"?ID\"?[;\t]\"?(?:Process ID|Kernel Name)",
        "ncu's table after a program for spreadsheets wrote it again, without commas between its cells",
        "`ncu --import REPORT --page raw --csv` prints it as it was",
    ),
    (
        r"^\s*Section: \w",
        "the pages that ncu prints for people",
        "`ncu --import REPORT --page raw --csv` prints the table to inspect; or give the .ncu-rep itself",
    ),
)
_CONSOLE = (
    (r"^# (?:Benchmark Results|Devices)$", "nvbench", "`--json FILE`"),
    (r"^Benchmark +Time +CPU +Iterations", "google-benchmark", "`--benchmark_out=FILE`"),
    (r"^-+ benchmark[: ].*-+$|^Name \(time in \w+\)", "pytest-benchmark", "`--benchmark-json=FILE`"),
)
"""What benchmarks print on a console; a file of results may follow."""


def read(path: Path, environ: Mapping[str, str]) -> Found:
    """Read a file of any known kind; one that holds nothing is a ProfileError that says what it looks like."""
    head = filetype.read_head(path)
    if head.startswith(filetype.SQLITE_MAGIC):
        return _trace(path)
    if head.startswith(filetype.NSYS_MAGIC):
        return _report(path, environ)
    if head.startswith(filetype.NCU_MAGIC):
        return _counters(path)
    if path.name.endswith(".json.gz") or _is_chrome_trace(path, head):
        return _chrome_trace(path)
    return _text(path, head)


def _trace(path: Path) -> Found:
    timeline = nsys.read_timeline(path)
    if timeline.holds_nothing and timeline.left_out:
        raise _unsound(path, timeline)
    if timeline.holds_nothing:
        raise ProfileError(
            f"{path}: it looks like an nsys export, but holds no kernel, no call, no range and no device",
            hint="did the capture range begin, and did the program use CUDA? record it again",
        )
    return timeline


def _unsound(path: Path, timeline: Timeline) -> ProfileError:
    return ProfileError(
        f"{path}: nothing in it was measured: {'; '.join(timeline.left_out)}",
        hint="was the profiler stopped before the GPU was done? record it again",
    )


def _is_chrome_trace(path: Path, head: bytes) -> bool:
    """Look for the key of the events; the text of a large trace is not loaded for that."""
    encoding = filetype.text_encoding(head)
    if encoding is None or head.decode(encoding, errors="replace").lstrip()[:1] != "{":
        return False
    key = '"traceEvents"'.encode(encoding.removesuffix("-sig"))[2 * (encoding == "utf-16") :]
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(key) >= 0


def _chrome_trace(path: Path) -> Found:
    timeline = chrome.read_trace(path).timeline
    if not timeline.uses_gpu and timeline.left_out:
        raise _unsound(path, timeline)
    if not timeline.uses_gpu:
        raise ProfileError(
            f"{path}: it looks like a Chrome trace, but holds no kernel and no CUDA call",
            hint="torch's profiler records them with ProfilerActivity.CUDA, where no other profiler holds CUPTI",
        )
    return timeline


def _report(path: Path, environ: Mapping[str, str]) -> Found:
    """Export the report to a temporary folder, where there is an nsys, and read the export."""
    with exported(path, environ) as database:
        return _trace(database)


@contextmanager
def exported(path: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """Export an nsys report to a temporary database, where there is an nsys; ProfileError."""
    found = [tool for tool in tools.find("nsys", environ) if tool.version]
    if not found:
        raise ProfileError(
            f"{path}: it looks like an nsys report, which only nsys can open, and there is none on this machine",
            hint=f"where nsys is: `nsys export --type sqlite {path.name}`, then inspect the .sqlite",
        )
    with tempfile.TemporaryDirectory(prefix="ci-perf-") as folder:
        database = Path(folder) / "trace.sqlite"
        done = proc.run(nsys.export_command(found[0].path, path, database), timeout_s=_EXPORT_TIMEOUT_S, env=environ)
        if done.status or not database.is_file():
            said = done.output.strip().splitlines()
            raise ProfileError(
                f"{path}: nsys {found[0].version} cannot export this report: {said[-1] if said else 'it said nothing'}",
                hint="a report needs an nsys at least as new as the one that wrote it",
            )
        yield database


def _text(path: Path, head: bytes) -> Found:
    """Read a table of ncu or a benchmark's results; ncu's own complaints come before what a benchmark lacks."""
    text = filetype.read_text(path, head)
    if path.suffix == ".ncu-rep" or has_table(text) or has_summary(text) or _NCU_SPEECH.search(text):
        del text  # the reader loads it again, line by line
        return _counters(path)
    for pattern, look, hint in _PRINTED:
        if re.search(pattern, text, re.MULTILINE):
            raise ProfileError(f"{path}: it looks like {look}, not like a file of a profiler", hint=hint)
    is_object = text.lstrip()[:1] == "{"
    if filetype.text_encoding(head) is None or (filetype.find_look(head) and not is_object):
        raise filetype.refusal(path, "a file of a profiler or a benchmark", head)
    try:
        return _benchmark(path)
    except ProfileError:
        for pattern, tool, option in _CONSOLE:
            if re.search(pattern, text, re.MULTILINE):
                look = f"it looks like what {tool} prints, not like a file of it"
                raise ProfileError(f"{path}: {look}", hint=f"{option} writes one") from None
        raise


def _counters(path: Path) -> Found:
    counters = ncu.read(path)
    if all(reading.value is None for launch in counters.launches for reading in launch.metrics.values()):
        readings = [reading for launch in counters.launches for reading in launch.metrics.values()]
        why = ", ".join(dict.fromkeys(reading.reason for reading in readings if reading.reason)) or "no metrics"
        empty = f"none of its {len(counters.launches)} launches has a value: {why}"
        raise ProfileError(
            f"{path}: it looks like what ncu wrote, but {empty}",
            hint="were the counters permitted, and the metrics known to this ncu and GPU? `ci-perf doctor` looks",
        )
    return counters


def _benchmark(path: Path) -> Found:
    found = benchmarks.read(path)
    if all(case.skipped for case in found.cases):
        first = found.cases[0]
        raise ProfileError(
            f"{path}: it looks like a file of {found.kind}, but no result in it has a value; "
            f"the first, {first}: {first.skipped}",
            hint="the output of the benchmark may say more",
        )
    return found
