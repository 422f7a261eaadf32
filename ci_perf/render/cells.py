"""The text of each cell and the numbers of each row, shared by all renderers so that they agree."""

import re
import shlex
from collections.abc import Mapping
from operator import attrgetter

from ci_perf.judge.gates import GateFinding
from ci_perf.judge.parts import PartChange
from ci_perf.judge.report import Report, Row
from ci_perf.judge.stats import Interval
from ci_perf.values.device import is_dirty
from ci_perf.values.escape import clean
from ci_perf.values.quantity import LIMITLESS, amount, amounts, duration, number, percent, rate, signed, suffix
from ci_perf.values.reasons import GateState, Verdict
from ci_perf.values.timeline_metrics import TIMELINE as TIMELINE_METRICS
from ci_perf.values.timeline_metrics import TimelineMetric
from ci_perf.values.trace import Reading

RUN = "ci-perf-run"
"""The folder of a run where `output` is not set; the texts of reasons name it in their commands."""
MOST_NAMED = 20
"""The largest number of cases, or kernels, that a command names one by one."""
VERDICT = ("verdict", "base", "head", "change [99 % CI]", "why")
"""Titles of the verdict of a row."""
STATISTICS = ("n", "mean", "sd", "CV", "median [95 % CI]", "P50", "P95", "P99", "throughput", "roofline")
"""Titles of the statistics of a row: the median is that of process medians, percentiles are those of all samples."""
PARTS = ("what", "name", "base", "head", "change")
"""Titles of the parts of a program's time."""
TIMELINE = ("metric", "reading", "usual", "meaning")
"""Titles of the metrics of a timeline."""
CREEP_TITLE = "Creep: slower by several merges before this change"
CREEP = ("case", "device", "sum of its changes", "merges", "since commit")
"""Titles of the columns of a table of creep."""
_OF_SUMMARY = {
    "n": "n",
    "processes": "processes",
    "mean_{unit}": "mean",
    "sd_{unit}": "sd",
    "cv": "cv",
    "median_{unit}": "median.point",
    "median_low_{unit}": "median.low",
    "median_high_{unit}": "median.high",
    "p50_{unit}": "p50",
    "p95_{unit}": "p95",
    "p99_{unit}": "p99",
}
_OF_ROOFLINE = {
    "flop_per_s": "flop_per_s",
    "bytes_per_s": "bytes_per_s",
    "arithmetic_intensity": "intensity",
    "attainable_flop_per_s": "attainable_flop_per_s",
    "roofline_share": "share",
}
_OF_CLOCK = {"sm_clock_hz": "sm_clock_hz", "at_power_limit": "at_power_limit"}
_OF_MEMORY = {"base_peak_memory_bytes": "base", "peak_memory_bytes": "head"}


def numbers(row: Row) -> dict[str, float | int | bool | None]:
    """Return the statistics of a row in base units, for programs; each name ends in its unit, None means not known."""
    unit = suffix(row.finding.unit)
    columns: tuple[tuple[dict[str, str], object], ...] = (
        *((_OF_SUMMARY, row.summary), (_OF_ROOFLINE, row.roofline)),
        *((_OF_CLOCK, row.summary), (_OF_MEMORY, row.finding.memory)),
    )
    return {
        name.format(unit=unit): attrgetter(attribute)(source) if source else None
        for attributes, source in columns
        for name, attribute in attributes.items()
    }


def names(row: Row, report: Report) -> list[str]:
    """Return the cells that identify a row: its case, and its device if the report has several."""
    return [row.finding.id, row.finding.device] if len(report.devices) > 1 else [row.finding.id]


def name_titles(report: Report) -> list[str]:
    """Return the titles of `names`."""
    return ["case", "device"] if len(report.devices) > 1 else ["case"]


def verdict(row: Row) -> tuple[str, ...]:
    """Return the cells of VERDICT."""
    finding = row.finding
    base, head = value(finding.base, finding.unit), value(finding.head, finding.unit)
    return str(finding.verdict), base, head, change(finding.change), why(row)


def value(number: float | None, unit: str) -> str:
    """Write a measured value with four digits; a dash for None."""
    if number is None:
        return "-"
    return amount(number, unit) if unit == "s" else amounts(number, number, number, unit)[1]


