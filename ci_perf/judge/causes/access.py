"""Mechanisms of access: how well a request of a warp uses global, shared and local memory."""

from ci_perf.judge.causes.rule import CUDA_GUIDE, NCU_GUIDE, Rule
from ci_perf.judge.causes.sides import MEMORY, Sides, share

LOADS, STORES = ("global_load_sectors", "global_load_requests"), ("global_store_sectors", "global_store_requests")
"""Sectors, and the requests that need them."""
GLOBAL = (*LOADS, *STORES)
DRAM = ("dram_read_bytes", "dram_write_bytes")
LOCAL = ("local_load_sectors", "local_store_sectors")
SAME, MORE, MUCH_MORE = 1.15, 1.2, 1.5
_LOCAL_INST = ("local_load_inst", "local_store_inst")
_NOTICED = 1.1
"""Sectors a request repeat exactly: half of the requests misaligned by one sector in four are 1.125 times as many."""
_MISALIGNED = 1.3
"""A row of a warp that begins between two sectors needs 5 in place of 4; strides need more."""
_L1_IN_USE = 20.0
_UNCOUNTED = 0.5
"""What spills account for where the compiled code has more local memory, and nothing was counted."""
_LEAST_SPILLS = 0.002
"""Of all instructions: fewer loads and stores of local memory cost nothing that is seen."""


def per_request(s: Sides, of: tuple[str, str]) -> float:
    """Return how many times as many sectors a request of the slower side needs; 1 where a side has no request."""
    sectors, requests = s.both(of[0]), s.both(of[1])
    if sectors is None or requests is None or not all((*sectors, *requests)):
        return 1.0
    return (sectors[1] / requests[1]) / (sectors[0] / requests[0])


def narrower(s: Sides) -> bool:
    """Return whether the machine code of the slower side moves fewer bytes with each access."""
    return s.times_of("code_access_bytes") < 1 / MUCH_MORE


def _spills(s: Sides) -> float:
    local, executed = s.both(*_LOCAL_INST), s.both("instructions")
    if local is None and s.grew("local_bytes_per_thread", by=MORE):
        return _UNCOUNTED
    if (
        local is None
        or executed is None
        or local[1] - local[0] < _LEAST_SPILLS * executed[1]
        or local[1] <= MORE * local[0]
    ):
        return 0.0
    added = local[1] - local[0]
    traffic, all_traffic = s.both(*LOCAL), s.both(*LOCAL, LOADS[0], STORES[0])
    part = 1.0
    if traffic and all_traffic and all_traffic[1] > all_traffic[0]:
        part = share((traffic[1] - traffic[0]) / (all_traffic[1] - all_traffic[0]))
    of_code = share(added / (executed[1] - executed[0])) if executed[1] > executed[0] else 1.0
    waiting = s.latency * share(20 * added / executed[1])
    return max(part * s.busy(*MEMORY, "pipe_lsu_pct"), of_code * s.busy("issue_active_pct"), waiting)


def _say_spills(s: Sides) -> str:
    counted = f"{s.arrow(*_LOCAL_INST)} local loads and stores" if s.both(*_LOCAL_INST) else ""
    stored = f"{s.arrow('local_bytes_per_thread')} a thread" if s.both("local_bytes_per_thread") else ""
    known = ", ".join(filter(None, (counted, stored)))
    what = "spilled registers or arrays with a variable index"
    return f"local memory ({what}): {known}, registers {s.arrow('registers_per_thread')}"


def _uncoalesced(s: Sides) -> float:
    wider = max(1.0, s.times_of("code_access_bytes"))  # a wider type needs more sectors, and wastes none
    found = [
        min(s.waits(*MEMORY, "pipe_lsu_pct", added=s.added(of[0])), s.predicted(per_request(s, of) / wider))
        for of in (LOADS, STORES)
        if per_request(s, of) > _NOTICED * wider and s.grew(of[0], by=_NOTICED)
    ]
    return max(found, default=0.0)


def _say_uncoalesced(s: Sides) -> str:
    changes = {"loads": (LOADS, per_request(s, LOADS)), "stores": (STORES, per_request(s, STORES))}
    parts = [f"{word} {s.arrow(of[0], over=of[1:])}" for word, (of, times) in changes.items() if abs(times - 1) > 0.05]
    what = "misaligned" if max(times for _, times in changes.values()) < _MISALIGNED else "uncoalesced"
    return f"{what} access to global memory: {', '.join(parts)} sectors a request; L2 sectors {s.arrow('l2_sectors')}"


def _narrow(s: Sides) -> float:
    """Recognise the same data in more requests: the same sectors, or narrower accesses in the machine code."""
    found = 0.0
    for of in (LOADS, STORES):
        same = 1 / SAME < s.times_of(of[0]) < SAME and per_request(s, of) < 1 / MORE
        if (same or narrower(s)) and s.grew(of[1], by=MUCH_MORE):
            added, most = s.added(of[1]), s.predicted(s.times_of(of[1]))
            waits = max(s.waits("pipe_lsu_pct", "l1_data_pct", added=added), s.issued(added))
            found = max(found, min(waits, most))
    return found


