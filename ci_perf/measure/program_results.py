"""What a benchmark program wrote about itself: read, and kept in the run's folder."""

import shutil
from functools import partial
from pathlib import Path

from ci_perf.measure.program_run import Launcher, ProgramFailed
from ci_perf.traces.benchmarks.choice import Chosen, NoNumber, choose
from ci_perf.traces.benchmarks.reader import beside, parse
from ci_perf.traces.benchmarks.results import BenchmarkFile
from ci_perf.values.errors import ProfileError
from ci_perf.values.job import Job
from ci_perf.values.kernel import Program

_LARGEST_FILE = 256 << 20
"""Bytes of a benchmark's results; a larger file is not read."""


def read_results(launcher: Launcher, job: Job, program: Program, scratch: Path) -> Chosen:
    """Return the number of a case out of what its program wrote into `scratch`; ProgramFailed."""
    try:
        return choose(_read(_written(launcher, job, scratch), program.kind), program, job.params)
    except NoNumber as error:
        raise ProgramFailed(error.code, str(error)) from None


def _written(launcher: Launcher, job: Job, scratch: Path) -> Path:
    """Return the file that the benchmark wrote, and keep a copy of it in the run's folder."""
    written = [file for file in sorted(scratch.rglob("*")) if file.is_file() and file.suffix in (".json", ".csv")]
    written = [file for file in written if file.stat().st_size]
    if not written:
        raise ProgramFailed("no-output", "the program ended well and wrote nothing to {output}")
    if len(written) > 1:
        names = ", ".join(file.relative_to(scratch).as_posix() for file in written[:5])
        raise ProgramFailed("no-output", f"the program wrote {len(written)} files to {{output}}, expected one: {names}")
    kept = launcher.folder / "benchmarks" / f"{job.spec.name}.{job.case}{launcher.side}{written[0].suffix}"
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(written[0], kept)
    samples = Path(f"{written[0]}-bin")  # of nvbench --jsonbin
    if samples.is_dir():
        shutil.copytree(samples, f"{kept}-bin", dirs_exist_ok=True)
    return written[0]


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
