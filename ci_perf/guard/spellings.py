"""How the value of a secret looks in a file, whoever wrote it there; finds it, and takes it out of a document.

Text and value are squeezed before they are compared: without what escapes and wrapping put between characters. That
alone finds JSON in JSON, a shell's quotes, UTF-16 and base64 in lines, at the cost of one pass. Escapes that stand in
place of a character are undone, where there are any, in a second look at the text.
"""

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

SHORTEST = 6
"""Characters of a value that is searched for: a shorter one stands in files by chance."""

_SHORTEST_REST = 8
"""Characters of a value that count where a text was cut inside it."""

_LONGEST_ESCAPE = 10
"""Bytes in which one byte of a value may be written, as `&#x00002f;`."""

_BETWEEN_CHARACTERS = b"\0\r\n\"'\\"
"""What escapes and line ends put between the characters of a value, and UTF-16."""
_NOT_IN_CORE = bytes(byte for byte in range(256) if byte >= 128 or not chr(byte).isalnum() or byte in b"nr")
"""All but letters and digits; and what is left of an escaped line end."""
_SHORTEST_CORE = 4
_PERCENT = re.compile(rb"%[0-9A-Fa-f]{2}(?:%[0-9A-Fa-f]{2})*")
_BACKSLASH = re.compile(
    rb"\\\\*(?:(u[0-9A-Fa-f]{4}(?:\\+u[0-9A-Fa-f]{4})*)|x([0-9A-Fa-f]{2})|([0-3][0-7]{2}))"  # as \u002b, \x2b, \053
)
_ENTITY = re.compile(rb"&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z]{2,8});")
_LINE_OF_A_KEY = re.compile(r"[A-Za-z0-9+/=_-]{32,}")


@dataclass(frozen=True, slots=True)
class Needle:
    """One spelling of one secret."""

    name: str
    """The variable."""
    text: bytes
    is_value: bool = True
    """Whether it is the value itself, so that its characters may be escaped; base64 is not."""