def _say_narrow(s: Sides) -> str:
    of = LOADS if abs(s.times_of(LOADS[1]) - 1) >= abs(s.times_of(STORES[1]) - 1) else STORES
    what = "loads" if of is LOADS else "stores"
    # a full request of a warp of 32 threads reads 32 bytes a sector: so many sectors are so many bytes a thread
    wide = s.arrow("code_access_bytes") if s.both("code_access_bytes") else s.arrow(of[0], over=of[1:])
    lost = "lost vectorisation (narrow accesses)" if s.slower else "vectorised accesses"
    return f"{lost}: {wide} bytes a thread in each access, {s.arrow(of[1])} {what} of a warp for the same data"


def wider_type(s: Sides) -> float:
    """Recognise as many requests, each of which moves more bytes of a thread."""
    wider = s.times_of("code_access_bytes")
    found = [
        min(s.waits(*MEMORY), s.predicted(s.times_of(of[0])))
        for of in (LOADS, STORES)
        if wider > MUCH_MORE and 1 / SAME < s.times_of(of[1]) < SAME and s.grew(of[0], by=_MISALIGNED)
    ]
    return max(found, default=0.0)


def l1_in_use(s: Sides) -> float:
    """Return how far waiting for shared memory can matter: 0 where L1 does nothing, 1 from a fifth of its peak on."""
    return share(s.bad.values.get("l1_data_pct", 0.0) / _L1_IN_USE)


def _bank_conflicts(s: Sides) -> float:
    conflicts, wavefronts = s.both("shared_bank_conflicts"), s.both("shared_wavefronts")
    if conflicts is None or wavefronts is None or not wavefronts[1]:
        return 0.0
    added = conflicts[1] - conflicts[0]
    if conflicts[1] < 0.1 * wavefronts[1] or conflicts[1] <= MORE * conflicts[0]:
        return 0.0
    part = share(added / (wavefronts[1] - wavefronts[0])) if wavefronts[1] > wavefronts[0] else 1.0
    waits = max(part * s.busy("l1_data_pct"), s.waits() * share(added / wavefronts[1]) * l1_in_use(s))
    return min(waits, s.predicted(s.times_of("shared_wavefronts")))


def _say_bank_conflicts(s: Sides) -> str:
    counts = s.arrow("shared_bank_conflicts")
    part = s.arrow("shared_bank_conflicts", scale=100, over=("shared_wavefronts",))
    return f"bank conflicts in shared memory: {counts} conflicts, {part} % of the wavefronts"


RULES = (
    Rule(
        "spills",
        (*_LOCAL_INST, "registers_per_thread", "local_bytes_per_thread", *LOCAL, "code_spills", "instructions"),
        _spills,
        _say_spills,
        "Raise the limit of registers (`__launch_bounds__`, `-maxrregcount`, `num_warps`), or use smaller tiles;"
        " index arrays of a thread by constants only.",
        f"{CUDA_GUIDE}, Local Memory; {NCU_GUIDE}, Memory Tables",
        line_by="spills",
    ),
    Rule(
        "uncoalesced",
        (*GLOBAL, "l2_sectors", "l1_hit_rate_pct", "l2_throughput_pct"),
        _uncoalesced,
        _say_uncoalesced,
        "Neighbouring threads should use neighbouring addresses: order of the loops, of the dimensions, strides, and"
        " where a row begins.",
        f"{CUDA_GUIDE}, Coalesced Access to Global Memory",
        line_by="bytes",
    ),
    Rule(
        "bank-conflicts",
        ("shared_bank_conflicts", "shared_wavefronts", "l1_data_pct", "shared_bytes"),
        _bank_conflicts,
        _say_bank_conflicts,
        "Pad the rows of the tile by one element, or swizzle the addresses.",
        f"{CUDA_GUIDE}, Shared Memory and Memory Banks",
        line_by="conflicts",
    ),
    Rule(
        "vectorisation",
        ("code_access_bytes", "global_load_requests", "global_store_requests", "code_wide_accesses", "instructions"),
        _narrow,
        _say_narrow,
        "Loads and stores of 16 bytes a thread (`float4`): alignment, contiguous data, no tail inside of the loop.",
        "NVIDIA Technical Blog, Increase Performance with Vectorized Memory Access",
    ),
    Rule(
        "wider-type",
        ("code_access_bytes", *GLOBAL, *DRAM, "l2_sectors"),
        wider_type,
        lambda s: (
            f"a {'wider' if s.slower else 'narrower'} type: each access moves {s.arrow('code_access_bytes')} bytes a"
            f" thread; DRAM traffic {s.arrow(*DRAM)}"
        ),
        "Did a tensor or a buffer become `float` or `double`? Compare the types of inputs and outputs.",
        f"{CUDA_GUIDE}, Effective Bandwidth",
        line_by="bytes",
    ),
)
