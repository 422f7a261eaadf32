"""One run of a program: its command line, its end, its log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ci_perf.measure import proc
from ci_perf.values.errors import CiPerfError
from ci_perf.values.job import Job
from ci_perf.values.kernel import Program
from ci_perf.values.program import command_line

_TAIL = 4000


class ProgramFailed(Exception):
    """What became of a program, on its way to the one place that turns it into a Failure."""

    def __init__(self, code: str, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.detail = detail[-_TAIL:].strip()


@dataclass(frozen=True, slots=True)
class Launcher:
    """Starts the programs of one tree, in its root."""

    root: Path
    folder: Path
    """Of the run: logs go there."""
    python: str
    """What `{python}` stands for."""
    env: Mapping[str, str]
    timeout_s: float
    """Where kernel.toml says no other."""
    side: str = ""
    """Behind `program` in the names of logs."""

    def prepare(self, job: Job, scratch: Path) -> tuple[Program, tuple[str, ...]]:
        """Return a case's program and its command line, which writes into `scratch`."""
        program = job.spec.program
        if program is None:
            raise ValueError(f"{job.id} has an entry, not a program")
        places = {
            "output": str(scratch / f"results.{'csv' if program.kind == 'triton_csv' else 'json'}"),
            "folder": job.spec.folder,
            "python": self.python,
        }
        return program, command_line(program, job.params, places)

    def run(self, job: Job, argv: Sequence[str]) -> None:
        """Run to an end, which must be a good one."""
        completed = self.start(job, argv)
        if completed.status != 0:
            raise bad_end(argv[0], completed.status, completed)

    def start(self, job: Job, argv: Sequence[str]) -> proc.Completed:
        """Run to an end of any kind within the time limit; the output goes to the case's log."""
        timeout_s = job.spec.timeout_s or self.timeout_s
        try:
            completed = proc.run(argv, timeout_s=timeout_s, env=self.env, cwd=self.root)
        except (CiPerfError, ValueError) as error:  # the latter: a null character in an argument
            raise ProgramFailed("not-started", f"{error}; programs are started in {self.root}") from None
        self._log(job, completed)
        if completed.timed_out:
            raise ProgramFailed("timeout", f"no end within {timeout_s:g} s; the program was killed", completed.output)
        return completed

    def _log(self, job: Job, completed: proc.Completed) -> None:
        log = self.folder / "logs" / f"program{self.side}.{job.spec.name}.{job.case}.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as file:
            file.write(f"$ {' '.join(completed.argv)}\n# {proc.signal_name(completed.status)}\n{completed.output}\n")


def bad_end(name: str, status: int, completed: proc.Completed, where: str = "") -> ProgramFailed:
    """Say how a program ended; `where` follows the name of the signal or status."""
    how = f"ended with {proc.signal_name(status)}{where}{last_line(completed)}"
    return ProgramFailed("crashed" if status < 0 else "exited", f"`{name}` {how}", completed.output)


def last_line(completed: proc.Completed) -> str:
    """Return the last line that was printed, as the end of a sentence; empty where there is none."""
    lines = completed.output.strip().splitlines()
    return f": {lines[-1][:200]}" if lines else ""
