"""Nsight Systems: its commands, and its errors as diagnoses."""

from collections.abc import Sequence
from pathlib import Path, PurePath

from ci_perf.traces import diagnosis
from ci_perf.traces.diagnosis import Diagnosis, Symptom
from ci_perf.traces.timeline import Timeline


def command(nsys: str, target: Sequence[str], *, report: PurePath) -> tuple[str, ...]:
    """Return the command that traces CUDA and NVTX of `target` into `report`, without samples of the CPU."""
    return (
        *(nsys, "profile", "-t", "cuda,nvtx", "-s", "none", "--cpuctxsw=none"),
        "--cuda-graph-trace=node",  # the default hides every kernel of a graph behind one row
        *("--force-overwrite=true", "-o", str(report), *target),
    )


def export_command(nsys: str, report: PurePath, sqlite: PurePath) -> tuple[str, ...]:
    """Return the command that exports a report to the database that `read_timeline` reads."""
    return (nsys, "export", "--type", "sqlite", "--force-overwrite", "true", "--output", str(sqlite), str(report))


def read_timeline(path: Path) -> Timeline:
    """Read an nsys export; a trace without kernels is a timeline whose `warnings` say why, not an error."""
    from ci_perf.traces.nsys import reader  # numpy takes a tenth of a second

    return reader.read(path)


_SYMPTOMS = (
    Symptom(
        "other-profiler",
        r"MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED|CUPTI_ERROR_MAX_LIMIT_REACHED",
        "another profiler in the traced program holds CUPTI, so nsys got no or only part of the events",
        "switch off torch.profiler, proton or any other CUPTI user in the traced program",
    ),
    Symptom(
        "bad-option",
        r"^.*unrecogni[sz]ed (?:option|argument).*$",
        "nsys refused its command line: {0}",
        "this nsys may be too old for the option; see `nsys --version`",
    ),
    Symptom(
        "importer-missing",
        # nsys prints the .qdstrm file in every run, but a healthy one goes on to the .nsys-rep.
        r"\A(?![\s\S]*\.nsys-rep)(?![\s\S]*\.qdrep)[\s\S]*\.qdstrm",
        "nsys recorded a raw .qdstrm file but could not turn it into a report: its importer is missing or broken",
        "install the whole nsight-systems package, or the libraries that its QdstrmImporter lacks (often libdw1)",
    ),
    Symptom(
        "no-cuda-data",
        r"does not contain (?:CUDA kernel|CUDA trace|GPU trace) data|No CUDA events collected",
        "nsys ran to its end, but the trace holds no CUDA kernel",
        "did the program launch kernels, and did the capture range begin? a program that forks needs `spawn` instead",
    ),
    Symptom(
        "nothing-recorded",
        r"^Generated:\s*\Z|No reports were generated",
        "nsys wrote no report",
        "the capture range never began, or the program ended before it",
    ),
    Symptom(
        "target-failed",
        r"target application (?:terminated|returned|exited) (?:with|non-zero)[^\n]*",
        "the traced program failed: {0}",
        "fix the program first: run it without nsys",
    ),
)


def diagnose(output: str) -> Diagnosis | None:
    """Name the failure that nsys's printed output shows; its exit status is 0 for most of them."""
    return diagnosis.match(_SYMPTOMS, output)
