"""What the machine code of both sides tells: its instructions by kind, and the source line that changed most."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ci_perf.values.trace import SourceLine

_LEAST_POINTS = 10.0
"""Of the time of the slower side: a line that takes less of it in addition is not named."""


def _bytes(opcode: str) -> int:
    """Return how many bytes of a thread an access moves.

    >>> [_bytes(opcode) for opcode in ("LDG.E.128", "STG.E.64", "LDG.E.U16.CONSTANT", "LDG.E")]
    [16, 8, 2, 4]
    """
    known = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
    return next((known[part] for part in opcode.split(".") if part in known), 4)


def values_of_code(opcodes: Mapping[str, int]) -> dict[str, float]:
    """Count the instructions of a side by what they do; empty where its machine code was not read.

    >>> values_of_code({"LDG.E.CONSTANT": 3, "LDG.E": 1, "EXIT": 1})["code_readonly_loads"]
    3.0
    """
    if not opcodes:
        return {}

    def number(*starts: str, holds: str = "") -> float:
        return float(sum(n for name, n in opcodes.items() if name.startswith(starts) and holds in name))

    accesses = {name: n for name, n in opcodes.items() if name.startswith(("LDG", "STG"))}
    width = sum(_bytes(name) * n for name, n in accesses.items()) / max(1, sum(accesses.values()))
    return ({"code_access_bytes": width} if accesses else {}) | {
        "code_instructions": float(sum(opcodes.values())),
        "code_readonly_loads": number("LDG", holds=".CONSTANT") + number("LDG", holds=".CI"),
        "code_global_loads": number("LDG"),
        "code_global_stores": number("STG"),
        "code_wide_accesses": number("LDG", "STG", holds=".128"),
        "code_spills": number("LDL", "STL"),
        "code_fp64": number("DFMA", "DMUL", "DADD", "DSETP", "DMNMX"),
        "code_fp32": number("FFMA", "FMUL", "FADD"),
        "code_half": number("HFMA2", "HMUL2", "HADD2") - number("HADD2.F32"),
        # a reciprocal in floating point, rounded up, and its quotient cut off
        "code_divisions": min(number("I2F", holds=".RP"), number("F2I", holds=".TRUNC")),
        "code_barriers": number("BAR", "UCGABAR"),
        "code_fences": number("MEMBAR"),
        "code_shuffles": number("SHFL", "REDUX"),
        "code_async_copies": number("LDGSTS", "UTMALDG", "UBLKCP"),
    }


@dataclass(frozen=True, slots=True)
class LineChange:
    """The source line that takes most of the added time, or that spills."""

    file: str
    line: int
    base_pct: float
    """Of the samples of the base; 0 where it has no such line."""
    head_pct: float
    spills: int = 0
    """How many instructions of the line use local memory that did not."""

    @property
    def place(self) -> str:
        """Write it as `file:line`."""
        return f"{self.file}:{self.line}"

    def __str__(self) -> str:
        """Write it for a sentence.

        A line that an edit above it moved is not seen in the base, which is not to say that it took no time there.

        >>> print(LineChange("k.cu", 9, 20.0, 50.0)), print(LineChange("k.cu", 9, 0.0, 50.0))
        20 -> 50 % of the samples
        50 % of the samples, a new or moved line
        (None, None)
        """
        spilled = f", {self.spills} more instructions spill" if self.spills > 0 else ""
        before, moved = (f"{self.base_pct:.3g} -> ", "") if self.base_pct else ("", ", a new or moved line")
        return f"{before}{self.head_pct:.3g} % of the samples{moved}{spilled}"


def line_change(base: Sequence[SourceLine], head: Sequence[SourceLine], ratio: float) -> LineChange | None:
    """Return the line of the head whose part of the time changed most, where the time changed by `ratio`.

    Lines are matched by their place: an edit above a line moves it, and then it counts as new.
    """
    before = {(line.file, line.line): line for line in base}
    changes = []
    for line in head:
        old = before.get((line.file, line.line), SourceLine(line.file, line.line))
        changes.append(LineChange(*(line.file, line.line, old.samples_pct, line.samples_pct), line.spills - old.spills))

    def added(change: LineChange) -> float:
        moved = change.head_pct * ratio - change.base_pct
        return moved if ratio >= 1 else -moved

    most = max(changes, key=added, default=None)
    return most if most is not None and added(most) >= _LEAST_POINTS * max(ratio, 1.0) else None
