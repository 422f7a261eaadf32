"""Mechanisms of the launch: occupancy, waves of blocks, how the work is divided into kernels."""

import math

from ci_perf.judge.causes.rule import CUDA_GUIDE, NCU_GUIDE, SYMPTOM, Rule
from ci_perf.judge.causes.sides import Side, Sides, share

_LIMITS = ("blocks_by_registers", "blocks_by_shared_memory", "blocks_by_warps", "blocks_by_hardware")
_LIMITED_BY = ("registers", "shared memory", "warps", "blocks")
_OCCUPANCY = ("occupancy_bound_pct", "warps_active_pct", "registers_per_thread", "block_size", *_LIMITS)
_WAVES = ("grid_size", "block_size", "waves", "cycles_active", "cycles", "warps_active_pct")
_FEW = 0.95
"""Occupancy that falls by less is no cause."""
_SHOWN = 60
_SAME_FUNCTION = 0.4
"""The share of other arguments of a template, or of other parameters of a function."""
_SAME_BYTES = 1.05
"""DRAM traffic of unchanged code differs by less."""


def limiter(side: Side) -> str:
    """Return what allows the fewest blocks on a multiprocessor, several joined by `and`; empty where that is not known.

    >>> limiter(Side({"blocks_by_registers": 3, "blocks_by_shared_memory": 4, "blocks_by_warps": 8}))
    ''
    >>> blocks = {"blocks_by_shared_memory": 28, "blocks_by_warps": 8, "blocks_by_hardware": 32}
    >>> limiter(Side(blocks | {"blocks_by_registers": 3})), limiter(Side(blocks | {"blocks_by_registers": 8}))
    ('registers', 'registers and warps')
    """
    limits = {name: side.values[name] for name in _LIMITS if name in side.values}
    if len(limits) < len(_LIMITS):
        return ""
    least = min(limits.values())
    return " and ".join(word for word, name in zip(_LIMITED_BY, _LIMITS, strict=True) if limits[name] == least)


def _limiter(s: Sides) -> str:
    """Return what limits the blocks of a multiprocessor on the slower side; of several, what fell most."""

    def limit(name: str) -> tuple[float, float]:
        return s.bad.values.get(name, math.inf), s.times_of(name)

    return min(_LIMITS, key=limit)


def _occupancy(s: Sides) -> float:
    """Return the share that fewer resident warps account for: so many times fewer hide so many times less latency."""
    bound = s.both("occupancy_bound_pct") or s.both("theoretical_occupancy_pct")
    if bound is None or not bound[0] or bound[1] >= _FEW * bound[0]:
        return 0.0
    warps = s.both("warps_active_pct") or bound
    return s.predicted(warps[0] / warps[1] if warps[1] else math.inf) * s.unsaturated


def _reason(s: Sides) -> str:
    """Return which launch parameter lowers the occupancy: the limit itself if that grew, else the block size."""
    known = all(limit in side.values for limit in _LIMITS for side in (s.base, s.head))
    limit = _limiter(s) if known else ""
    for mine, counter in ((_LIMITS[0], "registers_per_thread"), (_LIMITS[1], "shared_bytes")):
        if limit in ("", mine) and s.grew(counter):
            return mine
    blocks = s.both("block_size")
    resized = blocks is not None and blocks[0] != blocks[1]
    return limit if limit in _LIMITS[:2] and not resized else _LIMITS[2]


def _by_registers(s: Sides) -> float:
    return _occupancy(s) if _reason(s) == _LIMITS[0] else 0.0


def _by_shared_memory(s: Sides) -> float:
    return _occupancy(s) if _reason(s) == _LIMITS[1] else 0.0


def _by_block_size(s: Sides) -> float:
    return _occupancy(s) if _reason(s) == _LIMITS[2] else 0.0


def _occupancy_words(s: Sides) -> str:
    name = "occupancy_bound_pct" if s.both("occupancy_bound_pct") else "theoretical_occupancy_pct"
    achieved = f" (achieved {s.arrow('warps_active_pct')})" if s.both("warps_active_pct") else ""
    moved = s.both("dram_read_bytes", "dram_write_bytes")
    same = moved and 1 / _SAME_BYTES < s.times_of("dram_read_bytes", "dram_write_bytes") < _SAME_BYTES
    return f"occupancy {s.arrow(name)}{achieved}{'; bytes unchanged' if same else ''}"


def _idle(s: Sides) -> float:
    """Return the share of the added time during which a multiprocessor has no block."""
    cycles, active, added = s.both("cycles"), s.both("cycles_active"), s.added_cycles
    if cycles is None or active is None or not added > 0:
        return 0.0
    return share(((cycles[1] - active[1]) - (cycles[0] - active[0])) / added)


def _quantised(s: Sides) -> bool:
    """Return whether the last wave of the slower side is emptier than that of the faster one."""
    waves = s.both("waves")
    if waves is None or min(waves) <= 0:
        return False
    filled = [wave / math.ceil(wave - 1e-6) for wave in waves]
    return waves[1] > 1 and filled[1] < _FEW * filled[0]


def _few_blocks(s: Sides) -> float:
    waves = s.both("waves")
    if waves is None or waves[1] >= 1 or not waves[1] < _FEW * waves[0]:
        return 0.0
    warps = s.both("warps_active_pct")
    lower = s.predicted(warps[0] / warps[1]) * s.unsaturated if warps and warps[1] else 0.0
    return max(_idle(s), lower)


def _tail(s: Sides) -> float:
    return _idle(s) if _quantised(s) and not _few_blocks(s) else 0.0


def _imbalance(s: Sides) -> float:
    return 0.0 if _quantised(s) or _few_blocks(s) else _idle(s)