def needles_of(secrets: Mapping[str, str]) -> tuple[Needle, ...]:
    """Return what to search for, each once, so that a search reads a file as few times as possible.

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
    yield Needle(name, raw)
    yield Needle(name, raw.replace(b" ", b"+"))  # as in the query of a URL
    yield from (Needle(name, text) for text in _other_lines(value))
    if not value.isascii() or _only_exact(raw):  # of others, UTF-16 is the value again once it is squeezed
        for encoding in ("utf-16-le", "utf-16-be"):
            yield Needle(name, raw.decode("utf-8", "replace").encode(encoding), is_value=False)
        yield Needle(name, json.dumps(value, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass"))
    for shift in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield Needle(name, _inside_base64(raw, shift, encode(bytes(shift) + raw)), is_value=False)


def _other_lines(value: str) -> Iterator[bytes]:
    r"""Yield how a value of several lines, or with `\n` in it, looks where these were changed or a program read them.

    A private key is known by two of its lines; not by its first, which keys have in common.
    """
    lines = [line.strip() for line in value.replace("\\n", "\n").splitlines()]
    if len(lines) < 2:
        return
    for joint in (" ", "n", ""):  # `n` is what squeezing leaves of `\n`
        yield joint.join(lines).encode("utf-8", "surrogateescape")
    of_key = [line for line in lines if _LINE_OF_A_KEY.fullmatch(line)]
    of_key = of_key[1:] or of_key
    if of_key:
        yield of_key[len(of_key) // 2].encode()
        yield of_key[-1].encode()


def _inside_base64(raw: bytes, shift: int, encoded: bytes) -> bytes:
    """Return what does not depend on the bytes around the value, which begins `shift` bytes into a group of three."""
    first = -(-8 * shift // 6)
    return encoded[first : 8 * (shift + len(raw)) // 6]


def names_in(blocks: Iterable[bytes], needles: Sequence[Needle]) -> frozenset[str]:
    """Return the variables whose value stands in a stream of bytes, however it is cut into blocks.

    >>> sorted(names_in([b"..hun", b"ter%32.."], needles_of({"PASSWORD": "hunter2"})))
    ['PASSWORD']
    """
    search = _search_for(tuple(needles))
    found: set[str] = set()
    tail = b""
    for block in blocks:
        text = tail + block
        found |= search.names_in(text, found)
        tail = text[-search.reach :]
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class _Search:
    """Needles made ready: letters and digits alone tell fast which secrets may be there, then these are looked at."""

    cores: tuple[tuple[str, bytes, bool], ...]
    """Of each needle: its variable, its letters and digits, and whether it is the value."""
    uncertain: frozenset[str]
    """Variables of which a needle has too few of them to tell."""
    needles: Mapping[str, tuple[Needle, ...]]
    reach: int
    """Bytes of text that the longest spelling takes."""

    def names_in(self, text: bytes, known: Iterable[str] = ()) -> set[str]:
        found = set(known)
        names = (self.uncertain | self._candidates(text)) - found
        if names:
            views = (text, *_unescaped(text))
            found.update(name for name in names if any(_stands_in(needle, views) for needle in self.needles[name]))
        return found

    def _candidates(self, text: bytes) -> set[str]:
        core = _core(text)
        found = {name for name, needle, _ in self.cores if needle in core}
        if (plain := _all_unescaped(text)) != text:
            core = _core(plain)
            found.update(name for name, needle, is_value in self.cores if is_value and needle in core)
        return found


@lru_cache(maxsize=16)
def _search_for(needles: tuple[Needle, ...]) -> _Search:
    cores = sorted({(n.name, _core(n.text), n.is_value) for n in needles})
    least = [c for c in cores if not any(c[0] == o[0] and c[1] != o[1] and o[1] in c[1] for o in cores)]
    uncertain = frozenset(name for name, core, _ in least if len(core) < _SHORTEST_CORE)
    return _Search(
        tuple(core for core in least if core[0] not in uncertain),
        uncertain,
        {name: tuple(n for n in needles if n.name == name) for name in {n.name for n in needles}},
        _LONGEST_ESCAPE * max((len(needle.text) for needle in needles), default=1),
    )


def _stands_in(needle: Needle, views: Sequence[bytes]) -> bool:
    if _only_exact(needle.text):
        return any(needle.text in view for view in views)
    dropped = _BETWEEN_CHARACTERS if needle.is_value else _BETWEEN_CHARACTERS + b" \t"
    squeezed = needle.text.translate(None, dropped)
    return any(squeezed in view.translate(None, dropped) for view in views)


def _only_exact(text: bytes) -> bool:
    """Say whether a table or a program may hold a text by chance, if only its lines are taken together."""
    squeezed = text.translate(None, _BETWEEN_CHARACTERS)
    return len(squeezed) < SHORTEST or squeezed.isdigit()


def _core(text: bytes) -> bytes:
    return text.translate(None, _NOT_IN_CORE)


def _all_unescaped(text: bytes) -> bytes:
    if b"\\" in text:
        text = _BACKSLASH.sub(_of_backslash, text)
    while b"%25" in text:  # a URL within a URL
        text = text.replace(b"%25", b"%")
    if b"%" in text:
        text = _PERCENT.sub(_of_percent, text)
    return _ENTITY.sub(_of_entity, text) if b"&" in text else text


def _unescaped(text: bytes) -> Iterator[bytes]:
    """Yield a text without escapes in place of characters, for each kind of escape alone."""
    yield _BACKSLASH.sub(_of_backslash, text.replace(b"\\n", b"\n"))
    yield (once := _PERCENT.sub(_of_percent, text))
    yield _PERCENT.sub(_of_percent, once)
    yield _ENTITY.sub(_of_entity, text)


def _of_percent(found: re.Match[bytes]) -> bytes:
    return bytes.fromhex(found[0].translate(None, b"%").decode())


def _of_entity(found: re.Match[bytes]) -> bytes:
    return html.unescape(found[0].decode()).encode()


def _of_backslash(found: re.Match[bytes]) -> bytes:
    units, byte, octal = found.groups()
    if units:
        digits = units.translate(None, b"\\u").decode()
        return bytes.fromhex(digits).decode("utf-16-be", "replace").encode()
    return bytes([int(byte, 16) if byte else int(octal, 8)])


_IDENTIFIERS = frozenset(
    {
        *("schema", "kernel", "case", "device", "target", "stage", "code", "method", "checked", "metric", "operator"),
        *("kind", "l2", "devices", "fail_on", "source"),
    }
)
"""Keys whose values are words of ci-perf's own or names from the repository; redacted, a run could not be read."""


def redact(value: object, needles: Sequence[Needle]) -> object:
    """Return a JSON document with every spelling of every secret replaced by its variable's name.

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
    """Return a text without secrets: also without the rest of one in the middle of which the text was cut.

    Of an escaped spelling the whole word goes, or the whole text where words do not hold it.
    """
    raw = text.encode("utf-8", "surrogatepass")
    for needle in needles:
        if needle.text in raw:
            raw = raw.replace(needle.text, _withheld(needle.name))
        elif needle.is_value:
            raw = _without_rest(raw, needle)
    search = _search_for(tuple(needles))
    if search.names_in(raw):
        raw = b"".join(_redact_word(word, search) for word in re.split(rb"(\s+)", raw))
    return _redact_word(raw, search).decode("utf-8", "surrogatepass")


def _without_rest(raw: bytes, needle: Needle) -> bytes:
    start = needle.text.find(raw[:_SHORTEST_REST])
    if start > 0 and len(raw) >= _SHORTEST_REST and raw.startswith(needle.text[start:]):
        raw = _withheld(needle.name) + raw[len(needle.text) - start :]
    last = raw.rstrip(b"'\"`)].")
    end = needle.text.rfind(last[-_SHORTEST_REST:]) + _SHORTEST_REST
    if end >= _SHORTEST_REST and len(last) >= _SHORTEST_REST and last.endswith(needle.text[:end]):
        raw = last[:-end] + _withheld(needle.name) + raw[len(last) :]
    return raw


def _redact_word(word: bytes, search: _Search) -> bytes:
    names = search.names_in(word)
    return b", ".join(_withheld(name) for name in sorted(names)) if names else word


def _withheld(name: str) -> bytes:
    return f"[{name} withheld]".encode()
