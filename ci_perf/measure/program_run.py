"""One run of a program: its command line, its end, its log, and the results that a benchmark wrote."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ci_perf.measure import proc
from ci_perf.measure.conditions import Conditions
from ci_perf.measure.program_choice import Chosen, NoNumber, choose
from ci_perf.traces.benchmarks.reader import beside, parse
from ci_perf.traces.benchmarks.results import BenchmarkFile
from ci_perf.values.errors import CiPerfError, ProfileError
from ci_perf.values.job import Job
from ci_perf.values.kernel import Program
from ci_perf.values.program import command_line

_TAIL = 4000
_LARGEST_FILE = 256 << 20
"""Bytes of a benchmark's results; a larger file is not read."""


class ProgramFailed(Exception):
    """Why a program has no result; becomes a Failure in one place."""

    def __init__(self, code: str, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.detail = detail[-_TAIL:].strip()


@dataclass(frozen=True, slots=True)
class Launcher:
    """Starts the programs of one tree, in its root."""

    conditions: Conditions
    """Their `root` is that of the tree, their `python` is what `{python}` stands for."""
    folder: Path
    """Of the run: logs and results go there."""
    side: str = ""
    """Part of the names of logs: `-base` for the base's tree."""

    def prepare(self, job: Job, scratch: Path) -> tuple[Program, tuple[str, ...]]:
        """Return a case's program and its command line, which writes into `scratch`."""
        program = job.spec.program
        if program is None:
            raise ValueError(f"{job.id} has an entry, not a program")
        places = {
            "output": str(scratch / f"results.{'csv' if program.kind == 'triton_csv' else 'json'}"),
            "folder": job.spec.folder,
            "python": self.conditions.python,
        }
        return program, command_line(program, job.params, places)

    def run(self, job: Job, argv: Sequence[str]) -> None:
        """Run a program, which must end with status 0; ProgramFailed."""
        completed = self.start(job, argv)
        if completed.status != 0:
            raise bad_end(argv[0], completed.status, completed)

    def start(self, job: Job, argv: Sequence[str]) -> proc.Completed:
        """Run a program to any end within its time limit; the output goes to the case's log. ProgramFailed."""
        conditions, timeout_s = self.conditions, self.conditions.timeout_of(job)
        try:
            completed = proc.run(argv, timeout_s=timeout_s, env=conditions.env, cwd=conditions.root)
        except (CiPerfError, ValueError) as error:  # the latter: a null character in an argument
            raise ProgramFailed("not-started", f"{error}; programs are started in {conditions.root}") from None
        log = self.folder / "logs" / f"program{self.side}.{job.spec.name}.{job.case}.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{completed.log}\n")
        if completed.timed_out:
            raise ProgramFailed("timeout", f"no end within {timeout_s:g} s; the program was killed", completed.output)
        return completed

    def read_results(self, job: Job, program: Program, scratch: Path) -> Chosen:
        """Return a case's number from the file that its benchmark wrote into `scratch`; ProgramFailed."""
        try:
            return choose(_read(self._written(job, scratch), program.kind), program, job.params)
        except NoNumber as error:
            raise ProgramFailed(error.code, str(error)) from None

    def _written(self, job: Job, scratch: Path) -> Path:
        """Return the file that the benchmark wrote, and keep a copy of it in the run's folder."""
        written = [file for file in sorted(scratch.rglob("*")) if file.is_file() and file.suffix in (".json", ".csv")]
        written = [file for file in written if file.stat().st_size]
        if not written:
            raise ProgramFailed("no-output", "the program ended well and wrote nothing to {output}")
        if len(written) > 1:
            names = ", ".join(file.relative_to(scratch).as_posix() for file in written[:5])
            message = f"the program wrote {len(written)} files to {{output}}, expected one: {names}"
            raise ProgramFailed("no-output", message)
        kept = self.folder / "benchmarks" / f"{job.spec.name}.{job.case}{self.side}{written[0].suffix}"
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(written[0], kept)
        samples = Path(f"{written[0]}-bin")  # of nvbench --jsonbin
        if samples.is_dir():
            shutil.copytree(samples, f"{kept}-bin", dirs_exist_ok=True)
        return written[0]


def bad_end(name: str, status: int, completed: proc.Completed, where: str = "") -> ProgramFailed:
    """Say how a program ended; `where` follows the name of the signal or status."""
    how = f"ended with {proc.signal_name(status)}{where}{last_line(completed)}"
    return ProgramFailed("crashed" if status < 0 else "exited", f"`{name}` {how}", completed.output)


def last_line(completed: proc.Completed) -> str:
    """Return the last line that was printed, as the end of a sentence; empty where there is none."""
    return f": {completed.last_line}" if completed.last_line else ""


def _read(path: Path, promised: str) -> BenchmarkFile:
    if path.stat().st_size > _LARGEST_FILE:
        raise ProgramFailed("wrong-format", f"{{output}} is larger than {_LARGEST_FILE >> 20} MiB")
    try:
        text = path.read_text(encoding="utf-8-sig")
        return parse(text, "{output}", promised=promised, beside=partial(_samples, path))
    except UnicodeDecodeError:
        raise ProgramFailed("wrong-format", "{output}: binary data, not a benchmark's results") from None
    except ProfileError as error:
        raise ProgramFailed("wrong-format", str(error), error.hint) from None


def _samples(path: Path, folder: str, name: str) -> bytes:
    """Return a file that nvbench just wrote beside `path`; without it some replicates would be samples, some a mean."""
    content = beside(path, folder, name)
    if content is None:
        hint = "let nvbench write `--jsonbin {output}`, or `--json {output}` for the mean alone"
        raise ProfileError(f"names the samples {folder}/{name}, which are not beside it", hint=hint)
    return content
