"""Runs: run.json, its journal while the run grows, plans."""

import zipfile
import zlib
from pathlib import Path

from ci_perf.store.text_files import append_line, read_text, write_text
from ci_perf.values.codec import Step, dump_run, dump_step, load_plan, load_run, load_steps
from ci_perf.values.errors import ConfigError, FormatError
from ci_perf.values.job import Plan
from ci_perf.values.run import Run

JOURNAL = "run.jsonl"
"""A run as it grows: a line for each step. run.json replaces it when the run ends."""
LARGEST_RUN = 256 << 20
"""Bytes of a run.json that are read from an archive: a larger one may be a decompression bomb."""


def read_run(path: Path) -> Run:
    """Read a run from a `run.json`, or from a folder or a zip with one.

    In place of run.json, a run that was killed has left its journal, `run.jsonl`.
    """
    file = _run_file(path) if path.is_dir() else path
    try:
        name, content = _unzip(file) if zipfile.is_zipfile(file) else (file.name, file.read_bytes())
        is_journal = name == JOURNAL
        text = (content[: content.rfind(b"\n") + 1] if is_journal else content).decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no run", hint="`ci-perf run` writes one") from None
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"{path}: cannot be read: {error}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        # The last two: packed in a way that Python cannot unpack, or encrypted.
        raise FormatError(f"{path}: the archive cannot be unpacked: {error}") from None
    return load_steps(text, str(path)) if is_journal else load_run(text, str(path))


def _run_file(folder: Path) -> Path:
    run, journal = folder / "run.json", folder / JOURNAL
    return journal if journal.is_file() and not _holds_text(run) else run


def _holds_text(file: Path) -> bool:
    return file.is_file() and file.stat().st_size > 0


def read_plan(path: Path) -> Plan:
    """Read what `ci-perf plan` wrote."""
    if not path.exists():
        raise ConfigError(f"{path}: there is no plan", hint="`ci-perf plan --plan FILE` writes one")
    return load_plan(read_text(path, str(path), FormatError), str(path))


def _unzip(file: Path) -> tuple[str, bytes]:
    """Read the only run.json of an archive, or else its only journal, in memory; return its name and content."""
    with zipfile.ZipFile(file) as archive:
        named = [(member.filename.rpartition("/")[2], member) for member in archive.infolist()]
        members = [member for name, member in named if name == "run.json"]
        journals = [member for name, member in named if name == JOURNAL]
        found = members or journals
        if len(found) != 1:
            raise FormatError(f"{file}: holds {len(members)} files called run.json, expected one")
        with archive.open(found[0]) as member:
            content = member.read(LARGEST_RUN + 1)
    name = found[0].filename.rpartition("/")[2]
    if len(content) > LARGEST_RUN:
        raise FormatError(f"{file}: its {name} is larger than {LARGEST_RUN >> 20} MiB")
    return name, content


def begin_journal(step: Step, folder: Path) -> None:
    """Begin the journal of a run in a folder with its first step; it replaces the run that the folder holds."""
    write_text(folder / JOURNAL, dump_step(step))
    if _holds_text(folder / "run.json"):  # of the run that is resumed: all of it is in the journal
        write_text(folder / "run.json", "")


def append_step(step: Step, folder: Path) -> None:
    """Add a step to the journal of the run in a folder; when this returns, the line is on the disk."""
    append_line(folder / JOURNAL, dump_step(step))


def close_journal(folder: Path) -> None:
    """Make a run.json of the journal that an unfinished run left in its folder; without a journal do nothing."""
    journal = folder / JOURNAL
    if journal.is_file():
        if not _holds_text(folder / "run.json"):
            write_run(read_run(journal), folder)
        journal.unlink(missing_ok=True)


def write_run(run: Run, folder: Path) -> Path:
    """Write `run.json` in one step, then remove the journal that it replaces."""
    path = write_text(folder / "run.json", dump_run(run))
    (folder / JOURNAL).unlink(missing_ok=True)
    return path
