"""The machine that was measured: device and toolchain."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from ci_perf.values.extensible import Count, DeviceKind, Extensible, Positive, Text, pattern


@dataclass(frozen=True, slots=True)
class Device(Extensible):
    """The GPU or CPU that was measured; None is what the driver does not report.

    It decides whether two times may be compared.
    """

    kind: DeviceKind
    name: Text
    """As the driver or the system reports it."""
    compute_capability: Annotated[str, pattern(r"^[0-9]+\.[0-9]+$")] | None = None
    sm_count: Count | None = None
    """Streaming multiprocessors of a GPU, cores of a CPU."""
    memory_bytes: Count | None = None
    l2_bytes: Count | None = None
    sm_clock_max_hz: Positive | None = None
    """The highest clock that the driver allows, not the current one."""
    memory_clock_max_hz: Positive | None = None
    """Before doubling for the data rate."""
    memory_bus_bits: Count | None = None
    power_limit_w: Positive | None = None
    """Times under different power limits are not compared."""
    driver: str | None = None
    """Times under different driver branches (the number before the first dot) are not compared."""
    ecc: bool | None = None
    """Whether memory errors are corrected."""
    mig: bool | None = None
    """Whether the GPU is divided into instances."""

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
class Toolchain(Extensible):
    """Versions that a number may depend on; None: not installed or not known."""

    python: str | None = None
    torch: str | None = None
    cuda: str | None = None
    """The CUDA toolkit that torch was built with."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Other packages of the kernels' interpreter, from name to version."""
    nsys: str | None = None
    """Nsight Systems."""
    ncu: str | None = None
    """Nsight Compute."""
