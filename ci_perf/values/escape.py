"""Names from users' code made harmless in Markdown and HTML: they are data, never markup.

A kernel's name may hold `|`, backticks, `<`, `@`, links, newlines, control and bidirectional characters. A plain name
is written as code; any other as a <code> element in which every character that Markdown or HTML could read is an
entity: entities are text in CommonMark, and inside <code> GitHub links no mentions, issues or addresses.
"""

import itertools
import re
import string
import unicodedata
from collections.abc import Sequence

_PLAIN = re.compile(r"[A-Za-z0-9_./-]+(?: [A-Za-z0-9_./-]+)*")
_HARMLESS = string.ascii_letters + string.digits + " .,/+-"
_ENTITIES = {code: f"&#{code};" for code in range(128) if chr(code) not in _HARMLESS}
# GitHub links mentions and issues even where they are written as entities, except in code.
_IN_PROSE = {code: entity for code, entity in _ENTITIES.items() if chr(code) not in ":;()%="}
_IN_PROSE |= {ord(c): f"<code>{_ENTITIES[ord(c)]}</code>" for c in "@#"}
LONGEST = 160
"""Characters of a name that are shown; C++ template names of 4,889 have been seen."""


def clean(text: str, longest: int = LONGEST) -> str:
    r"""Drop control, format and bidirectional characters, fold white space, cut what is too long.

    >>> clean("a\n  b\u202ec")
    'a bc'
    """
    if not text.isprintable():
        text = "".join(c for c in text if c.isspace() or unicodedata.category(c)[0] != "C")
    folded = " ".join(text.split())
    return folded if len(folded) <= longest else folded[: longest - 3] + "..."


def code(text: str) -> str:
    """Write a name from users' code for Markdown.

    >>> code("sdpa/s512"), code("f<int>")
    ('`sdpa/s512`', '<code>f&#60;int&#62;</code>')
    """
    name = clean(text)
    if _PLAIN.fullmatch(name):
        return f"`{name}`"
    return f"<code>{entities(name)}</code>" if name else "`?`"


def entities(text: str) -> str:
    """Write every character that could be markup as a numeric entity."""
    others = {ord(c): f"&#{ord(c)};" for c in set(text) if not c.isascii() and not c.isalnum()}
    return text.translate(_ENTITIES | others)


def prose(text: str, longest: int = 400) -> str:
    """Write a sentence that may quote users' code, such as an error message, so that nothing in it is markup.

    What stands between backticks and is a plain name stays code, as the sentence means it.

    >>> prose("see `ci-perf doctor`, not <b> or `a*b`")
    'see `ci-perf doctor`, not &#60;b&#62; or &#96;a&#42;b&#96;'
    """
    parts = re.split(r"(`[^`]*`)", clean(text, longest))
    return "".join(
        part
        if part.startswith("`") and len(part) > 2 and _PLAIN.fullmatch(part[1:-1])
        else _harmless(part, first=i == 0)
        for i, part in enumerate(parts)
    )


def _harmless(text: str, *, first: bool) -> str:
    unlinked = text.translate(_IN_PROSE)
    if first:  # What begins a list or a rule, where the sentence begins a line.
        unlinked = re.sub(r"^([-+]|[0-9]+[.)](?= |$))", lambda c: f"{c[0][:-1]}&#{ord(c[0][-1])};", unlinked)
    return unlinked.replace("www.", "www&#46;").replace("://", "&#58;//")


_SPAN = re.compile(r"`([^`]+)`")


def spans(text: str) -> list[tuple[str, bool]]:
    """Divide a message at its code spans: each part without backticks, and whether it is code.

    >>> spans("see `ci-perf doctor`.")
    [('see ', False), ('ci-perf doctor', True), ('.', False)]
    """
    return [(part, place % 2 == 1) for place, part in enumerate(_SPAN.split(text)) if part]


def plain(text: str) -> str:
    """Write a message without markup: code of several words in quotation marks, code of one word as it is.

    >>> plain("set `samples`, and see `ci-perf doctor`")
    'set samples, and see "ci-perf doctor"'
    """
    return "".join(f'"{part}"' if is_code and " " in part else part for part, is_code in spans(text))


_COMMAND = re.compile(r"(?:^|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])\s*:(?=:)|##(?=\[)")


def without_commands(text: str) -> str:
    r"""Return lines in which GitHub's runner finds no command: `::NAME` first in a line, or `##[NAME` anywhere.

    >>> without_commands("no a::b\n ::error::x ##[error]y")
    'no a::b\n : :error::x ## [error]y'
    """
    return _COMMAND.sub(lambda found: f"{found[0]} ", text)


_LOOKALIKES = str.maketrans({"`": "'", "<": "\u2039", ">": "\u203a"})


def lines_of(text: str, longest: int) -> list[str]:
    r"""Split foreign text, such as a traceback, into harmless lines that keep their indentation.

    Of more than `longest` characters, the first and the last lines are kept: the first names the kernel's own line, the
    last one the error.

    >>> lines_of("File kernel.py\n  a()\n  b()\nError", 26)
    ['File kernel.py', '  ...', 'Error']
    """
    lines = [_indentation(line) + clean(line, 300) for line in text.splitlines() if clean(line)]
    if sum(map(len, lines)) <= longest:
        return lines
    first, last = _fitting(lines, longest // 2), _fitting(lines[::-1], longest // 2)
    if first + last >= len(lines):
        return lines
    return [*lines[:first], "  ...", *lines[len(lines) - last :]]


def _indentation(line: str) -> str:
    return " " * min(40, len(line) - len(line.lstrip(" ")))


def _fitting(lines: Sequence[str], longest: int) -> int:
    """Return how many lines, one at least, have `longest` characters together."""
    lengths = itertools.accumulate(len(line) for line in lines)
    return max(1, sum(length <= longest for length in lengths))


def block(text: str, longest: int = 3000) -> str:
    """Write foreign lines, such as a traceback, as a block of code that nothing in them can end.

    >>> print(block("a ``` b --> c"))
    ```text
    a ''' b --\u203a c
    ```
    """
    return "\n".join(["```text", *(line.translate(_LOOKALIKES) for line in lines_of(text, longest)), "```"])
