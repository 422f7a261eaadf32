"""Random cases of a kernel, from the `[fuzz]` table of its kernel.toml.

A case is a function of the table, the seed and its number alone, so its name (`fuzz-SEED-NUMBER`) is enough to run it
again. The numbers come from a hash: the same on every machine and in every version of Python.

Each case has one parameter that no function of the entry sees: `strides`, how its inputs lie in memory.
"""

import difflib
import hashlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

from ci_perf.values.errors import ConfigError
from ci_perf.values.job import Job, matches
from ci_perf.values.kernel import FuzzRange, KernelSpec, Params, Scalar

_NAME = re.compile(r"fuzz-(\d{1,18})-(\d{1,9})")
STRIDES = "strides"
CONTIGUOUS = "contiguous"
STRIDE_KINDS = (CONTIGUOUS, "offset", "padded", "stepped", "transposed", "mixed")
"""What `userside.strides` knows to make of inputs; contiguous stands for just as `make_inputs` made them."""
REFUSED = "refused"
"""In place of a list of them: `launch` may raise a ValueError for all but contiguous ones."""
_USUAL_STRIDES = FuzzRange(values=(CONTIGUOUS,) * (len(STRIDE_KINDS) - 1) + STRIDE_KINDS[1:])
"""Every other case as users mostly have it, which is what fast paths are for."""
MOST_TRIES = 24
"""So many smaller cases are tried in place of one that failed."""


def fuzz_ranges(table: Mapping[str, object], cases: Mapping[str, Params], source: str) -> dict[str, FuzzRange]:
    """Read `[fuzz]`, which the schema has checked; every error names the key."""
    if table and (taken := [name for name in cases if _NAME.fullmatch(name)]):
        raise ConfigError(f"{source}: key `cases.{taken[0]}`: random cases are named so", hint="rename the case")
    if table and (taken := [name for name, params in cases.items() if STRIDES in params]):
        where = f"{source}: key `cases.{taken[0]}.{STRIDES}`"
        raise ConfigError(
            f"{where}: of a kernel with a [fuzz] table this says how inputs lie in memory", hint="rename the parameter"
        )
    known = {name for params in cases.values() for name in params}
    return {name: _range(name, value, known, f"{source}: key `fuzz.{name}`") for name, value in table.items()}


def _range(name: str, value: object, known: set[str], where: str) -> FuzzRange:
    if name not in known and name != STRIDES:
        close = difflib.get_close_matches(name, known, n=1)
        raise ConfigError(
            f"{where}: no case has this parameter",
            hint=f"did you mean {close[0]}?" if close else "known: " + ", ".join(sorted(known)),
        )
    if value == REFUSED:
        return _USUAL_STRIDES
    if isinstance(value, Mapping):
        found = FuzzRange(**value)
        if _first(found) > _last(found):
            step = f"multiple of {found.multiple_of}" if found.multiple_of > 1 else "number"
            raise ConfigError(f"{where}: no {step} lies from {found.min} to {found.max}", hint="min <= max")
        return found
    if not isinstance(value, list):
        raise TypeError("the schema lets only tables and lists pass")
    return FuzzRange(values=tuple(value))


def case_name(seed: int, number: int) -> str:
    """Name a random case.

    >>> case_name(7, 3)
    'fuzz-7-3'
    """
    return f"fuzz-{seed}-{number}"


def fuzz_jobs(
    specs: Sequence[KernelSpec], patterns: Sequence[str], devices: Sequence[str], *, seed: int, count: int
) -> tuple[Job, ...]:
    """Return `count` random cases of each kernel with a `[fuzz]` table that a pattern matches, on each device.

    A pattern names kernels, or random cases of them: `sdpa/fuzz-7-3` is that case whatever `seed` and `count` are.
    """
    fuzzed = [spec for spec in specs if spec.fuzz]
    by_name = {spec.name: spec for spec in fuzzed}
    named = [found for pattern in patterns if (found := named_case(pattern))]
    rest = [pattern for pattern in patterns if not named_case(pattern)]
    chosen: dict[tuple[str, int, int], KernelSpec] = {}
    for pattern in rest:
        if "/" in pattern or not any(matches(f"{spec.name}/", pattern) for spec in fuzzed):
            raise ConfigError(
                f"`{pattern}` names no kernel with a [fuzz] table",
                hint=f"those are: {', '.join(s.name for s in fuzzed) or 'none'}; `KERNEL/fuzz-SEED-N` is one case",
            )
    for spec in fuzzed:
        if any(matches(f"{spec.name}/", pattern) for pattern in rest) or not patterns:
            chosen |= {(spec.name, seed, number): spec for number in range(count)}
    for kernel, its_seed, number in named:
        if kernel not in by_name:
            raise ConfigError(f"`{kernel}` has no [fuzz] table", hint="add one to its kernel.toml")
        chosen[kernel, its_seed, number] = by_name[kernel]
    if not chosen:
        raise ConfigError("no kernel.toml has a [fuzz] table", hint="kernels/README.md says what it holds")
    return tuple(_job(spec, device, s, n) for device in devices for (_, s, n), spec in chosen.items())


