"""Audit files: read, and appended to a line at a time, so that a kill costs at most the session it interrupts."""

import os
from collections.abc import Iterable
from pathlib import Path

from ci_perf.audit.line import dump_session, load_sessions, merge
from ci_perf.audit.session import AuditSession
from ci_perf.values.errors import ConfigError, FormatError


def read_sessions(paths: Iterable[Path]) -> tuple[tuple[AuditSession, ...], tuple[str, ...]]:
    """Read the sessions of several files, each once, and the warnings about lines that were cut off."""
    sessions: list[AuditSession] = []
    warnings: list[str] = []
    for path in paths:
        found, cut_off = load_sessions(_read(path), str(path))
        sessions += found
        warnings += cut_off
    return merge(sessions), tuple(warnings)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such audit file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"{path}: cannot be read: {error}") from None


def append_session(path: Path, session: AuditSession) -> None:
    """Add a session to a file, in one write; a line that was cut off before is ended first."""
    text = dump_session(session)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            line = (text if _at_line_start(descriptor) else "\n" + text).encode()
            written = os.write(descriptor, line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
    if written < len(line):
        hint = "make room: what was in the file before is whole, and so is what will be appended"
        raise ConfigError(f"{path}: only {written} of {len(line)} bytes could be written", hint=hint)


def _at_line_start(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size
    return size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"
