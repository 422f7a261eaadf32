"""What an ncu report holds: hardware counters for each launch of a GPU kernel."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ci_perf.values.trace import Reading


@dataclass(frozen=True, slots=True)
class Launch:
    """One profiled launch."""

    index: int
    """Its place in the file, from 0."""
    name: str
    """Demangled where the file has that name."""
    ranges: tuple[str, ...]
    """NVTX ranges open at the launch, outermost first; `domain@name` outside the default domain."""
    metrics: Mapping[str, Reading]
    """By ncu's name of the metric, in base units; the details page has names for people (`DRAM Throughput`)."""


@dataclass(frozen=True, slots=True)
class Counters:
    """One ncu report."""

    launches: tuple[Launch, ...]
    warnings: tuple[str, ...] = ()


def range_name(domain: str, name: str) -> str:
    """Name an NVTX range the way ncu's own command line does."""
    return name if domain in {"", "<default domain>"} else f"{domain}@{name}"


def failed_launches(launches: Iterable[Launch]) -> Iterator[str]:
    """Warn of each launch with counters that are NaN: ncu could not finish it.

    Only names with `__` are counters; ncu's own intermediate values (`derived_tempMetric4`) may well be NaN.
    """
    for launch in launches:
        broken = [name for name, reading in launch.metrics.items() if reading.reason == "nan" and "__" in name]
        if broken:
            yield f"launch {launch.index} ({launch.name[:60]}): {len(broken)} counters are nan, among them {broken[0]}"
