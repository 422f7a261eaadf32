"""Causes of changes, from recorded counters of both sides, and from small made ones for each rule."""

import re
from functools import cache
from pathlib import Path

import pytest

from ci_perf.judge.causes import GpuKernel, Side, explain, explain_host
from ci_perf.judge.causes.lines import line_change
from ci_perf.judge.causes.of_readings import as_often, side_of_launches, sides_of
from ci_perf.traces import ncu
from ci_perf.values.trace import SourceLine

WORDS = {
    "bank_conflict": "bank conflict",
    "extra_pass": "extra pass|DRAM reads",
    "fp64_slip": "fp64|double",
    "reg_pressure": "register|occupanc",
    "shared_occupancy": "shared memory",
    "split_kernel": "split|GPU kernels",
    "tail": "tail|wave",
    "tf32_lost": "tensor",
    "uncoalesced": "coalesc|sectors a request",
}
"""What names each fault of the recorded kernels; `neutral` and `python_sync` have none on the GPU."""


@cache
def launches(which):
    """Return the GPU kernels of each fault on one side."""
    found = {}
    for launch in ncu.read(Path(__file__).parents[1] / f"data/explain/h200-{which}.csv").launches:
        found.setdefault(launch.ranges[0], []).append((launch.name, launch.metrics))
    return found


def side(name, which):
    return side_of_launches(launches(which)[name])


def names_it(name, text):
    return re.search(WORDS[name], text, re.IGNORECASE)


@pytest.mark.parametrize("name", WORDS)
def test_a_planted_fault_is_the_first_cause_of_its_own_slowdown(name):
    found = explain(sides_of(side(name, "base"), side(name, "head")))

    assert found.causes
    assert names_it(name, found.sentence), found.sentence


@pytest.mark.parametrize("name", WORDS)
def test_a_fault_that_is_removed_is_the_first_cause_of_the_speedup(name):
    slower = explain(sides_of(side(name, "base"), side(name, "head")))
    faster = explain(sides_of(side(name, "head"), side(name, "base")))

    assert [cause.mechanism for cause in faster.causes] == [cause.mechanism for cause in slower.causes]
    assert faster.sentence != slower.sentence


@pytest.mark.parametrize("name", ["neutral", "python_sync"])
def test_unchanged_kernels_have_no_cause(name):
    assert explain(sides_of(side(name, "base"), side(name, "head"))).causes == ()


KERNEL = {
    "code_readonly_loads": 8, "code_global_loads": 8,
    "cycles": 100_000, "cycles_active": 95_000, "duration_ns": 50_000, "instructions": 10e6, "sm_clock_hz": 2e9,
    "registers_per_thread": 32, "block_size": 256, "grid_size": 1056, "shared_bytes": 4096, "waves": 8.0,
    "occupancy_bound_pct": 100, "warps_active_pct": 80, "threads_per_inst": 32, "tensor_active_pct": 0,
    "blocks_by_registers": 8, "blocks_by_shared_memory": 32, "blocks_by_warps": 8, "blocks_by_hardware": 32,
    "issue_active_pct": 30, "pipe_alu_pct": 10, "pipe_fma_pct": 10, "pipe_fp64_pct": 0, "pipe_lsu_pct": 10,
    "pipe_xu_pct": 0, "l1_data_pct": 20, "l2_throughput_pct": 30, "dram_throughput_pct": 30,
    "global_load_requests": 500e3, "global_load_sectors": 2e6, "global_store_requests": 500e3,
    "global_store_sectors": 2e6, "l2_sectors": 4e6, "dram_read_bytes": 64e6, "dram_write_bytes": 64e6,
    "l1_hit_rate_pct": 50, "l2_hit_rate_pct": 60, "local_load_inst": 0, "local_store_inst": 0,
    "local_load_sectors": 0, "local_store_sectors": 0, "shared_bank_conflicts": 0, "shared_wavefronts": 1e6,
    "global_atomic_requests": 0, "global_reduction_requests": 0, "shared_atomic_inst": 0,
    "stall_barrier": 1, "stall_long_scoreboard": 5, "stall_membar": 0, "stall_no_instruction": 0.5,
}  # fmt: skip
"""The counters of a kernel that nothing holds back but waiting."""
TWICE = {"cycles": 200_000, "cycles_active": 190_000, "duration_ns": 100_000, "issue_active_pct": 15}


def causes_of(change, ratio=2.0, base=None, kernels=((), ())):
    """Return the mechanisms of a kernel that takes twice as long, with these counters changed."""
    old, new = KERNEL | (base or {}), KERNEL | TWICE | change
    return [cause.mechanism for cause in explain(sides_of(Side(old, kernels[0]), Side(new, kernels[1]), ratio)).causes]


