"""Mechanisms of memory: how much traffic reaches each level, and how well each request uses it."""

from ci_perf.judge.causes.rule import CUDA_GUIDE, NCU_GUIDE, Rule
from ci_perf.judge.causes.sides import Sides, arrow, share

_MEMORY = ("l1_data_pct", "l2_throughput_pct", "dram_throughput_pct")
_DRAM = ("dram_read_bytes", "dram_write_bytes")
_LOCAL_INST, _LOCAL = ("local_load_inst", "local_store_inst"), ("local_load_sectors", "local_store_sectors")
_LOADS, _STORES = ("global_load_sectors", "global_load_requests"), ("global_store_sectors", "global_store_requests")
_GLOBAL = (*_LOADS, *_STORES)
_ATOMICS = ("global_atomic_requests", "global_reduction_requests", "shared_atomic_inst")
_LEVELS = ("l1_hit_rate_pct", "l2_hit_rate_pct", "l2_sectors", *_DRAM, "dram_throughput_pct", "l2_throughput_pct")
_WAITING = 0.8
"""Of the time that no unit accounts for, a mechanism that makes warps wait for memory accounts for so much."""
_CONTENDED = 0.75
"""The same of atomics whose number did not change: contention is the guess that is left."""
_SAME, _MORE, _MUCH_MORE = 1.15, 1.2, 1.5
_LEAST_BYTES = float(1 << 20)
_UNCOUNTED = 0.5
"""What spills account for where the compiled code has more local memory, and nothing was counted."""
_LEAST_SPILLS = 0.002
"""Of all instructions: fewer loads and stores of local memory cost nothing that is seen."""


def _per_request(s: Sides, of: tuple[str, str]) -> float:
    """Return how many times as many sectors a request of the slower side needs; 1 where a side has no request."""
    sectors, requests = s.both(of[0]), s.both(of[1])
    if sectors is None or requests is None or not all((*sectors, *requests)):
        return 1.0
    return (sectors[1] / requests[1]) / (sectors[0] / requests[0])


def _waits(s: Sides, *units: str) -> float:
    """Return the larger of what these units and what waiting accounts for."""
    return max(s.busy(*units), _WAITING * s.latency)


def _spills(s: Sides) -> float:
    local, executed = s.both(*_LOCAL_INST), s.both("instructions")
    if local is None and s.grew("local_bytes_per_thread", by=_MORE):
        return _UNCOUNTED
    if (
        local is None
        or executed is None
        or local[1] - local[0] < _LEAST_SPILLS * executed[1]
        or local[1] <= _MORE * local[0]
    ):
        return 0.0
    added = local[1] - local[0]
    traffic, all_traffic = s.both(*_LOCAL), s.both(*_LOCAL, *_LOADS[:1], *_STORES[:1])
    part = 1.0
    if traffic and all_traffic and all_traffic[1] > all_traffic[0]:
        part = share((traffic[1] - traffic[0]) / (all_traffic[1] - all_traffic[0]))
    of_code = share(added / (executed[1] - executed[0])) if executed[1] > executed[0] else 1.0
    waiting = s.latency * share(20 * added / executed[1])
    return max(part * s.busy(*_MEMORY, "pipe_lsu_pct"), of_code * s.busy("issue_active_pct"), waiting)


def _say_spills(s: Sides) -> str:
    counted = f"{s.arrow(*_LOCAL_INST)} local loads and stores" if s.both(*_LOCAL_INST) else ""
    stored = f"{s.arrow('local_bytes_per_thread')} a thread" if s.both("local_bytes_per_thread") else ""
    known = ", ".join(filter(None, (counted, stored)))
    return f"registers are spilled to local memory: {known}, registers {s.arrow('registers_per_thread')}"


def _uncoalesced(s: Sides) -> float:
    wider = max(1.0, s.times_of("code_access_bytes"))  # a wider type needs more sectors, and wastes none
    for of in (_LOADS, _STORES):
        if _per_request(s, of) > _MORE * wider and s.grew(of[0], by=_MORE):
            return _waits(s, *_MEMORY, "pipe_lsu_pct")
    return 0.0


def _say_uncoalesced(s: Sides) -> str:
    parts = [
        f"{word} {s.arrow(of[0], over=of[1:])}"
        for word, of in (("loads", _LOADS), ("stores", _STORES))
        if abs(_per_request(s, of) - 1) > 0.05
    ]
    return (
        f"uncoalesced access to global memory: {', '.join(parts)} sectors a request; L2 sectors {s.arrow('l2_sectors')}"
    )


