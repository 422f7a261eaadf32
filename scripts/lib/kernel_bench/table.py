"""The benchmark's JSON as Markdown: where it was measured, the goals, and a table of all implementations."""

from __future__ import annotations

from typing import Any, NamedTuple

from lib.kernel_bench.goals import OURS, Document, Measured, is_alike, judge_all, label, seconds_of

STATES = {True: "met", False: "**missed**", None: "not judged"}
FLOAT8_SPEED = 2
"""The tensor cores multiply float8 at twice the rate of bfloat16, which is what was measured."""
COPIES = {"copy_launch": "as a launch", "copy_graph": "as a node of a graph", "copy_kernel": "by a kernel in a graph"}
"""The paths by which the large copy is timed."""

LEGEND = """\
The floors of a case are its bytes divided by the rate of the fastest copy, and its FLOP divided by the rate of that
product (float8: twice the rate); `roofline` is the higher floor as a part of the time. Bytes are those of `cost()`:
each input and each output once. More than 100 % means that data stay in the L2 cache, that a part of an input is never
read (in `trajectory_resample`, samples that are not next to a target), or, for large products, that the power limit
allowed a higher clock than for that product, which is measured once. A copy of the same bytes is the faster of a memcpy
and a kernel. `x ours`: the time divided by ours. Times are medians of launches in a CUDA graph with a warm L2, unless
another method is named. Each implementation was compared with the float64 reference first. The fastest is bold.\
"""
ROUNDS = """\
All implementations of a case were timed in turn, and once more in reverse order: the time is the mean of the two
medians, which are both shown where they differ by 3 % or more.\
"""
APART = 0.03
ALIKE = """\
The goals were set for an H100. An H200 has the same multiprocessors, and memory 1.4 times as fast. Kernels that are
bound by memory, in part or whole, therefore meet two kinds of goals more easily here: times or rates, and ratios to
alternatives that are not bound by memory.\
"""


class Floors(NamedTuple):
    """Lower bounds of the seconds of a case whose data come from memory: by its bytes, and by its FLOP."""

    memory: float
    compute: float

    @property
    def bound(self) -> str:
        """Return which is higher: `memory` or `compute`."""
        return "memory" if self.memory >= self.compute else "compute"


def render(document: Document, goals: dict[str, Any]) -> str:
    """Return the whole page."""
    title = "# Kernels and their alternatives"
    parts = [title, _provenance(document), goal_table(document, goals), _legend(document), _table(document)]
    return "\n\n".join(parts) + "\n"


def goal_table(document: Document, goals: dict[str, Any]) -> str:
    """Return the goals as a table, with an explanation on a device that is only similar to theirs."""
    rows = [(row.case, row.goal, row.reached, STATES[row.met]) for row in judge_all(document, goals)]
    return _markdown(("case", "goal", "reached", ""), rows) + (f"\n\n{ALIKE}" if is_alike(document, goals) else "")


def floors_of(case: Measured, ceilings: dict[str, Any]) -> Floors | None:
    """Return bytes over the best copy bandwidth and FLOP over the matmul's rate."""
    cost = case.get("cost")
    if not cost or "failure" in ceilings:
        return None
    dtype = str(cost["dtype"] or case["params"].get("dtype"))
    rate = flop_rate(ceilings) * (FLOAT8_SPEED if dtype.startswith("float8") else 1)
    return Floors(cost["bytes"] / bandwidth(ceilings), cost["flop"] / rate)


def bandwidth(ceilings: dict[str, Any]) -> float:
    """Return the best bandwidth that a copy reached, bytes read and written per second."""
    return float(ceilings["copy_bytes"]) / min(ceilings[path] for path in COPIES if path in ceilings)


def flop_rate(ceilings: dict[str, Any]) -> float:
    """Return the rate that the matrix product reached."""
    return float(ceilings["matmul_flop"]) / float(ceilings["matmul"])


def _provenance(document: Document) -> str:
    return "\n".join(f"- {key}: {value}" for key, value in document["provenance"].items() if value is not None)


