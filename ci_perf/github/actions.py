"""The files of GitHub's runner: the event, the summary of the step, its outputs."""

import json
import secrets
from collections.abc import Mapping
from pathlib import Path

from ci_perf.github.event import Event, parse_event
from ci_perf.values.errors import CiPerfError, ConfigError, MachineError


def read_event(environ: Mapping[str, str]) -> Event:
    """Return the event that started this workflow; a ConfigError if GitHub did not write it so."""
    if not environ.get("GITHUB_EVENT_NAME"):
        return parse_event(environ, None)
    path = environ.get("GITHUB_EVENT_PATH", "")
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8")) if path else {}
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"environment GITHUB_EVENT_PATH: {path} is not an event: {error}") from None
    return parse_event(environ, document, path or "GITHUB_EVENT_PATH")


def query_origin(environ: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the repository and the commit of this workflow's event, or None for both outside of a workflow."""
    try:
        event = read_event(environ)
    except CiPerfError:
        return None, None
    return event.repository or None, event.head_sha or None


def append_summary(environ: Mapping[str, str], text: str) -> None:
    """Append to the summary of the step; outside of GitHub Actions nothing is done."""
    _append(environ, "GITHUB_STEP_SUMMARY", text)


def append_outputs(environ: Mapping[str, str], outputs: Mapping[str, str]) -> None:
    """Set outputs of the step. No value can end early or set another output: each has a random delimiter."""
    lines = []
    for name, value in outputs.items():
        end = f"ci-perf-{secrets.token_hex(16)}"
        lines.append(f"{name}<<{end}\n{value}\n{end}\n")
    _append(environ, "GITHUB_OUTPUT", "".join(lines))


def _append(environ: Mapping[str, str], variable: str, text: str) -> None:
    path = environ.get(variable)
    if not path:
        return
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise MachineError(f"environment {variable}: {path} cannot be written: {error.strerror}") from None