def _narrow(s: Sides) -> float:
    """Recognise the same sectors in more requests."""
    for of in (_LOADS, _STORES):
        same = 1 / _SAME < s.times_of(of[0]) < _SAME
        if same and s.grew(of[1], by=_MUCH_MORE) and _per_request(s, of) < 1 / _MORE:
            return _waits(s, "issue_active_pct", "pipe_lsu_pct", "l1_data_pct")
    return 0.0


def _say_narrow(s: Sides) -> str:
    of = _LOADS if abs(_per_request(s, _LOADS) - 1) >= abs(_per_request(s, _STORES) - 1) else _STORES
    what = "loads" if of is _LOADS else "stores"
    # a full request of a warp of 32 threads reads 32 bytes a sector: so many sectors are so many bytes a thread
    lost = "lost vectorisation (narrow accesses)" if s.slower else "vectorised accesses"
    return (
        f"{lost}: {what} of {s.arrow(of[0], over=of[1:])} bytes a thread, {s.arrow(of[1])} requests for the same data"
    )


def _bank_conflicts(s: Sides) -> float:
    conflicts, wavefronts = s.both("shared_bank_conflicts"), s.both("shared_wavefronts")
    if conflicts is None or wavefronts is None or not wavefronts[1]:
        return 0.0
    added = conflicts[1] - conflicts[0]
    if conflicts[1] < 0.1 * wavefronts[1] or conflicts[1] <= _MORE * conflicts[0]:
        return 0.0
    part = share(added / (wavefronts[1] - wavefronts[0])) if wavefronts[1] > wavefronts[0] else 1.0
    return max(part * s.busy("l1_data_pct"), _WAITING * s.latency * share(added / wavefronts[1]))


def _say_bank_conflicts(s: Sides) -> str:
    counts = s.arrow("shared_bank_conflicts")
    part = s.arrow("shared_bank_conflicts", scale=100, over=("shared_wavefronts",))
    return f"bank conflicts in shared memory: {counts} conflicts, {part} % of the wavefronts"


def _unstaged(s: Sides) -> float:
    """Recognise loads from global memory in place of shared memory."""
    if not s.times_of("shared_wavefronts") < 1 / _MUCH_MORE or not s.grew("global_load_requests", by=_MORE):
        return 0.0
    return _waits(s, *_MEMORY, "pipe_lsu_pct")


def _repeated(s: Sides) -> float:
    """Recognise loads that L1 answers: the compiler may not keep a value in a register, or the code loads it again."""
    requests = s.both("global_load_requests")  # none at all: the other side loads by other means, such as TMA
    again = requests and 0 < _SAME * requests[0] < requests[1] and 1 / _SAME < _per_request(s, _LOADS) < _SAME
    beyond = s.grew("l2_sectors", by=_SAME) or s.grew(*_DRAM, by=1.05)
    if not again or beyond or not s.both("l2_sectors"):
        return 0.0
    return _waits(s, "l1_data_pct", "pipe_lsu_pct", "issue_active_pct")


def _not_read_only(s: Sides) -> float:
    """Recognise that the compiler no longer knows that what it loads is not written: it loads again, and in order."""
    read_only, loads = s.both("code_readonly_loads"), s.both("code_global_loads")
    if read_only is None or loads is None or any(s.kernels_changed):
        return 0.0
    lost = read_only[0] > 0 and read_only[1] <= 0.5 * read_only[0] and loads[1] - read_only[1] > loads[0] - read_only[0]
    return _waits(s, "l1_data_pct", "pipe_lsu_pct", "issue_active_pct") if lost else 0.0


def _more_dram(s: Sides) -> bool:
    moved = s.both(*_DRAM)
    return moved is not None and moved[1] > 1.05 * moved[0] and moved[1] - moved[0] > _LEAST_BYTES


def _extra_pass(s: Sides) -> float:
    """Recognise more requests to L2 that reach DRAM; those for local memory are spills."""
    if not _more_dram(s) or not s.grew("l2_sectors", by=1.05):
        return 0.0
    local, sectors = s.both(*_LOCAL), s.both("l2_sectors")
    spilled = share((local[1] - local[0]) / (sectors[1] - sectors[0])) if local and sectors else 0.0
    return s.busy("dram_throughput_pct") * (1 - spilled)


