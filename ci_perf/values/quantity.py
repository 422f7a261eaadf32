"""Numbers as text (one prefix, three or four digits, a space before the unit), and units as people write them.

Base units are s, byte, flop, item, and these per second.
"""

import math
import re

_TIME = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


LIMITLESS = 1e6
"""A fraction from which no change is meant: two or three values bound it to no number that a person would read."""


def percent(fraction: float, *, sign: bool = False, digits: int = 1) -> str:
    """Write a fraction as a percentage; what is rounded to zero has no sign.

    >>> percent(0.0312), percent(-0.5, sign=True), percent(-0.0004, sign=True), percent(LIMITLESS), percent(math.inf)
    ('3.1 %', '-50.0 %', '0.0 %', 'any change', 'any change')
    """
    if not fraction < LIMITLESS:
        return "any change"
    return f"{signed(fraction * 100, digits) if sign else f'{fraction * 100:z.{digits}f}'} %"


def signed(value: float, digits: int = 1) -> str:
    """Write a number with its sign; what is rounded to zero has none.

    >>> signed(1.26), signed(-1.0), signed(-0.04), signed(0.04)
    ('+1.3', '-1.0', '0.0', '0.0')
    """
    text = f"{value:+z.{digits}f}"
    return text if float(text) else text.removeprefix("+")


def counted(number: int, word: str) -> str:
    """Write how many there are of a regular noun.

    >>> counted(1, "gate"), counted(0, "gate"), counted(2, "process")
    ('1 gate', '0 gates', '2 processes')
    """
    return f"{number} {word}" if number == 1 else f"{number} {word}{'es' if word.endswith('s') else 's'}"


_SHORT = {"byte": "B", "byte/s": "B/s", "flop/s": "FLOP/s"}
"""How base units are printed, where that differs from how they are kept."""


def scale(value: float, unit: str) -> tuple[float, str]:
    """Return the factor that fits a value, and the unit with its prefix.

    >>> scale(48.6e-6, "s"), scale(2.4e12, "byte/s")
    ((1e-06, 'us'), (1000000000000.0, 'TB/s'))
    """
    if unit == "s":
        return next((known for known in _TIME if abs(value) >= known[0]), _TIME[-1])
    factor, prefix = next((known for known in _PREFIXES if abs(value) >= known[0]), (1.0, ""))
    return factor, prefix + _SHORT.get(unit, unit)


def duration(seconds: float) -> str:
    """Write a time with the prefix that fits it.

    >>> duration(48.6123e-6), duration(0.0)
    ('48.61 us', '0 s')
    """
    factor, unit = scale(seconds, "s") if seconds else (1.0, "s")
    return f"{seconds / factor:.4g} {unit}"


def rounded_up(value: float) -> float:
    """Return a positive value with two digits, not less than it is.

    >>> rounded_up(1234.0), rounded_up(7.41), rounded_up(90.0)
    (1300.0, 7.5, 90.0)
    """
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(round(value / step, 6)) * step:.6g}")


def rate(per_second: float, unit: str) -> str:
    """Write a rate with a decimal prefix.

    >>> rate(3.54e14, "FLOP/s"), rate(2.4e12, "B/s")
    ('354 TFLOP/s', '2.4 TB/s')
    """
    factor, printed = scale(per_second, unit)
    return f"{per_second / factor:.3g} {printed}"


def number(value: float) -> str:
    """Write a counter: whole numbers in full with separators, others with four digits.

    >>> number(1048576.0), number(90.598)
    ('1,048,576', '90.6')
    """
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"


def amount(value: float, unit: str) -> str:
    """Write a value of any base unit.

    >>> amount(48.6123e-6, "s"), amount(6.827e11, "byte/s"), amount(12.0, "")
    ('48.61 us', '683 GB/s', '12')
    """
    return duration(value) if unit == "s" else rate(value, unit).rstrip()


def amounts(low: float, middle: float, high: float, unit: str) -> tuple[str, str, str]:
    """Write an estimate and its bounds with one prefix, that of the estimate.

    >>> amounts(6.7e11, 6.827e11, 6.9e11, "byte/s"), amounts(998e-9, 1.0021e-6, 1.1e-6, "s")
    (('670', '682.7 GB/s', '690'), ('0.998', '1.002 us', '1.1'))
    """
    factor, printed = scale(middle, unit)
    return f"{low / factor:.4g}", f"{middle / factor:.4g} {printed}".rstrip(), f"{high / factor:.4g}"


_TIMES = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "usec", "\u00b5s", "\u03bcs", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nsec", "nanosecond", "nanoseconds"), 1e-9),
}
_MULTIPLES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15} | {
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
    return counted + ("/s" if found[3] else ""), _MULTIPLES[(found[1] or "").lower()]


def suffix(unit: str) -> str:
    """Return the suffix of a key or column whose numbers have this base unit.

    >>> suffix("s"), suffix("byte/s"), suffix("")
    ('s', 'byte_per_s', 'value')
    """
    return re.sub(r"[^a-z0-9]+", "_", unit.lower().replace("/", "_per_")).strip("_") or "value"
