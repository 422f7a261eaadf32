"""One run of a program: its command line, its end, its log, and the number that a benchmark wrote.

A kernel.toml names one metric of a benchmark's results; it is taken in base units and with its direction.
"""

import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from ci_perf.measure import proc
from ci_perf.measure.conditions import Conditions
from ci_perf.traces.benchmarks.reader import beside, parse
from ci_perf.traces.benchmarks.results import MAIN_METRIC, BenchmarkCase, BenchmarkFile, scaled, select
from ci_perf.values.errors import CiPerfError, ProfileError
from ci_perf.values.job import Job
from ci_perf.values.kernel import Params, Program, command_line, fill
from ci_perf.values.quantity import base_unit

_TAIL = 4000
MOST_SAMPLES = 1000
"""Of a benchmark that keeps more, every so many-th is taken: their median is as good, and a run stays readable."""
_LARGEST_FILE = 256 << 20
"""Bytes of a benchmark's results; a larger file is not read."""
_WRITES: Mapping[str, tuple[str, ...]] = {
    "nvbench": ("nvbench-json", "nvbench-csv"),
    "google_benchmark": ("google-benchmark", "google-benchmark-csv"),
    "pytest_benchmark": ("pytest-benchmark",),
    "triton_csv": ("triton-csv",),
}