# Each line: the mechanism, the counters that tell it, and the same with one of them just below what is noticed.
ON_BOTH_SIDES_OF_ITS_BOUNDARY = [
    (
        "register-pressure",
        {"occupancy_bound_pct": 50, "warps_active_pct": 40, "registers_per_thread": 64, "blocks_by_registers": 4},
        {"occupancy_bound_pct": 96},
    ),
    (
        "shared-memory-occupancy",
        {"occupancy_bound_pct": 50, "warps_active_pct": 40, "shared_bytes": 50e3, "blocks_by_shared_memory": 4},
        {"warps_active_pct": 79},
    ),
    (
        "block-size-occupancy",
        {"occupancy_bound_pct": 50, "warps_active_pct": 40, "block_size": 32, "blocks_by_hardware": 4},
        {"occupancy_bound_pct": 96},
    ),
    ("few-blocks", {"waves": 0.5, "grid_size": 66, "cycles_active": 95_000}, {"waves": 1.0}),
    ("tail", {"waves": 8.05, "grid_size": 1063, "cycles_active": 100_000}, {"waves": 8.95}),
    ("imbalance", {"cycles_active": 100_000}, {"cycles_active": 180_000}),
    (
        "spills",
        {"local_load_inst": 1e6, "local_store_inst": 0.5e6, "instructions": 11.5e6},
        {"local_load_inst": 0.01e6, "local_store_inst": 0},
    ),
    ("uncoalesced", {"global_load_sectors": 8e6, "l2_sectors": 10e6}, {"global_load_sectors": 2.3e6}),
    ("vectorisation", {"global_load_requests": 2e6, "instructions": 13e6}, {"global_load_requests": 0.7e6}),
    (
        "bank-conflicts",
        {"shared_bank_conflicts": 15e6, "shared_wavefronts": 16e6, "l1_data_pct": 60},
        {"shared_bank_conflicts": 1e6},
    ),
    (
        "unstaged",
        {"shared_wavefronts": 0, "global_load_requests": 4e6, "global_load_sectors": 16e6},
        {"shared_wavefronts": 0.7e6},
    ),
    (
        "read-only",
        {"code_readonly_loads": 0, "code_global_loads": 8, "global_load_requests": 520e3},
        {"code_readonly_loads": 5},
    ),
    (
        "repeated-loads",
        {"global_load_requests": 1e6, "global_load_sectors": 4e6, "l1_hit_rate_pct": 75},
        {"global_load_requests": 0.55e6, "global_load_sectors": 2.2e6},
    ),
    (
        "l2-thrash",
        {"l2_hit_rate_pct": 20, "dram_read_bytes": 128e6, "dram_throughput_pct": 45},
        {"l2_hit_rate_pct": 59.6},
    ),
    (
        "extra-traffic",
        {"dram_read_bytes": 192e6, "l2_sectors": 8e6, "dram_throughput_pct": 60},
        {"dram_read_bytes": 69e6},
    ),
    ("atomics", {"global_reduction_requests": 200e3}, {"global_reduction_requests": 4e3}),
    ("l1-hits", {"l1_hit_rate_pct": 0, "l2_sectors": 6e6}, {"l1_hit_rate_pct": 48}),
    (
        "extra-l2-traffic",
        {"global_load_requests": 1e6, "global_load_sectors": 4e6, "l2_sectors": 6e6},
        {"l2_sectors": 4.4e6},
    ),
    ("l2-traffic", {"l2_sectors": 8e6, "l2_throughput_pct": 60}, {"l2_sectors": 4.4e6}),
    ("fp64", {"pipe_fp64_pct": 5, "pipe_xu_pct": 60, "instructions": 20e6}, {"pipe_fp64_pct": 0.9}),
    ("divergence", {"threads_per_inst": 16, "instructions": 20e6, "issue_active_pct": 30}, {"threads_per_inst": 31}),
    (
        "slow-arithmetic",
        {"pipe_xu_pct": 70, "instructions": 30e6, "issue_active_pct": 45},
        {"pipe_xu_pct": 4.9},
    ),
    ("instruction-mix", {"instructions": 40e6, "issue_active_pct": 60}, {"instructions": 10.4e6}),
    ("barrier", {"stall_barrier": 25}, {"stall_barrier": 4}),
    ("fences", {"stall_membar": 25}, {"stall_membar": 1}),
    ("instruction-cache", {"stall_no_instruction": 25}, {"stall_no_instruction": 2}),
    ("memory-latency", {"stall_long_scoreboard": 35}, {"stall_long_scoreboard": 12}),
    ("clock", {"sm_clock_hz": 1.2e9}, {"sm_clock_hz": 1.99e9}),
]


