"""Sums and medians of kernels: of each variant in the trace, and of each variant inside the ranges of each name.

A kernel is one number, its code: the variant in the high bits, the duration in the low ones. Sorted, the codes of a
variant lie side by side in order of duration.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ci_perf.traces.nsys.columns import Ints, blocks
from ci_perf.traces.nsys.ranges import Opened

MOST = 1 << 20
"""Kernels whose ranges are summed up together, unless those of one name are more."""


Tally = tuple[int, int, int, float, int, int]
"""The executions of one variant: its place, then count, total, median, least and greatest duration."""


@dataclass(frozen=True, slots=True)
class Tallies:
    """Many of these, column by column."""

    columns: tuple[Ints, Ints, Ints, NDArray[np.float64], Ints, Ints]

    def rows(self, begin: int = 0, end: int | None = None) -> list[Tally]:
        """Return some of them one by one."""
        return list(zip(*(column[begin:end].tolist() for column in self.columns), strict=True))


@dataclass(frozen=True, slots=True)
class RangeTally:
    """The kernels launched inside the ranges of one name."""

    count: int = 0
    total_ns: int = 0
    median_ns: float | None = None
    """Over all executions of all kernels."""
    _tallies: Tallies | None = None
    _begin: int = 0
    _end: int = 0

    def rows(self) -> list[Tally]:
        """Return the tallies of its variants."""
        return self._tallies.rows(self._begin, self._end) if self._tallies else []


@dataclass(slots=True)
class Codes:
    """The codes of all kernels, and which stretches of them were launched inside the same ranges."""

    codes: Ints
    """At least as long as there are kernels."""
    bits: int
    """Of a duration."""
    filled: int = 0
    _sets: list[Ints] = field(default_factory=list)
    """By stretch: the number of the set of ranges."""
    _ends: list[Ints] = field(default_factory=list)

    def add(self, variants: Ints, durations: Ints, sets: Ints) -> None:
        """Add kernels, each with the number of the set of ranges in which it was launched."""
        codes = variants << self.bits | durations
        if not (sets[:-1] <= sets[1:]).all():
            order = np.argsort(sets, kind="stable")
            codes, sets = codes[order], sets[order]
        last = np.append(np.flatnonzero(sets[:-1] != sets[1:]), len(sets) - 1)
        self._sets.append(sets[last])
        self._ends.append(last + (self.filled + 1))
        self.codes[self.filled : self.filled + len(codes)] = codes
        self.filled += len(codes)

    def close(self) -> None:
        """Say that all kernels are in: durations get no more bits than the longest needs."""
        self.codes = self.codes[: self.filled]
        mask = (1 << self.bits) - 1
        longest = max((int((self.codes[b] & mask).max()) for b in blocks(len(self.codes))), default=0)
        bits = max(1, longest.bit_length())
        for block in blocks(len(self.codes)):
            codes = self.codes[block]
            self.codes[block] = codes >> self.bits << bits | codes & mask
        self.bits = bits

    def by_range(self, names: Sequence[str], sets: Mapping[Opened, int]) -> dict[str, RangeTally]:
        """Sum up by the name of the range, while the codes lie as they were added."""
        found = dict.fromkeys(names, RangeTally())
        width = int(self.codes.max(initial=1)).bit_length()
        for batch, starts, ends in self._batches(sets, 1 << (63 - width)):
            pieces = [self.codes[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
            tallies = _ranges(batch, np.concatenate(pieces), ends - starts, width, self.bits)
            found |= {names[name]: tally for name, tally in tallies}
        return found

    def _batches(self, sets: Mapping[Opened, int], most_names: int) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Yield stretches, each with the name of a range around it, ordered by name; a name is in one batch only."""
        if not self._sets:
            return
        stretches, ends = np.concatenate(self._sets), np.concatenate(self._ends)
        starts = np.concatenate([[0], ends[:-1]])
        order = np.argsort(stretches, kind="stable")
        stretches = stretches[order]
        used = set(np.unique(stretches).tolist())
        pairs = sorted((name, place) for opened, place in sets.items() if place in used for name in opened)
        if not pairs:
            return
        names, places = np.array(pairs, dtype=np.int64).T
        first = np.searchsorted(stretches, places)
        counts = np.searchsorted(stretches, places, side="right") - first
        chosen = order[np.repeat(first + counts - np.cumsum(counts), counts) + np.arange(counts.sum())]
        names, starts, ends = np.repeat(names, counts), starts[chosen], ends[chosen]
        bounds = [0, *(np.flatnonzero(names[:-1] != names[1:]) + 1).tolist(), len(names)]
        sizes = np.concatenate([[0], np.cumsum(ends - starts)])[bounds].tolist()
        begin = 0
        for place in range(1, len(bounds)):
            if place + 1 < len(bounds) and sizes[place + 1] - sizes[begin] <= MOST and place + 1 - begin <= most_names:
                continue
            batch = slice(bounds[begin], bounds[place])
            yield names[batch], starts[batch], ends[batch]
            begin = place

    def whole(self) -> list[Tally]:
        """Sum up all kernels; the codes are used up."""
        self.codes.sort()
        return _tallies(*_groups(self.codes, self.bits), self.codes).rows()


