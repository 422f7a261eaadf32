"""Files on disk: kernels, settings, runs and baselines. Every error names the file; every write is atomic."""

import fcntl
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ci_perf.values.artifact import FILES
from ci_perf.values.baseline import Baseline, contradictions, path_of
from ci_perf.values.codec import (
    Step,
    dump_baseline,
    dump_run,
    dump_step,
    load_baseline,
    load_plan,
    load_run,
    load_steps,
)
from ci_perf.values.device import Device
from ci_perf.values.errors import CiPerfError, ConfigError, FormatError, WriteError
from ci_perf.values.job import Plan, may_select
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.kernel_toml import parse_kernel
from ci_perf.values.run import Run
from ci_perf.values.toml_text import parse_toml

JOURNAL = "run.jsonl"
"""A run as it grows: a line for each step. run.json replaces it when the run ends."""
LARGEST_RUN = 256 << 20
"""Bytes of a run.json that are read from an archive: a larger one may be a decompression bomb."""


def read_kernels(folder: Path, root: Path, patterns: Sequence[str] = ()) -> tuple[KernelSpec, ...]:
    """Read every `FOLDER/*/kernel.toml`, in the order of names; ConfigError for one that is wrong.

    With `patterns` of the command line, a wrong file of a kernel that none of them selects is left out.
    """
    if not folder.is_dir():
        raise ConfigError(
            f"{folder}: there is no such folder",
            hint="run ci-perf where `kernels/` lies, or name it with --kernels-dir",
        )
    files = sorted(folder.glob("*/kernel.toml"))
    if not files:
        raise ConfigError(f"{folder}: has no kernel", hint="a kernel is a folder with a kernel.toml")
    specs = []
    for file in files:
        try:
            specs.append(_read_kernel(file, root))
        except ConfigError:
            if may_select(file.parent.name, patterns):
                raise
    return tuple(specs)


def _read_kernel(file: Path, root: Path) -> KernelSpec:
    home = file.parent
    folder = (home.relative_to(root) if home.is_relative_to(root) else home).as_posix()
    spec = parse_kernel(_text_of(file, f"{folder}/kernel.toml", ConfigError), name=home.name, folder=folder)
    if spec.program is None and not (home / spec.entry).is_file():
        raise ConfigError(
            f"{folder}/kernel.toml: key `entry`: there is no file `{folder}/{spec.entry}`",
            hint="name the Python file beside kernel.toml that defines make_inputs, launch, reference and cost",
        )
    return spec


def read_settings_file(root: Path, name: str | None = None) -> tuple[str, Mapping[str, object]]:
    """Return the settings and the file that holds them: the one named, ci-perf.toml, or [tool.ci-perf] of pyproject."""
    own, project = root / (name or "ci-perf.toml"), root / "pyproject.toml"
    if name and not own.is_file():
        raise ConfigError(f"{name}: there is no such file of settings", hint="--config names a file like ci-perf.toml")
    for file, table in ((own, ()), (project, ("tool", "ci-perf"))):
        if file.is_file():
            found: object = parse_toml(_text_of(file, file.name, ConfigError), file.name)
            for key in table:
                found = found.get(key, {}) if isinstance(found, dict) else found
            if not isinstance(found, dict):
                raise ConfigError(f"{file.name}: key `{'.'.join(table)}`: {found!r} is not a table of settings")
            if found or file == own:
                return file.name, found
    return "ci-perf.toml", {}


def read_run(path: Path) -> Run:
    """Read a run from a `run.json`, or from a folder or a zip with one.

    In place of run.json, a run that was killed has left its journal, `run.jsonl`.
    """
    file = _run_file(path) if path.is_dir() else path
    try:
        name, content = _unzip(file) if zipfile.is_zipfile(file) else (file.name, file.read_bytes())
        is_journal = name == JOURNAL
        text = (content[: content.rfind(b"\n") + 1] if is_journal else content).decode("utf-8")
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
    return load_plan(_text_of(path, str(path), FormatError), str(path))


def _text_of(file: Path, source: str, kind: type[CiPerfError]) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise kind(f"{source}: cannot be read: {error}", hint="save the file as UTF-8") from None
    except OSError as error:
        raise kind(f"{source}: cannot be read: {error}") from None


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


_OF_A_SESSION = ("logs/worker*", "logs/setup-*")
"""Logs that a session begins before it clears what an earlier run left."""


