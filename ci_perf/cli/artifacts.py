"""The artifact folder: writes what can be made from a finished run, and lets nothing out that holds a secret."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ci_perf import store
from ci_perf.guard.guard import Guard
from ci_perf.guard.redact import redact_run
from ci_perf.judge.report import Report, build_report
from ci_perf.measure.session import Session
from ci_perf.render.folder import render_environment, render_index, render_smoke, render_timeline
from ci_perf.render.markdown import render_comment
from ci_perf.render.tabular import render_csv
from ci_perf.values.run import Run

_TEXTS: dict[str, Callable[[Report], str]] = {
    "report.md": render_comment,
    "key_metrics.csv": render_csv,
    "smoke.txt": render_smoke,
    "env.txt": render_environment,
    "nsys_summary.txt": render_timeline,
}


def save(run: Run, guard: Guard) -> None:
    """Write `run.json` as far as the run has come, without secrets."""
    store.write_run(redact_run(run, guard.needles), guard.folder)


def finish(run: Run, guard: Guard) -> Report:
    """Search the folder, write everything that is made from the run, and return the report."""
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
