"""The first cause of faults that no recorded kernel has: recorded counters, changed as each fault changes them.

A fault is a table row: the recorded kernel that it is put into, how many times as long the kernel takes, the counters
that change, and the machine code of the good and the faulty kernel as nvcc compiles it (`tests/data/explain`).
"""

import json
import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from ci_perf.judge.causes import GpuKernel, Side, explain
from ci_perf.judge.causes.explanation import ON_GPU
from ci_perf.judge.causes.machine_code import values_of_code
from ci_perf.judge.causes.of_readings import side_of_launches, sides_of
from ci_perf.judge.causes.sides import RESOURCES
from ci_perf.traces import ncu

DATA = Path(__file__).parents[1] / "data" / "explain"
SYMPTOMS = {rule.mechanism for rule in ON_GPU if rule.symptom}


@cache
def recorded():
    found = {}
    for launch in ncu.read(DATA / "h200-base.csv").launches:
        found.setdefault(launch.ranges[0], []).append((launch.name, launch.metrics))
    return {name: side_of_launches(launches) for name, launches in found.items()}


@cache
def opcodes():
    return json.loads((DATA / "sm90-opcodes.json").read_text())


def x(factor):
    """Return what multiplies a counter."""
    return lambda value: value * factor


def slower(base, times, changes, waits_for=""):
    """Return the counters of a kernel that takes `times` as long with the same work, and then these changes.

    Each percentage of a busy unit falls as the time grows; `waits_for` is the stall of all added time of warps.
    """
    found = dict(base)
    cycles = changes.get("cycles", x(times))
    for name in ("cycles", "cycles_active", "duration_ns"):
        found[name] = (x(times) if name == "duration_ns" else cycles)(base[name])
    longer = found["cycles"] / base["cycles"]
    for name in RESOURCES:
        found[name] = base[name] / longer
    for name, change in changes.items():
        if name != "cycles":
            found[name] = change(found.get(name, 0.0)) if callable(change) else change
    issued = [side["issue_active_pct"] / 100 * side["cycles"] * 4 for side in (base, found)]
    resident = [side["warps_active_pct"] / 100 * side["cycles_active"] * 64 for side in (base, found)]
    for stall in (name for name in base if name.startswith("stall_")):
        added = resident[1] - resident[0] if stall == waits_for else 0.0
        found[stall] = (base[stall] * issued[0] + added) / issued[1]
    return found


def causes(kernel, times, changes, code="", waits_for="", both=None):
    """Return what explains a fault in a recorded kernel; `both`: counters that are so on both sides."""
    base = {**recorded()[kernel].values, **(both or {})}
    head = slower(base, times, changes, waits_for)
    if code:
        base |= values_of_code(opcodes()[f"base_{code}"])
        head |= values_of_code(opcodes()[f"head_{code}"])
    kernels = (GpuKernel("kernel", 1.0, 1e-4),)
    return explain(sides_of(Side(base, kernels), Side(head, kernels), times))


