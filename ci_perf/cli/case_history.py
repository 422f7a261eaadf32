"""The history of the cases of a run, for its page: from the git log of the baselines, and from earlier runs."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from ci_perf import store
from ci_perf.history.git_log import read_history
from ci_perf.history.points import points_of_run, series_of
from ci_perf.history.table import trend_of
from ci_perf.history.trend import change_points
from ci_perf.values.errors import ConfigError, MachineError
from ci_perf.values.run import Run
from ci_perf.values.series import Trend

NEWEST = 100
"""The commits of the baselines that are read, so that a page takes no longer for a long history."""


def trends_of(run: Run, root: Path, baselines: str, earlier: Sequence[Run] = ()) -> tuple[Trend, ...]:
    """Return the series of the cases of a run that have two points or more; the run itself is one of them.

    Where there is no repository, or git does not read it, only the runs count.
    """
    own = list(points_of_run(run))
    if not own:
        return ()
    kernels, devices = (sorted({getattr(point, name) for point in own}) for name in ("kernel", "device"))
    try:
        points, _ = read_history(root, baselines, kernels, devices=devices, newest=NEWEST)
    except MachineError:
        points = []
    points += [point for other in earlier for point in points_of_run(other)]
    cases = {(point.kernel, point.case, point.device) for point in own}
    found = series_of(point for point in (*points, *own) if (point.kernel, point.case, point.device) in cases)
    return tuple(trend_of(series, change_points) for series in found if len(series.points) > 1)


def read_runs(folder: Path) -> Iterator[Run]:
    """Yield the run of each run.json and zip below a folder; ConfigError where there is no such folder."""
    if not folder.is_dir():
        raise ConfigError(f"--runs {folder}: is not a folder", hint="name a folder that holds folders of runs, or zips")
    yield from map(store.read_run, sorted([*folder.rglob("run.json"), *folder.rglob("*.zip")]))
