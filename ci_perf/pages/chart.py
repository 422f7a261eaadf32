"""Charts as data. charts.js draws them in the browser, with Observable Plot.

Plot (plot.min.js, made by scripts/plot/build) adds 270 kB to a page, 90 kB zipped, and draws a chart as the part of the
page that has it is opened. Vega-Lite is three times as large and evaluates strings as code, which the page forbids.
Matplotlib takes 50 ms for each chart and would be installed on every runner.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from ci_perf.values.quantity import amount, counted, scale
from ci_perf.values.series import Point, Trend


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart: `data` is what the function `kind` of charts.js draws, of numbers in the unit that it names."""

    kind: str
    title: str
    caption: str
    """A sentence that says what the chart shows, for those who do not see it."""
    data: Mapping[str, object]

    @property
    def is_finite(self) -> bool:
        """Whether all numbers are finite: files of other origin may hold any, and a chart of them shows nothing."""
        try:
            json.dumps(self.data, allow_nan=False)
        except ValueError:
            return False
        return True


def history_chart(trend: Trend, *, several: bool) -> Chart:
    """Return the medians over commits and runs, each with the lowest and the highest median of a process.

    With `several` series of one case, the title names the method.
    """
    points = trend.series.points
    last = points[-1]
    factor, unit = scale(max(point.median for point in points), last.unit)
    values = [
        (place, *(short(value / factor) for value in (point.median, point.low, point.high)), _label(point))
        for place, point in enumerate(points)
    ]
    words = f"{counted(len(points), 'time')} of baselines and runs from {points[0].when[:10]} to {last.when[:10]}"
    words = "; ".join((words, f"the last one is {amount(last.median, last.unit)}", *trend.sentences))
    data = {"unit": unit, "points": values, "changes": [place - 0.5 for place in trend.changes]}
    return Chart("history", f"History ({last.method})" if several else "History", words, data)


def _label(point: Point) -> str:
    return " ".join(filter(None, (point.when[:10], point.commit[:8], point.source)))


def short(value: float) -> float:
    """Return a number with the digits that a chart shows."""
    return float(f"{value:.5g}")