def named_case(pattern: str) -> tuple[str, int, int] | None:
    """Return kernel, seed and number where a pattern is the name of a random case.

    >>> named_case("sdpa/fuzz-7-3"), named_case("sdpa/s*")
    (('sdpa', 7, 3), None)
    """
    kernel, _, case = pattern.partition("/")
    found = _NAME.fullmatch(case)
    return (kernel, int(found[1]), int(found[2])) if found else None


def _job(spec: KernelSpec, device: str, seed: int, number: int) -> Job:
    inputs = _number(f"{spec.name}/inputs/{seed}/{number}") % (1 << 31)
    return Job(spec, case_name(seed, number), draw(spec, seed, number), device, inputs)


def draw(spec: KernelSpec, seed: int, number: int) -> Params:
    """Return the parameters of a random case; what `[fuzz]` does not name is as in the kernel's first case."""
    fixed = next(iter(spec.cases.values()))
    ranges = {**spec.fuzz, STRIDES: spec.fuzz.get(STRIDES, _USUAL_STRIDES)}
    drawn = {name: _draw(found, f"{spec.name}/{name}/{seed}/{number}") for name, found in ranges.items()}
    return {**fixed, **drawn}


def arranged(job: Job) -> tuple[Params, str]:
    """Return the parameters that the functions of the entry see, and how the inputs of the case lie in memory."""
    if not job.spec.fuzz or STRIDES not in job.params:
        return job.params, CONTIGUOUS
    return {name: value for name, value in job.params.items() if name != STRIDES}, str(job.params[STRIDES])


def _draw(found: FuzzRange, key: str) -> Scalar:
    kind, dice = _number(f"{key}/kind"), _number(f"{key}/value")
    if found.values:
        return found.values[dice % len(found.values)]
    low, high = _first(found), _last(found)
    return found.multiple_of * _whole(low, high, kind % 4, dice)


def _whole(low: int, high: int, kind: int, dice: int) -> int:
    """Return a whole number from low to high: an end of the range, beside a power of two, or any size, odd or not."""
    if kind == 0:
        ends = [end for end in (low, low + 1, high - 1, high) if low <= end <= high]
        return ends[dice % len(ends)]
    if kind == 1:
        powers = (1 << bits for bits in range(max(1, high.bit_length()) + 1))
        beside = [n for power in powers for n in (power - 1, power, power + 1) if low <= n <= high] or [low]
        return beside[dice % len(beside)]
    # Sizes of every order of magnitude are as likely: a number below a power of two that is drawn first.
    bits = low.bit_length() + dice % (high.bit_length() - low.bit_length() + 1)
    top = min(high, (1 << bits) - 1) if bits else 0
    value = low + (dice >> 16) % (max(top, low) - low + 1)
    return value | 1 if kind == 3 and value | 1 <= high else value


def _first(found: FuzzRange) -> int:
    return -(-found.min // found.multiple_of)


def _last(found: FuzzRange) -> int:
    return found.max // found.multiple_of


def _number(key: str) -> int:
    """Return 64 bits that look random, a function of the key."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")


def smaller(spec: KernelSpec, params: Params) -> Iterator[Params]:
    """Yield the case with contiguous inputs, then some with sizes halved or at their least, the boldest first."""
    sizes = {name: found for name, found in spec.fuzz.items() if not found.values}
    least = {name: _first(found) * found.multiple_of for name, found in sizes.items()}
    halved = {name: _half(sizes[name], params[name]) for name in sizes}
    plain: dict[str, Scalar] = {STRIDES: CONTIGUOUS} if STRIDES in params else {}
    steps: Iterator[Mapping[str, Scalar]] = itertools.chain(
        (plain, least, halved), ({name: least[name]} for name in sizes), ({name: halved[name]} for name in sizes)
    )
    seen = [dict(params)]
    for step in steps:
        candidate = {**params, **step}
        if candidate not in seen:
            seen.append(candidate)
            yield candidate


def _half(found: FuzzRange, value: Scalar) -> int:
    units = int(value) // found.multiple_of
    return found.multiple_of * (_first(found) + (units - _first(found)) // 2)
