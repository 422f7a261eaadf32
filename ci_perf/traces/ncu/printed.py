"""Numbers as ncu prints them: grouped by the locale of the host, so `117.344` may be 117 344 or 117.344.

The decimal mark is decided once per file from all of its numbers; a file whose numbers do not tell is refused.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal

from ci_perf.values.errors import ProfileError

_SPACES = " \u00a0\u2009\u202f'\u2019\ufffd"
"""Separators that only ever group; the last is the blank of a Windows code page when read as UTF-8."""
_NUMBER = re.compile(rf"[+-]?\d[\d.,{_SPACES}]*(?:[eE][+-]?\d+)?")


def _other(mark: str) -> str:
    return "," if mark == "." else "."


def _further(group: str) -> str:
    """Return the pattern of the groups after the first; India groups by two above the thousands."""
    return rf"(?:{group}\d{{2,3}})*{group}\d{{3}}"


def _numbers(mark: str, *, first: str) -> re.Pattern[str]:
    """Return the pattern of the numbers with this decimal mark; `first` is that of the first group's digits."""
    group = f"[{_SPACES}{_other(mark)}]"
    # NOTE: an exponent of more digits would be computed for hours
    return re.compile(rf"[+-]?(?:\d+|{first}{_further(group)})(?:{re.escape(mark)}\d*)?(?:[eE][+-]?\d{{1,3}})?")


_NUMBERS = {mark: _numbers(mark, first=r"\d{1,3}") for mark in ".,"}
_AGREEING = {mark: _numbers(mark, first=r"[1-9]\d{0,2}") for mark in ".,"}
"""By decimal mark: the numbers that do not prove the other one."""
_NO_DIGIT = {mark: re.compile(f"[{_SPACES}{_other(mark)}]") for mark in ".,"}


def may_be_number(text: str) -> bool:
    """Tell whether a text is a number under one decimal mark or the other."""
    return any(pattern.fullmatch(text) for pattern in _NUMBERS.values())


def parse(text: str, mark: str) -> Decimal | None:
    """Return the number, or None if `text` is not a number with this decimal mark."""
    if not _NUMBERS[mark].fullmatch(text):
        return None
    return Decimal(_NO_DIGIT[mark].sub("", text).replace(mark, "."))


@dataclass(slots=True)
class Evidence:
    """What the numbers of a file say about its decimal mark: the first number that speaks for each mark.

    >>> evidence = Evidence()
    >>> evidence.add("117.344", whole=True), evidence.add("65,77"), evidence.mark()
    (None, None, ',')
    """

    _seen: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    """By how far it can be trusted and by mark, the first number."""
    _agreeing: re.Pattern[str] | None = None
    _plain_thousands: bool = False
    """A number above 999 is not grouped, so this host does not group."""

    def add(self, text: str, *, whole: bool = False, bare: bool = False) -> None:
        """Add a printed number; other texts are ignored.

        `whole`: what it counts can have no fraction. `bare`: it has no unit, so it may be a list (`0,1`).
        """
        if self._agreeing and self._agreeing.fullmatch(text):
            return  # this is most numbers of a file: they say nothing new
        if not _NUMBER.fullmatch(text):
            return
        mark, certain = _mark(text)
        if mark is None:
            self._plain_thousands = self._plain_thousands or re.fullmatch(r"\d{4,}", text) is not None
        elif certain:
            self._seen["bare" if bare else "proven"].setdefault(mark, text)
            self._agreeing = self._agreeing if bare else _AGREEING[mark]
        else:
            self._seen["whole" if whole else "unclear"].setdefault(_other(mark) if whole else mark, text)

    def join(self, other: "Evidence") -> None:
        """Take over what another part of the file says."""
        for kind, marks in other._seen.items():
            for mark, text in marks.items():
                self._seen[kind].setdefault(mark, text)
        self._plain_thousands = self._plain_thousands or other._plain_thousands

    def mark(self) -> str:
        """Return the decimal mark, `.` or `,`; a file that does not tell is a ProfileError."""
        unclear = self._seen["unclear"]
        marks = self._seen["proven"] or self._seen["bare"] or self._seen["whole"]
        if not marks and self._plain_thousands:
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


def _mark(text: str) -> tuple[str | None, bool]:
    """Return the decimal mark that one number speaks for, and whether it leaves no doubt."""
    mantissa = re.split("[eE]", text.lstrip("+-"))[0]
    marks = re.findall("[.,]", mantissa)
    if not marks:
        return None, False
    last = marks[-1]
    whole, _, fraction = mantissa.rpartition(last)
    if marks.count(last) > 1:
        grouped = len(set(marks)) == 1 and re.fullmatch(rf"\d{{1,3}}{_further(re.escape(last))}", mantissa)
        return (_other(last), True) if grouped else (None, False)
    if len(marks) > 1 or len(fraction) != 3 or not re.fullmatch(r"[1-9]\d{0,2}", whole):
        return last, True
    return last, False