def _say_extra_pass(s: Sides) -> str:
    grown = [(word, name) for word, name in (("reads", _DRAM[0]), ("writes", _DRAM[1])) if s.grew(name, by=1.05)]
    times = s.times_of(*(name for _, name in grown))
    how = "an extra pass over global memory" if s.slower else "fewer passes over global memory"
    change = arrow(times, 1) if not s.slower else arrow(1, times)
    parts = [f"{word} {s.arrow(name)}" for word, name in grown]
    return f"{how}: DRAM {', '.join(parts)} ({change} times); L2 sectors {s.arrow('l2_sectors')}"


def _thrash(s: Sides) -> float:
    """Recognise the same requests to L2, of which fewer are answered there."""
    hits = s.both("l2_hit_rate_pct")
    if hits is None or hits[1] > hits[0] - 0.5 or not _more_dram(s) or s.grew("l2_sectors", by=1.05):
        return 0.0
    return _waits(s, "dram_throughput_pct")


def _lost_l1(s: Sides) -> float:
    """Recognise the same requests of the threads, of which fewer are answered by L1."""
    hits = s.both("l1_hit_rate_pct")
    if hits is None or hits[1] > hits[0] - 3 or not s.grew("l2_sectors", by=_MORE) or s.grew(_LOADS[0], by=_SAME):
        return 0.0
    return _waits(s, "l2_throughput_pct", "dram_throughput_pct")


def _again_from_l2(s: Sides) -> float:
    """Recognise more loads that L2 answers, each as good as before; those in place of shared memory are another."""
    requests = s.both("global_load_requests")
    more = requests and 0 < _SAME * requests[0] < requests[1] and s.grew("l2_sectors", by=_SAME)
    alike = 1 / _SAME < _per_request(s, _LOADS) < _SAME
    if not more or not alike or _more_dram(s) or s.times_of("shared_wavefronts") < 1 / _MUCH_MORE:
        return 0.0
    return _waits(s, "l2_throughput_pct")


def _more_l2(s: Sides) -> float:
    return s.busy("l2_throughput_pct") if s.grew("l2_sectors", by=_SAME) and not _more_dram(s) else 0.0


def _atomics(s: Sides) -> float:
    requests = s.both("global_load_requests", "global_store_requests", *_ATOMICS[:2]) or (0.0, 0.0)
    for name in _ATOMICS:
        found = s.both(name)
        if found and found[1] > 1.3 * found[0] and found[1] - found[0] > 0.005 * requests[1]:
            return _waits(s, *_MEMORY, "pipe_lsu_pct")
    atomic = s.both(*_ATOMICS)  # as many that take longer wait for the same addresses
    contended = atomic is not None and atomic[1] > 0.02 * requests[1] and s.times_of(*_ATOMICS) > 1 / _SAME
    return _CONTENDED * s.latency if contended else 0.0


def _say_atomics(s: Sides) -> str:
    words = zip(("global atomics", "global reductions", "shared atomics"), _ATOMICS, strict=True)
    more = [f"{word} {s.arrow(name)}" for word, name in words if s.times_of(name) > _MORE]
    if more:
        return f"atomics: {', '.join(more)} instructions of a warp"
    return f"atomics: as many ({s.arrow(*_ATOMICS)}) wait {'more' if s.slower else 'less'} for the same addresses"


