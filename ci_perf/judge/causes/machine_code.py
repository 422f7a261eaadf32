"""Compares the machine code of both sides: its instructions by kind."""

from collections.abc import Mapping


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
