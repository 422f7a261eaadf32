"""Audit files: a session for each line of JSON.

A file is only ever appended to, so a kill costs at most the session that it interrupts. A line that was cut off is left
out with a warning, wherever it stands; the sessions before and after it stay usable.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from ci_perf.audit.session import AuditSession
from ci_perf.store import append_line
from ci_perf.values.codec import from_document, parse_json, to_document
from ci_perf.values.errors import ConfigError, FormatError
from ci_perf.values.schema import check

_NEAR_THE_END = 8
"""Where a word, number or escape was cut off, the parser names its start: at most this far from the end."""


def read_sessions(paths: Iterable[Path]) -> tuple[tuple[AuditSession, ...], tuple[str, ...]]:
    """Read the sessions of several files, each once, and a warning for each line that was cut off.

    Two sessions of one id that differ are a FormatError.
    """
    merged: dict[str, AuditSession] = {}
    warnings: list[str] = []
    for path in paths:
        sessions, cut_off = load_sessions(_read(path), str(path))
        warnings += cut_off
        for session in sessions:
            if merged.setdefault(session.session, session) != session:
                raise FormatError(
                    f"{path}: session {session.session} is recorded twice with different numbers",
                    hint="show one of the files; an audit file is appended to, never edited",
                )
    return tuple(merged.values()), tuple(warnings)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such audit file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"{path}: cannot be read: {error}") from None


def load_sessions(text: str, source: str) -> tuple[tuple[AuditSession, ...], tuple[str, ...]]:
    """Read the lines of an audit file; return the sessions and a warning for each line that was cut off.

    `source` names the file in errors (FormatError), which also name the line and the key.
    """
    sessions, warnings = [], []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        if _is_cut_off(line):
            warnings.append(f"{source}:{number}: the line is incomplete (writing was interrupted): it is ignored")
        else:
            where = f"{source}:{number}"
            sessions.append(from_document(parse_json(line, where), where, "audit", AuditSession))
    return tuple(sessions), tuple(warnings)


def _is_cut_off(line: str) -> bool:
    """Return whether a line is the beginning of a JSON object: valid up to its end, but incomplete."""
    if not line.startswith("{"):
        return False
    try:
        json.loads(line)
    except RecursionError:
        return False
    except json.JSONDecodeError as error:
        return error.msg.startswith("Unterminated string") or len(line) - error.pos < _NEAR_THE_END
    return False


def dump_session(session: AuditSession) -> str:
    """Return the line of a session, final newline included; a value that the format forbids is a FormatError."""
    document = to_document(session, "audit")
    try:
        text = json.dumps(document, sort_keys=True, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise FormatError(f"session {session.session}: {error}") from None
    check(json.loads(text), "audit", f"session {session.session}", FormatError)
    return text + "\n"


def append_session(path: Path, session: AuditSession) -> None:
    """Add a session to a file; a line that was cut off before is ended first."""
    append_line(path, dump_session(session), make_folder=True)
