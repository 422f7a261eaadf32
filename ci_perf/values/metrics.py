"""The counters by name: their names in ncu, and what a difference between two readings means.

A counter is *exact* (any difference is a change), *banded* (a difference beyond a tolerance that was measured is a
change) or *explaining* (percentages of a peak, for gates and causes; a difference alone is not a change).
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ci_perf.values.trace import Reading


class Trust(StrEnum):
    """What a difference between two readings means."""

    EXACT = "exact"
    BANDED = "banded"
    EXPLAINING = "explaining"


class Combine(StrEnum):
    """How the readings of several GPU kernels of one launch become one."""

    SUM = "sum"
    MAX = "max"
    WEIGHTED = "weighted"
    """The mean, weighted by the duration of each kernel."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A counter of one launch; the defaults are those of a percentage of a peak."""

    name: str
    ncu: str
    unit: str = "%"
    combine: Combine = Combine.WEIGHTED
    trust: Trust = Trust.EXPLAINING
    band: float = 0.0
    """For banded counters: the fraction by which unchanged code may differ."""
    slack: float = 0.0
    """For banded counters: the amount by which unchanged code may differ, in addition to the band."""
    complement: bool = False
    """The value is 100 minus what ncu reports."""
    extra_passes: bool = False
    """Measured only for a gate or with `--profile full`, because it needs several additional replay passes."""
    explains: bool = False
    """Measured of both sides of a changed case, to find the cause; otherwise as with `extra_passes`."""

    @property
    def names(self) -> tuple[str, ...]:
        """Its names in ncu, by chip and version; the first one is requested."""
        return self.ncu, *ALIASES.get(self.ncu, ())


# AD: chips like the L4; GH: like the H100. A report may come from another machine or version; that a name exists there
# was checked, that it counts the same only by its description. The pages for people have names of their own.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "gpu__time_duration.sum": ("gpu__time_duration.avg", "Duration"),
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": (
        "sm__pipe_tensor_cycles_active_v2.avg.pct_of_peak_sustained_active",  # AD, from 12.6 on
    ),
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": ("DRAM Throughput",),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("Compute (SM) Throughput", "SM Throughput", "SOL SM"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("Achieved Occupancy",),
    "l1tex__t_sector_hit_rate.pct": ("L1/TEX Hit Rate",),
    "lts__t_sector_hit_rate.pct": ("lts__average_t_sector_hit_rate_realtime.pct", "L2 Hit Rate"),
    "launch__registers_per_thread": ("Registers Per Thread",),
    "smsp__thread_inst_executed_per_inst_executed.ratio": (
        "smsp__average_thread_inst_executed_per_inst_executed.ratio",  # from 13.0 on
    ),
    "launch__block_size": ("Block Size",),
    "launch__grid_size": ("Grid Size",),
}


def _cause(name: str, ncu: str, unit: str = "%", combine: Combine = Combine.SUM) -> Metric:
    """Return a counter that is measured to find the cause of a change; percentages are weighted, whatever `combine`."""
    return Metric(name, ncu, unit, Combine.WEIGHTED if unit == "%" else combine, explains=True)