def change(interval: Interval | None) -> str:
    """Write a change with its interval: + is slower, - is faster.

    >>> change(Interval(1.048, 1.0502, 1.053, 0.99)), change(Interval(1e-9, 1.02, 1e9, 0.99)), change(None)
    ('+5.0 % [+4.8, +5.3]', '+2.0 % [any]', '-')
    """
    if interval is None:
        return "-"
    if interval.high - 1 >= LIMITLESS:
        return f"{percent(interval.point - 1, sign=True)} [any]"
    low, high = ((x - 1) * 100 for x in (interval.low, interval.high))
    return f"{percent(interval.point - 1, sign=True)} [{signed(low)}, {signed(high)}]"


def creep(report: Report) -> list[tuple[str, ...]]:
    """Return a row of CREEP for each case that several merges made slower, the slowest first."""
    return [
        (
            one.case,
            one.device,
            change(Interval(1 + one.low, 1 + one.change, 1 + one.high, 0.0)),
            str(one.merges),
            one.first[:8],
        )
        for one in report.creep
    ]


def why(row: Row) -> str:
    """Return the cause of a change, or that none is known, if both sides were profiled; else why it has its verdict."""
    explanation = row.finding.explanation
    if explanation and row.finding.verdict.is_change:
        return explanation.sentence
    return f"{row.finding.code}: {row.finding.sentence}"


def gate(finding: GateFinding) -> str:
    """Write a gate with its reading.

    >>> from ci_perf.values.kernel import Gate
    >>> from ci_perf.values.trace import Reading
    >>> gate(GateFinding(Gate("sm_throughput_pct", ">=", 85.0), Reading(71.23, "%"), GateState.BROKEN))
    'sm_throughput_pct is 71.23 %, limit >= 85'
    """
    limit = f"limit {finding.gate.operator} {finding.gate.limit:g}"
    if finding.state is GateState.NOT_MEASURED or finding.reading.value is None:
        return f"{finding.gate.metric} not measured ({finding.reading.reason}), {limit}"
    unit = f" {finding.reading.unit}" if finding.reading.unit else ""
    return f"{finding.gate.metric} is {number(finding.reading.value)}{unit}, {limit}"


def unmeasured_gates(report: Report) -> list[tuple[str, list[str]]]:
    """Return the text of each gate that was not measured, with its cases: many cases mostly have one reason."""
    found: dict[str, dict[str, None]] = {}
    for row in report.rows:
        for finding in row.finding.unmeasured_gates:
            found.setdefault(gate(finding), {})[row.finding.id] = None
    return [(words, list(cases)) for words, cases in found.items()]


def throughput(row: Row) -> str:
    """Write the achieved rates of operations and bytes, without those that are 0."""
    if row.roofline is None:
        return "-"
    rates = [(row.roofline.flop_per_s, "FLOP/s"), (row.roofline.bytes_per_s, "B/s")]
    return ", ".join(rate(value, unit) for value, unit in rates if value)


def share(row: Row) -> str:
    """Write the share of the roofline with the limit that bounds it, and whether the GPU ran at its power limit."""
    parts = []
    if row.roofline is not None and row.roofline.share is not None:
        parts.append(f"{percent(row.roofline.share, digits=0)} of {row.roofline.bound}")
        parts += ["in cache"] if row.roofline.share > 1 else []
    if row.summary is not None and row.summary.at_power_limit:
        clock = row.summary.sm_clock_hz
        parts.append(f"at the power limit ({rate(clock, 'Hz')})" if clock else "at the power limit")
    return ", ".join(parts) or "-"


def statistics(row: Row) -> tuple[str, ...]:
    """Return the cells of STATISTICS."""
    s = row.summary
    if s is None:
        return ("-",) * len(STATISTICS)
    unit = row.finding.unit
    low, median, high = amounts(s.median.low, s.median.point, s.median.high, unit)
    return (
        f"{s.n} in {s.processes}",
        amount(s.mean, unit),
        amount(s.sd, unit),
        percent(s.cv),
        f"{median} [{low}, {high}]",
        amount(s.p50, unit),
        amount(s.p95, unit),
        amount(s.p99, unit),
        throughput(row),
        share(row),
    )


