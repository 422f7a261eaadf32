"""The small text files of the artifact folder: index, verification, environment, and the timeline."""

from collections.abc import Iterable, Mapping

from tabulate import tabulate

from ci_perf.judge.report import Report
from ci_perf.render import cells
from ci_perf.values.artifact import FILES
from ci_perf.values.escape import clean, prose
from ci_perf.values.measurement import Measurement
from ci_perf.values.quantity import duration, percent


def render_index(report: Report, sizes: Mapping[str, int]) -> str:
    """Return the page that lists the files of the folder, given the size of each file in bytes."""
    shown = {name: _size_of(name, sizes) for name in FILES}
    lines = [
        (f"[{name}]({name})", meaning, "" if name == "index.md" else _size(shown[name] or 0))
        for name, meaning in FILES.items()
        if shown[name] is not None or name == "index.md"
    ]
    withheld = [f"- {prose(note.message)}" for note in report.notes if note.code == "withheld"]
    parts = [
        f"# ci-perf: {report.headline}",
        prose(cells.comparison(report)),
        "Open [report.md](report.md) first.",
        tabulate(lines, headers=("file", "what it is", "size"), tablefmt="pipe", colalign=("left", "left", "right")),
    ]
    if withheld:
        parts += ["## Withheld", "\n".join(withheld)]
    return "\n\n".join(parts) + "\n"


def _size_of(name: str, sizes: Mapping[str, int]) -> int | None:
    """Return the size of a file, or of all files of a folder (`logs/`); None if there is none."""
    found = [size for file, size in sizes.items() if file == name or (name.endswith("/") and file.startswith(name))]
    return sum(found) if found else None


def _size(size: int) -> str:
    """Write a number of bytes.

    >>> _size(12), _size(65536), _size(3 << 20)
    ('12 B', '64 KiB', '3.0 MiB')
    """
    if size < 1 << 10:
        return f"{size} B"
    return f"{size / (1 << 10):.0f} KiB" if size < 1 << 20 else f"{size / (1 << 20):.1f} MiB"


def render_environment(report: Report) -> str:
    """Return devices and versions, one on each line."""
    return "".join(f"{name}: {clean(value, 400)}\n" for name, value in cells.environment(report))


def render_smoke(report: Report) -> str:
    """Return the comparison of each output with its reference, one case on each line."""
    return "".join(f"{_verified(measurement)}\n" for measurement in _measurements(report))


def _verified(measurement: Measurement) -> str:
    case = f"{clean(measurement.id)} on {measurement.device}"
    failure, verification = measurement.failure, measurement.verification
    if failure is not None and failure.stage == "verify":
        return f"FAILED   {case}: {failure.code}: {clean(failure.message, 400)}"
    if verification is None:
        return f"NOT RUN  {case}"
    if verification.checked == "reference":
        return f"PASSED   {case}: the reference itself ran and is finite"
    return f"PASSED   {case}: largest error {verification.error:.3g}, allowed {verification.tolerance:.3g}"


def render_timeline(report: Report) -> str:
    """Return the kernels and metrics of each case; empty if nothing was traced."""
    parts = []
    for measurement in _measurements(report):
        if measurement.timeline is None:
            continue
        timeline = measurement.timeline
        parts.append(f"{clean(measurement.id)}: {timeline.launches} launches, traced by {timeline.source}\n")
        rows = [
            (
                str(kernel.count),
                duration(kernel.median_ns / 1e9),
                duration(kernel.total_ns / 1e9),
                percent(kernel.total_ns / max(1, sum(k.total_ns for k in timeline.kernels))),
                clean(kernel.name, 160),
            )
            for kernel in timeline.kernels
        ]
        parts.append(_table(("count", "median", "total", "share", "GPU kernel"), rows, 4))
        ranges = [
            (str(part.count), duration(part.seconds), clean(part.name, 160))
            for part in measurement.parts
            if part.kind == "range"
        ]
        parts.append(_table(("count", "total", "NVTX range"), ranges, 2))
        parts.append(_table(cells.TIMELINE, cells.timeline(timeline.metrics), 2, first="left"))
    if report.trace:
        parts.append("the whole trace, warm-up and compilation included\n")
        parts.append(_table(cells.TIMELINE, cells.timeline(report.trace), 2, first="left"))
    return "\n".join(part for part in parts if part)


def _table(header: Iterable[str], rows: Iterable[Iterable[str]], numbers: int, *, first: str = "right") -> str:
    rows, header = list(rows), tuple(header)
    if not rows:
        return ""
    align = [first, *["right"] * (numbers - 1), *["left"] * (len(header) - numbers)]
    return tabulate(rows, headers=header, tablefmt="plain", colalign=align, disable_numparse=True) + "\n"


def _measurements(report: Report) -> list[Measurement]:
    return sorted(
        (row.measurement for row in report.rows if row.measurement), key=lambda m: (m.device, m.kernel, m.case)
    )
