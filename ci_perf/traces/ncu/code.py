"""The machine code of the GPU kernels in an ncu report: its opcodes, and what differs between two of them."""

import difflib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

MOST = 4000
"""Instructions of a kernel that are compared: the time grows with the square of their number."""
_PREDICATE = re.compile(r"^@!?U?P\w+\s+")
_NUMBERED = re.compile(r"\b(U?[RP]|B|SB)\d+\b")
COUNTED = ("samples", "bytes", "shared_wavefronts", "excessive_wavefronts")
"""Fields of an instruction: what was counted of it while the kernel ran."""
_TARGET = re.compile(r"(?<=\s)0x[0-9a-f]{6,}\b|`\([^)]*\)")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a kernel."""

    text: str
    """As NVIDIA's disassembler writes it."""
    file: str = ""
    """Where it comes from; empty without line information."""
    line: int = 0
    samples: float = 0.0
    """How often a warp was seen at it, where samples were taken."""
    bytes: float = 0.0
    """What its accesses to global and local memory request from L2 in the launches of the kernel, where counted."""
    shared_wavefronts: float = 0.0
    """Wavefronts in L1 of its accesses to shared memory, where counted."""
    excessive_wavefronts: float = 0.0
    """How many of these wavefronts are beyond the ideal: those that bank conflicts add."""

    @property
    def opcode(self) -> str:
        """With its modifiers; empty for an empty line."""
        return next(iter(_PREDICATE.sub("", self.text).split()), "")

    @property
    def spills(self) -> bool:
        """Whether it loads from or stores to local memory, where registers are spilled to."""
        return self.opcode.startswith(("LDL", "STL"))


@dataclass(frozen=True, slots=True)
class Code:
    """The machine code of one GPU kernel."""

    name: str
    ranges: tuple[str, ...]
    """NVTX ranges open at its first launch, outermost first."""
    instructions: tuple[Instruction, ...]
    launches: int = 1
    """Over how many launches the counts of instructions are added up."""

    @property
    def of_one_launch(self) -> "Code":
        """The same with the counts of a mean launch."""
        each = tuple(replace(i, **{f: getattr(i, f) / self.launches for f in COUNTED}) for i in self.instructions)
        return replace(self, instructions=each, launches=1)


def opcodes(codes: Iterable[Code]) -> dict[str, int]:
    """Count the instructions of some kernels by opcode, with modifiers, in the order of the alphabet.

    >>> opcodes([Code("f", (), (Instruction("@!P0 LDG.E.128.CONSTANT R4, [R2.64]"), Instruction("EXIT ")))])
    {'EXIT': 1, 'LDG.E.128.CONSTANT': 1}
    """
    counted = Counter(instruction.opcode for code in codes for instruction in code.instructions)
    return {opcode: number for opcode, number in sorted(counted.items()) if opcode}


def normalise(text: str) -> str:
    """Write an instruction without what a compiler numbers anew each time: registers, predicates, addresses.

    >>> normalise("@!P0 IMAD.WIDE R2, R5, 0x4, R8"), normalise("@P1 BRA 0x7fc3f17a6400")
    ('@!P IMAD.WIDE R, R, 0x4, R', '@P BRA ADDRESS')
    """
    return _NUMBERED.sub(r"\1", _TARGET.sub("ADDRESS", " ".join(text.split())))


def difference(base: Code, head: Code) -> str:
    """Return the difference of two kernels as a unified diff of normalised instructions; empty: they are the same."""
    old, new = ([normalise(instruction.text) for instruction in code.instructions] for code in (base, head))
    if old == new:
        return ""
    names = (f"base: {base.name}, {len(old)} instructions", f"head: {head.name}, {len(new)} instructions")
    if max(len(old), len(new)) > MOST:
        return f"--- {names[0]}\n+++ {names[1]}\nmore than {MOST} instructions are not compared\n"
    return "\n".join(difflib.unified_diff(old, new, *names, lineterm="")) + "\n"
