"""A kernel as its `kernel.toml` describes it, and the command line of a program, `{name}` in it filled for a case."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from posixpath import normpath
from typing import Annotated

from ci_perf.values.extensible import (
    NOT_EMPTY,
    OMIT_DEFAULT,
    Count,
    DeviceKind,
    Extensible,
    Name,
    NonNegative,
    Positive,
    Text,
    Whole,
    one_of,
    pattern,
)

Scalar = str | int | float | bool
Params = Mapping[Annotated[str, pattern("^[A-Za-z_][A-Za-z0-9_]*$")], Scalar]
"""The parameters of a case: the arguments of the functions of kernel.py, by name."""


@dataclass(frozen=True, slots=True)
class Gate(Extensible):
    """An absolute, one-sided limit on a counter or on a metric of the timeline: `sm_throughput_pct >= 85`."""

    metric: Text
    """The name of a counter or of a metric of the timeline."""
    operator: Annotated[str, one_of(">=", "<=")]
    limit: float

    def __str__(self) -> str:
        return f"{self.metric} {self.operator} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Program(Extensible):
    """A program that is measured in place of a Python entry; each run of it is one replicate."""

    kind: Annotated[str, one_of("command", "nvbench", "google_benchmark", "pytest_benchmark", "triton_csv")]
    """`command`: ci-perf times it. `nvbench`, `google_benchmark`, `pytest_benchmark`, `triton_csv`: it times itself."""
    argv: Annotated[tuple[str, ...], NOT_EMPTY]
    """With `{param}` for the parameters of a case and `{output}` for the file that a benchmark writes."""
    benchmark: str = ""
    """Pattern of the benchmark's name in the file, with `{param}`; empty: any."""
    metric: str = ""
    """Which number of the benchmark; empty: the usual one of the kind of file."""
    unit: str = ""
    """Unit of the numbers if the file does not say it, as people write it: `GB/s`."""
    better: Annotated[str, one_of("", "lower", "higher")] = ""
    """`lower` or `higher` if the file does not say it."""