def _split(s: Sides) -> float:
    """Return the share of the kernels that only the slower side has, less those that only the faster one has."""
    good, bad = s.kernel_counts
    if not good or bad <= good:
        return 0.0
    seconds = [math.fsum(kernel.seconds for kernel in side.kernels) for side in (s.good, s.bad)]
    added = seconds[1] - seconds[0]
    if added <= 0:
        return 0.0
    gone, new = s.kernels_changed if s.slower else s.kernels_changed[::-1]
    changed = [
        math.fsum(kernel.seconds for kernel in side.kernels if kernel.name in names)
        for side, names in ((s.good, gone), (s.bad, new))
    ]
    more_often = [kernel for kernel in s.bad.kernels if kernel.name not in new]
    before = {kernel.name: kernel for kernel in s.good.kernels}
    repeated = math.fsum(
        kernel.seconds - before[kernel.name].seconds
        for kernel in more_often
        if kernel.name in before and kernel.count > before[kernel.name].count
    )
    return share((changed[1] - changed[0] + repeated) / added)


def _names(s: Sides) -> str:
    gone, new = s.kernels_changed
    parts = [
        f"{word} {', '.join(_code(name) for name in names[:3])}"
        for word, names in (("new", new), ("gone", gone))
        if names
    ]
    return f" ({'; '.join(parts)})" if parts else ""


def _code(name: str) -> str:
    return f"`{name if len(name) <= _SHOWN else name[: _SHOWN - 3] + '...'}`"


def _say_split(s: Sides) -> str:
    base, head = s.kernel_counts if s.slower else s.kernel_counts[::-1]
    gone, new = s.kernels_changed if s.slower else s.kernels_changed[::-1]
    if gone:
        what = "one kernel is split into several" if s.slower else "kernels are fused"
    elif new:
        what = f"{'more' if s.slower else 'fewer'} GPU kernels"
    else:
        what = f"the same GPU kernels run {'more' if s.slower else 'less'} often"
    moved = s.both("dram_read_bytes", "dram_write_bytes")
    traffic = f"; DRAM traffic {s.arrow('dram_read_bytes', 'dram_write_bytes')}" if moved else ""
    return f"{what}: {base:g} -> {head:g} GPU kernels a launch{_names(s)}{traffic}"


def _other_kernel(s: Sides) -> float:
    gone, new = s.kernels_changed
    good, bad = s.kernel_counts
    if not (gone and new and good == bad):
        return 0.0
    return 1.0 if s.other_functions else _SAME_FUNCTION


RULES = (
    Rule(
        "split-kernels",
        ("dram_read_bytes", "dram_write_bytes", "l2_sectors", "instructions", "grid_size", "duration_ns"),
        _split,
        _say_split,
        "What one kernel keeps in registers, several pass through memory: fuse them again.",
        f"{CUDA_GUIDE}, Device Memory Spaces",
    ),
    Rule(
        "register-pressure",
        _OCCUPANCY,
        _by_registers,
        lambda s: f"registers {s.arrow('registers_per_thread')} a thread: {_occupancy_words(s)}",
        "Fewer values alive at a time, `__launch_bounds__`, less unrolling, smaller tiles for each thread.",
        f"{CUDA_GUIDE}, Calculating Occupancy",
    ),
    Rule(
        "shared-memory-occupancy",
        ("shared_bytes", *_OCCUPANCY),
        _by_shared_memory,
        lambda s: f"shared memory {s.arrow('shared_bytes')} a block: {_occupancy_words(s)}",
        "Smaller tiles or fewer stages in shared memory, or larger blocks that share them.",
        f"{CUDA_GUIDE}, Calculating Occupancy",
    ),
    Rule(
        "block-size-occupancy",
        _OCCUPANCY,
        _by_block_size,
        lambda s: f"block size {s.arrow('block_size')} threads: {_occupancy_words(s)}",
        "A block size that divides the warps of a multiprocessor, and is not so small that the number is the limit.",
        f"{CUDA_GUIDE}, Thread and Block Heuristics",
    ),
    Rule(
        "few-blocks",
        _WAVES,
        _few_blocks,
        lambda s: (
            f"too few blocks for the multiprocessors: grid {s.arrow('grid_size')} blocks, {s.arrow('waves')} waves"
        ),
        "More and smaller blocks, so that each multiprocessor has some; split the work along another dimension.",
        f"{CUDA_GUIDE}, Execution Configuration Optimizations",
    ),
    Rule(
        "tail",
        _WAVES,
        _tail,
        lambda s: (
            f"tail effect: grid {s.arrow('grid_size')} blocks are {s.arrow('waves')} waves;"
            f" {'the last one leaves' if s.slower else 'the last one left'} multiprocessors idle"
        ),
        "A grid that is a whole number of waves, a persistent kernel, or smaller blocks.",
        f"{NCU_GUIDE}, Launch Statistics, Waves Per SM",
    ),
    Rule(
        "imbalance",
        _WAVES,
        _imbalance,
        lambda s: (
            f"uneven blocks: multiprocessors work for {s.arrow('cycles_active')} of {s.arrow('cycles')} cycles,"
            " the rest of the time some have no block"
        ),
        "Divide the work evenly among blocks, begin with the longest, or let blocks take work from a queue.",
        f"{NCU_GUIDE}, Occupancy and Workload Imbalance",
        weight=SYMPTOM,
    ),
    Rule(
        "other-kernel",
        ("duration_ns", "instructions", "registers_per_thread", "block_size", "grid_size"),
        _other_kernel,
        lambda s: f"another GPU kernel does the work{_names(s)}",
        "A library chooses its kernels by shape, type, alignment and settings: compare these.",
        "The names of the GPU kernels on both sides",
        weight=SYMPTOM,
    ),
)