@contextmanager
def held_run_folder(folder: Path) -> Iterator[None]:
    """Make the folder of a run, and refuse it while another ci-perf measures into it (ConfigError)."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be used: {error}", hint="name another folder with --output") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        hint = "wait for it, or name another folder with --output"
        raise ConfigError(f"{folder}: another ci-perf measures into this folder", hint=hint) from None
    except OSError:  # a network file system that cannot lock folders
        pass
    try:
        yield
    finally:
        os.close(descriptor)


def claim_run_folder(folder: Path) -> None:
    """Make the folder of a run; refuse one with files but neither a run.json nor a journal."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if names - {"logs"} and not names & {"run.json", JOURNAL}:
        raise ConfigError(f"{folder}: has files, but no run", hint="name a new folder with --output")
    try:
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        (folder / "run.json").touch()
        for pattern in _OF_A_SESSION:
            for log in folder.glob(pattern):
                log.unlink()
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be used: {error}", hint="name another folder with --output") from None


def clear_run_folder(folder: Path) -> None:
    """Remove what an earlier run left in its folder; files of other names stay."""
    begun = {log for pattern in _OF_A_SESSION for log in folder.glob(pattern)}
    for listed in FILES:
        for file in set(folder.glob(f"{listed}*" if listed.endswith("/") else listed)) - begun:
            if file.is_dir() and not file.is_symlink():  # the samples of an nvbench
                shutil.rmtree(file)
            else:
                file.unlink()


def begin_journal(step: Step, folder: Path) -> None:
    """Begin the journal of a run in a folder with its first step; it replaces the run that the folder holds."""
    write_text(folder / JOURNAL, dump_step(step))
    if _holds_text(folder / "run.json"):  # of the run that is resumed: all of it is in the journal
        write_text(folder / "run.json", "")


def append_step(step: Step, folder: Path) -> None:
    """Add a step to the journal of the run in a folder; when this returns, the line is on the disk."""
    append_line(folder / JOURNAL, dump_step(step))


def append_line(path: Path, text: str, *, make_folder: bool = False) -> None:
    """Append a line with one write; when this returns, it is on the disk. A line that was cut off before is ended."""
    try:
        if make_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+", buffering=0) as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                text = text if file.read(1) == b"\n" else "\n" + text
            line = text.encode()
            written = file.write(line)
            os.fsync(file.fileno())
    except OSError as error:
        raise WriteError(f"{path}: cannot be written: {error.strerror}") from None
    if written < len(line):
        hint = "free some disk space: the lines before are intact, and later ones start a new line"
        raise WriteError(f"{path}: only {written} of {len(line)} bytes could be written", hint=hint)


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


def read_baselines(
    folder: Path,
    devices: Iterable[Device] | None = None,
    kernels: Collection[str] | None = None,
    *,
    consistent: bool = False,
) -> tuple[Baseline, ...]:
    """Read the baselines of these devices and kernels, or of all; no folder means none.

    FormatError for a file that its schema refuses, and with `consistent` for one that lies in the place of another or
    whose median is not that of its values.
    """
    slugs = sorted({path.parent.name for path in folder.glob("*/*.json")})
    if devices is not None:
        slugs = list(dict.fromkeys(device.slug for device in devices))
    files = [file for slug in slugs for file in sorted((folder / slug).glob("*.json"))]
    files = [file for file in files if kernels is None or file.stem in kernels]
    found = tuple(map(read_baseline, files))
    for file, baseline in zip(files, found, strict=True):
        if consistent and (problems := contradictions(baseline, file.relative_to(folder).as_posix())):
            raise FormatError(f"{file}: {problems[0]}", hint="`ci-perf baseline check` names all errors")
    return found


def read_baseline(file: Path) -> Baseline:
    """Read one file of `baselines/`."""
    return load_baseline(_text_of(file, str(file), FormatError), str(file))


def write_baseline(baseline: Baseline, folder: Path) -> Path:
    """Write a baseline to its path below the folder, and return the path."""
    return write_text(folder / path_of(baseline.device, baseline.kernel), dump_baseline(baseline))


def write_text(path: Path, text: str) -> Path:
    """Write a file atomically: readers see the old content or the new one. When this returns, it is on the disk."""
    draft: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            draft = Path(file.name)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.chmod(0o666 & ~_umask())
        draft.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        hint = "free some disk space, or name another folder"
        raise WriteError(f"{path}: cannot be written: {error.strerror}", hint=hint) from None
    finally:
        if draft is not None:
            draft.unlink(missing_ok=True)  # after it took its place, there is none
    return path


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    """Put the names of a folder's files on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


LARGEST_LOG = 16 << 20
"""Bytes of a log that are kept."""


def cap_logs(folder: Path) -> None:
    """Shorten the logs of a run that are larger than LARGEST_LOG to their first and last half of that."""
    half = LARGEST_LOG // 2
    for log in sorted((folder / "logs").glob("*")):
        if log.is_symlink() or not log.is_file() or (size := log.stat().st_size) <= LARGEST_LOG:
            continue
        with log.open("r+b") as file:
            file.seek(size - half)
            end = file.read(half)
            file.seek(half)
            file.write(f"\n... {size - LARGEST_LOG} bytes were left out here ...\n".encode() + end)
            file.truncate()
