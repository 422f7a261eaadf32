"""The operating curves as an SVG picture: the share that each rule flags against the change that was really planted.

With the same version of matplotlib, the same audit gives the same bytes.
"""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ci_perf.audit.rates import ALL, AuditReport, Point
from ci_perf.values.errors import ConfigError
from lib.rule_comparison.rules import OWN_STORED, RULES, Setting
from lib.rule_comparison.shares import RuleShares
from lib.verdict_simulation import recorded, simulate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "ci-perf",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e5e5e5",
    "text.color": "#1f2328",
    "axes.labelcolor": "#1f2328",
}
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")
"""Distinguishable with colour-blindness: Okabe and Ito, 2008."""
_MARKERS = "osD^vP*X"
MOST_CUT_SHORT = 0.1
"""A point is hollow, and no line leads to it, if more of its records end before the rule decides."""
DRAWN = 20
"""How often each case is drawn for each change."""
_OWN: dict[str, Any] = {"color": "#1f2328", "linewidth": 2.2, "marker": "o", "markersize": 4, "zorder": 5}


def render_plot(report: AuditReport, rules: tuple[RuleShares, ...]) -> str:
    """Return the SVG; ConfigError where matplotlib is not installed."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError(
            "drawing needs matplotlib, which is not installed", hint="python -m pip install 'matplotlib>=3.9'"
        ) from None
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(13, 4), facecolor="white", layout="constrained")
        own, same_job, stored = figure.subplots(1, 3, sharex=True, sharey=True)
        _draw_own(own, report)
        drawn_pairs = _if_sessions_went_on(report)
        lines = _draw_rules(same_job, report, rules, Setting.SAME_JOB, drawn_pairs)
        lines |= _draw_rules(stored, report, rules, Setting.STORED, drawn_pairs)
        own.set_ylabel("flagged as a regression (%)")
        figure.supxlabel("true change (%)", fontsize=9)
        figure.legend(lines.values(), lines.keys(), loc="outside right center", frameon=False, fontsize=8)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": "ci-perf"})
    return "\n".join(line.rstrip() for line in drawn.getvalue().splitlines()) + "\n"


def _draw_own(axes: "Axes", report: AuditReport) -> None:
    """Draw a line for each duration class."""
    for i, name in enumerate(n for n in report.classes if n != ALL):
        axes.plot(*_curve(report, name), color=_COLOURS[i], marker=_MARKERS[i], markersize=4, label=name)
        _mark_cut_short(axes, report, name, color=_COLOURS[i], marker=_MARKERS[i])
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    _finish(axes, "ci-perf, by the duration of a launch", report.threshold)


def _draw_rules(
    axes: "Axes",
    report: AuditReport,
    rules: tuple[RuleShares, ...],
    setting: Setting,
    drawn_pairs: tuple[Sequence[float], Sequence[float]],
) -> dict[str, "Line2D"]:
    """Draw a line for ci-perf and for each rule, over all duration classes; return them by name."""
    steps = [(step, point.planted[1]) for step in (0.0, *report.steps) if (point := report.point(step)) is not None]
    looks = {rule.name: i for i, rule in enumerate(RULES)}
    lines: dict[str, Line2D] = {}
    (lines["ci-perf"],) = axes.plot(*_curve(report, ALL), **_OWN)
    if hollow := _mark_cut_short(axes, report, ALL, color=_OWN["color"], marker=_OWN["marker"]):
        lines["ci-perf, records end before it decides"] = hollow
    if drawn_pairs[0]:
        style = {**_OWN, "linestyle": ":", "marker": ""}
        (lines["ci-perf, drawn from A/A pairs"],) = axes.plot(*drawn_pairs, **style)
    for rule in (rule for rule in rules if rule.setting is setting):
        look = looks[rule.name]
        known = [(100 * x, 100 * rule.at(step).fraction) for step, x in steps if rule.at(step).n]
        if rule.name == OWN_STORED:
            style = {**_OWN, "linestyle": "--"}
        else:
            style = {"color": _COLOURS[look], "marker": _MARKERS[look], "markersize": 4, "linewidth": 1.2}
        (lines[rule.name],) = axes.plot([x for x, _ in known], [y for _, y in known], **style)
    title = "all rules, same job" if setting is Setting.SAME_JOB else "against a stored run"
    _finish(axes, title, report.threshold)
    return lines


def _mark_cut_short(axes: "Axes", report: AuditReport, name: str, **style: Any) -> "Line2D | None":
    """Draw the points of which many records end before the rule decides, which leaves such a case undecided."""
    points = [p for p in _points(report, name) if _is_cut_short(p)]
    if not points:
        return None
    at = [100 * p.planted[1] for p in points], [100 * p.flagged for p in points]
    (hollow,) = axes.plot(*at, linestyle="", markersize=6, markerfacecolor="white", zorder=6, **style)
    return hollow


def _curve(report: AuditReport, name: str) -> tuple[Sequence[float], Sequence[float]]:
    points = [p for p in _points(report, name) if not _is_cut_short(p)]
    return [100 * p.planted[1] for p in points], [100 * p.flagged for p in points]


def _points(report: AuditReport, name: str) -> list[Point]:
    return [p for step in (0.0, *report.steps) if (p := report.point(step, name)) is not None]


def _is_cut_short(point: Point) -> bool:
    return point.cut_short > MOST_CUT_SHORT * point.counts.verdicts


def _if_sessions_went_on(report: AuditReport) -> tuple[Sequence[float], Sequence[float]]:
    """Return the share that ci-perf flags in sessions that go on until it decides, for each change in percent.

    The pairs are drawn from those of unchanged code, each case as one of 12. Without enough pairs there is no change.
    """
    noises = recorded(report.sessions)
    changes = [p.planted[1] for p in _points(report, ALL)] if noises else []
    found = [[simulate(noise, DRAWN, 12, change=x, threshold=report.threshold) for noise in noises] for x in changes]
    return [100 * x for x in changes], [100 * sum(f.red for f in each) / sum(f.cases for f in each) for each in found]


def _finish(axes: "Axes", title: str, threshold: float) -> None:
    axes.axvline(100 * threshold, color="#8c959f", linestyle=":", linewidth=1)
    axes.set_ylim(-3, 103)
    axes.set_title(title, loc="left", fontsize=10)
