"""Peak device memory, of base and head or of baseline and run, and the verdict on it.

Memory hardly scatters, so each side is the largest reading of its processes, and no interval is needed: torch's
allocator counts exactly, and NVML can only miss a short peak.
"""

from dataclasses import replace

from ci_perf.judge.finding import Finding
from ci_perf.judge.outcome import ROUNDING
from ci_perf.values.baseline import BaselineCase
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.measurement import Measurement, MemoryPeaks
from ci_perf.values.quantity import amount, percent
from ci_perf.values.reasons import Reason, Verdict

_NOT_COMPARED = (Verdict.NEW, Verdict.NOT_COMPARABLE, Verdict.FAILED)
UNJUDGED = 0.05
"""Growth from which a row says so although there is no threshold, as a fraction."""


def memory_peaks(measurement: Measurement, agreed: BaselineCase | None) -> MemoryPeaks:
    """Return the peaks of base and head; None where there is none. `agreed` is the case of the baseline, if any."""
    head = max((r.memory_bytes for r in measurement.timed if r.memory_bytes), default=None)
    if measurement.pairs:
        pairs = measurement.sound_pairs or measurement.pairs
        base = max((pair.memory.base for pair in pairs if pair.memory and pair.memory.base), default=None)
        return MemoryPeaks(base, head)
    return MemoryPeaks(agreed.memory_bytes if agreed else None, head)


def judge_memory(finding: Finding, peaks: MemoryPeaks, spec: KernelSpec, *, finished: bool) -> Finding:
    """Return the finding with the peaks; REGRESSION where they grew by at least `policy.memory` of kernel.toml.

    Until the run has `finished`, the verdict is that on the time, which says whether to measure on.
    """
    found = replace(finding, memory=peaks)
    if spec.memory is None or finding.verdict in _NOT_COMPARED or not peaks.base or not peaks.head:
        return found
    if peaks.head / peaks.base < (1 + spec.memory) * ROUNDING:
        return found
    grew = f"{_growth(peaks.base, peaks.head)}: the threshold is {percent(spec.memory)}"
    if not finished or finding.verdict is Verdict.REGRESSION:
        return replace(found, sentence=f"{finding.sentence}; {grew}")
    time = f"{finding.code}: {finding.sentence}"
    return found.say(Verdict.REGRESSION, Reason.MORE_MEMORY, f"{grew}; the time: {time}")


def memory_warning(finding: Finding, spec: KernelSpec) -> str:
    """Return what a row says of memory that is not judged: it grew and there is no threshold, or it is not known."""
    base, head = finding.memory.base, finding.memory.head
    if finding.verdict in _NOT_COMPARED:
        return ""
    if base and head and spec.memory is None and head / base >= (1 + UNJUDGED) * ROUNDING:
        return f"{_growth(base, head)}: `memory` in [policy] of kernel.toml sets a threshold"
    if spec.memory is not None and not (base and head):
        return f"peak device memory is not known of {'the head' if base else 'the base'}: its growth was not checked"
    return ""


def _growth(base: int, head: int) -> str:
    """Write by how much memory grew.

    >>> _growth(150_000_000, 200_000_000)
    'peak device memory grew by 33.3 %, from 150 MB to 200 MB'
    """
    grew = f"peak device memory grew by {percent(head / base - 1)}"
    return f"{grew}, from {amount(base, 'byte')} to {amount(head, 'byte')}"
