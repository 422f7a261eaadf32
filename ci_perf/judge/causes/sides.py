"""What was counted of both sides of a change, and how much of the change a busy resource accounts for."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ci_perf.values.kernel_names import function_name, matches
from ci_perf.values.quantity import amounts, number

RESOURCES: Mapping[str, str] = {
    "dram_throughput_pct": "cycles",
    "l2_throughput_pct": "cycles",
    "l1_data_pct": "cycles",
    "issue_active_pct": "cycles",
    "pipe_alu_pct": "cycles_active",
    "pipe_fma_pct": "cycles_active",
    "pipe_fp64_pct": "cycles_active",
    "pipe_lsu_pct": "cycles_active",
    "pipe_xu_pct": "cycles_active",
    "tensor_active_pct": "cycles_active",
}
"""Percentages of what a unit can do, each with the cycles that it is a percentage of."""
MEMORY = ("l1_data_pct", "l2_throughput_pct", "dram_throughput_pct")
"""The units that traffic of memory keeps busy."""
_WAITING = 0.8
"""Of the time that no unit accounts for, a mechanism that makes warps wait accounts for so much."""
_MANY = 50.0
_WITH_EACH = 5.0
"""Instructions that come with a load or a store: its address, the loop, the use of the value."""
_EASY, _FULL = 60.0, 100.0
"""A unit that is busy for less than 60 % of the time does not hold back a kernel; ncu's own rules use this limit."""
_WARP = 32
_APART = 10.0
"""Values that are so many times apart may have a prefix each."""


@dataclass(frozen=True, slots=True)
class GpuKernel:
    """The launches of one GPU kernel by one launch of a case."""

    name: str
    count: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Side:
    """What is known of one side: counters, launch parameters and metrics of the timeline by name."""

    values: Mapping[str, float]
    kernels: tuple[GpuKernel, ...] = ()