ADDED_LOADS = {"global_load_requests": x(2), "global_load_sectors": x(2), "l2_sectors": x(1.5)}
NARROW = {"global_load_requests": x(4), "global_store_requests": x(4), "instructions": x(2.2)}
SPILLED = {
    "local_load_inst": 2e6, "local_store_inst": 1e6, "local_load_sectors": 8e6, "local_store_sectors": 4e6,
    "l1_data_pct": x(6), "instructions": x(1.15), "issue_active_pct": x(1.15), "pipe_lsu_pct": x(6), "l2_sectors": x(2),
}  # fmt: skip
# Fault, kernel, times as long, changed counters, machine code, stall, mechanism, and words of its sentence.
FAULTS = [
    ("a barrier in the loop", "bank_conflict", 1.4, {}, "barrier", "stall_barrier", "added-barrier",
     "barriers, 0 -> 16 in"),
    ("a fence in the loop", "uncoalesced", 2.0, {}, "fence", "stall_membar", "added-fences", "fences, 0 -> 8"),
    ("stores along columns", "bank_conflict", 3.0,
     {"global_store_sectors": x(8), "l2_sectors": x(4.5), "l2_throughput_pct": x(3.3)}, "", "", "uncoalesced",
     "stores 4 -> 32 sectors a request"),
    ("a pointer 4 bytes further", "bank_conflict", 1.12, {"global_load_sectors": x(1.25), "l2_sectors": x(1.02)}, "",
     "stall_long_scoreboard", "uncoalesced", "misaligned access to global memory: loads 4 -> 5"),
    ("one of two arrays misaligned", "bank_conflict", 1.1, {"global_load_sectors": x(1.125)}, "",
     "stall_long_scoreboard", "uncoalesced", "misaligned"),
    ("a stride of 32 in shared memory", "shared_occupancy", 4.0,
     {"shared_wavefronts": x(4.2), "shared_bank_conflicts": 34e6, "l1_data_pct": x(4.2)}, "", "", "bank-conflicts",
     "bank conflicts"),
    ("a smaller tile of each thread", "shared_occupancy", 1.9,
     {"shared_wavefronts": x(2), "l1_data_pct": x(2), "pipe_lsu_pct": x(2), "registers_per_thread": 20,
      "instructions": x(1.3)}, "", "", "shared-traffic", "wavefronts 10.71 -> 21.41 M"),
    ("atomics to one address", "reg_pressure", 12.0, {"global_reduction_requests": 507e3}, "", "", "atomics",
     "global reductions 0 -> 507 k"),
    ("an atomic of each thread", "neutral", 8.0, {}, "atomic", "stall_long_scoreboard", "atomics", "shuffles 5 -> 0"),
    ("atomics in shared memory", "bank_conflict", 2.0, {"shared_atomic_inst": 524e3, "instructions": x(1.3)}, "satomic",
     "", "atomics", "shared atomics 0 -> 524 k"),
    ("a literal without f", "neutral", 1.3,
     {"pipe_fp64_pct": 2.0, "pipe_xu_pct": 60.0, "instructions": x(1.6), "issue_active_pct": x(1.6)}, "fp64", "",
     "fp64", "double precision"),
    ("/ and % in the index", "bank_conflict", 1.25,
     {"instructions": x(2.4), "issue_active_pct": x(2.4), "pipe_alu_pct": x(3), "pipe_xu_pct": 18.0}, "intdiv", "",
     "integer-division", "integer division or modulo by a variable: 0 -> 2"),
    ("/ of 64 bits in the index", "bank_conflict", 1.6,
     {"instructions": x(6), "issue_active_pct": x(6), "pipe_alu_pct": x(6), "pipe_xu_pct": 4.0}, "intdiv64", "",
     "integer-division", "integer division"),
    ("/ in the index, no machine code", "bank_conflict", 1.25,
     {"instructions": x(2.4), "issue_active_pct": x(2.4), "pipe_xu_pct": 18.0}, "", "", "slow-arithmetic",
     "integer division, modulo, conversions"),
    ("powf in place of __expf", "neutral", 1.5,
     {"instructions": x(9), "issue_active_pct": x(9), "pipe_fma_pct": x(9), "pipe_xu_pct": 25.0}, "slow", "",
     "slow-arithmetic", "conversions or slow functions"),
    ("no unrolling", "neutral", 1.8,
     {"instructions": x(2.2), "issue_active_pct": x(2.2), "registers_per_thread": 12, "branches": 2e6}, "unroll",
     "stall_long_scoreboard", "unrolling", "no longer unrolled: machine code 62 -> 24 instructions"),
    ("a smaller tile", "bank_conflict", 1.4,
     {**ADDED_LOADS, "shared_bytes": 1088, "block_size": 64, "l2_throughput_pct": x(1.4)}, "", "stall_long_scoreboard",
     "less-reuse", "smaller tiles, less reuse: shared memory 4.224 -> 1.088 kB"),
    ("too few registers allowed", "fp64_slip", 1.8, {**SPILLED, "registers_per_thread": 32}, "bounds",
     "stall_long_scoreboard", "spills", "local memory (spilled registers"),
    ("an array with a variable index", "reg_pressure", 2.0, SPILLED, "local", "stall_long_scoreboard", "spills",
     "arrays with a variable index"),
    ("one block less for each multiprocessor", "tail", 1.6,
     {"grid_size": 132, "waves": 0.5, "warps_active_pct": x(0.5)}, "", "", "few-blocks", "grid 264 -> 132"),
    ("a branch of odd threads", "fp64_slip", 1.7,
     {"threads_per_inst": 17.8, "instructions": x(1.8), "issue_active_pct": x(1.8), "pipe_fma_pct": x(1.8)},
     "diverge", "", "divergence", "divergent branches: 32 -> 17.8"),
    ("a branch of odd threads with more work", "fp64_slip", 2.6,
     {"threads_per_inst": 18.0, "instructions": x(2.8), "issue_active_pct": x(2.8), "pipe_fma_pct": x(2.8)}, "", "",
     "divergence", "divergent branches"),
    ("fp16 through float", "split_kernel", 1.3,
     {"instructions": x(1.8), "issue_active_pct": x(1.8), "pipe_fma_pct": x(2)}, "half", "", "half-precision",
     "half precision (fp16) lost: 9 -> 0"),
    ("float in place of float4", "neutral", 1.25, NARROW, "vector", "", "vectorisation", "16 -> 4 bytes a thread"),
    ("float in place of float4, no machine code", "neutral", 1.25, NARROW, "", "", "vectorisation",
     "lost vectorisation (narrow accesses): 16 -> 4 bytes a thread"),
    ("four floats in a row of each thread", "neutral", 1.4,
     {**NARROW, "global_load_sectors": x(4), "global_store_sectors": x(4), "l1_hit_rate_pct": 60, "l1_data_pct": x(4)},
     "vector", "", "vectorisation", "narrow accesses"),
    ("another order of the blocks", "tf32_lost", 1.4,
     {"l2_hit_rate_pct": 45, "dram_read_bytes": x(2.8), "dram_throughput_pct": x(2.7)}, "", "stall_long_scoreboard",
     "l2-thrash", "L2 thrash: L2 hit rate 80.5 -> 45 %"),
    ("no __restrict__", "reg_pressure", 1.3,
     {"global_load_requests": x(2.4), "global_load_sectors": x(1.6), "l1_hit_rate_pct": 38}, "restrict",
     "stall_long_scoreboard", "read-only", "`const __restrict__`) 10 -> 0"),
    ("no __restrict__, no machine code", "reg_pressure", 1.3,
     {"global_load_requests": x(2.4), "global_load_sectors": x(1.6), "l1_hit_rate_pct": 38}, "",
     "stall_long_scoreboard", "repeated-loads", "__restrict__"),
    ("float in place of half", "extra_pass", 1.9,
     {"global_load_sectors": x(2), "l2_sectors": x(2), "dram_read_bytes": x(2),
      "dram_throughput_pct": x(2)}, "wider", "", "wider-type", "a wider type: each access moves 2 -> 4 bytes"),
    ("no asynchronous copies", "bank_conflict", 1.5, {}, "async", "stall_long_scoreboard", "asynchronous-copies",
     "(`cp.async`, TMA): 6 -> 0 in the machine code"),
    ("a second pass over L2", "neutral", 1.3, {**ADDED_LOADS, "l2_throughput_pct": x(1.3)}, "", "stall_long_scoreboard",
     "extra-l2-traffic", "an extra pass over data in L2"),
    ("a second pass over DRAM", "neutral", 1.5,
     {**ADDED_LOADS, "dram_read_bytes": x(2), "dram_throughput_pct": x(1.5)}, "", "stall_long_scoreboard",
     "extra-traffic", "an extra pass over global memory: DRAM reads 67.12 -> 134.2 MB (2 times as much)"),
    ("a second pass with a reduction of its own", "extra_pass", 1.9,
     {"global_load_requests": x(2), "global_load_sectors": x(2), "l2_sectors": x(2), "dram_read_bytes": x(2),
      "dram_throughput_pct": x(2), "shared_wavefronts": x(2), "registers_per_thread": 24}, "",
     "stall_long_scoreboard", "extra-traffic", "an extra pass over global memory"),
    ("a lower clock", "neutral", 1.25, {"cycles": x(1), "sm_clock_hz": x(0.8)}, "", "", "clock", "power limit"),
]  # fmt: skip
ON_BOTH_SIDES = {
    "an atomic of each thread": {"global_reduction_requests": 131e3},
    "no unrolling": {"branches": 131e3},
    "too few registers allowed": {"registers_per_thread": 80},
}


