"""How the value of a secret looks in a file: finds it there.

Searched for are the value itself, the value URL-encoded by any rule, as a string of JSON, in hexadecimal, and in
base64, which may be cut into lines that are indented or quoted.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

_LONGEST_ESCAPE = 4
"""Bytes in which a file may write one byte of a needle: `%2F` takes three, and so does a digit of `0x2f, `."""
_LINE_OF_A_KEY = re.compile(r"[A-Za-z0-9+/=_-]{32,}")


@dataclass(frozen=True, slots=True)
class Needle:
    """One spelling of one secret."""

    name: str
    """The variable."""
    text: bytes
    view: Callable[[bytes], bytes] = bytes
    """What is done to a text before the needle is searched for in it."""


def needles_of(secrets: Mapping[str, str | tuple[str, ...]]) -> tuple[Needle, ...]:
    """Return what to search for, given the value or the values of each variable; the longest first.

    >>> [needle.text for needle in needles_of({"KEY": "s3cr=t"})]
    [b'07303306307203d074', b'733363723d74', b'733363723d74', b'czNjcj10', b'MzY3I9d', b'zM2NyPX', b's3cr=t']
    """
    found: dict[tuple[bytes, object], Needle] = {}
    for name, values in secrets.items():
        for value in (values,) if isinstance(values, str) else values:
            for needle in _needles(name, value):
                found.setdefault((needle.text, needle.view), needle)
    return tuple(sorted(found.values(), key=lambda n: -len(n.text)))  # for `redact`: one may begin with another


def _needles(name: str, value: str) -> Iterator[Needle]:
    raw = value.encode("utf-8", "surrogateescape")
    for shift in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield Needle(name, _inside_base64(raw, shift, encode(bytes(shift) + raw)), joined)
    for before in ("", "0"):  # the latter: what is left of `0x`
        yield Needle(name, "".join(f"{before}{byte:02x}" for byte in raw).encode(), hex_digits)
    yield Needle(name, raw)
    yield Needle(name, raw.replace(b" ", b"+"))  # what a URL's query is once its escapes are undone
    for only_ascii in (True, False):
        yield Needle(name, json.dumps(value, ensure_ascii=only_ascii)[1:-1].encode("utf-8", "surrogatepass"))
    yield Needle(name, raw.hex().encode(), dumped_digits)
    yield from (Needle(name, line.encode()) for line in _lines_of_a_key(value))


def joined(text: bytes) -> bytes:
    r"""Return a text without what may stand between two lines of base64: line ends, indentation, quotes, commas.

    >>> joined(b'["c2Vj",\n  "cmV0"]')
    b'[c2VjcmV0]'
    """
    if b"\0" not in text:  # escaped line ends stand in texts only, and a search for them takes long
        text = text.replace(b"\\n", b"").replace(b"\\r", b"")
    return text.translate(None, b" \t\r\n\"'\\,")


_LOWER = bytes(range(256)).lower()
_NO_HEX_DIGITS = bytes(set(range(256)) - set(b"0123456789abcdefABCDEF"))


def hex_digits(text: bytes) -> bytes:
    r"""Return the hexadecimal digits of a text, in lower case, without what stands between them.

    >>> hex_digits(rb"\x68\x75"), hex_digits(b"68:75 6E"), hex_digits(b"0x68, 0x75")
    (b'6875', b'68756e', b'068075')
    """
    return text.translate(_LOWER, _NO_HEX_DIGITS)


_LINE_OF_A_DUMP = re.compile(rb"^[0-9a-fA-F]{6,8}:?[ \t]+((?:[0-9a-fA-F]{2,4}[ \t]{1,2}){1,16})", re.MULTILINE)


def dumped_digits(text: bytes) -> bytes:
    r"""Return the hexadecimal digits of a dump without its offsets and without the characters at the end of its lines.

    >>> dumped_digits(b"00000000: 6875 6e74  hunt\n00000004: 6572 32    er2\n")
    b'68756e74657232'
    """
    lines = [] if b"\0" in text else _LINE_OF_A_DUMP.findall(text)  # a dump is text
    return hex_digits(b"".join(lines))


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
    views = {needle.view for needle in needles}
    found: set[str] = set()
    tail = b""
    for block in blocks:
        text = tail + block
        plain = (text, unquote_to_bytes(text)) if b"%" in text else (text,)
        seen = {view: [view(part) for part in plain] for view in views}
        found.update(n.name for n in needles if n.name not in found and any(n.text in part for part in seen[n.view]))
        tail = text[-overlap:]
    return frozenset(found)
