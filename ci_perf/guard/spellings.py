"""How the value of a secret looks in a file: finds it there, and removes it from a document.

Searched for are the value itself, the value URL-encoded by any rule, as a string of JSON, and in base64, which may be
cut into lines.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

_SHORTEST_REST = 8
"""Characters of a value that count where a text was cut inside it."""
_LONGEST_ESCAPE = 4
"""Bytes in which a file may write one byte of a needle: `%2F` takes three, lines of base64 a little more than one."""
_LINE_OF_A_KEY = re.compile(r"[A-Za-z0-9+/=_-]{32,}")


@dataclass(frozen=True, slots=True)
class Needle:
    """One spelling of one secret."""

    name: str
    """The variable."""
    text: bytes
    in_lines: bool = False
    """Whether it may be cut into lines, as base64 is."""


def needles_of(secrets: Mapping[str, str]) -> tuple[Needle, ...]:
    """Return what to search for, given the value of each variable; the longest first.

    >>> [needle.text for needle in needles_of({"KEY": "s3cr=t"})]
    [b'czNjcj10', b'MzY3I9d', b'zM2NyPX', b's3cr=t']
    """
    found: dict[bytes, Needle] = {}
    for name, value in secrets.items():
        for needle in _needles(name, value):
            found.setdefault(needle.text, needle)
    return tuple(sorted(found.values(), key=lambda n: -len(n.text)))  # for `redact`: one may begin with another


def _needles(name: str, value: str) -> Iterator[Needle]:
    raw = value.encode("utf-8", "surrogateescape")
    for shift in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield Needle(name, _inside_base64(raw, shift, encode(bytes(shift) + raw)), in_lines=True)
    yield Needle(name, raw)
    yield Needle(name, raw.replace(b" ", b"+"))  # what a URL's query is once its escapes are undone
    for only_ascii in (True, False):
        yield Needle(name, json.dumps(value, ensure_ascii=only_ascii)[1:-1].encode("utf-8", "surrogatepass"))
    yield from (Needle(name, line.encode()) for line in _lines_of_a_key(value))


def _inside_base64(raw: bytes, shift: int, encoded: bytes) -> bytes:
    """Return what does not depend on the bytes around the value, which begins `shift` bytes into a group of three."""
    first = -(-8 * shift // 6)
    return encoded[first : 8 * (shift + len(raw)) // 6]


def _lines_of_a_key(value: str) -> list[str]:
    """Return two lines of a private key, by which it is found whatever became of its line ends.

    Not its first line: keys of one kind have it in common.
    """
    lines = [line.strip() for line in value.replace("\\n", "\n").splitlines()]
    lines = [line for line in lines if _LINE_OF_A_KEY.fullmatch(line)]
    return [lines[len(lines) // 2], lines[-1]] if len(lines) > 1 else []


def names_in(blocks: Iterable[bytes], needles: Sequence[Needle]) -> frozenset[str]:
    """Return the variables whose value occurs in a stream of bytes, however it is cut into blocks.

    >>> sorted(names_in([b"..hun", b"ter%32.."], needles_of({"PASSWORD": "hunter2"})))
    ['PASSWORD']
    """
    overlap = _LONGEST_ESCAPE * max((len(needle.text) for needle in needles), default=1)
    found: set[str] = set()
    tail = b""
    for block in blocks:
        text = tail + block
        plain = (text, unquote_to_bytes(text)) if b"%" in text else (text,)
        joined = [view.translate(None, b"\r\n") for view in plain]
        for needle in needles:
            if needle.name not in found and any(needle.text in v for v in (joined if needle.in_lines else plain)):
                found.add(needle.name)
        tail = text[-overlap:]
    return frozenset(found)


_IDENTIFIERS = frozenset(
    {
        *("schema", "kernel", "case", "device", "target", "stage", "code", "method", "checked", "metric", "operator"),
        *("kind", "l2", "rng", "devices", "fail_on", "source"),
    }
)
"""Keys whose values are words of ci-perf or names in the repository; a run with redacted ones could not be read."""


def redact(value: object, needles: Sequence[Needle]) -> object:
    """Return a JSON document in which each spelling of a secret is replaced by the name of its variable.

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

    Where a value is URL-encoded the whole word is replaced, and the whole text where base64 takes several lines.
    """
    raw = text.encode("utf-8", "surrogatepass")
    for needle in needles:
        raw = raw.replace(needle.text, _withheld(needle.name))
        if not needle.in_lines:
            raw = _without_rest(raw, needle)
    if names_in([raw], needles):
        raw = b"".join(_redact_word(word, needles) for word in re.split(rb"(\s+)", raw))
        raw = _redact_word(raw, needles)
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


def _withheld(name: str) -> bytes:
    return f"[{name} withheld]".encode()
