"""The roofline: how near a time is to what the device could do at best.

Peaks are computed from what the driver reports: memory bandwidth is bus width x highest memory clock x 2 (double data
rate), the compute rate is SMs x highest SM clock x operations per SM and clock.
"""

from dataclasses import dataclass

from ci_perf.values.device import Device
from ci_perf.values.measurement import Cost

# Operations (a multiply-add is two) per SM and clock, dense, from NVIDIA's architecture white papers (Ampere GA100 and
# GA10x, Ada, Hopper, Blackwell). float16 and bfloat16: tensor cores with float32 accumulation on data-centre parts.
_OPS_PER_SM_CLOCK: dict[str, dict[str, int]] = {
    "8.0": {"float64": 128, "float32": 128, "float16": 2048, "bfloat16": 2048, "int8": 4096},
    "8.6": {"float64": 4, "float32": 256, "float16": 1024, "bfloat16": 1024, "int8": 2048},
    "8.9": {"float64": 4, "float32": 256, "float16": 1024, "bfloat16": 1024, "int8": 2048, "float8": 2048},
    "9.0": {"float64": 256, "float32": 256, "float16": 4096, "bfloat16": 4096, "int8": 8192, "float8": 8192},
    "10.0": {"float64": 256, "float32": 256, "float16": 8192, "bfloat16": 8192, "int8": 16384, "float8": 16384},
}


@dataclass(frozen=True, slots=True)
class Roofline:
    """Achieved rates of one case, and its share of the ceiling where the device's peaks are known."""

    flop_per_s: float
    bytes_per_s: float
    share: float | None
    """Ceiling time / measured time; above 1 where the data stay in a cache, which is faster than the memory."""
    bound: str | None
    """`memory` or `compute`: which ceiling is the lower one."""

    @property
    def intensity(self) -> float | None:
        """The arithmetic intensity in FLOP per byte; None for work that moves no byte."""
        return self.flop_per_s / self.bytes_per_s if self.bytes_per_s else None

    @property
    def attainable_flop_per_s(self) -> float | None:
        """The ceiling at this intensity: min(compute peak, intensity x bandwidth); None where it is not known."""
        return self.flop_per_s / self.share if self.share and self.flop_per_s else None


def peak_bandwidth(device: Device) -> float | None:
    """Return the highest memory bandwidth in bytes per second, or None where the driver does not report it."""
    if not device.memory_clock_max_hz or not device.memory_bus_bits:
        return None
    return device.memory_clock_max_hz * device.memory_bus_bits / 8 * 2


def peak_compute(device: Device, dtype: str) -> float | None:
    """Return the highest rate in operations per second for a data type, or None where it is not known."""
    known = _OPS_PER_SM_CLOCK.get(device.compute_capability or "", {})
    per_clock = known.get(dtype.partition("_")[0])  # all formats of float8 have one rate
    if per_clock is None or not device.sm_count or not device.sm_clock_max_hz:
        return None
    return per_clock * device.sm_count * device.sm_clock_max_hz


def roofline(cost: Cost, seconds: float, device: Device, dtype: str) -> Roofline | None:
    """Place a measured time under the roofline; None for a time that is not positive."""
    if not seconds > 0:
        return None
    bandwidth, compute = peak_bandwidth(device), peak_compute(device, cost.dtype or dtype)
    share = bound = None
    if bandwidth and (compute or not cost.flop):
        memory_s = cost.bytes / bandwidth
        compute_s = cost.flop / compute if compute else 0.0
        share = max(memory_s, compute_s) / seconds
        bound = "memory" if memory_s >= compute_s else "compute"
    return Roofline(cost.flop / seconds, cost.bytes / seconds, share, bound)