@pytest.mark.parametrize(("mechanism", "change", "less"), ON_BOTH_SIDES_OF_ITS_BOUNDARY)
def test_a_mechanism_is_named_for_its_counters_and_not_for_a_little_less(mechanism, change, less):
    assert mechanism in causes_of(change)
    assert mechanism not in causes_of(change | less)


def test_the_root_comes_before_the_symptoms_that_it_brings_about():
    spilled = {"local_load_inst": 3e6, "local_store_inst": 1e6, "local_load_sectors": 12e6, "local_store_sectors": 4e6}
    traffic = {"l2_sectors": 9e6, "l2_throughput_pct": 60, "stall_long_scoreboard": 30, "instructions": 14e6}

    assert causes_of(spilled | traffic)[0] == "spills"


def test_tensor_cores_are_named_where_the_same_work_is_done_without_them():
    tensor = {"tensor_active_pct": 60, "pipe_fma_pct": 5}

    assert (
        causes_of({"pipe_fma_pct": 70, "instructions": 100e6, "issue_active_pct": 80}, base=tensor)[0] == "tensor-cores"
    )
    assert "tensor-cores" not in causes_of({"tensor_active_pct": 35}, base=tensor), "as long as before"


def gpu_kernels(**seconds):
    return tuple(GpuKernel(name, 1.0, duration) for name, duration in seconds.items())


@pytest.mark.parametrize(
    ("base", "head", "mechanisms"),
    [
        (gpu_kernels(f=5e-5), gpu_kernels(g=5e-5, h=5e-5), ["split-kernels"]),
        (gpu_kernels(f=5e-5), gpu_kernels(f=5e-5, g=5e-5), ["split-kernels"]),
        (gpu_kernels(f=5e-5), gpu_kernels(g=1e-4), ["other-kernel"]),
        (gpu_kernels(f=5e-5), gpu_kernels(f=1e-4), []),
        (gpu_kernels(f=5e-5, g=1e-6), gpu_kernels(f=1e-4, h=1e-6), ["other-kernel"]),
    ],
)
def test_the_names_of_the_gpu_kernels_tell_a_split_from_another_kernel(base, head, mechanisms):
    named = ("split-kernels", "other-kernel")

    assert [name for name in causes_of({}, kernels=(base, head)) if name in named] == mechanisms


def test_where_nothing_explains_a_change_the_sentence_says_what_moved_most():
    found = explain(sides_of(Side({"cycles": 1e5, "pipe_alu_pct": 10}), Side({"cycles": 2e5, "pipe_alu_pct": 30}), 2.0))

    assert found.causes == ()
    assert found.sentence == "no known mechanism explains it; moved most: pipe_alu_pct 10 -> 30 %"


HOST = {
    "range_ns": 1e6, "sync_calls": 1, "sync_pct": 5, "idle_pct": 10, "alloc_calls": 0, "alloc_share_pct": 0,
    "pageable_copies": 0, "h2d_bytes_per_s": 5e10, "d2h_bytes_per_s": 5e10, "copied_bytes": 20e6, "overlap_pct": 40,
    "launch_calls": 10, "graph_launches": 1, "launch_overhead_pct": 5,
}  # fmt: skip


@pytest.mark.parametrize(
    ("mechanism", "change", "less"),
    [
        ("synchronisation", {"sync_calls": 11, "sync_pct": 50, "idle_pct": 40}, {"sync_calls": 1}),
        ("allocation", {"alloc_calls": 20, "alloc_share_pct": 80, "idle_pct": 50}, {"alloc_calls": 0}),
        ("pageable-copies", {"pageable_copies": 4, "h2d_bytes_per_s": 1e10}, {"pageable_copies": 0}),
        ("copies", {"copied_bytes": 60e6}, {"copied_bytes": 20.9e6}),
        ("graph-capture", {"graph_launches": 0, "launch_calls": 100, "launch_overhead_pct": 40}, {"graph_launches": 1}),
        ("launch-overhead", {"launch_calls": 100, "launch_overhead_pct": 45}, {"launch_calls": 11}),
        ("overlap", {"overlap_pct": 0}, {"overlap_pct": 36}),
    ],
)
def test_a_change_of_the_host_is_told_by_calls_that_repeat_and_a_longer_range(mechanism, change, less):
    def found(change):
        sides = sides_of(Side(HOST), Side(HOST | {"range_ns": 1.8e6} | change), 1.0)
        explained = explain_host(sides)
        return [cause.mechanism for cause in explained.causes] if explained else []

    assert mechanism in found(change)
    assert mechanism not in found(change | less)
    if mechanism != "pageable-copies":  # which are slow whatever else hides them
        unseen = {"range_ns": 1.0e6, "alloc_share_pct": 0, "idle_pct": 10}
        assert mechanism not in found(change | unseen), "not longer at all"