# The rules of ci_perf.judge.causes read these. With the counters of every case they take 7 replays on a GH100.
EXPLAINING: tuple[Metric, ...] = (
    _cause("cycles_active", "sm__cycles_active.avg", "cycle"),
    _cause("sm_clock_hz", "gpc__cycles_elapsed.avg.per_second", "hz", Combine.WEIGHTED),
    _cause("waves", "launch__waves_per_multiprocessor", "wave", Combine.WEIGHTED),
    _cause("occupancy_bound_pct", "sm__maximum_warps_per_active_cycle_pct"),
    _cause("blocks_by_registers", "launch__occupancy_limit_registers", "block", Combine.WEIGHTED),
    _cause("blocks_by_shared_memory", "launch__occupancy_limit_shared_mem", "block", Combine.WEIGHTED),
    _cause("blocks_by_warps", "launch__occupancy_limit_warps", "block", Combine.WEIGHTED),
    _cause("blocks_by_hardware", "launch__occupancy_limit_blocks", "block", Combine.WEIGHTED),
    _cause("issue_active_pct", "sm__issue_active.avg.pct_of_peak_sustained_elapsed"),
    _cause("threads_per_inst", "smsp__thread_inst_executed_per_inst_executed.ratio", "thread", Combine.WEIGHTED),
    *(
        _cause(f"pipe_{pipe}_pct", f"sm__inst_executed_pipe_{pipe}.avg.pct_of_peak_sustained_active")
        for pipe in ("alu", "fma", "fp64", "lsu", "xu")
    ),
    _cause("branches", "smsp__inst_executed_op_branch.sum", "inst"),
    _cause("global_load_requests", "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", "request"),
    _cause("global_load_sectors", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "sector"),
    _cause("global_store_requests", "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum", "request"),
    _cause("global_store_sectors", "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum", "sector"),
    _cause("global_atomic_requests", "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum", "request"),
    _cause("global_reduction_requests", "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum", "request"),
    _cause("shared_atomic_inst", "smsp__inst_executed_op_shared_atom.sum", "inst"),
    _cause("local_load_sectors", "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum", "sector"),
    _cause("local_store_sectors", "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum", "sector"),
    _cause("shared_wavefronts", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", "wavefront"),
    _cause("l1_data_pct", "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed"),
    _cause("l2_sectors", "lts__t_sectors_srcunit_tex.sum", "sector"),
    _cause("l2_throughput_pct", "lts__throughput.avg.pct_of_peak_sustained_elapsed"),
    *(
        _cause(
            f"stall_{reason}",
            f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio",
            "warp",
            Combine.WEIGHTED,
        )
        for reason in ("barrier", "long_scoreboard", "membar", "no_instruction")
    ),
)

# The bands are several times the scatter that repeated launches of unchanged kernels showed on an H100 and an H200:
# instructions 0.3 % (spin waits), bytes read 0.7 %, bytes written 5 % and, where a kernel's data stay in the L2 cache,
# anything up to a MiB. Cycles under ncu scatter by 3 % for kernels of a few microseconds: they explain, never judge.
METRICS: tuple[Metric, ...] = (
    Metric("registers_per_thread", "launch__registers_per_thread", "register", Combine.MAX, Trust.EXACT),
    Metric("block_size", "launch__block_size", "thread", Combine.MAX, Trust.EXACT),
    Metric("grid_size", "launch__grid_size", "block", Combine.SUM, Trust.EXACT),
    Metric("shared_static_bytes", "launch__shared_mem_per_block_static", "byte", Combine.MAX, Trust.EXACT),
    Metric("shared_dynamic_bytes", "launch__shared_mem_per_block_dynamic", "byte", Combine.MAX, Trust.EXACT),
    Metric("local_load_inst", "smsp__inst_executed_op_local_ld.sum", "inst", Combine.SUM, Trust.EXACT),
    Metric("local_store_inst", "smsp__inst_executed_op_local_st.sum", "inst", Combine.SUM, Trust.EXACT),
    # On Hopper it counts conversions of integers to float32 too: one for each warp of kernels/pipeline: row_moments.
    Metric("tensor_inst", "sm__inst_executed_pipe_tensor_op_hmma.sum", "inst", Combine.SUM, Trust.EXACT),
    Metric("instructions", "smsp__inst_executed.sum", "inst", Combine.SUM, Trust.BANDED, band=0.01),
    Metric("dram_read_bytes", "dram__bytes_read.sum", "byte", Combine.SUM, Trust.BANDED, band=0.03, slack=1 << 20),
    Metric("dram_write_bytes", "dram__bytes_write.sum", "byte", Combine.SUM, Trust.BANDED, band=0.20, slack=4 << 20),
    Metric("cycles", "sm__cycles_elapsed.max", "cycle", Combine.SUM),
    Metric("dram_throughput_pct", "dram__throughput.avg.pct_of_peak_sustained_elapsed"),
    Metric("warps_active_pct", "sm__warps_active.avg.pct_of_peak_sustained_active"),
    Metric("tensor_active_pct", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"),
    Metric("l1_hit_rate_pct", "l1tex__t_sector_hit_rate.pct"),
    Metric("l1_miss_rate_pct", "l1tex__t_sector_hit_rate.pct", complement=True),
    Metric("l2_hit_rate_pct", "lts__t_sector_hit_rate.pct"),
    Metric("shared_bank_conflicts", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "", Combine.SUM),
    Metric("duration_ns", "gpu__time_duration.sum", "ns", Combine.SUM),
    Metric("sm_throughput_pct", "sm__throughput.avg.pct_of_peak_sustained_elapsed", extra_passes=True),
    *EXPLAINING,
)

BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}
_DURATION = BY_NAME["duration_ns"]
_ABSENT = "not in the report"


def wanted(gated: Iterable[str], *, full: bool = False, explain: bool = False) -> tuple[Metric, ...]:
    """Return the metrics to request from ncu: all cheap ones and those with a gate; with `full`, all.

    With `explain` also those that find the cause of a change.

    >>> "sm_throughput_pct" in {m.name for m in wanted([])}
    False
    >>> "sm_throughput_pct" in {m.name for m in wanted(["sm_throughput_pct"])}
    True
    """
    names = set(gated)
    return tuple(
        m for m in METRICS if full or m.name in names or not (m.extra_passes or m.explains) or (explain and m.explains)
    )


def combine_kernels(kernels: Sequence[Mapping[str, Reading]], metrics: Iterable[Metric]) -> dict[str, Reading]:
    """Combine the ncu readings of the GPU kernels of one launch into readings of the launch, by metric.

    If one kernel has no reading, neither has the launch: a partial sum would look like an improvement.
    """
    return {metric.name: _combine(metric, kernels) for metric in metrics}


def typical(launches: Sequence[Mapping[str, Reading]]) -> dict[str, Reading]:
    """Return the median of each metric over the launches of a case; not available if one launch has no value.

    The duration is left out: ncu replays a launch with empty caches, so that it takes longer than usual.

    >>> typical([{"cycles": Reading(3.0, "cycle")}, {"cycles": Reading(5.0, "cycle")}])
    {'cycles': Reading(value=4.0, unit='cycle', reason='')}
    """
    found = {}
    for name in BY_NAME:
        if name == _DURATION.name or all(name not in launch for launch in launches):
            continue
        readings = [launch.get(name, Reading(None, "", "not measured of every launch")) for launch in launches]
        values = [reading.value for reading in readings if reading.value is not None]
        missing = [reading for reading in readings if reading.value is None]
        found[name] = missing[0] if missing else Reading(statistics.median(values), readings[0].unit)
    return found


def find_reading(metric: Metric, kernel: Mapping[str, Reading]) -> Reading | None:
    """Return the reading of a metric under any of its names; one with a value is preferred."""
    found = [kernel[name] for name in metric.names if name in kernel]
    return next((reading for reading in found if reading.value is not None), found[0] if found else None)


def _combine(metric: Metric, kernels: Sequence[Mapping[str, Reading]]) -> Reading:
    absent = Reading(None, metric.unit, _ABSENT)
    readings = [find_reading(metric, kernel) or absent for kernel in kernels]
    for reading, kernel in zip(readings, kernels, strict=True):
        if reading.value is None:
            return Reading(None, metric.unit, reading.reason if reading is not absent else _absence(metric, kernel))
    values = [r.value for r in readings if r.value is not None]
    if not values:
        return Reading(None, metric.unit, "no GPU kernel ran")
    if metric.combine is Combine.SUM:
        value = math.fsum(values)
    elif metric.combine is Combine.MAX:
        value = max(values)
    else:
        durations = [(find_reading(_DURATION, kernel) or absent).value for kernel in kernels]
        known = [duration for duration in durations if duration is not None]
        if known and len(known) < len(durations):
            return Reading(None, metric.unit, "the duration of a kernel, its weight, is not available")
        weights = known if math.fsum(known) > 0 else [1.0] * len(values)
        value = math.fsum(v * w for v, w in zip(values, weights, strict=True)) / math.fsum(weights)
    return Reading(100.0 - value if metric.complement else value, metric.unit)


def _absence(metric: Metric, kernel: Mapping[str, Reading]) -> str:
    """Return why a metric is not available, with similar names that the report has.

    >>> _absence(BY_NAME["duration_ns"], {"gpu__time_duration.max": Reading(1.0), "launch__grid_size": Reading(1.0)})
    'not in the report, which has gpu__time_duration.max'
    """
    counters = {name.partition(".")[0] for name in metric.names}
    similar = sorted(name for name in kernel if name.partition(".")[0] in counters)[:3]
    return f"{_ABSENT}, which has {', '.join(similar)}" if similar else _ABSENT
