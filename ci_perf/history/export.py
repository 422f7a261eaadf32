"""Series for other tools."""

import csv
import datetime
import io
import json
from collections.abc import Sequence
from dataclasses import astuple, fields

from ci_perf.values.errors import ConfigError
from ci_perf.values.series import Point, Series


def to_csv(series: Sequence[Series]) -> str:
    """Return a line for each point; the columns are the fields of `Point`."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in fields(Point)])
    writer.writerows(astuple(point) for one in series for point in one.points)
    return text.getvalue()


def to_openmetrics(series: Sequence[Series]) -> str:
    """Return OpenMetrics 1.0 text, a sample with its timestamp for each point, as `promtool` reads them.

    Times are `ci_perf_time_seconds`, all else `ci_perf_value` with a label for its unit. ConfigError where
    prometheus_client is not installed.
    """
    try:
        from prometheus_client.core import CollectorRegistry, GaugeMetricFamily
        from prometheus_client.openmetrics.exposition import generate_latest
    except ImportError:
        hint = "install the extra: `ci-perf[history] @ git+https://github.com/org/ci-perf`"
        raise ConfigError(
            "OpenMetrics needs the package `prometheus-client`, which is not installed", hint=hint
        ) from None
    labels = ["kernel", "case", "device", "method"]
    times = GaugeMetricFamily("ci_perf_time_seconds", "Median time of a launch.", labels=labels, unit="seconds")
    values = GaugeMetricFamily("ci_perf_value", "Median of a measurement in its own unit.", labels=[*labels, "unit"])
    for one in series:
        seen: set[float] = set()
        for point in one.points:
            at = datetime.datetime.fromisoformat(point.when).timestamp()
            if at in seen:  # a sample has one value at a time
                continue
            seen.add(at)
            names = [point.kernel, point.case, point.device, point.method]
            if point.unit == "s":
                times.add_metric(names, point.median, timestamp=at)
            else:
                values.add_metric([*names, point.unit], point.median, timestamp=at)

    class Collector:
        def collect(self) -> list[GaugeMetricFamily]:
            return [family for family in (times, values) if family.samples]

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector())
    return str(generate_latest(registry).decode())


def to_bencher(series: Sequence[Series]) -> str:
    """Return Bencher's metric format: the newest point of each series, lowest and highest median of a process.

    Seconds become Bencher's built-in measure `latency`, in nanoseconds; other units are measures of their name.
    https://bencher.dev/docs/reference/bencher-metric-format
    """
    document: dict[str, dict[str, dict[str, float]]] = {}
    for one in series:
        last = one.last
        factor, measure = (1e9, "latency") if last.unit == "s" else (1.0, last.unit or "value")
        numbers = {"value": last.median, "lower_value": last.low, "upper_value": last.high}
        document[one.name] = {measure: {name: value * factor for name, value in numbers.items()}}
    return json.dumps(document, indent=2) + "\n"


FORMATS = {"csv": to_csv, "openmetrics": to_openmetrics, "bencher": to_bencher}
"""By the name on the command line."""
