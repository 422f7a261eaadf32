"""Parsers of the values of settings: from text or TOML; the second argument says where a value came from."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from ci_perf.values.errors import ConfigError, did_you_mean


def parse_text(value: object, where: str) -> str:
    """Return a text; ConfigError for anything else, as every parser here."""
    if not isinstance(value, str):
        raise ConfigError(f"{where}: {value!r} is not text")
    return value


def parse_positive(value: object, where: str) -> float:
    """Return a number above 0 and below 1e9."""
    try:
        number = float(str(value))
    except ValueError:
        raise ConfigError(f"{where}: {value!r} is not a number") from None
    if not 0 < number < 1e9:
        raise ConfigError(f"{where}: {value!r} is not a positive number")
    return number


def parse_count(value: object, where: str) -> int:
    """Return a whole number above 0."""
    number = parse_positive(value, where)
    if not number.is_integer():
        raise ConfigError(f"{where}: {value!r} is not a whole number")
    return int(number)


def parse_whole(value: object, where: str) -> int:
    """Return a whole number, 0 included, of at most 18 digits."""
    if not str(value).isdecimal() or len(str(value)) > 18:
        raise ConfigError(f"{where}: {value!r} is not a whole number of at most 18 digits")
    return int(str(value))


def optional_of(parse: Callable[[object, str], Any]) -> Callable[[object, str], Any]:
    """Return the parser of a value that may be empty: then it is None."""
    return lambda value, where: None if value in (None, "") else parse(value, where)


def parse_samples(value: object, where: str) -> int:
    """Return a number of samples: 5 or more, as fewer have no median."""
    number = parse_count(value, where)
    if number < 5:
        raise ConfigError(f"{where}: {number} samples are too few for a median", hint="write 5 or more")
    return number


def parse_flag(value: object, where: str) -> bool:
    """Return a truth value: true, 1, yes, false, 0 or no."""
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if str(value).lower() not in words:
        raise ConfigError(f"{where}: {value!r} is neither true nor false")
    return words[str(value).lower()]


def _listed(value: object) -> tuple[str, ...]:
    parts = value if isinstance(value, list | tuple) else str(value).split(",")
    return tuple(str(part).strip() for part in parts if str(part).strip())


_SYNONYMS = {"gpu": "cuda"}
"""What users write for a word of ours, where another word of ours is spelt more alike."""


def words_of(choices: Sequence[str]) -> Callable[[object, str], tuple[str, ...]]:
    """Return the parser of a list of these words, as a TOML list or separated by commas."""
    choose = choice_of(choices)
    return lambda value, where: tuple(choose(word, where) for word in _listed(value))


def choice_of(choices: Sequence[str]) -> Callable[[object, str], str]:
    """Return the parser of one of these words."""

    def parse(value: object, where: str) -> str:
        if value not in choices:
            usual = _SYNONYMS.get(str(value).lower(), "")
            hint = did_you_mean(usual if usual in choices else str(value), choices, most=1)
            raise ConfigError(f"{where}: `{value}` is not one of {', '.join(choices)}", hint=hint)
        return str(value)

    return parse


def parse_names(value: object, where: str) -> tuple[str, ...]:
    """Return a list of names of environment variables, which may have the wildcards * and ?."""
    names = _listed(value)
    for name in names:
        if not re.fullmatch(r"[A-Za-z_*?][A-Za-z0-9_*?]*", name):
            hint = "write NAME or a pattern like MY_*"
            raise ConfigError(f"{where}: `{name}` is not the name of a variable", hint=hint)
    return names


def parse_key(value: object, where: str) -> str:
    """Return a short name of letters, digits, `_`, `.`, `-` and spaces."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_.][A-Za-z0-9_. -]{0,99}", value):
        raise ConfigError(f"{where}: {value!r} is not a name", hint="letters, digits, `_`, `.`, `-` and spaces")
    return value
