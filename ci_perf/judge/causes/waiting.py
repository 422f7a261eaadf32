"""Mechanisms of waiting: atomics, loads that come one after another, barriers, and what else stalls warps."""

import math

from ci_perf.judge.causes.access import SAME
from ci_perf.judge.causes.rule import CUDA_GUIDE, LAST, NCU_GUIDE, SYMPTOM, Rule
from ci_perf.judge.causes.sides import MEMORY, Side, Sides, share

_ATOMICS = ("global_atomic_requests", "global_reduction_requests", "shared_atomic_inst")
_CONTENDED = 0.75
"""Of the time that no unit accounts for: contention is the guess that is left for as many atomics as before."""
_SCHEDULERS = 4
"""Of a multiprocessor, on every GPU since Volta."""
_LEAST_ADDED = 0.25
"""Of the change: where ncu sees less of it in the time of warps, their stalls say nothing of it."""
_LEAST_STALL = 0.1
"""Of the added time of warps, where the machine code has more of what stalls them."""
_WAITS = {
    "stall_barrier": (
        "barrier",
        "warps wait for each other at barriers",
        "Fewer `__syncthreads`, or even work.",
        "code_barriers",
        f"{CUDA_GUIDE}, Synchronization Instruction",
    ),
    "stall_membar": (
        "fences",
        "warps wait at memory fences",
        "Fewer `__threadfence`, or a narrower scope.",
        "code_fences",
        "CUDA C++ Programming Guide, Memory Fence Functions",
    ),
    "stall_no_instruction": (
        "instruction-cache",
        "warps wait for instructions, which no longer fit the instruction cache",
        "Less unrolling and inlining; one kernel for each variant.",
        "",
        "",
    ),
    "stall_long_scoreboard": (
        "memory-latency",
        "warps wait for global memory",
        "More independent loads in flight: unrolling, prefetching, asynchronous copies.",
        "",
        "",
    ),
}
"""By counter: mechanism, sentence, where to look; what of it the machine code has, and where that is described."""


def _stalled(side: Side, stall: str) -> float:
    """Return for how many cycles of warps, over all schedulers of a multiprocessor, warps waited for this reason."""
    issued = side.values.get("issue_active_pct", math.nan) / 100 * side.values.get("cycles", math.nan)
    return side.values.get(stall, math.nan) * issued * _SCHEDULERS


def _resident(s: Sides, side: Side) -> float:
    """Return for how many cycles of warps a multiprocessor held warps."""
    cycles = side.values.get("cycles_active", math.nan)
    return side.values.get("warps_active_pct", math.nan) / 100 * cycles * s.warps_per_multiprocessor(side)


def _waiting(s: Sides, stall: str) -> float:
    """Return the share of the added time of warps that is spent on one stall."""
    before = _resident(s, s.good)
    added = _resident(s, s.bad) - before
    more = _stalled(s.bad, stall) - _stalled(s.good, stall)
    return share(more / added) if added > _LEAST_ADDED * (s.times - 1) * before and more > 0 else 0.0


def _added(s: Sides, stall: str) -> float:
    """Recognise more of what stalls warps in the machine code: what warps wait for then is its work too.

    The first warps at a barrier wait there for those that still wait for memory.
    """
    waiting = _waiting(s, stall)
    return max(waiting, s.waits()) if waiting >= _LEAST_STALL and s.grew(_WAITS[stall][3]) else 0.0


def _stall(s: Sides, stall: str) -> float:
    code = _WAITS[stall][3]
    return 0.0 if code and _added(s, stall) else _waiting(s, stall)


def _atomics(s: Sides) -> float:
    requests = s.both("global_load_requests", "global_store_requests", *_ATOMICS[:2]) or (0.0, 0.0)
    for name in _ATOMICS:
        found = s.both(name)
        if found and found[1] > 1.3 * found[0] and found[1] - found[0] > 0.005 * requests[1]:
            return s.waits(*MEMORY, "pipe_lsu_pct")
    atomic = s.both(*_ATOMICS)  # as many that take longer wait for the same addresses
    if atomic is None or atomic[1] <= 0.02 * requests[1] or not s.times_of(*_ATOMICS) > 1 / SAME:
        return 0.0
    if _lost_reduction(s):
        return s.waits(*MEMORY, "pipe_lsu_pct")
    elsewhere = max(_waiting(s, stall) for stall in ("stall_barrier", "stall_membar", "stall_no_instruction"))
    return _CONTENDED * s.latency * (1 - elsewhere)


def _lost_reduction(s: Sides) -> bool:
    """Return whether threads of a warp no longer combine their values by shuffles before an atomic."""
    return s.good.values.get("code_shuffles", 0.0) > 0 and s.times_of("code_shuffles") <= 0.5