def test_atomics_that_are_as_many_and_wait_longer_are_the_guess_that_is_left():
    some = {"global_reduction_requests": 200e3}

    assert "atomics" in causes_of(some, base=some)
    assert "atomics" not in causes_of(some | {"l2_throughput_pct": 90}, base=some | {"l2_throughput_pct": 80})


def test_spilled_traffic_is_no_extra_pass():
    spilled = {"local_load_inst": 3e6, "local_store_inst": 1e6, "local_load_sectors": 3e6, "local_store_sectors": 1e6}
    traffic = {"l2_sectors": 8e6, "dram_read_bytes": 192e6, "dram_throughput_pct": 60, "instructions": 14e6}

    assert "extra-traffic" in causes_of(traffic)
    assert "extra-traffic" not in causes_of(traffic | spilled)
    assert causes_of(traffic | spilled)[0] == "spills"


@pytest.mark.parametrize(
    ("base", "head", "ratio", "expected"),
    [
        ([("k.cu", 3, 50), ("k.cu", 4, 50)], [("k.cu", 3, 20), ("k.cu", 4, 80)], 2.0, "k.cu:4"),
        ([("k.cu", 3, 50)], [("k.cu", 3, 50)], 1.0, None),
        ([("k.cu", 3, 90), ("k.cu", 4, 10)], [("k.cu", 3, 20), ("k.cu", 4, 80)], 0.2, "k.cu:3"),
        ([("k.cu", 3, 100)], [("k.cu", 9, 60), ("k.cu", 3, 40)], 2.0, "k.cu:9"),
        ([], [], 2.0, None),
    ],
)
def test_the_line_that_changed_most_is_that_with_most_of_the_added_time(base, head, ratio, expected):
    found = line_change([SourceLine(*line) for line in base], [SourceLine(*line) for line in head], ratio)

    assert (found.place if found else None) == expected


def host_causes(base, head):
    found = explain_host(sides_of(Side(HOST | base), Side(HOST | head), 1.0))
    return [cause.mechanism for cause in found.causes] if found else []


def test_calls_that_were_added_and_leave_the_gpu_idle_are_named_though_the_range_is_hardly_longer():
    more = {"sync_calls": 9, "range_ns": 1.03e6}

    assert host_causes({}, more | {"idle_pct": 12}) == ["synchronisation"]
    assert host_causes({}, more | {"idle_pct": 10.5}) == []


def test_what_the_host_no_longer_does_is_named_too():
    assert host_causes({"sync_calls": 11, "sync_pct": 50, "idle_pct": 40, "range_ns": 1.8e6}, {}) == ["synchronisation"]


@pytest.mark.parametrize(
    ("change", "mechanism"),
    [
        ({"blocks_by_registers": 1, "block_size": 1024}, "block-size-occupancy"),
        ({"blocks_by_registers": 1, "block_size": 1024, "registers_per_thread": 64}, "register-pressure"),
        ({"blocks_by_shared_memory": 1, "block_size": 1024, "shared_bytes": 200e3}, "shared-memory-occupancy"),
        ({"blocks_by_warps": 2, "block_size": 1024}, "block-size-occupancy"),
        ({"blocks_by_registers": 1}, "register-pressure"),
    ],
)
def test_lower_occupancy_is_laid_to_what_changed(change, mechanism):
    assert causes_of({"occupancy_bound_pct": 50, "warps_active_pct": 40} | change)[0] == mechanism


def test_tensor_cores_that_work_longer_are_named():
    tensor = {"tensor_active_pct": 70}

    assert "tensor-work" in causes_of({"tensor_active_pct": 72}, base=tensor)
    assert "tensor-work" not in causes_of({"tensor_active_pct": 37}, base=tensor), "as long as before"


def test_of_limits_that_are_equal_the_one_that_fell_is_named():
    change = {"occupancy_bound_pct": 50, "warps_active_pct": 40, "shared_bytes": 50e3, "blocks_by_shared_memory": 4}
    registers = {"registers_per_thread": 64, "blocks_by_registers": 4}

    assert causes_of(registers | change, base=registers)[0] == "shared-memory-occupancy"