@pytest.mark.parametrize(
    ("fault", "kernel", "times", "changes", "code", "waits_for", "mechanism", "words"),
    FAULTS,
    ids=[f[0] for f in FAULTS],
)
def test_a_fault_is_the_first_cause_and_its_neighbours_are_none(
    fault, kernel, times, changes, code, waits_for, mechanism, words
):
    found = causes(kernel, times, changes, code, waits_for, ON_BOTH_SIDES.get(fault))

    assert words in found.sentence
    assert [cause.mechanism for cause in found.causes if cause.mechanism not in SYMPTOMS] == [mechanism]
    assert found.causes[0].mechanism == mechanism


def test_few_loads_more_do_not_explain_twice_the_arithmetic():
    twice = dict.fromkeys(("instructions", "issue_active_pct", "pipe_fma_pct", "pipe_alu_pct"), x(2))
    loads = {"global_load_requests": x(2), "global_load_sectors": x(2), "l1_hit_rate_pct": 50.0}
    found = causes("tail", 2.0, {**twice, **loads})

    assert [cause.mechanism for cause in found.causes] == ["instruction-mix"]


def test_where_no_mechanism_fits_the_counters_that_moved_most_are_named():
    found = causes("neutral", 1.5, {"l1_hit_rate_pct": 30.0})

    assert found.causes == ()
    assert found.sentence.startswith("no known mechanism explains it; moved most: l1_hit_rate_pct 0 -> 30 %")