def _legend(document: Document) -> str:
    ceilings = document["ceilings"]
    if "failure" in ceilings:
        return f"No ceilings, no floors: {ceilings['failure']}."
    moved = ceilings["copy_bytes"]
    rates = [f"{moved / ceilings[path] / 1e12:.2f} TB/s {how}" for path, how in COPIES.items() if path in ceilings]
    copied = f"a copy of {moved >> 21} MiB at {', '.join(rates)}"
    size = ceilings["matmul_size"]
    product = f"a {size}^3 product in {ceilings['matmul_dtype']} at {flop_rate(ceilings) / 1e12:.3g} TFLOP/s"
    in_turn = any("rounds" in row for case in document["cases"] for row in case["rows"])
    legend = f"{LEGEND}\n{ROUNDS}" if in_turn else LEGEND
    return f"Ceilings: {copied} (read and written); {product}.\n\n{legend}"


def _table(document: Document) -> str:
    rows = [row for case in document["cases"] for row in _rows(case, document["ceilings"])]
    head = ("case", "implementation", "time", "x ours", "rate", "roofline", "")
    return _markdown(head, rows, right=(2, 3, 4, 5))


def _rows(case: Measured, ceilings: dict[str, Any]) -> list[tuple[str, ...]]:
    floors, ours = floors_of(case, ceilings), seconds_of(case, OURS)
    least = min((row["seconds"] for row in case["rows"] if row.get("seconds")), default=None)
    rows = [_row(case, row, ours, floors, bold=row.get("seconds") == least) for row in case["rows"]]
    if "failure" in case:
        rows.append(("copy of the same bytes", "", "", "", "", _cell(case["failure"])))
    if case.get("copy"):
        copied = case["copy"]["seconds"]
        ratio = f"{copied / ours:.2f}" if ours else ""
        rows.append(("copy of the same bytes", _time(copied), ratio, _rate(case["cost"]["bytes"], copied), "", ""))
    for bound, seconds in floors._asdict().items() if floors else ():
        ratio = f"{seconds / ours:.2f}" if ours else ""
        rows.append((f"floor ({bound})", _time(seconds), ratio, "", "", ""))
    return [(label(case) if i == 0 else "", *row) for i, row in enumerate(rows)]


def _row(
    case: Measured, row: dict[str, Any], ours: float | None, floors: Floors | None, *, bold: bool
) -> tuple[str, ...]:
    seconds = row.get("seconds")
    if not seconds:
        return row["name"], "", "", "", "", _cell(row["failure"])
    name = f"**{row['name']}**" if bold else row["name"]
    ratio = f"{seconds / ours:.2f}" if ours and row["name"] != OURS else ""
    share = f"{max(floors) / seconds:.0%}".replace("%", " %") if floors else ""
    cost, rate = case["cost"], ""
    if floors:
        rate = _rate(cost["bytes"], seconds) if floors.bound == "memory" else _flops(cost["flop"], seconds)
    remarks = [] if row["method"] == "cuda-graph" else [f"timed by {row['method']}"]
    rounds = row.get("rounds", [seconds])
    if max(rounds) >= (1 + APART) * min(rounds):
        remarks.append(" and ".join(_time(each) for each in rounds))
    return name, _time(seconds), ratio, rate, share, "; ".join(remarks)


def _time(seconds: float) -> str:
    """Write a time with three digits.

    >>> _time(3.456e-6), _time(0.0123456)
    ('3.46 us', '12.3 ms')
    """
    value, unit = (seconds * 1e6, "us") if seconds < 1e-3 else (seconds * 1e3, "ms")
    return f"{_digits(value)} {unit}"


def _rate(moved: float, seconds: float) -> str:
    return f"{_digits(moved / seconds / 1e12)} TB/s"


def _flops(flop: float, seconds: float) -> str:
    return f"{_digits(flop / seconds / 1e12)} TFLOP/s"


def _digits(value: float) -> str:
    """Write a number with three digits, or all before the point.

    >>> _digits(0.0123456), _digits(1299.6)
    ('0.0123', '1300')
    """
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"


def _cell(text: str) -> str:
    """Keep a message within its cell."""
    return " ".join(text.split()).replace("|", "\\|")[:200]


def _markdown(head: tuple[str, ...], rows: list[tuple[str, ...]], right: tuple[int, ...] = ()) -> str:
    rule = [" --: " if i in right else " :-- " for i in range(len(head))]
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return "\n".join([lines[0], f"|{'|'.join(rule)}|", *lines[1:]])