def kernel_changes(row: Row) -> list[tuple[str, str, str]]:
    """Return the change of each GPU kernel that differs from the baseline: kind, name in the baseline, name now.

    >>> from ci_perf.judge.finding import Finding
    >>> from ci_perf.values.kernel_names import NameChanges
    >>> from ci_perf.values.reasons import Verdict
    >>> changed = NameChanges(renamed=(("f_0d1d", "f_0d1d2d"),), added=("g",), removed=())
    >>> kernel_changes(Row(Finding("k", "a", "l4", Verdict.UNCHANGED, "", "", kernels=changed), red=False))
    [('renamed', 'f_0d1d', 'f_0d1d2d'), ('new', '', 'g')]
    """
    changes = row.finding.kernels
    return [
        *(("renamed", before, now) for before, now in changes.renamed),
        *(("new", "", name) for name in changes.added),
        *(("gone", name, "") for name in changes.removed),
    ]


def parts(row: Row) -> list[tuple[str, ...]]:
    """Return the cells of PARTS; a part is `new` or `gone` if the base has parts at all.

    >>> from ci_perf.judge.finding import Finding
    >>> from ci_perf.judge.parts import PartChange
    >>> found = (PartChange("kernel", ("g",), ("f",), 1e-3, 2e-3), PartChange("kernel", ("h",), (), None, 1e-3))
    >>> parts(Row(Finding("k", "a", "l4", Verdict.UNCHANGED, "", "", parts=found), red=False))
    [('kernel', 'g', '1 ms', '2 ms', '+100.0 %'), ('kernel', 'h', '-', '1 ms', 'new')]
    """
    known = any(part.base is not None for part in row.finding.parts)
    return [
        (
            part.kind,
            ", ".join(part.names[:3]) + (", ..." if len(part.names) > 3 else ""),
            value(part.base, "s"),
            value(part.head, "s"),
            _part_change(part) if known else "-",
        )
        for part in row.finding.parts
    ]


def _part_change(part: PartChange) -> str:
    if part.base is None or part.head is None:
        return "new" if part.base is None else "gone"
    return percent(part.head / part.base - 1, sign=True) if part.base else "-"


def timeline(metrics: Mapping[str, Reading]) -> list[tuple[str, ...]]:
    """Return the cells of TIMELINE for each metric; one that was not measured says why.

    >>> timeline({"pageable_copies": Reading(3.0), "sync_pct": Reading(None, "%", "no CUDA call was traced")})
    [('sync_pct', '-', '', 'not measured: no CUDA call was traced'), \
('pageable_copies', '3', '<= 0, not met', 'copies from or to pageable host memory')]
    """
    return [_timeline_row(metric, metrics[metric.name]) for metric in TIMELINE_METRICS if metric.name in metrics]


def _timeline_row(metric: TimelineMetric, reading: Reading) -> tuple[str, ...]:
    if reading.value is None:
        return metric.name, "-", metric.usual, f"not measured: {reading.reason}"
    if metric.unit == "ns":
        written = duration(reading.value / 1e9)
    elif metric.unit == "byte/s":
        written = rate(reading.value, "B/s")
    else:
        written = f"{number(reading.value)} {metric.unit}".rstrip()
    operator, _, limit = metric.usual.partition(" ")
    missed = {">=": reading.value < float(limit or 0), "<=": reading.value > float(limit or 0)}.get(operator, False)
    return metric.name, written, f"{metric.usual}{', not met' if missed else ''}", metric.meaning


def environment(report: Report) -> list[tuple[str, str]]:
    """Return names and values of everything that the numbers depend on."""
    tools = report.toolchain
    pairs = [("device", device_line(report, i)) for i in range(len(report.devices))]
    pairs += [
        ("python", tools.python or "unknown"),
        ("torch", f"{tools.torch or 'none'} (CUDA {tools.cuda or 'none'})"),
        *((name, version) for name, version in sorted(tools.packages.items())),
        ("nsys", tools.nsys or "not used"),
        ("ncu", tools.ncu or "not used"),
        ("ci-perf", report.provenance.tool),
        ("commit", report.provenance.commit or "unknown"),
        *([("pushed commit", report.provenance.head)] if report.provenance.head else []),
        ("date", report.provenance.date),
    ]
    return pairs


