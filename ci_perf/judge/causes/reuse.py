"""Mechanisms of reuse: data that a thread or a block could keep, and moves again."""

from ci_perf.judge.causes.access import DRAM, LOADS, MORE, MUCH_MORE, SAME, l1_in_use, narrower, per_request
from ci_perf.judge.causes.compute import divergence
from ci_perf.judge.causes.rule import CUDA_GUIDE, Rule
from ci_perf.judge.causes.sides import MEMORY, Sides, share

_LEAST_SHARED = 0.1
"""Of the requests to global memory: fewer wavefronts of shared memory cost nothing that is seen."""


def _less(s: Sides, name: str) -> bool:
    """Return whether this fell to less than 1 / 1.2 on the slower side, and not to nothing."""
    return 0 < s.times_of(name) < 1 / MORE


def _unstaged(s: Sides) -> float:
    """Recognise loads from global memory in place of shared memory."""
    fewer = s.times_of("shared_wavefronts") < 1 / MUCH_MORE  # of a kernel without shared memory it is not zero
    if not s.good.values.get("shared_bytes") or not fewer or not s.grew("global_load_requests", by=MORE):
        return 0.0
    return s.waits(*MEMORY, "pipe_lsu_pct")


def smaller_tile(s: Sides) -> bool:
    """Return whether a block keeps less in shared memory or registers, and loads more from global memory for it."""
    more_threads = s.times_of("grid_size") * s.times_of("block_size") > MORE
    keeps_less = _less(s, "shared_bytes") or (_less(s, "registers_per_thread") and more_threads)
    unstaged = s.times_of("shared_wavefronts") < 1 / MUCH_MORE
    loads = s.good.values.get("global_load_requests")  # none at all: that side loads by other means, such as TMA
    more = loads and s.grew("global_load_requests", by=MORE) and s.grew("l2_sectors", by=SAME)
    return keeps_less and bool(more) and not unstaged and not narrower(s) and 1 / SAME < per_request(s, LOADS) < SAME


def _less_reuse(s: Sides) -> float:
    most = s.predicted(s.times_of("global_load_requests"))
    waits = s.waits(*MEMORY, "pipe_lsu_pct", added=s.added("global_load_requests"))
    return min(waits, most) if smaller_tile(s) else 0.0


def _say_less_reuse(s: Sides) -> str:
    kept = ", ".join(
        f"{word} {s.arrow(name)}"
        for word, name in (("shared memory", "shared_bytes"), ("registers", "registers_per_thread"))
        if s.times_of(name) != 1.0
    )
    return (
        f"{'smaller' if s.slower else 'larger'} tiles, {'less' if s.slower else 'more'} reuse: {kept}; global load"
        f" requests {s.arrow('global_load_requests')}, L2 sectors {s.arrow('l2_sectors')}"
    )


def _shared_traffic(s: Sides) -> float:
    """Recognise more wavefronts of shared memory that are neither bank conflicts nor atomics."""
    wavefronts, conflicts = s.both("shared_wavefronts"), s.both("shared_bank_conflicts")
    requests = s.bad.values.get("global_load_requests", 0.0) + s.bad.values.get("global_store_requests", 0.0)
    if not s.bad.values.get("shared_bytes") or wavefronts is None:
        return 0.0
    if wavefronts[1] < _LEAST_SHARED * requests or s.grew("shared_atomic_inst", by=MORE):
        return 0.0
    useful = [count - lost for count, lost in zip(wavefronts, conflicts or (0.0, 0.0), strict=True)]
    if useful[1] <= MORE * useful[0]:
        return 0.0
    part = share((useful[1] - useful[0]) / (wavefronts[1] - wavefronts[0]))
    most = s.predicted(wavefronts[1] / wavefronts[0]) if wavefronts[0] else 1.0
    return part * min(max(s.busy("l1_data_pct", "pipe_lsu_pct"), s.waits() * l1_in_use(s)), most)


