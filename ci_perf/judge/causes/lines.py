"""The source line that changed most, by what tells it for the cause: samples, or what is counted of each line."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ci_perf.judge.causes.rule import LineBy
from ci_perf.judge.causes.sides import arrow
from ci_perf.values.trace import SourceLine

_LEAST: Mapping[LineBy, float] = {
    "samples": 10.0,
    "bytes": 10.0,
    "spills": 1.0,
    "wavefronts": 10.0,
    "conflicts": 10.0,
}
"""Instructions, for spills; else percent of the side that takes more: a line that takes less is not named."""
_FIELDS: Mapping[LineBy, str] = {
    "bytes": "bytes",
    "wavefronts": "shared_wavefronts",
    "conflicts": "excessive_wavefronts",
}
"""What is counted of each line, by the field that has it."""
_WAVEFRONTS: Mapping[LineBy, str] = {
    "wavefronts": "wavefronts of shared memory",
    "conflicts": "wavefronts beyond the ideal",
}
_OTHERWISE: tuple[LineBy, ...] = ("samples", "bytes", "spills")
"""What decides where no line changed enough by what tells the line of the cause, in this order."""
_NOTABLE = 1.05
"""Bytes that change by a smaller factor are not worth a word."""
_TITLES: Mapping[LineBy, str] = {
    "samples": "The source line that takes most of the change",
    "bytes": "The source line whose memory traffic changed most",
    "spills": "The source line where most registers are spilled that were not",
    "wavefronts": "The source line whose traffic of shared memory changed most",
    "conflicts": "The source line whose bank conflicts changed most",
}


@dataclass(frozen=True, slots=True)
class LineChange:
    """A source line of the head, and what it takes on both sides."""

    file: str
    line: int
    base_pct: float
    """Of the samples of the base; 0 where it has no such line."""
    head_pct: float
    spills: int = 0
    """How many more instructions of the line use local memory."""
    base_bytes: float = 0.0
    """What its accesses to global and local memory request from L2; 0 where that was not counted."""
    head_bytes: float = 0.0
    base_shared_wavefronts: float = 0.0
    """Wavefronts in L1 of its accesses to shared memory; 0 where they were not counted."""
    head_shared_wavefronts: float = 0.0
    base_excessive_wavefronts: float = 0.0
    """How many of these wavefronts are beyond the ideal: those that bank conflicts add."""
    head_excessive_wavefronts: float = 0.0
    base_line: int | None = None
    """Its number in the base; 0: the base has no such line; None: the sources were not compared."""
    by: LineBy = "samples"
    """What changed most at this line."""

    @property
    def place(self) -> str:
        """Write it as `file:line`."""
        return f"{self.file}:{self.line}"

    @property
    def title(self) -> str:
        """What the line is, without its place."""
        if self.by == "spills" and self.spills < 0:
            return "The source line where most registers were spilled that no longer are"
        return _TITLES[self.by]

    def counted(self, by: LineBy) -> tuple[float, float]:
        """Return what was counted of the line in base and head: bytes or wavefronts."""
        base, head = (getattr(self, f"{side}_{_FIELDS[by]}") for side in ("base", "head"))
        return base, head

    def __str__(self) -> str:
        """Write it for a sentence.

        Where the sources were not compared, a line that an edit above it moved is not seen in the base, which is not to
        say that it took no time there.

        >>> print(LineChange("k.cu", 9, 20.0, 50.0)), print(LineChange("k.cu", 9, 0.0, 50.0))
        20 -> 50 % of the samples
        50 % of the samples, a new or moved line
        (None, None)
        >>> print(LineChange("k.cu", 9, 0.0, 50.0, base_bytes=0, head_bytes=1.28e8, base_line=0))
        50 % of the samples, 128 MB of memory traffic, a new line
        >>> print(LineChange("k.cu", 9, 0.0, 50.0, base_bytes=6.4e7, head_bytes=1.28e8, base_line=7))
        0 -> 50 % of the samples, 64 -> 128 MB of memory traffic
        >>> print(LineChange("k.cu", 9, 20.0, 50.0, head_excessive_wavefronts=16252928, by="conflicts"))
        0 -> 16.25 M wavefronts beyond the ideal, 20 -> 50 % of the samples
        """
        known = bool(self.base_pct or self.base_line or self.base_bytes or self.base_shared_wavefronts)
        before = f"{self.base_pct:.3g} -> " if known else ""
        parts = [f"{before}{self.head_pct:.3g} % of the samples"]
        if self.by in _WAVEFRONTS:
            parts.insert(0, f"{_written(*self.counted(self.by), known=known)} {_WAVEFRONTS[self.by]}")
        if not 1 / _NOTABLE < _times(self.base_bytes, self.head_bytes) < _NOTABLE:
            parts.append(f"{_written(self.base_bytes, self.head_bytes, 'byte', known=known)} of memory traffic")
        if not known:
            parts.append("a new line" if self.base_line == 0 else "a new or moved line")
        if self.spills > 0:
            parts.append(f"{self.spills} more instructions spill")
        return ", ".join(parts)


def line_change(
    base: Sequence[SourceLine], head: Sequence[SourceLine], ratio: float, by: LineBy = "samples"
) -> LineChange | None:
    """Return the line of the head that changed most, where the time changed by `ratio`; None: no line changed enough.

    `by` says what decides. Where no line changed enough by that, the samples, bytes or spills decide. Where the sources
    were not compared, the line of the base at the same place is taken for the same line.
    """
    before = {(line.file, line.line): line for line in base}
    changes = [_change(line, before) for line in head]
    whole = {
        measure: max(sum(getattr(line, field) for line in lines) for lines in (base, head))
        for measure, field in _FIELDS.items()
    }
    for measure in dict.fromkeys((by, *_OTHERWISE)):
        most = max(changes, key=lambda change: _added(change, measure, ratio, whole), default=None)
        if most is not None and _added(most, measure, ratio, whole) >= _LEAST[measure]:
            return replace(most, by=measure)
    return None


def _change(line: SourceLine, base: Mapping[tuple[str, int], SourceLine]) -> LineChange:
    place = line.line if line.base_line is None else line.base_line
    old = base.get((line.base_file or line.file, place), SourceLine(line.file, line.line))
    return LineChange(
        line.file,
        line.line,
        old.samples_pct,
        line.samples_pct,
        line.spills - old.spills,
        base_line=line.base_line,
        **{f"base_{field}": getattr(old, field) for field in _FIELDS.values()},
        **{f"head_{field}": getattr(line, field) for field in _FIELDS.values()},
    )


def _added(change: LineChange, by: LineBy, ratio: float, whole: Mapping[LineBy, float]) -> float:
    """Return how much more a line takes on the slower side.

    That is percent of its time or of the `whole` that was counted, or a number of spills.
    """
    if by == "samples":
        added = (change.head_pct * ratio - change.base_pct) / max(ratio, 1.0)
    elif by == "spills":
        added = change.spills
    else:
        base, head = change.counted(by)
        added = 100 * (head - base) / whole[by] if whole[by] else 0.0
    return added if ratio >= 1 else -added


def _written(base: float, head: float, unit: str = "", *, known: bool) -> str:
    """Write what was counted on both sides; only that of the head for a line that is not known in the base."""
    written = arrow(base, head, unit)
    return written if known else written.partition(" -> ")[2]


def _times(base: float, head: float) -> float:
    return head / base if base and head else 1.0 if base == head else math.inf
