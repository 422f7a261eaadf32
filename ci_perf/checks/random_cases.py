"""Random cases of a kernel, from the `[fuzz]` table of its kernel.toml, and smaller cases in place of one that fails.

A case is named `fuzz-SEED-NUMBER` and is a function of the table and that name alone, so that the name is enough to
run it again on any machine and with any later version of ci-perf. Every value is therefore taken from a hash of the
kernel, the parameter, the seed and the number. hypothesis is not used: with the same seed, another version of it draws
other values (its `reproduce_failure` refuses a failure of another version), and it shrinks only what it drew itself.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ci_perf.values.errors import ConfigError
from ci_perf.values.job import Job, matches
from ci_perf.values.kernel import CONTIGUOUS, RANDOM_CASE, STRIDES, USUAL_STRIDES, FuzzRange, KernelSpec, Params, Scalar


def named_case(pattern: str) -> tuple[str, int, int] | None:
    """Return kernel, seed and number where a pattern is the name of a random case.

    >>> named_case("sdpa/fuzz-7-3"), named_case("sdpa/s*")
    (('sdpa', 7, 3), None)
    """
    kernel, _, case = pattern.partition("/")
    found = RANDOM_CASE.fullmatch(case)
    return (kernel, int(found[1]), int(found[2])) if found else None


def fuzz_jobs(
    specs: Sequence[KernelSpec], patterns: Sequence[str], devices: Sequence[str], *, seed: int, count: int
) -> tuple[Job, ...]:
    """Return `count` random cases of each kernel with a `[fuzz]` table that a pattern matches, on each device.

    A pattern names kernels, or random cases of them: `sdpa/fuzz-7-3` is that case whatever `seed` and `count` are.
    """
    fuzzed = {spec.name: spec for spec in specs if spec.fuzz}
    named = [found for pattern in patterns if (found := named_case(pattern))]
    rest = [pattern for pattern in patterns if not named_case(pattern)]
    for pattern in rest:
        if "/" in pattern or not any(matches(f"{name}/", pattern) for name in fuzzed):
            raise ConfigError(
                f"`{pattern}` names no kernel with a [fuzz] table",
                hint=f"those are: {', '.join(fuzzed) or 'none'}; `KERNEL/fuzz-SEED-N` is one case",
            )
    chosen = [name for name in fuzzed if not patterns or any(matches(f"{name}/", pattern) for pattern in rest)]
    cases = [(name, seed, number) for name in chosen for number in range(count)]
    for kernel, its_seed, number in named:
        if kernel not in fuzzed:
            raise ConfigError(f"`{kernel}` has no [fuzz] table", hint="add one to its kernel.toml")
        cases.append((kernel, its_seed, number))
    if not cases:
        raise ConfigError(
            "no kernel.toml has a [fuzz] table", hint="`Writing kernels` in the documentation describes the table"
        )
    return tuple(_job(fuzzed[name], device, s, n) for device in devices for name, s, n in dict.fromkeys(cases))


def _job(spec: KernelSpec, device: str, seed: int, number: int) -> Job:
    params = dict(draw(spec, seed, number))
    strides = str(params.pop(STRIDES))
    seed_of_inputs = _hash(f"{spec.name}/inputs/{seed}/{number}") % (1 << 31)
    return Job(spec, f"fuzz-{seed}-{number}", params, device, seed_of_inputs, strides)


def recorded_params(job: Job) -> Params:
    """Return what a run records of a random case: its parameters, and the strides of its inputs beside them."""
    return {**job.params, STRIDES: job.strides}


def draw(spec: KernelSpec, seed: int, number: int) -> Params:
    """Return the parameters and the strides of a random case; what `[fuzz]` does not name is as in the first case."""
    first = next(iter(spec.cases.values()))
    ranges = {STRIDES: USUAL_STRIDES, **spec.fuzz}
    drawn = {name: _draw(ranges[name], f"{spec.name}/{name}/{seed}/{number}") for name in ranges}
    return {**first, **drawn}


def _draw(found: FuzzRange, key: str) -> Scalar:
    value = _hash(f"{key}/value")
    if found.values:
        return found.values[value % len(found.values)]
    low, high = found.multiples[0], found.multiples[-1]
    draw_one = (_end, _beside_a_power_of_two, _of_any_magnitude, _odd)[_hash(f"{key}/kind") % 4]
    return found.multiple_of * draw_one(low, high, value)


def _hash(key: str) -> int:
    """Return 64 bits that look random, a function of the key."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")


def _end(low: int, high: int, value: int) -> int:
    ends = [end for end in (low, low + 1, high - 1, high) if low <= end <= high]
    return ends[value % len(ends)]


def _beside_a_power_of_two(low: int, high: int, value: int) -> int:
    powers = [1 << bits for bits in range(max(1, high.bit_length()) + 1)]
    beside = [n for power in powers for n in (power - 1, power, power + 1) if low <= n <= high] or [low]
    return beside[value % len(beside)]


def _of_any_magnitude(low: int, high: int, value: int) -> int:
    """Return a number of a drawn number of bits: every order of magnitude is equally likely."""
    bits = low.bit_length() + value % (high.bit_length() - low.bit_length() + 1)
    top = max(low, min(high, (1 << bits) - 1))
    return low + (value >> 16) % (top - low + 1)


def _odd(low: int, high: int, value: int) -> int:
    number = _of_any_magnitude(low, high, value)
    return number | 1 if number | 1 <= high else number


def smaller(job: Job) -> Iterator[Job]:
    """Yield the case with contiguous inputs, then with sizes at their least or halved: all at once, then one by one."""
    sizes = {name: found for name, found in job.spec.fuzz.items() if not found.values}
    least = {name: found.multiple_of * found.multiples[0] for name, found in sizes.items()}
    halved = {name: _half(found, job.params[name]) for name, found in sizes.items()}
    steps: list[Mapping[str, Scalar]] = [least, halved]
    steps += [{name: step[name]} for step in (least, halved) for name in sizes]
    candidates = [replace(job, strides=CONTIGUOUS), *(replace(job, params={**job.params, **step}) for step in steps)]
    seen = [job]
    for candidate in candidates:
        if candidate not in seen:
            seen.append(candidate)
            yield candidate


def _half(found: FuzzRange, size: Scalar) -> int:
    least = found.multiples[0]
    return found.multiple_of * (least + (int(size) // found.multiple_of - least) // 2)