def _repeated(s: Sides) -> float:
    """Recognise loads that L1 answers: the compiler may not keep a value in a register, or the code loads it again."""
    requests = s.both("global_load_requests")  # none at all: the other side loads by other means, such as TMA
    again = requests and 0 < SAME * requests[0] < requests[1] and s.grew(LOADS[0], by=SAME)
    beyond = s.grew("l2_sectors", by=SAME) or s.grew(*DRAM, by=1.05)
    otherwise = narrower(s) or _not_read_only(s) or not s.both("l2_sectors")
    if not again or per_request(s, LOADS) >= SAME or beyond or otherwise:
        return 0.0
    added, most = s.added(LOADS[1]), s.predicted(s.times_of(LOADS[1]))
    waits = max(s.waits("l1_data_pct", "pipe_lsu_pct", added=added), s.issued(added))
    return (1 - divergence(s)) * min(waits, most)


def _not_read_only(s: Sides) -> float:
    """Recognise that the compiler no longer knows that what it loads is not written: it loads again, and in order."""
    read_only, loads = s.both("code_readonly_loads"), s.both("code_global_loads")
    if read_only is None or loads is None or s.other_functions:
        return 0.0
    lost = read_only[0] > 0 and read_only[1] <= 0.5 * read_only[0] and loads[1] - read_only[1] > loads[0] - read_only[0]
    return s.waits("l1_data_pct", "pipe_lsu_pct", "issue_active_pct") if lost and not narrower(s) else 0.0


RULES = (
    Rule(
        "unstaged",
        ("shared_wavefronts", *LOADS, "l1_hit_rate_pct", "l2_sectors", "shared_bytes"),
        _unstaged,
        lambda s: (
            f"data come from global in place of shared memory: shared wavefronts {s.arrow('shared_wavefronts')},"
            f" global load requests {s.arrow('global_load_requests')}"
        ),
        "Keep what several threads of a block use in shared memory.",
        f"{CUDA_GUIDE}, Shared Memory",
        line_by="bytes",
    ),
    Rule(
        "less-reuse",
        ("shared_bytes", "registers_per_thread", "block_size", *LOADS[::-1], "l2_sectors", *DRAM),
        _less_reuse,
        _say_less_reuse,
        "A larger tile loads each value less often: compare tile sizes and the work of each thread.",
        f"{CUDA_GUIDE}, Shared Memory in Matrix Multiplication",
        line_by="bytes",
    ),
    Rule(
        "read-only",
        ("code_readonly_loads", "code_global_loads", *LOADS[::-1], "l1_hit_rate_pct", "instructions"),
        _not_read_only,
        lambda s: (
            f"read-only loads (`const __restrict__`) {s.arrow('code_readonly_loads')} of"
            f" {s.arrow('code_global_loads')} loads in the machine code; global load requests"
            f" {s.arrow('global_load_requests')}"
        ),
        "`const T* __restrict__` for every pointer that is only read, or `__ldg`: then loads may be early and single.",
        "CUDA C++ Programming Guide, __restrict__",
    ),
    Rule(
        "repeated-loads",
        (*LOADS[::-1], "l1_hit_rate_pct", "instructions", "l1_data_pct", "l2_sectors"),
        _repeated,
        lambda s: (
            "values are loaded again instead of being kept in registers (no read-only access, `__restrict__` missing?):"
            f" global load requests {s.arrow('global_load_requests')}, L1 hit rate {s.arrow('l1_hit_rate_pct')}"
        ),
        "`const T* __restrict__` for every pointer that is only read; copy what a loop uses into a variable first.",
        "CUDA C++ Programming Guide, __restrict__",
    ),
    Rule(
        "shared-traffic",
        ("shared_wavefronts", "shared_bank_conflicts", "l1_data_pct", "shared_bytes", "registers_per_thread"),
        _shared_traffic,
        lambda s: (
            f"{'more' if s.slower else 'less'} traffic of shared memory: wavefronts {s.arrow('shared_wavefronts')}, of"
            f" which bank conflicts {s.arrow('shared_bank_conflicts')}; registers {s.arrow('registers_per_thread')}"
        ),
        "Keep more of a tile in registers, read it with wide loads, and exchange values within a warp by shuffles.",
        f"{CUDA_GUIDE}, Shared Memory",
        line_by="wavefronts",
    ),
)