def device_line(report: Report, index: int) -> str:
    """Describe a device in one line."""
    device = report.devices[index]
    parts = [device.name]
    if device.driver:
        parts.append(f"driver {device.driver}")
    if device.power_limit_w:
        parts.append(f"power limit {device.power_limit_w:.0f} W")
    if device.mig:
        parts.append("MIG")
    return ", ".join(parts)


def side_by_side(report: Report) -> list[tuple[str, ...]]:
    """Return the cells of each case that ran on CPU and GPU: name, both times, their ratio."""
    kinds = {device.slug: device.kind for device in report.devices}
    if len(set(kinds.values())) < len(kinds):
        return []
    heads: dict[str, dict[str, float]] = {}
    units = {row.finding.id: row.finding.unit for row in report.rows}
    for row in report.rows:
        if row.finding.head is not None:
            heads.setdefault(row.finding.id, {})[kinds[row.finding.device]] = row.finding.head
    return [
        (
            case,
            *(amount(found[device.kind], units[case]) for device in report.devices),
            f"{found['cpu'] / found['cuda']:.3g} x",
        )
        for case, found in heads.items()
        if {"cpu", "cuda"} <= found.keys()
    ]


def comparison(report: Report) -> str:
    """Return a sentence that says what was compared with what."""
    devices = " and ".join(device.name for device in report.devices)
    if not report.compared:
        base = f"the base commit {report.base[:8]}" if report.base else "a baseline"
        return f"{devices}: no case was compared with {base}."
    cases = "1 case" if report.compared == 1 else f"{report.compared} cases"
    measured = report.provenance.commit or ""
    commit = f" of commit {measured[:8]}" if measured else ""
    if is_dirty(measured):
        commit += " with uncommitted changes"
    return f"{devices}: {cases}{commit} compared with {' and '.join(report.agreed)}."


def reproduce(report: Report, *, foreign: bool = False) -> str:
    """Return the command that measures the flagged cases again (all if there is none), against the same base.

    A case that is missing is not named: it cannot be measured. For many flagged cases it names their kernels; for many
    kernels, none. Users paste the command into a shell, so unusual characters become wildcards, and no name can be a
    flag. The base of a `foreign` run is not used: git would fetch any commit of any fork, and ci-perf would run it.
    """
    flagged = [row.finding for row in report.rows if row.flagged and row.finding.verdict is not Verdict.MISSING]
    of = ({finding.id for finding in flagged}, {finding.kernel for finding in flagged})
    cases = next((sorted(names) for names in of if 0 < len(names) <= MOST_NAMED), report.patterns)
    flags = () if any("/fuzz-" in case for case in cases) else report.check_flags
    base = "merge-base:origin/HEAD" if foreign else report.base
    against = ("--against", base) if report.base else ()
    return shlex.join(["ci-perf", "run", *flags, *against, *map(_harmless_word, cases)])


def next_step(report: Report, run: str) -> str:
    """Return what to do next; its command names the path of the run."""
    return report.next_step.replace(RUN, shlex.quote(clean(run)))


def accept(report: Report) -> str:
    """Return the commands that measure and accept a baseline for the new and changed kernels of a run in turns.

    Empty if nothing is new or changed. Such a run has no patch: base and head were alive at the same time, with data at
    other places in memory than in a run without a base.
    """
    changed = (Verdict.REGRESSION, Verdict.SPEEDUP, Verdict.NEW)
    kernels = sorted({row.finding.kernel for row in report.of(*changed)})
    if not report.base or not kernels:
        return ""
    words = " ".join(["", *map(_harmless_word, kernels)]) if len(kernels) <= MOST_NAMED else ""
    return f"ci-perf run{words} &&\n  ci-perf baseline accept ci-perf-run{words}"


def _harmless_word(case: str) -> str:
    return re.sub(r"^-|[^A-Za-z0-9_./*?!\[\]-]", "?", case)
