"""The times of a program's GPU kernels, and of the NVTX ranges that count, compared with those of base or baseline."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ci_perf.values.kernel_names import matches
from ci_perf.values.measurement import Part
from ci_perf.values.quantity import duration

MOST = 50
"""So many kernels, and so many ranges, are recorded: those that took longest."""
KINDS = ("range", "kernel")
_WORDS = {"range": "NVTX range", "kernel": "GPU kernel"}
_NOTABLE = 0.1
"""Of a change: what makes less of it is not named as its cause."""
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class PartChange:
    """One part beside what it was; several kernels that only a changing part of their names tells apart are one."""

    kind: str
    """`range` or `kernel`."""
    names: tuple[str, ...]
    """As they are called now; as they were called, where they are gone."""
    before: tuple[str, ...]
    """As they were called; empty where they are new, or nothing is known of the base."""
    base: float | None
    """In seconds; None where they are new, or nothing is known of the base."""
    head: float | None
    """In seconds; None where they are gone."""

    @property
    def difference(self) -> float:
        """By how much longer it takes, in seconds."""
        return (self.head or 0.0) - (self.base or 0.0)

    def __str__(self) -> str:
        """Write it for a sentence."""
        name = self.names[0] if len(self.names[0]) <= _SHOWN else f"{self.names[0][: _SHOWN - 3]}..."
        more = f" and {len(self.names) - 1} like it" if len(self.names) > 1 else ""
        return f"{_WORDS[self.kind]} `{name}`{more}: {_time(self.base, 'new')} -> {_time(self.head, 'gone')}"


def parts_of(runs: Sequence[Mapping[tuple[str, str], tuple[int, int]]], scale: float = 1.0) -> tuple[Part, ...]:
    """Sum up the runs of a program, each by kind and name with how often and for how many ns; the longest come first.

    A run without a part counts as no time, so that what only some runs do weighs as it should.
    """
    found: list[Part] = []
    for kind in KINDS:
        names = dict.fromkeys(key for run in runs for key in run if key[0] == kind)
        parts = [
            Part(
                kind,
                name,
                next(run[kind, name][0] for run in reversed(runs) if (kind, name) in run),
                scale * statistics.median(run.get((kind, name), (0, 0))[1] for run in runs) / 1e9,
            )
            for kind, name in names
        ]
        found += sorted(parts, key=lambda part: -part.seconds)[:MOST]
    return tuple(found)


def compare_parts(base: Sequence[Part], head: Sequence[Part]) -> tuple[PartChange, ...]:
    """Compare the parts of two measurements; ranges come first, and of each kind the largest difference."""
    changes: list[PartChange] = []
    for kind in KINDS:
        old, new = ({part.name: part.seconds for part in parts if part.kind == kind} for parts in (base, head))
        pairs = matches(old, new) if kind == "kernel" else _same_names(old, new)
        found = [
            PartChange(
                kind,
                names=now or before,
                before=before,
                base=sum(old[name] for name in before) if before else None,
                head=sum(new[name] for name in now) if now else None,
            )
            for before, now in pairs
        ]
        changes += sorted(found, key=lambda change: -abs(change.difference))
    return tuple(changes)


def cause_of(changes: Iterable[PartChange]) -> str:
    """Name the range and the kernel that make most of a change, where there are several; empty: there is none to name.

    >>> cause_of([PartChange("kernel", ("f",), ("f",), 1e-3, 2e-3), PartChange("kernel", ("g",), ("g",), 1e-3, 1e-3)])
    'GPU kernel `f`: 1 ms -> 2 ms'
    """
    changes = tuple(changes)
    return ", ".join(str(change) for kind in KINDS for change in _main([c for c in changes if c.kind == kind]))


def _main(changes: Sequence[PartChange]) -> Iterator[PartChange]:
    whole = sum(change.difference for change in changes)
    if len(changes) < 2 or not whole or all(change.base is None for change in changes):
        return
    most = max(changes, key=lambda change: change.difference / whole)
    if most.difference / whole >= _NOTABLE:
        yield most


def _same_names(old: Mapping[str, float], new: Mapping[str, float]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    names = dict.fromkeys((*old, *new))
    return [((name,) if name in old else (), (name,) if name in new else ()) for name in names]


def _time(seconds: float | None, otherwise: str) -> str:
    return otherwise if seconds is None else duration(seconds)
