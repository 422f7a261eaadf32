"""The artifact folder: saves a run as it grows, writes the reports of a finished one, keeps secrets out."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ci_perf import store
from ci_perf.guard.guard import Guard
from ci_perf.guard.redact import redact_run, redact_step
from ci_perf.judge.report import Report, build_report
from ci_perf.measure.session import Session
from ci_perf.render.folder import render_environment, render_index, render_smoke, render_timeline
from ci_perf.render.html import render_html
from ci_perf.render.markdown import render_comment
from ci_perf.render.tabular import render_csv
from ci_perf.values.codec import step_of
from ci_perf.values.run import Run

_TEXTS: dict[str, Callable[[Report], str]] = {
    "report.md": render_comment,
    "report.html": render_html,
    "key_metrics.csv": render_csv,
    "smoke.txt": render_smoke,
    "env.txt": render_environment,
    "nsys_summary.txt": render_timeline,
}


class Recorder:
    """Saves a run as it grows: each call adds one line to the journal, without secrets."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._last: Run | None = None

    def __call__(self, run: Run) -> None:
        """Append what changed since the last call."""
        step = step_of(self._last, run)
        self._last = run
        if step:
            store.append_step(redact_step(step, self._guard.needles), self._guard.folder)


def finish(run: Run, guard: Guard) -> Report:
    """Search the folder for secrets, write run.json and the reports, and return the report."""
    run = redact_run(replace(run, notes=(*run.notes, *guard.sweep())), guard.needles)
    store.write_run(run, guard.folder)
    report = build_report(run)
    for name, render in _TEXTS.items():
        if text := render(report):
            store.write_text(guard.folder / name, text)
    files = {path.relative_to(guard.folder).as_posix(): path.stat().st_size for path in _files(guard.folder)}
    store.write_text(guard.folder / "index.md", render_index(report, files))
    return report


def conclude(run: Run, session: Session) -> Report:
    """End what the session runs, add what it learned of the GPU's memory, and finish the folder."""
    run = replace(run, notes=(*run.notes, *session.memory_errors()))
    session.worker.close()  # what a worker still writes would escape the search of the folder
    return finish(run, session.guard)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