def _ranges(names: Ints, codes: Ints, sizes: Ints, width: int, bits: int) -> Iterator[tuple[int, RangeTally]]:
    """Yield the name and the tallies of ranges, from the codes of stretches of these sizes; a code has `width` bits."""
    known, owners = np.unique(names, return_inverse=True)
    ends = np.cumsum(sizes)
    for owner, begin, end in zip(owners.tolist(), (ends - sizes).tolist(), ends.tolist(), strict=True):
        codes[begin:end] |= owner << width
    codes.sort()
    keys, first = _groups(codes, bits)
    bounds = np.searchsorted(keys >> (width - bits), np.arange(len(known) + 1))
    tallies = _tallies(keys & ((1 << (width - bits)) - 1), first, codes)
    ends = np.append(first, len(codes))[bounds]
    totals = np.add.reduceat(codes, ends[:-1]).tolist()
    for owner, (begin, end) in enumerate(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)):
        codes[begin:end] |= owner << bits
    codes.sort()
    codes &= (1 << bits) - 1
    medians = _medians(codes, ends[:-1], ends[1:]).tolist()
    counts, places = np.diff(ends).tolist(), bounds.tolist()
    for owner, name in enumerate(known.tolist()):
        stretch = places[owner : owner + 2]
        yield name, RangeTally(counts[owner], totals[owner], medians[owner], tallies, *stretch)


def _groups(codes: Ints, bits: int) -> tuple[Ints, Ints]:
    """Return what sorted codes have above the durations, and where each of it begins; leave the durations."""
    new = [b.start + 1 + np.flatnonzero(codes[b][:-1] >> bits != codes[b][1:] >> bits) for b in blocks(len(codes), 1)]
    first = np.concatenate([np.zeros(min(1, len(codes)), dtype=np.int64), *new])
    keys = codes[first] >> bits
    codes &= (1 << bits) - 1
    return keys, first


def _tallies(variants: Ints, first: Ints, durations: Ints) -> Tallies:
    """Return the tallies of groups of sorted durations that begin at these places."""
    over = np.append(first[1:], len(durations))[: len(first)]
    totals = np.add.reduceat(durations, first) if len(first) else first
    medians = _medians(durations, first, over)
    return Tallies((variants, over - first, totals, medians, durations[first], durations[over - 1]))


def _medians(durations: Ints, first: Ints, over: Ints) -> NDArray[np.float64]:
    """Return the medians of sorted stretches: of an even number, the mean of the middle two."""
    medians: NDArray[np.float64] = (durations[(first + over - 1) // 2] + durations[(first + over) // 2]) / 2
    return medians