@dataclass(frozen=True, slots=True)
class FuzzRange(Extensible):
    """What a parameter of a random case is drawn from: one of `values`, or a whole number of a range."""

    values: tuple[Scalar, ...] = ()
    """Empty: the range is used."""
    min: Whole = 0
    max: Whole = 0
    """Inclusive."""
    multiple_of: Count = 1

    @property
    def multiples(self) -> range:
        """The whole numbers that, times `multiple_of`, lie in the range.

        >>> list(FuzzRange(min=3, max=20, multiple_of=8).multiples)
        [1, 2]
        """
        return range(-(-self.min // self.multiple_of), self.max // self.multiple_of + 1)


RANDOM_CASE = re.compile(r"fuzz-(\d{1,18})-(\d{1,9})")
"""The name of a random case: its seed and its number."""
STRIDES = "strides"
"""The key of `[fuzz]` for how the inputs of a random case lie in memory; no function of the entry gets it."""
CONTIGUOUS = "contiguous"
STRIDE_KINDS = (CONTIGUOUS, "offset", "padded", "stepped", "transposed", "mixed")
"""What `userside.strides` makes of inputs; `contiguous`: they stay as `make_inputs` made them."""
USUAL_STRIDES = FuzzRange(values=(CONTIGUOUS,) * (len(STRIDE_KINDS) - 1) + STRIDE_KINDS[1:])
"""Every other case has contiguous inputs, which most users have and fast paths are for."""


@dataclass(frozen=True, slots=True)
class Package(Extensible):
    """Which package a kernel uses, and from where: each side takes it from its own tree."""

    path: tuple[Text, ...] = ()
    """Folders that come first on the path of modules, relative to the kernel's folder."""
    imports: tuple[Text, ...] = ()
    """Names of packages whose files must lie in the tree of the commit that is measured."""


@dataclass(frozen=True, slots=True)
class ToleranceRule(Extensible):
    """A tolerance for one output, for cases with some parameters, or both; it replaces the general one by data type."""

    tolerance: Mapping[str, NonNegative]
    """By data type."""
    output: str = ""
    """The name of the output, as the error of a wrong output shows it; empty: all."""
    params: Params = field(default_factory=dict)
    """The rule applies to cases with these parameters; empty: to all."""


@dataclass(frozen=True, slots=True)
class KernelSpec(Extensible):
    """A `kernel.toml`, checked."""

    name: Name
    folder: Text
    """The kernel's folder, relative to the repository, with forward slashes."""
    entry: str = ""
    """The Python file; empty for a program."""
    description: str = ""
    devices: tuple[DeviceKind, ...] = ("cuda",)
    """The devices that `launch` supports. On another device ci-perf runs `reference`; a program is left out there."""
    program: Program | None = None
    ranges: tuple[str, ...] = ()
    """Patterns of the NVTX ranges whose GPU kernels count; empty: all kernels, inside a range or not. For programs."""
    kernels: tuple[str, ...] = ()
    """Patterns of the GPU kernels that count; empty: all."""
    l2: Annotated[str, one_of("warm", "cold")] = "warm"
    """Whether the inputs may be in the L2 cache when a launch starts."""
    rng: Annotated[str, one_of("cpu", "device"), OMIT_DEFAULT] = "cpu"
    """Where `make_inputs` draws: `cpu` gives all devices the same inputs; `device` draws large inputs faster."""
    time: Annotated[str, one_of("gpu", "wall"), OMIT_DEFAULT] = "gpu"
    """`gpu`: the work on the GPU is timed; `wall`: the clock on the wall, the work of the host included."""
    cases: Mapping[str, Params] = field(default_factory=dict)
    cpu_cases: tuple[str, ...] | None = None
    """The cases that run on a CPU by default; None: all."""
    sanitize: tuple[str, ...] | None = None
    """The tools of compute-sanitizer that apply to the kernel, `racecheck`, or to some cases, `racecheck/small*`.

    None: all tools, for all cases.
    """
    tolerance: Mapping[str, NonNegative] = field(default_factory=dict)
    """By data type: the largest allowed |out - ref| / (|ref| + rms(ref)) of any element."""
    tolerance_rules: Annotated[tuple[ToleranceRule, ...], OMIT_DEFAULT] = ()
    """Of two rules for one output, the later one counts."""
    regression: Positive | None = None
    """The kernel's own threshold; None: that of the policy."""
    speedup: Positive | None = None
    """The kernel's own threshold; None: that of the policy."""
    memory: Annotated[Positive | None, OMIT_DEFAULT] = None
    """The growth of peak device memory, as a fraction, from which a case is a regression; None: none is."""
    timeout_s: Positive | None = None
    """Seconds that one case may take in one process; None: the setting `timeout`."""
    gates: tuple[Gate, ...] = ()
    fuzz: Annotated[Mapping[str, FuzzRange], OMIT_DEFAULT] = field(default_factory=dict)
    """The ranges of random cases, by parameter; empty: `--fuzz` leaves the kernel out."""
    refuses_strides: Annotated[bool, OMIT_DEFAULT] = False
    """Whether a random case passes if `launch` raises a ValueError because its inputs are not contiguous."""
    package: Annotated[Package, OMIT_DEFAULT] = field(default_factory=Package)
    env: Annotated[Mapping[str, str], OMIT_DEFAULT] = field(default_factory=dict)
    """Environment variables of the processes that run it, with `{folder}` for the kernel's folder."""
    expected_failures: Annotated[Mapping[str, Text], OMIT_DEFAULT] = field(default_factory=dict)
    """Why cases are known to fail, by a pattern of their names."""

    def expected_failure(self, case: str) -> str:
        """Return why a case is known to fail; empty where it is not.

        >>> spec = KernelSpec("sdpa", "kernels/sdpa", expected_failures={"s8192-*": "overflows in float16: #12"})
        >>> spec.expected_failure("s8192-h8"), spec.expected_failure("s512-h8")
        ('overflows in float16: #12', '')
        """
        return next((why for name, why in self.expected_failures.items() if fnmatchcase(case, name)), "")

    def tolerances(self, params: Params) -> dict[str, object]:
        """Return the tolerances of a case by data type; under `outputs` those of single outputs, by name.

        >>> rules = ToleranceRule({"float16": 0.1}, "dw"), ToleranceRule({"float16": 0.2}, "", {"causal": True})
        >>> spec = KernelSpec("sdpa", "kernels/sdpa", tolerance={"float16": 0.01}, tolerance_rules=rules)
        >>> spec.tolerances({"n": 8, "causal": True})
        {'float16': 0.2, 'outputs': {'dw': {'float16': 0.1}}}
        """
        general, outputs = dict(self.tolerance), dict[str, dict[str, float]]()
        for rule in self.tolerance_rules:
            if rule.params.items() <= params.items():
                (outputs.setdefault(rule.output, {}) if rule.output else general).update(rule.tolerance)
        return {**general, **({"outputs": outputs} if outputs else {})}

    def path_in(self, root: Path) -> tuple[str, ...]:
        """Return the folders of `package.path` in a tree."""
        return tuple(normpath(f"{root}/{self.folder}/{place}") for place in self.package.path)

    def env_in(self, root: Path) -> dict[str, str]:
        """Return the variables of `env`, filled for a tree."""
        return {name: fill(value, {"folder": str(root / self.folder)}) for name, value in self.env.items()}


BENCHMARKS = ("nvbench", "google_benchmark", "pytest_benchmark", "triton_csv")
"""The kinds of program that measure themselves and write a file."""
KINDS = ("command", *BENCHMARKS)
PLACES: Mapping[str, str] = {
    "output": "the file or folder that a benchmark writes",
    "output_folder": "an empty folder that a benchmark writes its file to",
    "folder": "the kernel's folder",
    "python": "the interpreter of the user's kernels",
}
"""Names in braces that are not parameters of the case."""

_BRACES = re.compile(r"\{\{(\w+)\}\}|\{(\w+)\}")


def placeholders(text: str) -> tuple[str, ...]:
    """Return the names in braces; double braces, and braces around anything but a name, are text.

    >>> placeholders('--n={n} --json={"a": 1} {{not}} {output}')
    ('n', 'output')
    """
    return tuple(found[2] for found in _BRACES.finditer(text) if found[2])


def fill(text: str, values: Mapping[str, Scalar]) -> str:
    """Replace each name in braces by its value, written as in TOML; KeyError for an unknown name.

    >>> fill("--n={n} --fast={fast} {{n}}", {"n": 4, "fast": True})
    '--n=4 --fast=true {n}'
    """
    return _BRACES.sub(lambda found: f"{{{found[1]}}}" if found[1] else _written(values[found[2]]), text)


def command_line(program: Program, params: Params, places: Mapping[str, str]) -> tuple[str, ...]:
    """Return the arguments of the process for a case."""
    return tuple(fill(word, {**params, **places}) for word in program.argv)


def unfilled(words: Iterable[str], params: Params, places: Iterable[str]) -> tuple[str, ...]:
    """Return the names in braces that are neither parameters nor places."""
    known = {*params, *places}
    return tuple(name for word in words for name in placeholders(word) if name not in known)


def _written(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
