"""Theoretical occupancy, as NVIDIA's occupancy calculator computes it."""

from collections.abc import Mapping

_REGISTERS = 65536
_REGISTERS_PER_UNIT = 256
_WARP = 32
_RESERVED_SHARED = 1024
"""Bytes of shared memory that the driver keeps for itself in each block, from compute capability 8.0 on."""
_LIMITS: Mapping[str | None, tuple[int, int, int]] = {
    "7.5": (32, 16, 64),
    "8.0": (64, 32, 164),
    "8.6": (48, 16, 100),
    "8.7": (48, 16, 164),
    "8.9": (48, 24, 100),
    "9.0": (64, 32, 228),
    "10.0": (64, 32, 228),
    "12.0": (48, 24, 100),
}
"""Warps, blocks and KiB of shared memory of a multiprocessor, by compute capability."""


def occupancy_pct(capability: str | None, threads: int, registers: int, shared_bytes: int) -> float | None:
    """Return the share of a multiprocessor's warps that a launch allows; None for a GPU that is not in the table.

    >>> occupancy_pct("9.0", threads=384, registers=168, shared_bytes=134144)
    18.75
    >>> occupancy_pct("8.9", threads=256, registers=32, shared_bytes=0), occupancy_pct(None, 256, 32, 0)
    (100.0, None)
    """
    limits = block_limits(capability, threads, registers, shared_bytes)
    if capability not in _LIMITS or limits is None:
        return None
    return 100.0 * min(limits.values()) * -(-threads // _WARP) / _LIMITS[capability][0]


def block_limits(capability: str | None, threads: int, registers: int, shared_bytes: int) -> dict[str, int] | None:
    """Return how many blocks fit on a multiprocessor, by what limits them; None for a GPU that is not in the table.

    >>> block_limits("9.0", threads=256, registers=76, shared_bytes=0)
    {'registers': 3, 'shared_memory': 228, 'warps': 8, 'hardware': 32}
    """
    if capability not in _LIMITS or threads < 1:
        return None
    most_warps, most_blocks, shared_kib = _LIMITS[capability]
    warps = -(-threads // _WARP)
    # warps are placed in the four parts evenly
    per_warp = _round_up(registers * _WARP, _REGISTERS_PER_UNIT)
    by_registers = _REGISTERS // per_warp // 4 * 4 // warps if registers else most_blocks
    used = shared_bytes + (_RESERVED_SHARED if capability != "7.5" else 0)
    by_shared = (shared_kib << 10) // _round_up(used, 128) if used else most_blocks
    return {
        "registers": by_registers,
        "shared_memory": by_shared,
        "warps": most_warps // warps,
        "hardware": most_blocks,
    }


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
