"""Reads TOML; an error names the file, and its hint is the remedy or nothing."""

import math
import re
import tomllib
from typing import Any

from ci_perf.values.errors import ConfigError


def parse_toml(text: str, source: str, *, finite: bool = False) -> dict[str, Any]:
    """Return the document; ConfigError where it is no TOML, and with `finite` where a number in it is `inf` or `nan`.

    A byte-order mark at the start, which PowerShell and Notepad write, is left out.
    """
    text = text.removeprefix("\ufeff")
    try:
        return tomllib.loads(text, parse_float=_finite if finite else float)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: {error}", hint=_hint(str(error), text)) from None
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


def _hint(message: str, text: str) -> str:
    """Return the remedy for an error of tomllib where it is certain, or an empty text."""
    if message.startswith(("Cannot overwrite", "Cannot declare")):
        return "a table or key may be written only once"
    if place := re.match(r"Invalid value \(at line (\d+), column (\d+)\)", message):
        line, column = (int(number) - 1 for number in place.groups())
        if text.replace("\r\n", "\n").split("\n")[line][column:][:1].isalpha():
            return "quote the text"
    return ""