def _say_atomics(s: Sides) -> str:
    words = zip(("global atomics", "global reductions", "shared atomics"), _ATOMICS, strict=True)
    more = [f"{word} {s.arrow(name)}" for word, name in words if s.times_of(name) > SAME]
    if more:
        return f"atomics: {', '.join(more)} instructions of a warp"
    if _lost_reduction(s):
        return (
            f"atomics: warps {'no longer' if s.slower else 'now'} add up their values first, shuffles"
            f" {s.arrow('code_shuffles')} in the machine code; atomics of warps {s.arrow(*_ATOMICS)}"
        )
    return f"atomics: as many ({s.arrow(*_ATOMICS)}) wait {'more' if s.slower else 'less'} for the same addresses"


def _async_copies(s: Sides) -> float:
    """Recognise loads that warps wait for in place of copies to shared memory that go on beside the work."""
    copies = s.both("code_async_copies")
    return s.waits(*MEMORY, "pipe_lsu_pct", "issue_active_pct") if copies and copies[0] and not copies[1] else 0.0


def _not_unrolled(s: Sides) -> float:
    """Recognise a loop: fewer instructions in the machine code, each executed more often, for the same requests."""
    code, threads = s.times_of("code_instructions"), _threads(s.bad) / _threads(s.good)
    if not code < 1 / 1.25 or not s.grew("instructions", by=1.02) or abs(threads - 1) > 0.01:
        return 0.0
    often = s.times_of("instructions") / code
    more = s.grew("global_load_requests", by=1.05) or s.grew("shared_wavefronts", by=1.05)
    return 0.0 if more or often < 1.5 else s.waits("issue_active_pct", "pipe_alu_pct")


def _threads(side: Side) -> float:
    return side.values.get("grid_size", math.nan) * side.values.get("block_size", math.nan)


def _say_unrolled(s: Sides) -> str:
    branches = f", branches {s.arrow('branches')}" if s.both("branches") else ""
    return (
        f"a loop is {'no longer' if s.slower else 'now'} unrolled: machine code {s.arrow('code_instructions')}"
        f" instructions, executed {s.arrow('instructions')}{branches}; registers {s.arrow('registers_per_thread')}"
    )


def _wait_rule(stall: str) -> Rule:
    mechanism, words, look, *_ = _WAITS[stall]
    return Rule(
        mechanism,
        (stall, "issue_active_pct", "warps_active_pct", "cycles", "instructions"),
        lambda s: _stall(s, stall),
        lambda s: f"{words}: {s.arrow(stall)} warps for each instruction issued",
        look,
        f"{NCU_GUIDE}, Warp Stall Reasons",
        weight=LAST if stall == "stall_long_scoreboard" else SYMPTOM,
    )


def _added_rule(stall: str) -> Rule:
    mechanism, words, look, code, source = _WAITS[stall]
    return Rule(
        f"added-{mechanism}",
        (code, stall, "issue_active_pct", "warps_active_pct", "instructions"),
        lambda s: _added(s, stall),
        lambda s: f"{words}, {s.arrow(code)} in the machine code: {s.arrow(stall)} warps for each instruction issued",
        look,
        source,
    )


RULES = (
    Rule(
        "atomics",
        (*_ATOMICS, "code_shuffles", "l2_throughput_pct", "stall_long_scoreboard"),
        _atomics,
        _say_atomics,
        "Sum up within a warp (`__shfl_down_sync`) and a block first; one atomic for each block.",
        "NVIDIA Technical Blog, Faster Parallel Reductions on Kepler",
    ),
    *(_added_rule(stall) for stall in _WAITS if _WAITS[stall][3]),
    Rule(
        "asynchronous-copies",
        ("code_async_copies", "code_global_loads", "stall_long_scoreboard", "registers_per_thread", "shared_bytes"),
        _async_copies,
        lambda s: (
            f"asynchronous copies to shared memory (`cp.async`, TMA): {s.arrow('code_async_copies')} in the machine"
            f" code; warps wait for global memory, {s.arrow('stall_long_scoreboard')} for each instruction issued"
        ),
        "Fetch the next tile while this one is worked on: `cuda::memcpy_async`, or `num_stages` above 1 in Triton.",
        f"{CUDA_GUIDE}, Asynchronous Copy from Global Memory to Shared Memory",
    ),
    Rule(
        "unrolling",
        ("code_instructions", "instructions", "branches", "registers_per_thread", "stall_long_scoreboard"),
        _not_unrolled,
        _say_unrolled,
        "`#pragma unroll`, and bounds that are known when it is compiled: then loads of several turns are in flight.",
        f"{CUDA_GUIDE}, Branch Predication; CUDA C++ Programming Guide, #pragma unroll",
    ),
    *(_wait_rule(stall) for stall in _WAITS),
)
