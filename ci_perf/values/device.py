"""The machine that was measured: device and toolchain."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Device:
    """The GPU or CPU that was measured: what decides whether two times may be compared."""

    kind: str
    """`cuda` or `cpu`."""
    name: str
    compute_capability: str | None = None
    sm_count: int | None = None
    """Streaming multiprocessors of a GPU, cores of a CPU."""
    memory_bytes: int | None = None
    l2_bytes: int | None = None
    sm_clock_max_hz: float | None = None
    memory_clock_max_hz: float | None = None
    memory_bus_bits: int | None = None
    power_limit_w: float | None = None
    driver: str | None = None
    ecc: bool | None = None
    mig: bool | None = None

    @property
    def slug(self) -> str:
        """The device's folder below `baselines/`.

        >>> Device("cuda", "NVIDIA H100 80GB HBM3").slug
        'h100-80gb-hbm3'
        >>> Device("cpu", "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz").slug
        'cpu-intel-xeon-platinum-8481c-2-70ghz'
        """
        name = re.sub(r"\((?:r|tm|c)\)|\bnvidia\b|\bcpu\b", " ", self.name.lower())
        slug = re.sub(r"[^a-z0-9]+", "-", name).strip("-") or "unknown"
        return f"cpu-{slug}" if self.kind == "cpu" else slug


@dataclass(frozen=True, slots=True)
class Toolchain:
    """Versions that a number may depend on; None is not installed or not known."""

    python: str | None = None
    torch: str | None = None
    cuda: str | None = None
    """The CUDA toolkit that torch was built with."""
    packages: Mapping[str, str] = field(default_factory=dict)
    nsys: str | None = None
    ncu: str | None = None
