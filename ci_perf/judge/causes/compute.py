"""Mechanisms of the instructions: which pipes they use, how many threads take part, and what warps wait for."""

import math

from ci_perf.judge.causes.rule import CUDA_GUIDE, NCU_GUIDE, Rule
from ci_perf.judge.causes.sides import RESOURCES, Side, Sides, share

_PIPES = ("pipe_alu_pct", "pipe_fma_pct", "pipe_fp64_pct", "pipe_lsu_pct", "pipe_xu_pct")
_MIX = ("instructions", "issue_active_pct", *_PIPES, "tensor_active_pct", "threads_per_inst")
_PIPE_NAMES = {
    "pipe_alu_pct": "integer and logic (ALU)",
    "pipe_fma_pct": "FMA",
    "pipe_fp64_pct": "FP64",
    "pipe_lsu_pct": "load and store (LSU)",
    "pipe_xu_pct": "conversions and special functions (XU)",
}
_SCHEDULERS = 4
"""Of a multiprocessor, on every GPU since Volta."""
_LEAST_ADDED = 0.25
"""Of the change: where ncu sees less of it in the time of warps, their stalls say nothing of it."""
_WAITS = {
    "stall_barrier": (
        "barrier",
        "warps wait for each other at barriers",
        "Fewer `__syncthreads`, or even work.",
    ),
    "stall_membar": ("fences", "warps wait at memory fences", "Fewer `__threadfence`, or a narrower scope."),
    "stall_no_instruction": (
        "instruction-cache",
        "warps wait for instructions, which no longer fit the instruction cache",
        "Less unrolling and inlining; one kernel for each variant.",
    ),
    "stall_long_scoreboard": (
        "memory-latency",
        "warps wait for global memory",
        "More independent loads in flight: unrolling, prefetching, asynchronous copies.",
    ),
}


def _work(side: Side, pipe: str) -> float:
    """Return for how many cycles a pipe worked."""
    cycles = side.values.get(RESOURCES[pipe]) or side.values.get("cycles", math.nan)
    return side.values.get(pipe, math.nan) / 100 * cycles


def _more_work(s: Sides, pipe: str, by: float, least: float = 1.0) -> bool:
    """Return whether a pipe works `by` times as long on the slower side, at least `least` percent of it."""
    return s.bad.values.get(pipe, 0.0) >= least and _work(s.bad, pipe) > by * _work(s.good, pipe)


def _fp64(s: Sides) -> float:
    code = s.both("code_fp64")  # the first such instructions tell it, however little they keep the pipe busy
    least = 0.05 if code and not code[0] and code[1] else 1.0
    if not _more_work(s, "pipe_fp64_pct", by=1.5, least=least):
        return 0.0
    return max(s.busy("pipe_fp64_pct", "pipe_xu_pct", "issue_active_pct"), 0.8 * s.latency)


def _say_fp64(s: Sides) -> str:
    return (
        f"double precision (fp64): FP64 pipe {s.arrow('pipe_fp64_pct')} busy, conversions (XU pipe)"
        f" {s.arrow('pipe_xu_pct')}, instructions {s.arrow('instructions')}"
    )


def _tensor(s: Sides) -> float:
    if s.good.values.get("tensor_active_pct", 0.0) < 5 or not _work(s.bad, "tensor_active_pct") < 0.7 * _work(
        s.good, "tensor_active_pct"
    ):
        return 0.0
    return max(s.busy("pipe_fma_pct", "pipe_fp64_pct", "issue_active_pct"), s.latency)


def _tensor_words(s: Sides) -> str:
    if s.bad.values["tensor_active_pct"] >= 1:
        return f"{'less' if s.slower else 'more'} of the work is done by"
    return f"the work is {'no longer' if s.slower else 'now'} done by"


def _tensor_work(s: Sides) -> float:
    """Recognise more work of the tensor cores, or work in a type that takes them longer."""
    return s.busy("tensor_active_pct") if _more_work(s, "tensor_active_pct", by=1.1, least=5) else 0.0


def _divergence(s: Sides) -> float:
    threads = s.both("threads_per_inst")
    if threads is None or not threads[1] or threads[1] >= 0.95 * threads[0]:
        return 0.0
    return s.predicted(threads[0] / threads[1]) if s.grew("instructions", by=1.02) else 0.0


def _xu(s: Sides) -> float:
    """Recognise integer divisions, which need a reciprocal in floating point, conversions and slow functions."""
    if not _more_work(s, "pipe_xu_pct", by=1.3, least=5) or _more_work(s, "pipe_fp64_pct", by=1.5):
        return 0.0
    return s.busy("pipe_xu_pct", "issue_active_pct") if s.grew("instructions", by=1.05) else s.busy("pipe_xu_pct")


