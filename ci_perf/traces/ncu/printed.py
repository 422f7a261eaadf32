"""Numbers as ncu prints them: grouped by the locale of the host, so `117.344` may be 117 344 or 117.344.

Which of the two holds is decided once per file from all of its numbers, and refused where they do not tell.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from ci_perf.values.errors import ProfileError

_SPACES = " \u00a0\u2009\u202f'\u2019\ufffd"
"""Separators that only ever group; the last is what a Windows code page's blank becomes when read as UTF-8."""
_NUMBER = re.compile(rf"[+-]?\d[\d.,{_SPACES}]*(?:[eE][+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class Number:
    """One printed number and how much its form says about the locale."""

    text: str
    whole: bool = False
    """What it counts can have no fraction."""
    bare: bool = False
    """It has no unit, so it may be no number at all but a list (`0,1`)."""


def looks_numeric(text: str) -> bool:
    """Tell whether `text` is built like a number in some locale."""
    return _NUMBER.fullmatch(text) is not None


def decimal_mark(printed: Iterable[Number]) -> str:
    """Return the decimal mark of the file that holds these numbers, `.` or `,`.

    >>> decimal_mark([Number("117.344", whole=True), Number("65,77")])
    ','
    """
    proven: dict[str, str] = {}
    bare: dict[str, str] = {}
    counted: dict[str, str] = {}
    unclear: dict[str, str] = {}
    has_plain_thousands = False
    for number in printed:
        mark, certain = _mark(number.text)
        if mark is None:
            has_plain_thousands = has_plain_thousands or re.fullmatch(r"\d{4,}", number.text) is not None
        elif certain:
            (bare if number.bare else proven).setdefault(mark, number.text)
        elif number.whole:
            counted.setdefault(_other(mark), number.text)
        else:
            unclear.setdefault(mark, number.text)
    marks = proven or bare or counted
    if not marks and has_plain_thousands:
        marks = unclear  # a host that does not group: every mark is a decimal mark
    if len(marks) == 1:
        return next(iter(marks))
    if not marks and not unclear:
        return "."
    seen = " and ".join(repr(text) for text in (marks or unclear).values())
    raise ProfileError(
        f"cannot tell whether {seen} hold a decimal mark or group thousands",
        hint="run ncu with LC_ALL=C, or keep the report and read the .ncu-rep file itself",
    )


def parse(text: str, mark: str) -> Decimal | None:
    """Return the number, or None if `text` is none under this decimal mark."""
    group = rf"[{_SPACES}{re.escape(_other(mark))}]"
    # NOTE: an exponent of more digits would be computed for hours
    shape = rf"[+-]?(?:\d+|{_grouped(group)})(?:{re.escape(mark)}\d*)?(?:[eE][+-]?\d{{1,3}})?"
    if not re.fullmatch(shape, text):
        return None
    return Decimal(re.sub(group, "", text).replace(mark, "."))


def _grouped(group: str) -> str:
    """Return the pattern of a grouped number; India groups by two above the thousands."""
    return rf"\d{{1,3}}(?:{group}\d{{2,3}})*{group}\d{{3}}"


def _mark(text: str) -> tuple[str | None, bool]:
    """Return the decimal mark that one number speaks for, and whether it leaves no doubt."""
    mantissa = re.split("[eE]", text.lstrip("+-"))[0]
    marks = re.findall("[.,]", mantissa)
    if not marks:
        return None, False
    last = marks[-1]
    whole, _, fraction = mantissa.rpartition(last)
    if marks.count(last) > 1:
        grouped = len(set(marks)) == 1 and re.fullmatch(_grouped(re.escape(last)), mantissa)
        return (_other(last), True) if grouped else (None, False)
    if len(marks) > 1 or len(fraction) != 3 or not re.fullmatch(r"[1-9]\d{0,2}", whole):
        return last, True
    return last, False


def _other(mark: str) -> str:
    return "," if mark == "." else "."
