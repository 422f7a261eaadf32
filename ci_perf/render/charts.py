"""The charts of a case as SVG. Its colours are those of the page, by class; each mark of a side has its own shape.

Elements are those of the standard library, which escapes every text. A plotting library would cost more than it saves
here: it would be loaded in each run, or become a part of each page.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from xml.etree.ElementTree import Element, SubElement, tostring

from ci_perf.judge.ratios import log_ratio
from ci_perf.judge.report import Row
from ci_perf.judge.roofline import peak_bandwidth, peak_compute
from ci_perf.values.device import Device
from ci_perf.values.escape import clean
from ci_perf.values.measurement import Measurement
from ci_perf.values.quantity import amount, percent, rate

WIDTH, HEIGHT = 480, 220
"""The coordinates of a chart; the page scales it to its column."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 14, 12, 34


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps finite values to coordinates, on a logarithmic axis if `log`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the coordinate of a value, to a tenth."""
        low, high, at = (math.log(x) if self.log else x for x in (self.low, self.high, value))
        return round(self.start + (at - low) / ((high - low) or 1.0) * (self.end - self.start), 1)


def scale_of(values: Iterable[float], start: float, end: float, *, log: bool = False) -> Scale:
    """Return the scale that shows all values, with a margin.

    >>> scale_of([1.0, 3.0], 0, 120)(2.0)
    60.0
    """
    found = list(values)
    low, high = min(found), max(found)
    if log:
        return Scale(low / 3, high * 3, start, end, log=True)
    margin = (high - low) * 0.1 or abs(high) * 0.05 or 1.0
    return Scale(low - margin, high + margin, start, end)


def charts(row: Row, device: Device | None) -> str:
    """Return the charts of a row, those for which it has numbers."""
    if row.measurement is None:
        return ""
    drawn = (_times(row, row.measurement), _differences(row, row.measurement), *_conditions(row.measurement))
    return "".join(chart for chart in (*drawn, _roofline(row, row.measurement, device)) if chart)


def _times(row: Row, measurement: Measurement) -> str:
    """Draw the times of both sides over the rounds of all processes, one after the other."""
    head = [timed.seconds for timed in measurement.timed]
    base = [pair.base for pair in measurement.sound_pairs]
    values = [value for process in (*base, *head) for value in process]
    agreed = [] if base or row.finding.base is None else [row.finding.base]
    if not values or not all(map(math.isfinite, values)):
        return ""
    unit = row.finding.unit
    y = scale_of([*values, *agreed], HEIGHT - _BOTTOM, _TOP)
    label = f"Times over the rounds of {len(head)} processes: head {_range(head, unit)}"
    label += f", base {_range(base, unit)}" if base else ""
    svg = _frame(label)
    _y_axis(svg, y, sorted({min(values), max(values), *agreed}), lambda value: amount(value, unit))
    for name, processes in (("base", base), ("head", head)):
        total = sum(map(len, processes))
        x = Scale(0, max(1, total - 1), _LEFT + 8, WIDTH - _RIGHT - 8)
        flat = [value for process in processes for value in process]
        _dots(svg, name, [(x(i), y(value)) for i, value in enumerate(flat)])
        for edge in list(accumulate(map(len, processes)))[:-1]:
            _line(svg, "grid", (x(edge - 0.5), _TOP), (x(edge - 0.5), HEIGHT - _BOTTOM))
    for value in agreed:
        _line(svg, "base", (_LEFT, y(value)), (WIDTH - _RIGHT, y(value)))
    _text(svg, (_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 6, "rounds, process by process", "middle")
    return _figure("Times of both sides" if base else "Times of the head; the line is the baseline", label, svg)


def _range(processes: Sequence[Sequence[float]], unit: str) -> str:
    values = [value for process in processes for value in process]
    return f"from {amount(min(values), unit)} to {amount(max(values), unit)}"


def _differences(row: Row, measurement: Measurement) -> str:
    """Draw the change of each pair, the interval that decides, and both thresholds."""
    change = row.finding.change
    if change is None or not all(math.isfinite(x) and x > 0 for x in (change.low, change.point, change.high)):
        return ""
    logs = [log_ratio(pair) for pair in measurement.sound_pairs]
    pairs = [math.exp(value) - 1 for value in logs if math.isfinite(value) and abs(value) < 50]
    low, point, high = (value - 1 for value in (change.low, change.point, change.high))
    limits = [limit - 1 for limit in row.limits if math.isfinite(limit) and limit > 0]
    x = scale_of([*pairs, low, high, 0.0, *limits], _LEFT, WIDTH - _RIGHT)
    label = f"Change {percent(point, sign=True)}, interval {percent(low, sign=True)} to {percent(high, sign=True)}"
    label += f"; thresholds {' and '.join(percent(limit, sign=True) for limit in sorted(limits))}" if limits else ""
    svg = _frame(label)
    for value, name in ((0.0, "axis"), *((limit, "limit") for limit in limits)):
        _line(svg, name, (x(value), _TOP), (x(value), HEIGHT - _BOTTOM))
    bottom = HEIGHT - _BOTTOM - 16
    y = Scale(0, max(1, len(pairs)), _TOP + 8, bottom - 16)
    _dots(svg, "head", [(x(value), y(i)) for i, value in enumerate(pairs)])
    _line(svg, "interval", (x(low), bottom), (x(high), bottom))
    _dots(svg, "estimate", [(x(point), bottom)])
    _text(svg, _LEFT - 8, bottom + 4, "interval", "end")
    if pairs:
        _text(svg, _LEFT - 8, _TOP + 12, f"{len(pairs)} pairs" if len(pairs) > 1 else "1 pair", "end")
    last = -math.inf
    for value in sorted((0.0, *limits)):
        if x(value) - last >= 44:
            _text(svg, x(value), HEIGHT - _BOTTOM + 16, percent(value, sign=bool(value)), "middle")
            last = x(value)
    return _figure("Change of each pair, interval and thresholds" if pairs else "Interval and thresholds", label, svg)


def _conditions(measurement: Measurement) -> list[str]:
    """Draw the SM clock of the head and the temperature, process by process."""
    processes = measurement.pairs or measurement.replicates
    clocks = [p.sm_clock_hz for p in processes]
    celsius = [p.temperature_c for p in processes]
    return [
        _over_processes("SM clock of the head", clocks, lambda value: rate(value, "Hz")),
        _over_processes("Temperature of the GPU", celsius, lambda value: f"{value:.0f} C"),
    ]


def _over_processes(title: str, read: Sequence[float | None], write: Callable[[float], str]) -> str:
    known = [(i, value) for i, value in enumerate(read) if value is not None and math.isfinite(value)]
    if not known:
        return ""
    values = [value for _, value in known]
    label = f"{title}: from {write(min(values))} to {write(max(values))} over {len(read)} processes"
    svg = _frame(label)
    x, y = Scale(0, max(1, len(read) - 1), _LEFT + 8, WIDTH - _RIGHT - 8), scale_of(values, HEIGHT - _BOTTOM, _TOP)
    _y_axis(svg, y, sorted({min(values), max(values)}), write)
    _dots(svg, "head", [(x(i), y(value)) for i, value in known])
    _text(svg, (_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 6, "processes", "middle")
    return _figure(title, label, svg)


def _roofline(row: Row, measurement: Measurement, device: Device | None) -> str:
    """Draw the ceiling of the device with the points of both sides; empty where cost or peaks are not known."""
    cost, head = measurement.cost, row.roofline
    if cost is None or head is None or device is None or not (cost.flop and cost.bytes and head.share):
        return ""
    bandwidth = peak_bandwidth(device)
    compute = peak_compute(device, cost.dtype or str(measurement.params.get("dtype", "float32")))
    if not bandwidth or not compute:
        return ""
    points = [("head", head), *([("base", row.base_roofline)] if row.base_roofline else [])]
    intensity, ridge = cost.flop / cost.bytes, compute / bandwidth
    x = scale_of([intensity, ridge], _LEFT, WIDTH - _RIGHT, log=True)
    start = x.low * bandwidth
    y = scale_of([compute, start, *(point.flop_per_s for _, point in points)], HEIGHT - _BOTTOM, _TOP, log=True)
    shares = ", ".join(f"{name} {percent(point.share or 0.0, digits=0)}" for name, point in points)
    label = f"Roofline at {intensity:.3g} FLOP/B, bound by {head.bound}; share of the ceiling: {shares}"
    svg = _frame(label)
    _y_axis(svg, y, [compute, head.flop_per_s], lambda value: rate(value, "FLOP/s"))
    _line(svg, "limit", (x(x.low), y(start)), (x(ridge), y(compute)), (x(x.high), y(compute)))
    for name, point in reversed(points):
        _dots(svg, f"{name} large", [(x(intensity), y(point.flop_per_s))])
    _text(svg, x(intensity), HEIGHT - 6, f"{intensity:.3g} FLOP/B", "middle")
    return _figure("Roofline", label, svg)


def _frame(label: str) -> Element:
    attributes = {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "img", "aria-label": clean(label, 400)}
    svg = Element("svg", attributes)
    _line(svg, "axis", (_LEFT, _TOP), (_LEFT, HEIGHT - _BOTTOM), (WIDTH - _RIGHT, HEIGHT - _BOTTOM))
    return svg


def _figure(title: str, label: str, svg: Element) -> str:
    figure = Element("figure")
    SubElement(figure, "h4").text = title
    figure.append(svg)
    SubElement(figure, "figcaption").text = f"{clean(label, 400)}."
    return tostring(figure, encoding="unicode", short_empty_elements=False)


def _y_axis(svg: Element, y: Scale, values: Sequence[float], write: Callable[[float], str]) -> None:
    """Write values at the axis, without those that would overlap."""
    last = math.inf
    for value in sorted(values):
        if last - y(value) >= 14:
            last = y(value)
            _text(svg, _LEFT - 6, last + 4, write(value), "end")


def _dots(svg: Element, name: str, points: Sequence[tuple[float, float]]) -> None:
    """Draw a mark at each point: a line without length, whose caps are the mark (round or square, by the class)."""
    if points:
        SubElement(svg, "path", {"class": f"dots {name}", "d": "".join(f"M{x:g} {y:g}h0" for x, y in points)})


def _line(svg: Element, name: str, *points: tuple[float, float]) -> None:
    SubElement(svg, "polyline", {"class": name, "points": " ".join(f"{x:g},{y:g}" for x, y in points)})


def _text(svg: Element, x: float, y: float, text: str, anchor: str) -> None:
    SubElement(svg, "text", {"x": f"{x:g}", "y": f"{y:g}", "text-anchor": anchor}).text = text
