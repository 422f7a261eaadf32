"""Series as SVG, drawn by matplotlib."""

import io
from collections.abc import Sequence

from ci_perf.history.table import Changes, known_changes
from ci_perf.values.errors import ConfigError
from ci_perf.values.series import Series


def render_svg(series: Sequence[Series], changes_of: Changes) -> str:
    """Return one plot below another: medians with the range of the processes, and a line at each change point.

    ConfigError where matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        hint = "install the extra: `ci-perf[history] @ git+https://github.com/org/ci-perf`"
        raise ConfigError("a picture needs the package `matplotlib`, which is not installed", hint=hint) from None
    with mpl.rc_context({"svg.hashsalt": "ci-perf", "svg.fonttype": "none"}):
        figure = Figure(figsize=(8, 2.4 * len(series)), layout="constrained")
        for axes, one in zip(figure.subplots(len(series), squeeze=False)[:, 0], series, strict=True):
            medians = [point.median for point in one.points]
            places = range(len(medians))
            low = [max(p.median - p.low, 0) for p in one.points]
            high = [max(p.high - p.median, 0) for p in one.points]
            axes.errorbar(places, medians, yerr=[low, high], fmt="o-", markersize=3, linewidth=1, capsize=2)
            for change in known_changes(one, changes_of)[0]:
                axes.axvline(one.points.index(change.after) - 0.5, color="tab:red", linestyle="--", linewidth=1)
            axes.set_title(one.name, fontsize=9)
            axes.set_ylabel("time" if one.last.unit == "s" else "value")
            axes.yaxis.set_major_formatter(mpl.ticker.EngFormatter(unit=one.last.unit))
            axes.set_ylim(bottom=0)
            axes.set_xlabel(f"commit or run, {one.points[0].when[:10]} to {one.last.when[:10]}", fontsize=8)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()
