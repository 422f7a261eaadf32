"""What the charts of a case show: their numbers and texts. charts.js draws them in the browser, with Observable Plot.

Plot (plot.min.js, made by scripts/plot/build) adds 270 kB to a page, 90 kB zipped, and draws a chart as its case is
opened. Vega-Lite is three times as large and evaluates strings as code, which the page forbids. Matplotlib takes 50 ms
for each chart and would be installed on every runner.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ci_perf.judge.ratios import log_ratio
from ci_perf.judge.report import Row
from ci_perf.judge.roofline import Roofline, peak_bandwidth, peak_compute
from ci_perf.values.device import Device
from ci_perf.values.measurement import Measurement
from ci_perf.values.quantity import amount, counted, percent, rate, scale
from ci_perf.values.series import Point, Trend

MOST_MARKS = 500
"""The most rounds of a side that a chart draws; of more, every second, third, ... one."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart: `data` is what the function `kind` of charts.js draws, of numbers in the unit that it names."""

    kind: str
    title: str
    caption: str
    """A sentence that says what the chart shows, for those who do not see it."""
    data: Mapping[str, object]


def charts(row: Row, device: Device | None, trends: Sequence[Trend] = ()) -> list[Chart]:
    """Return the charts of a row, those for which it has numbers. `trends` are its own, a series for each method."""
    if row.measurement is None:
        return []
    drawn = (_times(row, row.measurement), _differences(row, row.measurement), _roofline(row, row.measurement, device))
    past = (_history(trend, several=len(trends) > 1) for trend in trends)
    return [chart for chart in (*drawn, *past, *_conditions(row.measurement)) if chart and _is_finite(chart.data)]


def _is_finite(data: object) -> bool:
    """Say whether all numbers are finite: files of other origin may hold any, and a chart of them shows nothing."""
    try:
        json.dumps(data, allow_nan=False)
    except ValueError:
        return False
    return True


def _times(row: Row, measurement: Measurement) -> Chart | None:
    """Return the times of both sides over the rounds of all processes, one process after the other."""
    head = [timed.seconds for timed in measurement.timed]
    base = [pair.base for pair in measurement.sound_pairs]
    values = [value for process in (*base, *head) for value in process]
    agreed = None if base else row.finding.base
    if not values or not all(map(math.isfinite, values)):
        return None
    factor, unit = scale(max(values), row.finding.unit)
    words = f"Times over the rounds of {counted(len(head), 'process')}: head {_range(head, row)}"
    words += f", base {_range(base, row)}" if base else ""
    words += f"; baseline {amount(agreed, row.finding.unit)}" if agreed is not None else ""
    data = {
        "unit": unit,
        "base": _points(base, factor),
        "head": _points(head, factor),
        "edges": list(accumulate(map(len, head)))[:-1],
        "baseline": [] if agreed is None else [_short(agreed / factor)],
    }
    title = "Times of both sides" if base else "Times of the head; the line is the baseline"
    return Chart("times", title if base or agreed is not None else "Times of the head", words, data)


