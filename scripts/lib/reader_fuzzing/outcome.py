"""Reads damaged files in a process of their own, and says what became of them."""

import os
import pickle
import random
import resource
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ci_perf.traces.document import describe
from ci_perf.traces.ncu.counters import Counters
from ci_perf.traces.timeline import Timeline
from ci_perf.values.errors import CiPerfError
from lib.reader_fuzzing.damage import damaged
from lib.reader_fuzzing.seeds import Seed

OUTCOMES = ("refused", "told", "same", "edited", "fewer", "different", "traceback")
_FAULTS = frozenset({"different", "traceback"})
_UNCOUNTED = frozenset({"ncu-csv", "benchmark", "kernel-toml"})
"""Kinds that may end behind any record."""
_BATCH = 200
_SECONDS = 120
_BYTES = 4 << 30

Numbers = Counter[tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one input."""

    source: Seed
    number: int
    damage: str
    outcome: str
    what: str = ""
    content: bytes | None = None

    @property
    def kind(self) -> str:
        """Return the kind of file."""
        return self.source.kind

    @property
    def is_fault(self) -> bool:
        """Say whether the reader is at fault."""
        return self.outcome in _FAULTS


def run(files: Sequence[Seed], first: int, count: int) -> Iterator[Done]:
    """Yield what became of each input; the kinds take turns, and so do the files of a kind."""
    by_kind: dict[str, list[Seed]] = {}
    for seed in files:
        by_kind.setdefault(seed.kind, []).append(seed)
    kinds = sorted(by_kind)
    expected: dict[str, tuple[Numbers, set[str]] | None] = {}
    plan = []
    for number in range(first, first + count):
        of_kind = by_kind[kinds[number % len(kinds)]]
        plan.append((number, random.Random(f"file {number}").choice(of_kind)))
    for begin in range(0, len(plan), _BATCH):
        yield from _in_process(plan[begin : begin + _BATCH], expected)


def _in_process(
    plan: Sequence[tuple[int, Seed]], expected: dict[str, tuple[Numbers, set[str]] | None]
) -> Iterator[Done]:
    """Read inputs in a child, which may crash; another one goes on behind the input that did it."""
    for _, seed in plan:
        if seed.name not in expected:
            expected[seed.name] = _expected(seed)
    place = 0
    while place < len(plan):
        got, alive = _child(plan[place:], expected)
        yield from got
        place += len(got)
        if not alive and place < len(plan):
            number, seed = plan[place]
            way, content, _ = damaged(seed.kind, number, seed.content)
            yield Done(seed, number, way, "traceback", "the process crashed, or took too long", content)
            place += 1


def _child(
    plan: Sequence[tuple[int, Seed]], expected: dict[str, tuple[Numbers, set[str]] | None]
) -> tuple[list[Done], bool]:
    source, target = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(source)
        resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        with os.fdopen(target, "wb") as file:
            for number, seed in plan:
                signal.alarm(_SECONDS)
                pickle.dump(_one(number, seed, expected[seed.name]), file)
                file.flush()
        os._exit(0)
    os.close(target)
    found = []
    with os.fdopen(source, "rb") as file:
        while True:
            try:
                found.append(pickle.load(file))
            except EOFError:
                break
    _, status = os.waitpid(child, 0)
    return found, status == 0


def _one(number: int, seed: Seed, expected: tuple[Numbers, set[str]] | None) -> Done:
    way, content, unknowable = damaged(seed.kind, number, seed.content)
    try:
        numbers, warnings = _read(seed, content)
    except CiPerfError:
        return Done(seed, number, way, "refused")
    except BaseException as error:
        what = f"{type(error).__name__}: {str(error)[:200]}"
        return Done(seed, number, way, "traceback", what, content)
    right, told = expected or (numbers, set())
    outcome = "same" if numbers == right else "told" if warnings - told else "edited" if unknowable else "different"
    if outcome == "different" and numbers <= right and way == "cut" and seed.kind in _UNCOUNTED:
        outcome = "fewer"
    changed = next(iter(numbers - right), next(iter(right - numbers), ""))
    faulty = outcome in _FAULTS
    return Done(seed, number, way, outcome, str(changed)[:160] if faulty else "", content if faulty else None)


def _expected(seed: Seed) -> tuple[Numbers, set[str]] | None:
    try:
        return _read(seed, seed.content)
    except CiPerfError:
        return None


def _read(seed: Seed, content: bytes) -> tuple[Numbers, set[str]]:
    """Return the numbers that a reader finds in a file, and its warnings."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"a{seed.suffix}"
        file.write_bytes(content)
        found = seed.read(file)
        if isinstance(found, Counters):
            pairs = [
                (launch.name, *launch.ranges, name, reading.value)
                for launch in found.launches
                for name, reading in launch.metrics.items()
                if reading.value is not None
            ]
            return Counter(pairs), set(found.warnings)
        if isinstance(found, Timeline):
            document = describe(found)
            inside = [
                (name, kernel.name, kernel.count, kernel.total_ns)
                for name in found.ranges
                for kernel in found.inside([name])
            ]
            kernels = [(kernel.name, kernel.count, kernel.total_ns, kernel.min_ns) for kernel in found.kernels]
            counts = [(key, value) for key, value in document.items() if isinstance(value, int)]
            return Counter([*inside, *kernels, *counts]), set(found.warnings)
        if hasattr(found, "kind"):
            return Counter((str(case), case.values) for case in found.cases), set(found.warnings)
        return Counter([(str(found),)]), set()
