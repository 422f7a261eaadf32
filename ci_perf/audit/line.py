"""Sessions of an audit as lines of JSON, and back.

An audit file is only ever appended to. A line that a kill cut off is left out with a warning, wherever it stands:
what was measured before and after it stays usable.
"""

import json
from collections.abc import Iterable

from cattrs.preconf.json import make_converter

from ci_perf.audit.session import AuditSession
from ci_perf.values.codec import parse_json, spare_provenance
from ci_perf.values.errors import FormatError
from ci_perf.values.schema import check

SCHEMA = "ci-perf/audit-1"
_NEAR_THE_END = 8
"""A word, number or escape that was cut off is complained about at its start, so many characters before the end."""

_CONVERTER = make_converter()
spare_provenance(_CONVERTER)


def dump_session(session: AuditSession) -> str:
    """Return the one line of a session, final newline included; a value that no line may hold is a FormatError."""
    document = {"schema": SCHEMA, **_CONVERTER.unstructure(session)}
    try:
        text = json.dumps(document, sort_keys=True, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise FormatError(f"session {session.session}: {error}") from None
    check(json.loads(text), "audit", f"session {session.session}", FormatError)
    return text + "\n"


def load_sessions(text: str, source: str) -> tuple[tuple[AuditSession, ...], tuple[str, ...]]:
    """Read the lines of an audit file; return the sessions and a warning for each line that was cut off.

    `source` names the file in errors (FormatError), which also name the line and the key.
    """
    sessions, warnings = [], []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        if _cut_off(line):
            warnings.append(f"{source}:{number}: the line was cut off while it was written: it is left out")
        else:
            sessions.append(_load(line, f"{source}:{number}"))
    return tuple(sessions), tuple(warnings)


def merge(sessions: Iterable[AuditSession]) -> tuple[AuditSession, ...]:
    """Return every session once, also where several files hold it; two that share an id and differ are an error."""
    merged: dict[str, AuditSession] = {}
    for session in sessions:
        if merged.setdefault(session.session, session) != session:
            raise FormatError(
                f"session {session.session} is recorded twice with other numbers",
                hint="show one of the files; an audit file is appended to, never edited",
            )
    return tuple(merged.values())


def _load(line: str, source: str) -> AuditSession:
    document = parse_json(line, source)
    found = document.get("schema") if isinstance(document, dict) else None
    if found != SCHEMA:
        raise FormatError(
            f"{source}: key `schema`: {found!r} is not {SCHEMA!r}",
            hint="an audit file holds one session per line; a newer one needs a newer ci-perf",
        )
    check(document, "audit", source, FormatError)
    return _CONVERTER.structure({k: v for k, v in document.items() if k != "schema"}, AuditSession)


def _cut_off(line: str) -> bool:
    """Say whether a line is the beginning of a JSON object: it is sound up to its end, and ends too early."""
    if not line.startswith("{"):
        return False
    try:
        json.loads(line)
    except RecursionError:
        return False
    except json.JSONDecodeError as error:
        return error.msg.startswith("Unterminated string") or len(line) - error.pos < _NEAR_THE_END
    return False
