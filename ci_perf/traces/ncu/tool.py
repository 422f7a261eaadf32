"""Nsight Compute: its commands, the reader of its files, and its errors as diagnoses."""

import csv
import re
from collections.abc import Sequence
from pathlib import Path, PurePath

from ci_perf.traces import diagnosis, filetype
from ci_perf.traces.diagnosis import Diagnosis, Symptom
from ci_perf.traces.ncu import csv_table
from ci_perf.traces.ncu import report_file as ncu_report_file
from ci_perf.traces.ncu.counters import Counters
from ci_perf.traces.ncu.table import has_summary, has_table
from ci_perf.values.errors import ProfileError


def command(
    ncu: str,
    target: Sequence[str],
    *,
    metrics: Sequence[str],
    report: PurePath,
    full: bool = False,
    lines: bool = False,
) -> tuple[str, ...]:
    """Return the command that profiles every launch between cudaProfilerStart and Stop in `target`.

    Only the metrics named are collected: a set costs a replay for each few metrics in it. `full` adds ncu's largest,
    `lines` samples of warps by instruction.
    """
    return (ncu, *_common(metrics, report, full=full, lines=lines), "--profile-from-start", "off", *target)


def program_command(
    ncu: str,
    target: Sequence[str],
    *,
    metrics: Sequence[str],
    report: PurePath,
    functions: Sequence[str],
    ranges: Sequence[str],
    launches: int,
    full: bool = False,
    lines: bool = False,
) -> tuple[str, ...]:
    """Return the command that profiles the first launches of any program, of those that pass its filters.

    `functions` are names of GPU kernels without namespace, template and parameters; `ranges` are whole names of NVTX
    ranges, `domain@name` outside the default domain. Either may be empty: then all pass.
    """
    filters = ["--launch-count", str(launches)]
    if functions:
        filters += ["--kernel-name", f"regex:^({'|'.join(map(re.escape, functions))})$"]
    for name in ranges:
        # A name alone is that of a start/end range, with a slash that of a push/pop range; nsys does not say which.
        filters += ["--nvtx-include", _nvtx(name), "--nvtx-include", f"{_nvtx(name)}/"]
    return (ncu, *_common(metrics, report, full=full, lines=lines), *filters, *target)


def _nvtx(name: str) -> str:
    r"""Write the name of a range so that ncu takes no character of it for an operator.

    >>> print(_nvtx("solver@step [1/2]"))
    solver@step \[1\/2\]
    """
    return re.sub(r"[\[\]/*+,]", r"\\\g<0>", name)


def _common(metrics: Sequence[str], report: PurePath, *, full: bool, lines: bool) -> tuple[str, ...]:
    if not metrics:
        raise ValueError("ncu collects its default set if no metric is named")
    more = (*(("--set", "full") if full else ()), *(("--section", "SourceCounters") if lines else ()))
    return (
        # MIG refuses to lock the clocks, and counters of locked clocks do not fit the times beside them
        *("--target-processes", "all", "--clock-control", "none", "--nvtx", "--force-overwrite"),
        *("--export", str(report), *more, "--metrics", ",".join(metrics)),
    )


def read(path: Path) -> Counters:
    """Read a .ncu-rep file, or the CSV of the raw or the details page, also inside a log of ncu's whole output."""
    head = filetype.read_head(path)
    if head.startswith(filetype.NCU_MAGIC):
        return ncu_report_file.read(path)
    if path.suffix == ".ncu-rep":
        raise filetype.refusal(path, "an ncu report", head)
    text = filetype.read_text(path, head)
    if (filetype.text_encoding(head) is None or filetype.find_look(head)) and not has_table(
        text
    ):  # programs may print anything
        raise filetype.refusal(path, "an ncu report", head)
    try:
        return parse(text)
    except ProfileError as error:
        raise ProfileError(f"{path}: {error}", hint=error.hint) from None


