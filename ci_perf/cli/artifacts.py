"""The artifact folder: saves a run as it grows, writes the reports of a finished one, keeps secrets out."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ci_perf import store
from ci_perf.cli.case_history import trends_of
from ci_perf.guard.guard import Guard
from ci_perf.guard.redact import redact_run, redact_step
from ci_perf.judge.report import Report, build_report
from ci_perf.measure.session import Session
from ci_perf.render.folder import render_environment, render_index, render_smoke, render_timeline
from ci_perf.render.html import render_html
from ci_perf.render.markdown import render_comment
from ci_perf.render.tabular import render_csv
from ci_perf.values.codec import step_of
from ci_perf.values.errors import WriteError
from ci_perf.values.run import Run
from ci_perf.values.series import Trend

_TEXTS: dict[str, Callable[[Report], str]] = {
    "report.md": render_comment,
    "key_metrics.csv": render_csv,
    "smoke.txt": render_smoke,
    "env.txt": render_environment,
    "nsys_summary.txt": render_timeline,
}


class Recorder:
    """Saves a run as it grows: each call adds one line to the journal, without secrets."""

    def __init__(self, guard: Guard, say: Callable[[str], object] = lambda _: None) -> None:
        """`say` gets a message where a step cannot be written; the run goes on."""
        self._guard = guard
        self._say = say
        self._lost = False
        self.last: Run | None = None
        """The run as it was saved last; None before the first call."""

    def __call__(self, run: Run) -> None:
        """Append what changed since the last call."""
        is_first, step = self.last is None, redact_step(step_of(self.last, run), self._guard.needles)
        self.last = run
        if self._lost:  # a later step cannot be added to a journal that lacks one
            return
        try:
            if is_first:
                store.begin_journal(step, self._guard.folder)
            elif step:
                store.append_step(step, self._guard.folder)
        except WriteError as error:
            self._lost = True
            self._say(f"warning: {error}; the run goes on, and is written at its end")


class NotWritten(WriteError):
    """A file of the folder could not be written; the report is here."""

    def __init__(self, why: WriteError, report: Report) -> None:
        super().__init__(str(why), hint=why.hint)
        self.report = report


def finish(run: Run, guard: Guard, baselines: str) -> Report:
    """Search the folder for secrets, write run.json and the reports, and return the report; NotWritten.

    `baselines` is the folder whose git log has the history of the cases.
    """
    store.cap_logs(guard.folder)
    run = redact_run(replace(run, notes=(*run.notes, *guard.sweep())), guard.needles)
    report = build_report(run)
    try:
        _write(run, report, guard.folder, trends_of(run, Path.cwd(), baselines))
    except WriteError as error:
        raise NotWritten(error, report) from None
    return report


def _write(run: Run, report: Report, folder: Path, trends: Sequence[Trend]) -> None:
    store.write_run(run, folder)
    store.write_text(folder / "report.html", render_html(report, trends))
    for name, render in _TEXTS.items():
        if text := render(report):
            store.write_text(folder / name, text)
    files = {path.relative_to(folder).as_posix(): path.stat().st_size for path in _files(folder)}
    store.write_text(folder / "index.md", render_index(report, files))


def conclude(run: Run, session: Session, baselines: str) -> Report:
    """End what the session runs, add what it learned of the GPU's memory, and finish the folder."""
    run = replace(run, notes=(*run.notes, *session.memory_errors()))
    session.worker.close()  # what a worker still writes would escape the search of the folder
    return finish(run, session.guard, baselines)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