class ProgramFailed(Exception):
    """Why a program has no result; becomes a Failure in one place."""

    def __init__(self, code: str, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.detail = detail[-_TAIL:].strip()


@dataclass(frozen=True, slots=True)
class Chosen:
    """The samples of one run of a benchmark."""

    values: tuple[float, ...]
    method: str
    """The kind of file, the metric where it is not the one that the kind is about, and whether it has samples."""
    unit: str
    better: str


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
        output_folder = scratch / "results"
        output_folder.mkdir(exist_ok=True)
        program = job.spec.program
        if program is None:
            raise ValueError(f"{job.id} has an entry, not a program")
        places = {
            "output": str(scratch / f"results.{'csv' if program.kind == 'triton_csv' else 'json'}"),
            "output_folder": str(output_folder),
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
            completed = proc.run(argv, timeout_s=timeout_s, env=program_env(conditions, job), cwd=conditions.root)
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
        """Return a case's number from the file that its benchmark wrote into `scratch`; ProgramFailed.

        Only Triton writes several, one for each benchmark of `perf_report`; their results are named `PLOT/PROVIDER`.
        """
        written = _written(scratch, program.kind)
        files = [self._read(job, file, program.kind, several=len(written) > 1) for file in written]
        cases = tuple(case for file in files for case in file.cases)
        return choose(replace(files[0], cases=cases), program, job.params)

    def _read(self, job: Job, file: Path, declared: str, *, several: bool) -> BenchmarkFile:
        """Read a file of results, and keep a copy of it in the run's folder, which errors name."""
        plot = f".{file.stem}" if several else ""
        kept = self.folder / "benchmarks" / f"{job.spec.name}.{job.case}{self.side}{plot}{file.suffix}"
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, kept)
        samples = Path(f"{file}-bin")  # of nvbench --jsonbin
        if samples.is_dir():
            shutil.copytree(samples, f"{kept}-bin", dirs_exist_ok=True)
        found = _parsed(file, f"benchmarks/{kept.name}", declared)
        named = [replace(case, name=f"{file.stem}/{case.name}") for case in found.cases]
        return replace(found, cases=tuple(named)) if several else found


def program_env(conditions: Conditions, job: Job) -> dict[str, str]:
    """Return the environment of a program: its kernel.toml may add variables, and folders for Python."""
    env = {**conditions.env, **job.spec.env_in(conditions.root)}
    path = (*job.spec.path_in(conditions.root), *filter(None, (env.get("PYTHONPATH"),)))
    return {**env, "PYTHONPATH": os.pathsep.join(path)} if job.spec.package.path else env


def bad_end(name: str, status: int, completed: proc.Completed, where: str = "") -> ProgramFailed:
    """Say how a program ended; `where` follows the name of the signal or status."""
    how = f"ended with {proc.signal_name(status)}{where}{completed.said}"
    return ProgramFailed("crashed" if status < 0 else "exited", f"`{name}` {how}", completed.output)


def _written(scratch: Path, kind: str) -> list[Path]:
    """Return the files that a benchmark wrote: one, or with Triton at least one."""
    written = [file for file in sorted(scratch.rglob("*")) if file.is_file() and file.suffix in (".json", ".csv")]
    written = [file for file in written if file.stat().st_size]
    if not written:
        raise ProgramFailed("no-output", "the program ended well and wrote nothing to {output}")
    if len(written) > 1 and kind != "triton_csv":
        names = ", ".join(file.relative_to(scratch).as_posix() for file in written[:5])
        message = f"the program wrote {len(written)} files to {{output}}, expected one: {names}"
        raise ProgramFailed("no-output", message)
    return written


def _parsed(path: Path, name: str, declared: str) -> BenchmarkFile:
    if path.stat().st_size > _LARGEST_FILE:
        raise ProgramFailed("wrong-format", f"{name} is larger than {_LARGEST_FILE >> 20} MiB")
    try:
        text = path.read_text(encoding="utf-8-sig")
        return parse(text, name, declared=declared, beside=partial(_samples, path))
    except UnicodeDecodeError:
        raise ProgramFailed("wrong-format", f"{name}: binary data, not a benchmark's results") from None
    except ProfileError as error:
        raise ProgramFailed("wrong-format", str(error), error.hint) from None


def _samples(path: Path, folder: str, name: str) -> bytes:
    """Return a file that nvbench just wrote beside `path`; without it some replicates would be samples, some a mean."""
    if not name:
        raise ProfileError("nvbench could not write all samples", hint="the log of the program says why")
    content = beside(path, folder, name)
    if content is None:
        hint = "let nvbench write `--jsonbin {output}`, or `--json {output}` for the mean alone"
        raise ProfileError(f"names the samples {folder}/{name}, which are not beside it", hint=hint)
    return content


def choose(found: BenchmarkFile, program: Program, params: Params) -> Chosen:
    """Return the selected metric; no match, several matches and an unknown unit are errors: ProgramFailed."""
    if found.kind not in _WRITES[program.kind]:
        raise ProgramFailed("wrong-format", f"kernel.toml says `{program.kind}`, but the program wrote {found.kind}")
    case = _find(found, program, params)
    unit, factor, better = _unit(case, program)
    step = -(-len(case.values) // MOST_SAMPLES)
    values = tuple(scaled(value, factor) for value in case.values[:: step or 1])
    if any(value < 0 or not math.isfinite(value) for value in values):
        raise ProgramFailed("wrong-format", f"{case} holds a value that is negative or not finite")
    method = found.kind if case.metric == MAIN_METRIC[found.kind] else f"{found.kind}/{case.metric}"
    if found.kind == "nvbench-json" and len(values) > 1:
        method += "/samples"  # their median is not the mean that the file has without them
    return Chosen(values, method, unit, better)


def _find(found: BenchmarkFile, program: Program, params: Params) -> BenchmarkCase:
    pattern = fill(program.benchmark, params) or "*"
    metric = program.metric or MAIN_METRIC[found.kind]
    fitting = select(found.cases, params, lambda name: name == pattern or fnmatchcase(name, pattern), metric)
    if not fitting:
        raise ProgramFailed(
            "no-benchmark",
            f"no `{metric}` of a benchmark `{pattern}` has this case's parameters; the file holds {_some(found.cases)}",
        )
    if len(fitting) > 1:
        raise ProgramFailed(
            "no-benchmark",
            f"{len(fitting)} benchmarks of the file fit, expected one: {_some(fitting)}; tell them apart by the key "
            "`benchmark` or by parameters",
        )
    if fitting[0].skipped:
        raise ProgramFailed("skipped", f"{fitting[0]}: {fitting[0].skipped}")
    return fitting[0]


def _some(cases: Sequence[BenchmarkCase]) -> str:
    return "; ".join(str(case)[:80] for case in cases[:4]) + ("; ..." if len(cases) > 4 else "")


def _unit(case: BenchmarkCase, program: Program) -> tuple[str, float, str]:
    """Return base unit, factor and direction: from the file, else from kernel.toml; they must not contradict."""
    said = base_unit(program.unit) if program.unit else None
    for what, file, toml in (("unit", case.unit, said and said[0]), ("better", case.better, program.better)):
        if file and toml and file != toml:
            raise ProgramFailed("wrong-format", f"key `{what}` of kernel.toml says {toml}, the file says {file}")
        if not file and not toml:
            raise ProgramFailed(
                "wrong-format", f"the file does not say the {what} of {case}: set `{what}` in kernel.toml"
            )
    unit, factor = (case.unit, 1.0) if case.unit or said is None else said
    return unit, factor, case.better or program.better
