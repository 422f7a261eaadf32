"""Reads TOML; an error names the file, and its hint is the remedy or nothing."""

import math
import re
import tomllib
from typing import Any

from ci_perf.values.errors import ConfigError
from ci_perf.values.escape import clean

_LONGEST = 80
"""Characters of a line that an error quotes."""
_WORDS = {
    **dict.fromkeys(("True", "TRUE", "False", "FALSE"), "write `true` or `false`"),
    **dict.fromkeys(("None", "null", "nil"), "TOML has no null: leave the key out"),
}
"""Values of other languages, and what to write in TOML."""
_TWO_NAMES = re.compile(r"(\[\[?) ?([\w-]+) ([\w-]+) ?(\]\]?)(?: ?#.*)?")
"""The header of a table in which a space stands for the dot."""


def parse_toml(text: str, source: str, *, finite: bool = False) -> dict[str, Any]:
    """Return the document; ConfigError where it is no TOML, and with `finite` where a number in it is `inf` or `nan`.

    A byte-order mark at the start, which PowerShell and Notepad write, is left out.
    """
    text = text.removeprefix("\ufeff")
    try:
        return tomllib.loads(text, parse_float=_finite if finite else float)
    except tomllib.TOMLDecodeError as error:
        line, rest = _place(str(error), text)
        hint = _hint(str(error), line, rest)
        raise ConfigError(f"{source}: {error}{f': {line}' if line else ''}", hint=hint) from None
    except _NotFiniteError as error:
        raise ConfigError(f"{source}: {error}", hint="JSON, in which runs are kept, has no such number") from None
    except ValueError:  # Python reads whole numbers of at most 4300 digits
        raise ConfigError(f"{source}: a whole number has too many digits") from None
    except RecursionError:
        raise ConfigError(f"{source}: nested too deeply") from None


class _NotFiniteError(ValueError):
    """A number is infinite, or none."""


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _NotFiniteError(f"`{text}` is not a finite number")
    return number


def _place(message: str, text: str) -> tuple[str, str]:
    """Return the line that an error of tomllib points at, and the rest of it from that column on; empty without one."""
    found = re.search(r"\(at line (\d+), column (\d+)\)", message)
    if not found:
        return "", ""
    line = text.replace("\r\n", "\n").split("\n")[int(found[1]) - 1]
    return clean(line, _LONGEST), line[int(found[2]) - 1 :]


def _hint(message: str, line: str, rest: str) -> str:
    """Return the remedy for an error of tomllib where it is certain, or an empty text."""
    if message.startswith(("Cannot overwrite", "Cannot declare")):
        return "a table or key may be written only once"
    if message.startswith("Expected ']") and (names := _TWO_NAMES.fullmatch(line)):
        return f"write a dot between the names of a table: `{names[1]}{names[2]}.{names[3]}{names[4]}`"
    if not message.startswith("Invalid value"):
        return ""
    word = re.match(r"\w*", rest)
    if word and word[0] in _WORDS:
        return _WORDS[word[0]]
    if rest.startswith(("\u201c", "\u201d", "\u2018", "\u2019")):
        return 'quote the text with "'
    return "quote the text" if rest[:1].isalpha() else ""
