"""Numbers as text: one prefix, three or four digits, a space before the unit."""

import math

_TIME = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def percent(fraction: float, *, sign: bool = False, digits: int = 1) -> str:
    """Write a fraction as a percentage.

    >>> percent(0.0312), percent(-0.5, sign=True), percent(math.inf)
    ('3.1 %', '-50.0 %', 'any change')
    """
    if not math.isfinite(fraction):
        return "any change"
    return f"{fraction * 100:{'+' if sign else ''}.{digits}f} %"


def counted(number: int, word: str) -> str:
    """Write how many there are of a regular noun.

    >>> counted(1, "gate"), counted(0, "gate")
    ('1 gate', '0 gates')
    """
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def duration(seconds: float) -> str:
    """Write a time with the prefix that fits it.

    >>> duration(48.6123e-6), duration(0.0)
    ('48.61 us', '0 s')
    """
    for scale, unit in _TIME:
        if abs(seconds) >= scale:
            return f"{seconds / scale:.4g} {unit}"
    return f"{seconds / 1e-9:.4g} ns" if seconds else "0 s"


def durations(low: float, middle: float, high: float) -> tuple[str, str, str]:
    """Write an estimate and its bounds with one unit, that of the estimate.

    >>> durations(998e-9, 1.0021e-6, 1.1e-6)
    ('0.998', '1.002 us', '1.1')
    """
    scale, unit = next(((s, u) for s, u in _TIME if abs(middle) >= s), _TIME[-1])
    return f"{low / scale:.4g}", f"{middle / scale:.4g} {unit}", f"{high / scale:.4g}"


def rate(per_second: float, unit: str) -> str:
    """Write a rate with a decimal prefix.

    >>> rate(3.54e14, "FLOP/s"), rate(2.4e12, "B/s")
    ('354 TFLOP/s', '2.4 TB/s')
    """
    for scale, prefix in _PREFIXES:
        if abs(per_second) >= scale:
            return f"{per_second / scale:.3g} {prefix}{unit}"
    return f"{per_second:.3g} {unit}"


def number(value: float) -> str:
    """Write a counter: whole numbers in full with separators, others with four digits.

    >>> number(1048576.0), number(90.598)
    ('1,048,576', '90.6')
    """
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"


_SHORT = {"byte": "B", "byte/s": "B/s", "flop/s": "FLOP/s"}
"""How base units are printed, where that differs from how they are kept."""


def amount(value: float, unit: str) -> str:
    """Write a value of any base unit.

    >>> amount(48.6123e-6, "s"), amount(6.827e11, "byte/s"), amount(12.0, "")
    ('48.61 us', '683 GB/s', '12')
    """
    return duration(value) if unit == "s" else rate(value, _SHORT.get(unit, unit)).rstrip()


def amounts(low: float, middle: float, high: float, unit: str) -> tuple[str, str, str]:
    """Write an estimate and its bounds with one prefix, that of the estimate.

    >>> amounts(6.7e11, 6.827e11, 6.9e11, "byte/s")
    ('670', '682.7 GB/s', '690')
    """
    if unit == "s":
        return durations(low, middle, high)
    scale, prefix = next(((s, p) for s, p in _PREFIXES if abs(middle) >= s), (1.0, ""))
    printed = f"{prefix}{_SHORT.get(unit, unit)}"
    return f"{low / scale:.4g}", f"{middle / scale:.4g} {printed}".rstrip(), f"{high / scale:.4g}"