@dataclass(frozen=True, slots=True)
class Sides:
    """Both sides of a change.

    Rules are written for a case that became slower. Of one that became faster the sides change places: `good` is the
    faster side, `bad` the slower one.
    """

    base: Side
    head: Side
    ratio: float
    """The time of head over that of base; at 1 the sides are taken as they are."""
    units: Mapping[str, str] = field(default_factory=dict)

    @property
    def slower(self) -> bool:
        """Whether the head is the slower side."""
        return self.ratio >= 1

    @property
    def good(self) -> Side:
        """The faster side."""
        return self.base if self.slower else self.head

    @property
    def bad(self) -> Side:
        """The slower side."""
        return self.head if self.slower else self.base

    @property
    def times(self) -> float:
        """How many times as long the slower side takes."""
        return max(self.ratio, 1 / self.ratio)

    def both(self, *names: str) -> tuple[float, float] | None:
        """Return the sum of these counters on the faster and the slower side; None where one is not known."""
        sides = [[side.values.get(name) for name in names] for side in (self.good, self.bad)]
        sums = [math.fsum(v for v in values if v is not None) for values in sides if None not in values]
        return (sums[0], sums[1]) if len(sums) == 2 else None

    def grew(self, *names: str, by: float = 1.0) -> bool:
        """Return whether the sum of these counters is more than `by` times as large on the slower side."""
        found = self.both(*names)
        return found is not None and found[1] > by * found[0]

    def times_of(self, *names: str) -> float:
        """Return how many times as large the sum of these counters is on the slower side; 1 where it is not known."""
        found = self.both(*names)
        if found is None or found == (0.0, 0.0):
            return 1.0
        return found[1] / found[0] if found[0] else math.inf

    @property
    def added_cycles(self) -> float:
        """How many cycles more the slower side takes under ncu.

        ncu empties the caches before each launch, so that a change may be smaller there; half of the change that was
        timed is the least.
        """
        cycles = self.both("cycles")
        if cycles is None:
            return math.nan
        return max(cycles[1] - cycles[0], 0.5 * (self.times - 1) * cycles[0])

    def busy(self, *resources: str) -> float:
        """Return the largest share of the added time during which one of these units is busy in addition, 0 to 1.

        A unit that is busy for u1 of t1 cycles in place of u0 of t0 accounts for u1 t1 - u0 t0 of t1 - t0.
        """
        return max((self._busy(resource) for resource in resources), default=0.0)

    def _busy(self, resource: str) -> float:
        percentages, cycles = self.both(resource), self.both(RESOURCES[resource]) or self.both("cycles")
        added = self.added_cycles
        if percentages is None or cycles is None or not added > 0:
            return 0.0
        busy = [pct / 100 * count for pct, count in zip(percentages, cycles, strict=True)]
        return share((busy[1] - busy[0]) / added)

    @property
    def latency(self) -> float:
        """The share of the added time that no unit accounts for: there the kernel waits."""
        return 1 - self.busy(*RESOURCES)

    def waits(self, *units: str, added: float = math.inf) -> float:
        """Return the larger of what these units and what waiting account for.

        Waiting for few `added` requests accounts for less: from one in fifty instructions on for all.
        """
        executed = self.bad.values.get("instructions") or 0.0
        part = share(_MANY * added / executed) if executed else 1.0
        return max(self.busy(*units), _WAITING * self.latency * part)

    def added(self, *names: str) -> float:
        """Return by how much the sum of these counters is larger on the slower side, at least 0."""
        found = self.both(*names)
        return max(0.0, found[1] - found[0]) if found else 0.0

    @property
    def issue(self) -> float:
        """The share of the added time during which instructions are issued in addition."""
        return self.busy("issue_active_pct")

    def issued(self, added: float) -> float:
        """Return the part of `issue` that added loads or stores account for, with what each brings along."""
        more = self.added("instructions")
        return self.issue * share(_WITH_EACH * added / more) if more else self.issue

    @property
    def unsaturated(self) -> float:
        """How far the busiest unit of the slower side is from holding the kernel back: 1 below 60 %, 0 at 100 %."""
        most = max((self.bad.values.get(name, 0.0) for name in RESOURCES), default=0.0)
        return share(1 - (most - _EASY) / (_FULL - _EASY))

    def predicted(self, times: float) -> float:
        """Return the share of the change that a mechanism accounts for which makes the time `times` as long."""
        return share((times - 1) / (self.times - 1)) if self.times > 1 and times > 1 else 0.0

    @property
    def kernel_counts(self) -> tuple[float, float]:
        """How many GPU kernels a launch starts on the faster and the slower side."""
        good, bad = (math.fsum(kernel.count for kernel in side.kernels) for side in (self.good, self.bad))
        return good, bad

    @property
    def kernels_changed(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of GPU kernels that only the base has, and that only the head has."""
        old, new = ([kernel.name for kernel in side.kernels] for side in (self.base, self.head))
        pairs = matches(old, new)
        gone = tuple(name for before, now in pairs if not now for name in before)
        return gone, tuple(name for before, now in pairs if not before for name in now)

    @property
    def other_functions(self) -> bool:
        """Whether the GPU kernels are other functions, apart from the arguments of templates and the parameters."""
        old, new = (sorted(function_name(kernel.name) for kernel in side.kernels) for side in (self.base, self.head))
        return bool(old and new and old != new)

    def arrow(self, *names: str, scale: float = 1.0, over: tuple[str, ...] = ()) -> str:
        """Write the sum of these counters on both sides, base first; `over`: divided by the sum of those."""
        unit = "" if over else self.units.get(names[0], "")
        values = []
        for side in (self.base, self.head):
            top = math.fsum(side.values.get(name, 0.0) for name in names) * scale
            below = math.fsum(side.values.get(name, 0.0) for name in over)
            values.append(top / below if over and below else 0.0 if over else top)
        return arrow(values[0], values[1], unit)

    def warps_per_multiprocessor(self, side: Side) -> float:
        """Return how many warps a multiprocessor can hold, from the launch's own limit; 64 where it is not known."""
        blocks, threads = side.values.get("blocks_by_warps"), side.values.get("block_size")
        return blocks * math.ceil(threads / _WARP) if blocks and threads else 64.0


def share(value: float) -> float:
    """Return a value cut off at 0 and 1; what is not a number is 0."""
    return min(1.0, max(0.0, value)) if math.isfinite(value) else float(value == math.inf)


def arrow(base: float, head: float, unit: str = "") -> str:
    """Write a value of both sides.

    >>> arrow(16, 76), arrow(100.0, 37.5, "%"), arrow(134217728, 268435456, "byte"), arrow(34920, 16.38e6, "inst")
    ('16 -> 76', '100 -> 37.5 %', '134.2 -> 268.4 MB', '34.92 k -> 16.38 M')
    """
    before, now = both_sides(base, head, unit)
    number_, _, printed = before.partition(" ")
    return f"{number_ if not base or printed == now.partition(' ')[2] else before} -> {now}"


def both_sides(base: float, head: float, unit: str = "") -> tuple[str, str]:
    """Write a value of each side, with one prefix unless one of them would then be much less than 1.

    >>> both_sides(67.1e6, 134.2e6, "byte"), both_sides(0, 262144, "inst"), both_sides(576, 48384, "byte")
    (('67.1 MB', '134.2 MB'), ('0', '262.1 k'), ('576 B', '48.38 kB'))
    """
    if unit == "%":
        return f"{_percentage(base)} %", f"{_percentage(head)} %"
    if unit == "ns":
        return both_sides(base / 1e9, head / 1e9, "s")
    known = unit in {"byte", "byte/s", "s", "hz"}
    small, large = sorted((abs(base), abs(head)))
    if not known and large < 10_000:
        return _short(base), _short(head)
    printed = {"hz": "Hz"}.get(unit, unit if known else "")
    values = [amounts(0.0, large, value, printed)[1:] for value in (base, head)]
    if 0 < small < large / _APART and float(values[0 if abs(base) == small else 1][1]) < 1:
        values = [amounts(0.0, abs(value), value, printed)[1:] for value in (base, head)]
    before, now = (f"{value} {most.partition(' ')[2]}".rstrip() for most, value in values)
    return ("0" if not base else before), ("0" if not head and not known else now)


def _short(value: float) -> str:
    return number(float(f"{value:.3g}")) if value % 1 else number(value)


def _percentage(value: float) -> str:
    return f"{value:.3g}" if abs(value) >= 0.05 else "0"
