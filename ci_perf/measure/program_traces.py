"""The traces that programs were timed by: the last one of each case is kept, of each side where two take turns."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from ci_perf.guard.guard import Guard
from ci_perf.traces.nsys import scrub as nsys_scrub
from ci_perf.values.errors import CiPerfError
from ci_perf.values.job import Job
from ci_perf.values.run import Note

REPORT, DATABASE = "trace.nsys-rep", "trace.sqlite"
"""What nsys leaves in the scratch folder of a run: its report, and the database that was exported of it."""
FOLDER = "traces"
"""Where the traces lie in the artifact folder: `traces/KERNEL.CASE.nsys-rep`."""
BASE = "@base"
"""Behind the case's name in the trace of the base: no case has this character in its name."""


@dataclass(frozen=True, slots=True)
class ProgramTraces:
    """Holds back the last trace of each case, and lets it in when all are measured: a search of each takes its time."""

    guard: Guard
    """A trace holds environments: until it was cleaned and searched it waits outside of the run's folder."""
    _kept: dict[str, None] = field(default_factory=dict, init=False)

    def keep(self, job: Job, scratch: Path, *, base: bool = False) -> None:
        """Take what nsys left of one run in place of what the last run left, if it left anything."""
        files = [file for file in (scratch / REPORT, scratch / DATABASE) if file.is_file()]
        if not files:
            return
        name = f"{job.spec.name}.{job.case}{BASE if base else ''}"
        for suffix in (Path(REPORT).suffix, Path(DATABASE).suffix):
            self._place(name, suffix).unlink(missing_ok=True)
        for file in files:
            shutil.move(file, self._place(name, file.suffix))
        self._kept[name] = None

    def __bool__(self) -> bool:
        """Whether anything is held back."""
        return bool(self._kept)

    def admit(self) -> tuple[Note, ...]:
        """Let all in, databases without environments; say of each that holds a secret, or cannot be cleaned."""
        notes: list[Note] = []
        for name in self._kept:
            report, exported = (self._place(name, Path(file).suffix) for file in (REPORT, DATABASE))
            if report.is_file():
                notes += self.guard.admit(report, FOLDER)
            if exported.is_file():
                notes += self._admit_cleaned(exported)
        self._kept.clear()
        return tuple(notes)

    def _admit_cleaned(self, exported: Path) -> tuple[Note, ...]:
        raw = exported.rename(exported.with_suffix(".exported"))
        try:
            nsys_scrub.clean(raw, exported)
        except CiPerfError:
            return (Note("nsys-failed", f"nsys: {exported.name} is not kept: it cannot be cleaned"),)
        finally:
            raw.unlink()
        return self.guard.admit(exported, FOLDER)

    def _place(self, name: str, suffix: str) -> Path:
        return self.guard.outside / f"{name}{suffix}"
