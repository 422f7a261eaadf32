"""Removes the values of secrets from texts, from documents, and from a run or a step of one."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ci_perf.guard.encoded import may_begin_in
from ci_perf.guard.spellings import Needle, names_in
from ci_perf.guard.unpack import Unsearchable, contents_of_text
from ci_perf.values.codec import Step, canonical, dump_run, load_run
from ci_perf.values.run import Run

_SHORTEST_REST = 8
"""Characters of a value that count where a text was cut inside it."""


def redact_run(run: Run, needles: Sequence[Needle]) -> Run:
    """Return the run without the values of secrets; the names of its kernels and devices stay."""
    if not needles:
        return run
    document = json.loads(dump_run(run))
    redacted = redact(document, needles)
    return run if redacted == document else load_run(canonical(redacted), "run.json")


def redact_step(step: Step, needles: Sequence[Needle]) -> Step:
    """Return a step of a run without the values of secrets, as `redact_run` would leave them."""
    if not needles:
        return step
    return [_redact_change(change, needles) for change in step] if isinstance(step, list) else redact(step, needles)


def _redact_change(change: dict[str, Any], needles: Sequence[Needle]) -> dict[str, Any]:
    name = [key for key in change["at"] if isinstance(key, str)][-1]
    redacted = {verb: redact({name: value}, needles) for verb, value in change.items() if verb != "at"}
    return {"at": change["at"]} | {verb: value[name] for verb, value in redacted.items()}  # type: ignore[index] # a dict


_IDENTIFIERS = frozenset(
    {
        *("schema", "kernel", "case", "device", "target", "stage", "code", "method", "checked", "metric", "operator"),
        *("kind", "l2", "rng", "devices", "fail_on", "source"),
    }
)
"""Keys whose values are words of ci-perf or names in the repository; a run with redacted ones could not be read."""


def redact(value: object, needles: Sequence[Needle]) -> object:
    """Return a JSON document in which each spelling of a secret is replaced by the name of its variable.

    >>> from ci_perf.guard.spellings import needles_of
    >>> redact({"message": "cannot log in with hunter2", "n": 1}, needles_of({"PASSWORD": "hunter2"}))
    {'message': 'cannot log in with [PASSWORD withheld]', 'n': 1}
    """
    if isinstance(value, str):
        return redact_text(value, needles)
    if isinstance(value, Mapping):
        return {k: part if k in _IDENTIFIERS else redact(part, needles) for k, part in value.items()}
    if isinstance(value, list | tuple):
        return [redact(part, needles) for part in value]
    return value


def redact_text(text: str, needles: Sequence[Needle]) -> str:
    """Return a text without secrets, also without the rest of one at which the text was cut.

    Where a value is URL-encoded the whole word is replaced, and the whole text where base64 takes several lines or an
    archive in it holds the value.
    """
    raw = text.encode("utf-8", "surrogatepass")
    for needle in needles:
        raw = raw.replace(needle.text, _withheld(needle.name))
        if needle.view is bytes:
            raw = _without_rest(raw, needle)
    if names_in([raw], needles):
        raw = b"".join(_redact_word(word, needles) for word in re.split(rb"(\s+)", raw))
        raw = _redact_word(raw, needles)
    if may_begin_in(raw) and (names := _names_in_archives(raw, needles)):
        raw = b", ".join(map(_withheld, names))
    return raw.decode("utf-8", "surrogatepass")


def _without_rest(raw: bytes, needle: Needle) -> bytes:
    """Replace the end of a value with which a text begins, and the beginning of one with which it ends."""
    if len(raw) < _SHORTEST_REST:
        return raw
    start = needle.text.find(raw[:_SHORTEST_REST])
    if start > 0 and raw.startswith(needle.text[start:]):
        raw = _withheld(needle.name) + raw[len(needle.text) - start :]
    whole = raw.rstrip(b"'\"`)].")
    end = needle.text.rfind(whole[-_SHORTEST_REST:]) + _SHORTEST_REST
    if len(whole) >= _SHORTEST_REST <= end and whole.endswith(needle.text[:end]):
        raw = whole[:-end] + _withheld(needle.name) + raw[len(whole) :]
    return raw


def _redact_word(word: bytes, needles: Sequence[Needle]) -> bytes:
    names = names_in([word], needles)
    return b", ".join(_withheld(name) for name in sorted(names)) if names else word


def _names_in_archives(raw: bytes, needles: Sequence[Needle]) -> list[str]:
    found: set[str] = set()
    try:
        for content in contents_of_text(raw):
            found |= names_in(content, needles)
    except Unsearchable:
        found.add("what cannot be unpacked")
    return sorted(found)


def _withheld(name: str) -> bytes:
    return f"[{name} withheld]".encode()