def parse(text: str) -> Counters:
    """Read the counters out of what `ncu --csv` printed."""
    if has_table(text):
        return csv_table.parse(text)
    if has_summary(text):
        raise ProfileError(
            "ncu's summary over launches (--print-summary), which holds no single launch",
            hint="`ncu --import REPORT --page raw --csv` without --print-summary prints each launch",
        )
    if problem := diagnose(text):
        raise ProfileError(f"no counters: {problem.message}", hint=problem.hint)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if "==PROF==" in text or "Metric Value" in text:
        raise ProfileError(
            f"no counters: ncu's output has no table, it ends with {lines[-1][:100]!r}",
            hint="ncu was cut off, or ran without --csv; `ncu --import REPORT --page raw --csv` prints the table",
        )
    columns = next(csv.reader(lines[:1]), [])
    if len(columns) >= 3:
        raise ProfileError(
            f"a table, but not one of ncu: no column ID and Kernel Name, but {', '.join(columns[:4])}, ...",
            hint="`ncu --import REPORT --page raw --csv` prints ncu's own",
        )
    raise ProfileError("neither an ncu report nor its CSV", hint="is this the file that ncu wrote?")


_SYMPTOMS = (
    Symptom(
        "no-permission",
        r"ERR_NVGPUCTRPERM",
        "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM)",
        "set NVreg_RestrictProfilingToAdminUsers=0 for the nvidia module, or give the container CAP_SYS_ADMIN or "
        "CAP_PERFMON; on WSL2 allow it in the Windows control panel. Times and nsys need no such permission",
    ),
    Symptom(
        "counters-busy",
        r"driver resource was unavailable|no other tool \(like DCGM\)|MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED|"
        r"(?:profiler|hardware)(?: is)? (?:in use|busy)",
        "another profiler or monitor (often DCGM) holds the GPU's counters",
        "stop it for the time of the run: `dcgmi profile --pause`, later `--resume`; no other profiler in the program",
    ),
    Symptom(
        "mig-clocks",
        r"Cannot lock GPU clock frequencies on MIG",
        "ncu cannot lock the clocks of a MIG instance",
        "profile with `--clock-control none`",
    ),
    Symptom(
        "driver-incompatible",
        r"driver is not compatible|LibraryNotLoaded|Profiling is not supported on (?:device|this)|"
        r"Failed to load Nsight Compute CUDA modules|Invalid chip|Unknown Error on device",
        "this ncu, the driver and the GPU are not compatible ({0})",
        "use the ncu of the CUDA toolkit that matches the driver; `ci-perf doctor` shows the versions",
    ),
    Symptom(
        "bad-option",
        r"==ERROR==\s*(unrecogni[sz]ed option .*?)(?:\. Use --help.*)?$",
        "ncu refused its command line: {1}",
        "this ncu may be too old for the option; see `ncu --version`",
    ),
    Symptom(
        "unknown-metric",
        r"Failed to find metric (.*)$",
        "this ncu does not know the metric {1}",
        "`ncu --query-metrics` lists the names for this GPU",
    ),
    Symptom(
        "no-metrics",
        r"No metrics to collect found in sections",
        "ncu found no metric to collect, so its report has launches without counters",
        "the set or section may be unknown to this ncu, its section files missing, or the GPU too new for it",
    ),
    Symptom(
        "target-crashed",
        r"terminated before first instrumented API call|(?:application|process) (?:crashed|was terminated)|"
        r"returned an error code \((?:13[0-9]|14[0-9]|-\d+|3221\d+)\)",
        "the profiled program crashed ({0})",
        "fix the program first: run it without ncu",
    ),
    Symptom(
        "kernel-failed",
        r"==ERROR==\s*(LaunchFailed.*|Failed to (?:profile|prepare) .*)$",
        "a kernel failed while ncu profiled it, and the report ends there: {1}",
        "run the program under compute-sanitizer; kernels that wait for another process cannot be replayed",
    ),
    Symptom(
        "application-error",
        r"application returned an error code \((\d+)\)",
        "the profiled program ended with code {1}",
        "codes 9 and 15 mean that ncu killed it; otherwise fix the program first: run it without ncu",
    ),
    Symptom(
        "no-kernels",
        r"No kernels were profiled",
        "ncu profiled no kernel",
        "did the program launch one between cudaProfilerStart and Stop, in this process or a child, and end normally?",
    ),
    Symptom("other", r"==ERROR==\s*(.+)$", "ncu failed: {1}", "its whole output may say more"),
)


def diagnose(output: str) -> Diagnosis | None:
    """Name the failure that ncu's printed output shows; a report may exist all the same."""
    return diagnosis.match(_SYMPTOMS, output)
