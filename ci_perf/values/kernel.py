"""A kernel as its `kernel.toml` describes it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

Scalar = str | int | float | bool
Params = Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class Gate:
    """An absolute, one-sided limit on a counter or on a metric of the timeline: `sm_throughput_pct >= 85`."""

    metric: str
    operator: str
    """`>=` or `<=`."""
    limit: float

    def __str__(self) -> str:
        return f"{self.metric} {self.operator} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Program:
    """A program that is measured in place of a Python entry: one fresh run of it is one replicate."""

    kind: str
    """`command`: ci-perf times it. `nvbench`, `google_benchmark`, `pytest_benchmark`, `triton_csv`: it times itself."""
    argv: tuple[str, ...]
    """With `{param}` for the parameters of a case and `{output}` for the file that a benchmark writes."""
    benchmark: str = ""
    """Pattern of the benchmark's name in the file, with `{param}`; empty: any."""
    metric: str = ""
    """Which of the numbers that a benchmark has; empty: the one that the kind of file is about."""
    unit: str = ""
    """Of the numbers where the file does not say, as people write it: `GB/s`."""
    better: str = ""
    """`lower` or `higher`, where the file does not say."""


@dataclass(frozen=True, slots=True)
class FuzzRange:
    """What a parameter of a random case is drawn from: one of `values`, or a whole number of a range."""

    values: tuple[Scalar, ...] = ()
    """Empty: the range counts."""
    min: int = 0
    max: int = 0
    """Inclusive."""
    multiple_of: int = 1

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
class KernelSpec:
    """A `kernel.toml`, checked."""

    name: str
    folder: str
    """Where the kernel lies, relative to the repository, with forward slashes."""
    entry: str = ""
    """The Python file; empty where a program takes its place."""
    description: str = ""
    devices: tuple[str, ...] = ("cuda",)
    """Where `launch` runs. On any other device ci-perf runs `reference` in its place; a program is left out there."""
    program: Program | None = None
    ranges: tuple[str, ...] = ()
    """Patterns of the NVTX ranges whose GPU kernels count; empty: all kernels, in a range or not. For programs."""
    kernels: tuple[str, ...] = ()
    """Patterns of the GPU kernels that count; empty: all."""
    l2: str = "warm"
    cases: Mapping[str, Params] = field(default_factory=dict)
    cpu_cases: tuple[str, ...] | None = None
    """The cases that run on a CPU by default; None: all."""
    sanitize: tuple[str, ...] | None = None
    """The tools of compute-sanitizer that mean something for it, `racecheck`, or for some cases, `racecheck/small*`.

    None: all tools, for all cases.
    """
    tolerance: Mapping[str, float] = field(default_factory=dict)
    regression: float | None = None
    speedup: float | None = None
    timeout_s: float | None = None
    gates: tuple[Gate, ...] = ()
    fuzz: Mapping[str, FuzzRange] = field(default_factory=dict)
    """By parameter; empty: `--fuzz` leaves the kernel out."""
    refuses_strides: bool = False
    """Whether a random case passes too where `launch` raises a ValueError because of how its inputs lie in memory."""