def _mix(s: Sides) -> float:
    return s.busy("issue_active_pct", *_PIPES) if s.grew("instructions", by=1.05) else 0.0


def _say_mix(s: Sides) -> str:
    pipe = max(_PIPES, key=lambda name: _work(s.bad, name) - _work(s.good, name) if s.both(name) else -math.inf)
    where = f"; most went to {_PIPE_NAMES[pipe]}, {s.arrow(pipe)} busy" if s.both(pipe) else ""
    return f"{'more' if s.slower else 'fewer'} instructions: {s.arrow('instructions')}{where}"


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


def _clock(s: Sides) -> float:
    clocks = s.both("sm_clock_hz")
    if clocks is None or not all(clocks) or clocks[0] <= 1.01 * clocks[1] or s.times <= 1:
        return 0.0
    return share(math.log(clocks[0] / clocks[1]) / math.log(s.times))


def _wait_rule(stall: str) -> Rule:
    mechanism, words, look = _WAITS[stall]
    return Rule(
        mechanism,
        (stall, "issue_active_pct", "warps_active_pct", "cycles", "instructions"),
        lambda s: _waiting(s, stall),
        lambda s: f"{words}: {s.arrow(stall)} warps for each instruction issued",
        look,
        f"{NCU_GUIDE}, Warp Stall Reasons",
        symptom=True,
    )


RULES = (
    Rule(
        "clock",
        ("sm_clock_hz", "duration_ns", "cycles"),
        _clock,
        lambda s: f"clock or power limit: SM clock {s.arrow('sm_clock_hz')}",
        "Not the code: look at power limit, temperature and other programs on the GPU (`ci-perf doctor`).",
        f"{NCU_GUIDE}, Clock Control",
    ),
    Rule(
        "fp64",
        ("pipe_fp64_pct", "pipe_xu_pct", "instructions", "issue_active_pct", "registers_per_thread"),
        _fp64,
        _say_fp64,
        "A constant without `f` (`0.5`), a double function (`exp` for `expf`), or `float64` makes the work double.",
        f"{CUDA_GUIDE}, Arithmetic Instructions",
    ),
    Rule(
        "tensor-cores",
        ("tensor_active_pct", "tensor_inst", "pipe_fma_pct", "instructions", "issue_active_pct"),
        _tensor,
        lambda s: (
            f"tensor cores {s.arrow('tensor_active_pct')} busy, FMA pipe {s.arrow('pipe_fma_pct')}:"
            f" {_tensor_words(s)} tensor cores"
        ),
        "Type and alignment of the operands, shapes that are multiples of 8 or 16, and settings such as TF32"
        " (`torch.set_float32_matmul_precision`).",
        "NVIDIA Deep Learning Performance Guide, Tensor Core Requirements",
    ),
    Rule(
        "tensor-work",
        ("tensor_active_pct", "tensor_inst", "cycles", "instructions", "dram_read_bytes"),
        _tensor_work,
        lambda s: (
            f"tensor cores work {'longer' if s.slower else 'less long'}: {s.arrow('tensor_active_pct')} busy in"
            f" {s.arrow('cycles')} cycles, instructions {s.arrow('tensor_inst')}"
        ),
        "The type of the operands (TF32 takes twice as long as FP16), padding to larger tiles, work done twice.",
        "NVIDIA Deep Learning Performance Guide, Tensor Core Requirements",
        symptom=True,
    ),
    Rule(
        "divergence",
        ("threads_per_inst", "instructions", "issue_active_pct", "pipe_alu_pct"),
        _divergence,
        lambda s: (
            f"divergent branches: {s.arrow('threads_per_inst')} of 32 threads take part in an instruction,"
            f" instructions {s.arrow('instructions')}"
        ),
        "A condition that is the same for all threads of a warp: sort the work, or choose by warp.",
        f"{CUDA_GUIDE}, Branching and Divergence",
    ),
    Rule(
        "slow-arithmetic",
        ("pipe_xu_pct", "pipe_alu_pct", "pipe_fma_pct", "instructions", "issue_active_pct"),
        _xu,
        lambda s: (
            f"integer division, modulo, conversions or slow functions: XU pipe {s.arrow('pipe_xu_pct')} busy,"
            f" instructions {s.arrow('instructions')}"
        ),
        "Divide by constants, by powers of two or through a reciprocal; `__expf` and the like where errors allow it.",
        f"{CUDA_GUIDE}, Division Modulo Operations",
    ),
    Rule(
        "instruction-mix",
        _MIX,
        _mix,
        _say_mix,
        "Compare the machine code: index arithmetic, lost unrolling, checks inside of the loop.",
        f"{NCU_GUIDE}, Compute Workload Analysis",
        symptom=True,
    ),
    *(_wait_rule(stall) for stall in _WAITS),
)
