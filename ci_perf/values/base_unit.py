"""Converts units of benchmarks and people to base units: s, byte, flop, item, and these per second."""

import re

_TIMES = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "usec", "\u00b5s", "\u03bcs", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nsec", "nanosecond", "nanoseconds"), 1e-9),
}
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15} | {
    "ki": 2.0**10, "mi": 2.0**20, "gi": 2.0**30, "ti": 2.0**40,
}  # fmt: skip
_COUNTS = {"B": "byte", "byte": "byte", "bytes": "byte", "flop": "flop", "item": "item", "items": "item"}


def base_unit(text: str) -> tuple[str, float] | None:
    """Return the base unit and the factor to it, or None for an unknown unit.

    >>> base_unit("us"), base_unit("GB/s"), base_unit("TFLOPS")
    (('s', 1e-06), ('byte/s', 1000000000.0), ('flop/s', 1000000000000.0))
    >>> base_unit("MiB"), base_unit("furlong")
    (('byte', 1048576.0), None)
    """
    word = re.sub(r"(?i)flops$", "flop/s", text.strip())
    if word.lower() in _TIMES:
        return "s", _TIMES[word.lower()]
    found = re.fullmatch(r"([kKMGTP]i?)?(B|[Bb]ytes?|(?i:flop)|items?)(/(?:s|sec|second))?", word)
    if found is None:
        return None
    counted = _COUNTS[found[2] if found[2] == "B" else found[2].lower()]
    return counted + ("/s" if found[3] else ""), _PREFIXES[(found[1] or "").lower()]


def suffix(unit: str) -> str:
    """Return the suffix of a key or column whose numbers have this base unit.

    >>> suffix("s"), suffix("byte/s"), suffix("")
    ('s', 'byte_per_s', 'value')
    """
    return re.sub(r"[^a-z0-9]+", "_", unit.lower().replace("/", "_per_")).strip("_") or "value"