def _points(processes: Sequence[Sequence[float]], factor: float) -> list[tuple[int, float]]:
    """Return the number of each round and its time."""
    rounds = list(enumerate(value for process in processes for value in process))
    return [(place, _short(value / factor)) for place, value in rounds[:: max(1, -(-len(rounds) // MOST_MARKS))]]


def _range(processes: Sequence[Sequence[float]], row: Row) -> str:
    values = [value for process in processes for value in process]
    return f"from {amount(min(values), row.finding.unit)} to {amount(max(values), row.finding.unit)}"


def _differences(row: Row, measurement: Measurement) -> Chart | None:
    """Return the change of each pair, the interval that decides, and both thresholds, in percent."""
    change = row.finding.change
    if change is None or not all(math.isfinite(x) and x > 0 for x in (change.low, change.point, change.high)):
        return None
    logs = [log_ratio(pair) for pair in measurement.sound_pairs]
    pairs = [math.exp(value) - 1 for value in logs if math.isfinite(value) and abs(value) < 50]
    low, point, high = (value - 1 for value in (change.low, change.point, change.high))
    limits = sorted(limit - 1 for limit in row.limits if math.isfinite(limit) and limit > 0)
    words = f"Change {percent(point, sign=True)}, interval {percent(low, sign=True)} to {percent(high, sign=True)}"
    words += f", of {counted(len(pairs), 'pair')}" if pairs else ""
    words += f"; thresholds {' and '.join(percent(limit, sign=True) for limit in limits)}" if limits else ""
    data = {
        **{name: _percents(values) for name, values in (("pairs", pairs), ("limits", limits))},
        **dict(zip(("low", "point", "high"), _percents((low, point, high)), strict=True)),
    }
    title = "Change of each pair, interval and thresholds" if pairs else "Interval and thresholds"
    return Chart("differences", title, words, data)


def _percents(fractions: Iterable[float]) -> list[float]:
    return [_short(100 * fraction) for fraction in fractions]


def _roofline(row: Row, measurement: Measurement, device: Device | None) -> Chart | None:
    """Return the ceiling of the device with the points of both sides; None where cost or peaks are not known.

    Work without operations has no place on a roofline: its ceiling is the bandwidth alone.
    """
    cost, head = measurement.cost, row.roofline
    bandwidth = peak_bandwidth(device) if device else None
    if device is None or cost is None or head is None or not (cost.bytes and head.share and bandwidth):
        return None
    points = [("head", head), *([("base", row.base_roofline)] if row.base_roofline else [])]
    shares = ", ".join(f"{name} {percent(point.share or 0.0, digits=0)}" for name, point in points)
    if not cost.flop:
        return _bandwidth(points, bandwidth, shares)
    compute = peak_compute(device, cost.dtype or str(measurement.params.get("dtype", "float32")))
    if not compute:
        return None
    intensity, ridge = cost.flop / cost.bytes, compute / bandwidth
    words = f"Roofline at {intensity:.3g} FLOP/B, bound by {head.bound}; share of the ceiling: {shares}"
    low, high = min(intensity, ridge) / 3, max(intensity, ridge) * 3
    data = {
        "ceiling": [(_short(x), _short(min(compute, x * bandwidth))) for x in (low, ridge, high)],
        "base": [],
        **{name: [(_short(intensity), _short(point.flop_per_s))] for name, point in points},
    }
    return Chart("roofline", "Roofline", words, data)


def _bandwidth(points: Sequence[tuple[str, Roofline]], peak: float, shares: str) -> Chart:
    """Return the highest bandwidth of the memory with the points of both sides."""
    factor, unit = scale(peak, "byte/s")
    data = {
        "unit": unit,
        "ceiling": _short(peak / factor),
        "base": [],
        **{name: [(name, _short(point.bytes_per_s / factor))] for name, point in points},
    }
    words = f"Bandwidth of the memory, at most {rate(peak, 'byte/s')}; share of it: {shares}"
    return Chart("bandwidth", "Bandwidth of the memory", words, data)


def _history(trend: Trend, *, several: bool) -> Chart:
    """Return the medians over commits and runs, each with the lowest and the highest median of a process."""
    points = trend.series.points
    last = points[-1]
    factor, unit = scale(max(point.median for point in points), last.unit)
    values = [
        (place, *(_short(value / factor) for value in (point.median, point.low, point.high)), _label(point))
        for place, point in enumerate(points)
    ]
    words = f"{counted(len(points), 'time')} of baselines and runs from {points[0].when[:10]} to {last.when[:10]}"
    words = "; ".join((words, f"the last one is {amount(last.median, last.unit)}", *trend.sentences))
    data = {"unit": unit, "points": values, "changes": [place - 0.5 for place in trend.changes]}
    return Chart("history", f"History ({last.method})" if several else "History", words, data)


def _label(point: Point) -> str:
    return " ".join(filter(None, (point.when[:10], point.commit[:8], point.source)))


def _conditions(measurement: Measurement) -> list[Chart | None]:
    """Return the SM clock of each side and the temperature, process by process."""
    processes = measurement.pairs or measurement.replicates
    head = [p.sm_clock_hz for p in processes]
    base = [p.sm_clock_hz / p.clocks if p.sm_clock_hz and p.clocks else None for p in measurement.pairs]
    celsius = {"head": [p.temperature_c for p in processes]}
    return [
        _over_processes("SM clock", {"head": head, "base": base}, (1e6, "MHz"), lambda value: rate(value, "Hz")),
        _over_processes("Temperature of the GPU", celsius, (1.0, "C"), lambda value: f"{value:.0f} C"),
    ]


def _over_processes(
    title: str, read: Mapping[str, Sequence[float | None]], unit: tuple[float, str], write: Callable[[float], str]
) -> Chart | None:
    known = {
        side: [(i, value) for i, value in enumerate(values, start=1) if value is not None and math.isfinite(value)]
        for side, values in read.items()
    }
    words = [
        f"{side} from {write(min(value for _, value in points))} to {write(max(value for _, value in points))}"
        for side, points in known.items()
        if points
    ]
    if not words:
        return None
    named = ", ".join(words) if len(read) > 1 else words[0].removeprefix("head ")
    data = {side: [(i, _short(value / unit[0])) for i, value in points] for side, points in known.items()}
    count = counted(len(read["head"]), "process")
    return Chart("conditions", title, f"{title} over {count}: {named}", {"unit": unit[1], "base": [], **data})


def _short(value: float) -> float:
    """Return a number with the digits that a chart shows."""
    return float(f"{value:.5g}")