def test_an_extra_pass_says_how_many_times_as_much_is_read_and_not_what_is_written_as_before():
    found = explain(sides_of(side("extra_pass", "base"), side("extra_pass", "head")))

    assert "276.8 MB (2 times as much)" in found.sentence


def test_where_to_look_is_said_of_what_became_slower_alone():
    slower, faster = (
        explain(sides_of(side("uncoalesced", old), side("uncoalesced", new)))
        for old, new in (("base", "head"), ("head", "base"))
    )

    assert [bool(found.causes[0].look) for found in (slower, faster)] == [True, False]


def test_the_first_double_instructions_are_named_however_idle_their_pipe_is():
    little = {"pipe_fp64_pct": 0.5, "pipe_xu_pct": 12, "instructions": 11e6}

    assert causes_of(little | {"code_fp64": 1}, base={"code_fp64": 0})[0] == "fp64"
    assert "fp64" not in causes_of(little)


def test_loads_in_place_of_other_ways_to_read_are_not_said_to_be_repeated():
    assert "repeated-loads" not in causes_of({}, base={"global_load_requests": 0, "global_load_sectors": 0})


@pytest.mark.parametrize(("left", "words"), [(10, "less of the work is done by"), (0, "the work is no longer done by")])
def test_tensor_cores_that_do_a_part_are_not_said_to_do_nothing(left, words):
    change = {"tensor_active_pct": left, "pipe_fma_pct": 40, "instructions": 40e6, "issue_active_pct": 60}
    found = explain(sides_of(Side(KERNEL | {"tensor_active_pct": 60}), Side(KERNEL | TWICE | change), 2.0))

    assert words in found.sentence


def test_a_wider_type_is_more_traffic_and_no_uncoalesced_access():
    wider = {"global_load_sectors": 4e6, "global_store_sectors": 4e6, "l2_sectors": 8e6, "dram_read_bytes": 128e6}
    traffic = wider | {"dram_write_bytes": 128e6, "dram_throughput_pct": 60}

    assert causes_of(traffic)[0] == "uncoalesced"
    known = causes_of(traffic | {"code_access_bytes": 8}, base={"code_access_bytes": 4})
    assert (known[0], "uncoalesced" in known) == ("wider-type", False)


@pytest.mark.parametrize(
    ("base", "head", "words"),
    [
        ({"f": 5e-5}, {"g": 5e-5, "h": 5e-5}, "one kernel is split into several: 1 -> 2 GPU kernels"),
        ({"f": 5e-5}, {"f": 5e-5, "g": 5e-5}, "more GPU kernels: 1 -> 2 GPU kernels a launch (new `g`)"),
        ({"f": 5e-5, "g": 5e-5}, {"f": 5e-5}, "fewer GPU kernels: 2 -> 1 GPU kernels a launch (gone `g`)"),
    ],
)
def test_a_kernel_that_was_added_is_not_said_to_be_split(base, head, words):
    old, new = Side(KERNEL, gpu_kernels(**base)), Side(KERNEL | TWICE, gpu_kernels(**head))

    assert words in explain(sides_of(old, new, 2.0 if len(base) == 1 else 0.5)).sentence


def test_a_parameter_that_is_no_longer_const_is_the_same_function():
    lost = {"code_readonly_loads": 0, "code_global_loads": 8, "global_load_requests": 520e3}
    names = ("f(const float *, float *)", "f(float *, float *)", "g(float *, float *)")
    base, same, other = (gpu_kernels(**{name: 5e-5}) for name in names)

    assert causes_of(lost, kernels=(base, same))[:2] == ["read-only", "other-kernel"]
    assert "read-only" not in causes_of(lost, kernels=(base, other))


def many(**counts):
    return tuple(GpuKernel(name, count, count * 1e-5) for name, count in counts.items())


@pytest.mark.parametrize(
    ("base", "head", "calls"),
    [
        (many(f=1000.0), many(f=500.0), 1000.0),
        (many(f=1000.0, g=10.0), many(f=1200.0, g=12.0), 500 / 1.2),
        (many(f=1000.0), many(f=1000.0, g=1000.0), 500.0),
        (many(f=1000.0), many(g=500.0), 500.0),
        (many(f=1000.0, g=1000.0), many(f=500.0, g=1000.0), 500.0),
    ],
    ids=["half as often", "more often", "another kernel too", "another kernel", "one of two half as often"],
)
def test_calls_of_a_benchmark_are_those_of_as_many_runs(base, head, calls):
    before, now = Side({"sync_calls": 500.0}, base), Side({"sync_calls": 500.0, "idle_pct": 5.0}, head)

    assert as_often(before, now).values == {"sync_calls": pytest.approx(calls), "idle_pct": 5.0}