TELLING = {
    "async": "code_async_copies", "atomic": "code_shuffles", "barrier": "code_barriers", "bounds": "code_spills",
    "fence": "code_fences", "fp64": "code_fp64", "half": "code_half", "intdiv": "code_divisions",
    "intdiv64": "code_divisions", "local": "code_spills", "restrict": "code_readonly_loads",
    "unroll": "code_instructions", "vector": "code_access_bytes", "wider": "code_access_bytes",
}  # fmt: skip
"""What of the machine code tells each fault of `faults.cu`; the others do not change it, or are told by counters."""


def compiled(architecture, folder):
    """Return what the machine code of each kernel of `faults.cu` holds, as the installed compiler makes it."""
    nvcc = Path(pytest.importorskip("nvidia.cu13").__path__[0]) / "bin" / "nvcc"
    disassembler = Path(pytest.importorskip("triton").__file__).parent / "backends/nvidia/bin/cuobjdump"
    if not (nvcc.is_file() and disassembler.is_file()):
        pytest.skip("no nvcc or no cuobjdump")
    code = folder / "faults.cubin"
    subprocess.run([nvcc, f"-arch={architecture}", "-cubin", DATA / "faults.cu", "-o", code], check=True)
    text = subprocess.run([disassembler, "-sass", code], check=True, capture_output=True, text=True).stdout
    found = {}
    for function in text.split("Function : ")[1:]:
        names = re.findall(r"/\*[0-9a-f]{4,}\*/ +(?:@!?U?P\w+ +)?([A-Z][A-Z0-9_.]*)", function)
        found[function.split()[0]] = values_of_code(Counter(name for name in names if name != "NOP"))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["sm_80", "sm_89", "sm_90", "sm_120"])
def test_the_machine_code_of_each_architecture_tells_the_faults_alike(architecture, tmp_path):
    found = compiled(architecture, tmp_path)
    for fault, name in TELLING.items():
        base, head = (values_of_code(opcodes()[f"{side}_{fault}"])[name] for side in ("base", "head"))
        here = [found[f"{side}_{fault}"][name] for side in ("base", "head")]
        assert (here[0] < here[1]) == (base < head), (fault, here)
        assert max(here) >= 1.5 * min(here), (fault, here)
