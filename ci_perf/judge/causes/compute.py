"""Mechanisms of the instructions: how many there are, which pipes they use, and how many threads take part."""

import math

from ci_perf.judge.causes.rule import CUDA_GUIDE, NCU_GUIDE, SYMPTOM, Rule
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

_FEWER_THREADS = 0.95
"""Of the threads of a warp in an instruction: what leaves more of them is no divergence."""
_LEAST_HALF = 4.0
"""Compilers also use single instructions of half precision to set a register."""


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


def _log(times: float) -> float:
    return math.log(times) if 0 < times < math.inf else 0.0


def divergence(s: Sides) -> float:
    """Return the part of the added instructions that is there because fewer threads take part in each, 0 to 1.

    Instructions of warps are those of threads over threads in each, so that the logarithms of both growths add up.
    """
    if not s.grew("instructions", by=1.02) or s.times_of("threads_per_inst") >= _FEWER_THREADS:
        return 0.0
    return share(-_log(s.times_of("threads_per_inst")) / _log(s.times_of("instructions")))


def _divergence(s: Sides) -> float:
    part, threads = divergence(s), s.times_of("threads_per_inst")
    if not part or not threads:
        return 0.0
    most = s.predicted(s.times_of("instructions"))
    return max(s.predicted(1 / threads), part * min(s.waits("issue_active_pct", *_PIPES), most))


def _divides(s: Sides) -> bool:
    """Return whether the machine code of the slower side has more integer divisions by a variable."""
    return s.grew("code_divisions") and s.grew("instructions", by=1.02)


def _division(s: Sides) -> float:
    return s.waits("pipe_xu_pct", "issue_active_pct", "pipe_alu_pct", "pipe_fma_pct") if _divides(s) else 0.0


def _xu(s: Sides) -> float:
    """Recognise integer divisions, which need a reciprocal in floating point, conversions and slow functions."""
    if not _more_work(s, "pipe_xu_pct", by=1.3, least=5) or _more_work(s, "pipe_fp64_pct", by=1.5) or _divides(s):
        return 0.0
    busy = s.busy("pipe_xu_pct", "issue_active_pct") if s.grew("instructions", by=1.05) else s.busy("pipe_xu_pct")
    return max(busy, min(s.waits(), s.predicted(s.times_of("instructions"))))


def _xu_words(s: Sides) -> str:
    known = s.both("code_divisions") is not None  # then there is no division more
    return "conversions or slow functions" if known else "integer division, modulo, conversions or slow functions"


def _half(s: Sides) -> float:
    """Recognise arithmetic of two values of 16 bits in an instruction that became arithmetic of single precision."""
    half, single = s.both("code_half"), s.both("code_fp32")
    if half is None or single is None or half[1] > 0.5 * half[0] or half[0] - half[1] < _LEAST_HALF:
        return 0.0
    lost = single[1] - single[0] >= half[0] - half[1]
    return s.waits("issue_active_pct", *_PIPES) if lost and s.grew("instructions", by=1.02) else 0.0


def _mix(s: Sides) -> float:
    if not s.grew("instructions", by=1.05):
        return 0.0
    return (1 - divergence(s)) * max(
        s.busy("issue_active_pct", *_PIPES), min(s.waits(), s.predicted(s.times_of("instructions")))
    )


def _say_mix(s: Sides) -> str:
    pipe = max(_PIPES, key=lambda name: _work(s.bad, name) - _work(s.good, name) if s.both(name) else -math.inf)
    where = f"; most went to {_PIPE_NAMES[pipe]}, {s.arrow(pipe)} busy" if s.both(pipe) else ""
    return f"{'more' if s.slower else 'fewer'} instructions: {s.arrow('instructions')}{where}"


def _clock(s: Sides) -> float:
    clocks = s.both("sm_clock_hz")
    if clocks is None or not all(clocks) or clocks[0] <= 1.01 * clocks[1] or s.times <= 1:
        return 0.0
    return share(math.log(clocks[0] / clocks[1]) / math.log(s.times))


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
        weight=SYMPTOM,
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
        "integer-division",
        ("code_divisions", "instructions", "pipe_xu_pct", "pipe_alu_pct", "pipe_fma_pct", "issue_active_pct"),
        _division,
        lambda s: (
            f"integer division or modulo by a variable: {s.arrow('code_divisions')} in the machine code, instructions"
            f" {s.arrow('instructions')}, XU pipe {s.arrow('pipe_xu_pct')} busy"
        ),
        "Divide by constants or powers of two, or take the indices from those of the block and the thread.",
        f"{CUDA_GUIDE}, Division Modulo Operations",
    ),
    Rule(
        "half-precision",
        ("code_half", "code_fp32", "instructions", "issue_active_pct", "pipe_fma_pct", "registers_per_thread"),
        _half,
        lambda s: (
            f"half precision (fp16) {'lost' if s.slower else 'in use'}: {s.arrow('code_half')} instructions of two"
            f" 16-bit values in the machine code, {s.arrow('code_fp32')} of single precision; instructions"
            f" {s.arrow('instructions')}"
        ),
        "`__hfma2` and its kind work on two values at a time; through `float` each value is converted and works alone.",
        f"{CUDA_GUIDE}, Arithmetic Instructions",
    ),
    Rule(
        "slow-arithmetic",
        ("pipe_xu_pct", "pipe_alu_pct", "pipe_fma_pct", "instructions", "issue_active_pct"),
        _xu,
        lambda s: f"{_xu_words(s)}: XU pipe {s.arrow('pipe_xu_pct')} busy, instructions {s.arrow('instructions')}",
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
        weight=SYMPTOM,
    ),
)
