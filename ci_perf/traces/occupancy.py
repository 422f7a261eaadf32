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
    if capability not in _LIMITS or threads < 1:
        return None
    most_warps, most_blocks, shared_kib = _LIMITS[capability]
    warps = -(-threads // _WARP)
    blocks = [most_blocks, most_warps // warps]
    if registers:
        per_warp = _round_up(registers * _WARP, _REGISTERS_PER_UNIT)
        blocks.append(_REGISTERS // per_warp // 4 * 4 // warps)  # warps are placed in the four parts evenly
    if capability != "7.5":
        shared_bytes += _RESERVED_SHARED
    if shared_bytes:
        blocks.append((shared_kib << 10) // _round_up(shared_bytes, 128))
    return 100.0 * min(blocks) * warps / most_warps


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