RULES = (
    Rule(
        "spills",
        (*_LOCAL_INST, *_LOCAL, "registers_per_thread", "local_bytes_per_thread", "instructions"),
        _spills,
        _say_spills,
        "Raise the limit of registers (`__launch_bounds__`, `-maxrregcount`, `num_warps`), or use smaller tiles;"
        " arrays with an index that is not constant also lie in local memory.",
        f"{CUDA_GUIDE}, Local Memory; {NCU_GUIDE}, Memory Tables",
    ),
    Rule(
        "uncoalesced",
        (*_GLOBAL, "l2_sectors", "l1_hit_rate_pct", "l2_throughput_pct"),
        _uncoalesced,
        _say_uncoalesced,
        "Neighbouring threads should use neighbouring addresses: order of the loops, of the dimensions, and strides.",
        f"{CUDA_GUIDE}, Coalesced Access to Global Memory",
    ),
    Rule(
        "bank-conflicts",
        ("shared_bank_conflicts", "shared_wavefronts", "l1_data_pct", "shared_bytes"),
        _bank_conflicts,
        _say_bank_conflicts,
        "Pad the rows of the tile by one element, or swizzle the addresses.",
        f"{CUDA_GUIDE}, Shared Memory and Memory Banks",
    ),
    Rule(
        "vectorisation",
        (*_GLOBAL, "instructions", "issue_active_pct", "dram_throughput_pct"),
        _narrow,
        _say_narrow,
        "Loads and stores of 16 bytes a thread (`float4`): alignment, contiguous data, no tail inside of the loop.",
        "NVIDIA Technical Blog, Increase Performance with Vectorized Memory Access",
    ),
    Rule(
        "unstaged",
        ("shared_wavefronts", *_LOADS, "l1_hit_rate_pct", "l2_sectors", "shared_bytes"),
        _unstaged,
        lambda s: (
            f"data come from global in place of shared memory: shared wavefronts {s.arrow('shared_wavefronts')},"
            f" global load requests {s.arrow('global_load_requests')}"
        ),
        "Keep what several threads of a block use in shared memory.",
        f"{CUDA_GUIDE}, Shared Memory",
    ),
    Rule(
        "read-only",
        ("code_readonly_loads", "code_global_loads", *_LOADS, "l1_hit_rate_pct", "instructions"),
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
        (*_LOADS, "l1_hit_rate_pct", "instructions", "l1_data_pct", "l2_sectors"),
        _repeated,
        lambda s: (
            "values are loaded again instead of being kept in registers (no read-only access, `__restrict__` missing?):"
            f" global load requests {s.arrow('global_load_requests')}, L1 hit rate {s.arrow('l1_hit_rate_pct')}"
        ),
        "`const T* __restrict__` for every pointer that is only read; copy what a loop uses into a variable first.",
        "CUDA C++ Programming Guide, __restrict__",
    ),
    Rule(
        "l2-thrash",
        _LEVELS,
        _thrash,
        lambda s: (
            f"L2 thrash: L2 hit rate {s.arrow('l2_hit_rate_pct')} for about the same requests, so that DRAM traffic is"
            f" {s.arrow(*_DRAM)}"
        ),
        "The working set exceeds the L2 cache: block it, change the order of the blocks, or set an access policy.",
        f"{CUDA_GUIDE}, L2 Cache",
    ),
    Rule(
        "atomics",
        (*_ATOMICS, "l2_throughput_pct", "stall_long_scoreboard"),
        _atomics,
        _say_atomics,
        "Sum up within a warp (`__shfl_down_sync`) and a block first; one atomic for each block.",
        "NVIDIA Technical Blog, Faster Parallel Reductions on Kepler",
    ),
    Rule(
        "extra-traffic",
        (
            *_DRAM,
            "dram_throughput_pct",
            "l2_sectors",
            "l2_hit_rate_pct",
            "global_load_requests",
            "global_store_requests",
        ),
        _extra_pass,
        _say_extra_pass,
        "Which array is read or written once more? Keep it in registers or shared memory, or fuse the passes.",
        f"{CUDA_GUIDE}, Effective Bandwidth",
    ),
    Rule(
        "extra-l2-traffic",
        ("global_load_requests", *_LEVELS),
        _again_from_l2,
        lambda s: (
            f"{'an extra pass' if s.slower else 'fewer passes'} over data in L2: global load requests"
            f" {s.arrow('global_load_requests')}, L2 sectors {s.arrow('l2_sectors')}, DRAM traffic as before"
        ),
        "Which array is read once more? Keep it in registers or shared memory, or fuse the passes.",
        f"{CUDA_GUIDE}, Effective Bandwidth",
    ),
    Rule(
        "l1-hits",
        _LEVELS,
        _lost_l1,
        lambda s: f"L1 hit rate {s.arrow('l1_hit_rate_pct')}: L2 sectors {s.arrow('l2_sectors')} for the same requests",
        "Blocks that share an L1 should use the same data; shared memory takes its space from L1.",
        f"{NCU_GUIDE}, Memory Tables",
    ),
    Rule(
        "l2-traffic",
        _LEVELS,
        _more_l2,
        lambda s: f"more L2 traffic: sectors {s.arrow('l2_sectors')}, L2 {s.arrow('l2_throughput_pct')} busy",
        "The same data are read again from L2: keep them in shared memory or registers.",
        f"{NCU_GUIDE}, Memory Tables",
        symptom=True,
    ),
)
