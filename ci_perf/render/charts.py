"""What the charts of a case show: their numbers and texts."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate

from ci_perf.judge.ratios import log_ratio
from ci_perf.judge.report import Row
from ci_perf.judge.roofline import Roofline, peak_bandwidth, peak_compute
from ci_perf.pages.chart import Chart, history_chart, short
from ci_perf.values.device import Device
from ci_perf.values.measurement import Measurement
from ci_perf.values.quantity import amount, counted, percent, rate, scale
from ci_perf.values.series import Trend

MOST_MARKS = 500
"""The most rounds of a side that a chart draws; of more, every second, third, ... one."""


def charts(row: Row, device: Device | None, trends: Sequence[Trend] = ()) -> list[Chart]:
    """Return the charts of a row, those for which it has numbers. `trends` are its own, a series for each method."""
    if row.measurement is None:
        return []
    drawn = (_times(row, row.measurement), _differences(row, row.measurement), _roofline(row, row.measurement, device))
    past = (history_chart(trend, several=len(trends) > 1) for trend in trends)
    return [chart for chart in (*drawn, *past, *_conditions(row.measurement)) if chart and chart.is_finite]


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
        "baseline": [] if agreed is None else [short(agreed / factor)],
    }
    title = "Times of both sides" if base else "Times of the head; the line is the baseline"
    return Chart("times", title if base or agreed is not None else "Times of the head", words, data)


def _points(processes: Sequence[Sequence[float]], factor: float) -> list[tuple[int, float]]:
    """Return the number of each round and its time."""
    rounds = list(enumerate(value for process in processes for value in process))
    return [(place, short(value / factor)) for place, value in rounds[:: max(1, -(-len(rounds) // MOST_MARKS))]]


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
    return [short(100 * fraction) for fraction in fractions]


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
        "ceiling": [(short(x), short(min(compute, x * bandwidth))) for x in (low, ridge, high)],
        "base": [],
        **{name: [(short(intensity), short(point.flop_per_s))] for name, point in points},
    }
    return Chart("roofline", "Roofline", words, data)


def _bandwidth(points: Sequence[tuple[str, Roofline]], peak: float, shares: str) -> Chart:
    """Return the highest bandwidth of the memory with the points of both sides."""
    factor, unit = scale(peak, "byte/s")
    data = {
        "unit": unit,
        "ceiling": short(peak / factor),
        "base": [],
        **{name: [(name, short(point.bytes_per_s / factor))] for name, point in points},
    }
    words = f"Bandwidth of the memory, at most {rate(peak, 'byte/s')}; share of it: {shares}"
    return Chart("bandwidth", "Bandwidth of the memory", words, data)


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
    data = {side: [(i, short(value / unit[0])) for i, value in points] for side, points in known.items()}
    count = counted(len(read["head"]), "process")
    return Chart("conditions", title, f"{title} over {count}: {named}", {"unit": unit[1], "base": [], **data})
