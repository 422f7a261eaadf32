"""The folder of a run: held by one ci-perf, and cleared of an earlier run."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ci_perf.store.runs import JOURNAL
from ci_perf.values.artifact import FILES
from ci_perf.values.errors import ConfigError

_OF_A_SESSION = ("logs/worker*", "logs/setup-*")
"""Logs that a session begins before it clears what an earlier run left."""
LARGEST_LOG = 16 << 20
"""Bytes of a log that are kept."""


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
    """Make the folder of a run, which git ignores; refuse one with files but neither a run.json nor a journal."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if names - {"logs", ".gitignore"} and not names & {"run.json", JOURNAL}:
        raise ConfigError(f"{folder}: has files, but no run", hint="name a new folder with --output")
    try:
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        (folder / "run.json").touch()
        if not (folder / ".gitignore").exists():  # a new user runs `git add --all` next
            (folder / ".gitignore").write_text("# Written by ci-perf\n*\n", encoding="utf-8")
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
